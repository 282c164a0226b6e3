"""Completion for shells: all commands as one `tyro.extras.SubcommandApp`.

Only completion uses it: `cory --help` would import tyro and every command, a misspelt command would be
refused without the nearest one, and settings of a run could not follow the options of a command.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

from tyro.conf import arg
from tyro.extras import SubcommandApp

from cory.config.parsing import with_options_of
from cory.config.schema import Config, RunOptions

SHELLS = ("bash", "zsh", "fish", "tcsh")


def write_completion(argv: Sequence[str], commands: Mapping[str, str], modules: Mapping[str, str]) -> None:
    """Write or print the script: `--tyro-write-completion SHELL FILE`, `--tyro-print-completion SHELL`.

    `commands` are descriptions by name; `modules` names the module of a command that is not called like it.
    """
    words = 3 if argv[0] == "--tyro-write-completion" else 2
    if len(argv) != words or argv[1] not in SHELLS:
        raise ValueError(f"write {argv[0]} {'|'.join(SHELLS)}{' FILE' * (words == 3)}")
    app = SubcommandApp()
    for name, about in commands.items():
        module = import_module(f"cory.cli.{modules.get(name, name)}")
        app.command(_train() if name == "train" else module.Options, name=name, help=about)
    app.cli(prog="cory", args=argv)


def _train() -> Any:
    """A function whose argument holds the settings of a run and the options of `cory train`."""
    config = Config()
    start = with_options_of(config, task=config.task, algorithm=config.algorithm, also=RunOptions)

    def train(settings: Any = start) -> Any:
        return settings

    train.__annotations__["settings"] = Annotated[type(start), arg(name="")]
    return train
