"""`cory train`: a preset, changed by a file, changed by flags."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cory.config import own_model, presets
from cory.config.help import COMMON, HELP
from cory.config.parsing import flags_of, read_command, read_file, value_of
from cory.config.schema import Config, RunOptions
from cory.runtime.terminal import say

if TYPE_CHECKING:
    from cory.tracking.progress import Log

WORDS = ("run", "preset", "config", "overwrite", "resume", "quiet", "json_log")
"""Options of the command itself."""


def command(argv: Sequence[str]) -> None:
    """`cory train [options] [settings]`."""
    config, options = settings(argv)
    from cory.distributed import ranks
    from cory.evaluation import averaging
    from cory.training.run import train
    from cory.training.run_directory import free_name

    ranks.join()
    preset = str(options.preset)
    name = f"{preset}-{config.seats}-seats-seed-{config.seed}"
    run = options.run or free_name(Path("runs") / name)
    log: Log = "json" if options.json_log else "quiet" if options.quiet else "auto"
    report_path = train(
        config,
        run,
        overwrite=options.overwrite,
        resume=options.resume,
        log=log,
        about=own_model.lines(preset, config),
    )
    if not ranks.is_first():
        return
    if log == "json":
        print(json.dumps({"event": "result", "run": str(run), "report": str(report_path)}))
    elif log == "auto":
        say(f"report:   {report_path}\npolicies: {run / 'policies'}")
        if config.export_average:
            say(f"average:  {run / averaging.NAME}")


def settings(argv: Sequence[str], *, command: str = "cory train") -> tuple[Config, RunOptions]:
    """The settings of a run and the options of the command; with `--help` the help is printed.

    The preset is the one named, or chosen by the model (`cory.config.own_model`). It is changed by the
    settings of the run that is resumed or by a file, and these by flags.
    """
    for flag in ("--preset", "--config", "--run"):
        if (value := value_of(argv, flag)) is not None and not value.strip():
            raise ValueError(f"{flag} needs a value")
    named, file = value_of(argv, "--preset"), value_of(argv, "--config")
    path = Path(file) if file else None if named else saved_settings(argv)
    words = [*(flags_of(path) if path is not None else []), *argv]
    model, kind = value_of(words, "--policy.model"), value_of(words, "--policy.kind")
    is_resumed, helping = path is not None and not file, bool(HELP & set(argv))
    preset = own_model.chosen("pocket" if is_resumed else named, model, kind)
    start = presets.get(preset) if helping else own_model.start(preset, model=model, kind=kind)
    shown = [
        *WORDS,
        *COMMON,
        *(f"{group}." for group in ("task", "algorithm") if value_of(argv, f"--{group}")),
    ]
    config, options = read_command(
        argv,
        default=start if path is None else read_file(path, default=start, command=command),
        about=about(preset, everything="--help-all" in argv) if helping else "",
        command=command,
        shown=shown,
    )
    return config, replace(options, preset=preset)


def about(preset: str, *, everything: bool) -> str:
    """The text above the options."""
    text = f"Fine-tune policies by playing. Defaults are those of the preset {presets.describe(preset)}"
    if everything:
        return text
    return (
        "Fine-tune policies by playing. These settings are changed first; --help-all shows all of them. "
        "--task NAME --help and --algorithm NAME --help show those of a task and an algorithm. Defaults are "
        f"those of the preset {preset}: {presets.find(preset).about}."
    )


def saved_settings(argv: Sequence[str]) -> Path | None:
    """The settings file of the run to resume, None if there is none."""
    path = Path(value_of(argv, "--run") or "") / "config.yaml"
    return path if value_of(argv, "--resume") in ("auto", "must") and path.exists() else None
