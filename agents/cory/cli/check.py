"""`cory check`: a few games of a run before it, with the options of `cory train`."""

from collections.abc import Sequence

from cory.cli.train import settings
from cory.config import own_model
from cory.runtime.terminal import say


def command(argv: Sequence[str]) -> None:
    """`cory check [settings of cory train]`; nothing is written."""
    config, options = settings(argv, command="cory check")
    from cory.judges.weighted_sum import closing
    from cory.training.check import check_run, few_games
    from cory.training.factory import configure_runtime, silence_transformers
    from cory.training.trainer import Trainer

    configure_runtime(config)
    silence_transformers()
    for line in own_model.lines(str(options.preset), config):
        say(line)
    trainer = Trainer(few_games(config))
    with closing(trainer.task):
        say(check_run(trainer, batch=config.batch))
