"""The command `cory`: train, evaluate, play, report."""

import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cory.runtime.signals import Stopped

USAGE = """usage: cory COMMAND [options]

  train      fine-tune policies by playing; without options, the pocket models on movie reviews
  evaluate   score runs, checkpoints or models on held-out queries, standalone and in the game
  play       watch the policies of a run play, or take a seat yourself
  report     draw the report of runs again, compare two or more, or draw the paper's figures
  probe      measure what the two seats of a trained team do to each other
  average    write the mean of several policies' weights as one model
  study      train arms x seeds, compare them by comparisons fixed before the run

`cory COMMAND --help` lists the options of a command; `cory --version` prints the version."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. A user's mistake is one `error:` paragraph on stderr and code 2."""
    argv = list(sys.argv[1:] if argv is None else argv)
    commands = {
        "train": train,
        "evaluate": evaluate,
        "play": play,
        "report": report,
        "probe": probe,
        "average": average,
        "study": study,
    }
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    if argv[0] == "--version":
        from cory import __version__

        print(f"cory {__version__}")
        return 0
    try:
        if argv[0] not in commands:
            near = difflib.get_close_matches(argv[0], commands, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(commands)}"
            raise ValueError(f"there is no command {argv[0]!r}; {hint}")
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # for module:Class and module:function in the working directory
        commands[argv[0]](argv[1:])
    except Stopped as stopped:
        print("; ".join([str(stopped), *stopped.__notes__]), file=sys.stderr)
        return 128 + stopped.number
    except (ArithmeticError, MemoryError) as error:
        print(f"error: training diverged: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader of a pipe, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, OSError, ImportError) as error:
        text = "; ".join([str(error), *getattr(error, "__notes__", ())])
        print(f"error: {' '.join(text.split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the checkpoints that were written stand", file=sys.stderr)
        return 130
    return 0


def train(argv: list[str]) -> None:
    """`cory train`: a preset, changed by a file, changed by flags."""
    from cory.config import presets
    from cory.config.parsing import flags_of, read_command

    given = list(argv)
    preset, argv = _pop(argv, "--preset", "pocket")
    file, argv = _pop(argv, "--config", "")
    saved = None if "--preset" in " ".join(given) or file else saved_settings(argv)
    earlier = saved or (flags_of(Path(file)) if file else [])
    about = (
        f"Fine-tune policies by playing. --preset NAME ({', '.join(presets.PRESETS)}), --config FILE.yaml. "
        f"This is {presets.describe(preset)}"
    )
    if not presets.find(preset).run and "--help" not in argv:
        print(presets.describe(preset), file=sys.stderr)
    words = [*earlier, *argv]
    config, options = read_command(words, default=presets.get(preset), about=about, command="cory train")
    from cory.training.run import train as run_training
    from cory.training.run_directory import free_name

    run = options.run or free_name(Path("runs") / f"{preset}-{config.seats}-seats-seed-{config.seed}")
    report_path = run_training(config, run, overwrite=options.overwrite, resume=options.resume)
    print(f"report:   {report_path}\npolicies: {run / 'policies'}")


def saved_settings(argv: list[str]) -> list[str] | None:
    """The flags of the run to resume, None if there is none."""
    from cory.config.parsing import flags_of, value_of

    run = Path(value_of(argv, "--run") or "")
    if value_of(argv, "--resume") in ("auto", "must") and (run / "config.yaml").exists():
        return flags_of(run / "config.yaml")
    return None


def evaluate(argv: list[str]) -> None:
    """`cory evaluate TARGET...`: held-out evaluation of runs or of any models."""
    from cory.cli.evaluate import command

    command(argv)


def play(argv: list[str]) -> None:
    """`cory play RUN_OR_MODEL`: games to watch or to join."""
    from cory.cli.play import command

    command(argv)


def report(argv: list[str]) -> None:
    """`cory report RUN...`: draw the reports of runs again."""
    from cory.cli.report import command

    command(argv)


def probe(argv: list[str]) -> None:
    """`cory probe RUN...`: what the two seats do to each other."""
    from cory.cli.probe import command

    command(argv)


def average(argv: list[str]) -> None:
    """`cory average TARGET... --out FOLDER`."""
    from cory.cli.average import command

    command(argv)


def study(argv: list[str]) -> None:
    """`cory study FILE`: train and compare the arms of a study."""
    from cory.cli.study import command

    command(argv)


def _pop(argv: list[str], flag: str, default: str) -> tuple[str, list[str]]:
    """The value of one flag and the arguments without it."""
    for i, word in enumerate(argv):
        if word == flag:
            if i + 1 == len(argv):
                raise ValueError(f"{flag} needs a value")
            return argv[i + 1], argv[:i] + argv[i + 2 :]
        if word.startswith(flag + "="):
            return word.split("=", 1)[1], argv[:i] + argv[i + 1 :]
    return default, argv
