"""`cory train` and `cory check`: a preset, changed by a file, changed by flags."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from cory.config import presets
from cory.config.command_line import parse_settings, value_of
from cory.config.help import COMMON
from cory.config.parsing import base_settings
from cory.config.schema import RunOptions
from cory.runtime.terminal import say


def command(argv: Sequence[str]) -> None:
    """`cory train [options] [settings]`."""
    settings = read(argv, command="cory train")
    from cory.api.commands import train
    from cory.distributed import ranks
    from cory.evaluation import averaging

    run = train(**settings)
    if ranks.is_main_process() and not settings["quiet"]:
        say(f"report:   {run.path / 'report.html'}\npolicies: {run.path / 'policies'}")
        if (run.path / averaging.NAME).exists():
            say(f"average:  {run.path / averaging.NAME}")


def check(argv: Sequence[str]) -> None:
    """`cory check [options and settings of cory train]`; nothing is written."""
    settings = read(argv, command="cory check")
    from cory.api.commands import check

    say(check(**{name: value for name, value in settings.items() if name not in ("overwrite", "quiet")}))


def read(argv: Sequence[str], *, command: str) -> dict[str, Any]:
    """The options of the command and the settings that flags give; with `--help` the help is printed."""
    for flag in ("--preset", "--config", "--run"):
        if (value := value_of(argv, flag)) is not None and not value.strip():
            raise ValueError(f"{flag} needs a value")
    file, run = (Path(value) if (value := value_of(argv, flag)) else None for flag in ("--config", "--run"))
    preset, default = base_settings(
        chosen_by(argv),
        RunOptions(
            preset=value_of(argv, "--preset"),
            config=file,
            run=run,
            resume=value_of(argv, "--resume") or "never",  # type: ignore[arg-type]
        ),
    )
    shown = [one.name for one in fields(RunOptions)] + list(COMMON)
    shown += [f"{group}." for group in ("task", "algorithm") if value_of(argv, f"--{group}")]
    return parse_settings(
        argv,
        default=default,
        about=about(preset, everything="--help-all" in argv),
        command=command,
        shown=shown,
        options=RunOptions,
    )


def chosen_by(argv: Sequence[str]) -> dict[str, str]:
    """What flags say of the settings that choose a preset which is not named."""
    names = ("policy.model", "policy.models", "policy.kind")
    return {name: value for name in names if (value := value_of(argv, f"--{name}"))}


def about(preset: str, *, everything: bool) -> str:
    """The text above the options."""
    if everything:
        return f"Fine-tune policies by playing. Defaults are those of the preset {presets.describe(preset)}"
    return (
        "Fine-tune policies by playing. These settings are changed first; --help-all shows all of them. "
        "--task NAME --help and --algorithm NAME --help show those of a task and an algorithm. Defaults are "
        f"those of the preset {preset}: {presets.find(preset).about}."
    )
