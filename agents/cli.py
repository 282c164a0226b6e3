"""The command `cory`: train, evaluate, play, report."""

import difflib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agents.stopping import Stopped

USAGE = """usage: cory COMMAND [options]

  train      fine-tune policies by playing; without options, the pocket models on movie reviews
  evaluate   judge runs, checkpoints or models on held-out queries, alone and in the game
  play       watch the policies of a run play, or take a seat yourself
  report     draw the report of one or more runs again

`cory COMMAND --help` lists the options of a command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. A user's mistake is one `error:` paragraph on stderr and code 2."""
    argv = list(sys.argv[1:] if argv is None else argv)
    commands = {"train": train, "evaluate": evaluate, "play": play, "report": report}
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        return 0
    try:
        if argv[0] not in commands:
            near = difflib.get_close_matches(argv[0], commands, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(commands)}"
            raise ValueError(f"there is no command {argv[0]!r}; {hint}")
        refuse_strangers()
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # where module:Class and module:function of one's own lie
        commands[argv[0]](argv[1:])
    except Stopped as stopped:
        print("; ".join([str(stopped), *stopped.__notes__]), file=sys.stderr)
        return 128 + stopped.number
    except (ArithmeticError, MemoryError) as error:
        print(f"error: the run is sick: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    except (ValueError, OSError, ImportError) as error:
        told = "; ".join([str(error), *getattr(error, "__notes__", ())])
        print(f"error: {' '.join(told.split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the checkpoints that were written stand", file=sys.stderr)
        return 130
    return 0


def refuse_strangers() -> None:
    """`agents` is a common name: refuse to run with parts of another distribution's package."""
    import agents
    import cory_env

    here = Path(__file__).resolve().parent
    found = Path(agents.__file__ or "?").resolve().parent
    if found != here or not Path(cory_env.__file__ or "?").exists():
        raise ImportError(
            f"another package called `agents` is in the way ({found}); "
            "uninstall it or use a virtual environment of its own for cory"
        )


def train(argv: list[str]) -> None:
    """`cory train`: a preset, changed by a file, changed by flags."""
    from agents import presets
    from agents.flags import read
    from agents.settings import flags_of

    given = list(argv)
    preset, argv = _taken(argv, "--preset", "pocket")
    file, argv = _taken(argv, "--config", "")
    before = flags_of(Path(file)) if file else []
    start = presets.get(preset)
    resumed = None if "--preset" in " ".join(given) or file else saved_settings(argv)
    before = resumed or before
    about = (
        f"Fine-tune policies by playing. --preset NAME ({', '.join(presets.PRESETS)}), --config FILE.yaml. "
        f"This is {presets.told(preset)}"
    )
    if not presets.find(preset).run and "--help" not in argv:
        print(presets.told(preset), file=sys.stderr)
    config = read([*before, *argv], default=start, about=about, command="cory train")
    from agents.run import free_name
    from agents.run import train as run_training

    run = config.run or free_name(Path("runs") / f"{preset}-{config.seats}-seats-seed-{config.seed}")
    report_path = run_training(replace(config, run=run), run)
    print(f"report:   {report_path}\npolicies: {run / 'policies'}")


def saved_settings(argv: list[str]) -> list[str] | None:
    """The flags of the run that is to go on, unless a preset or a file says what it should have been."""
    from agents.settings import flags_of, value_of

    run = Path(value_of(argv, "--run") or "")
    if value_of(argv, "--resume") in ("auto", "must") and (run / "config.yaml").exists():
        return flags_of(run / "config.yaml")
    return None


def evaluate(argv: list[str]) -> None:
    """`cory evaluate TARGET...`: the held-out evaluation once more, of runs or of any models."""
    from agents.held_out import command

    command(argv)


def play(argv: list[str]) -> None:
    """`cory play RUN_OR_MODEL`: games to watch or to join."""
    from agents.play import play as play_games

    play_games(argv)


def report(argv: list[str]) -> None:
    """`cory report RUN...`"""
    from agents.report import write_report

    if not argv or argv[0].startswith("-"):
        raise ValueError("cory report draws plots and report.html again; name one or more run directories")
    for run in argv:
        print(write_report(Path(run)))


def _taken(argv: list[str], flag: str, otherwise: str) -> tuple[str, list[str]]:
    """The value of one flag and the arguments without it."""
    for i, word in enumerate(argv):
        if word == flag:
            if i + 1 == len(argv):
                raise ValueError(f"{flag} needs a value")
            return argv[i + 1], argv[:i] + argv[i + 2 :]
        if word.startswith(flag + "="):
            return word.split("=", 1)[1], argv[:i] + argv[i + 1 :]
    return otherwise, argv


if __name__ == "__main__":
    sys.exit(main())
