"""What a run would do, before it: a few games of the untrained policies and one update, nothing written."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cory import algorithms
from cory.batch import Batch
from cory.config.schema import Config
from cory.tracking import alerts
from cory.tracking.progress import PHASES
from cory.tracking.tracker import split
from cory.training.run_directory import data_of
from cory.training.trainer import Trainer

GAMES, SHOWN = 16, 4
"""Games that are played, at least one group, and those that are printed."""


@dataclass(frozen=True, kw_only=True)
class SeatGame:
    """What a seat read and responded in a game."""

    seat: str
    prompt: str
    response: str
    tokens: int
    score: float
    cut: bool
    """Whether the response ended at its cap."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A few games of a run's first iteration, with their metrics and times."""

    games: list[list[SeatGame]]
    """The printed games, by seat in the order of play."""
    metrics: Mapping[str, float]
    """As an iteration logs them: seat/policy/quantity."""
    warnings: list[str]
    about: Sequence[str]
    """Lines on the preset."""
    played: int
    """Games played and learned from, of the `batch` of an iteration."""
    batch: int
    iterations: int
    seconds: float
    """Of the games and the update."""

    def __str__(self) -> str:
        lines = [*self.about]
        for number, game in enumerate(self.games, start=1):
            for turn in game:
                end = ", cut at its cap" if turn.cut else ""
                lines.append(f"game {number}, {turn.seat} reads: {turn.prompt!r}")
                lines.append(
                    f"  responds: {turn.response!r} ({turn.tokens} tokens{end}), score {turn.score:g}"
                )
        for place in (key for key in map(split, self.metrics) if key.quantity == "score_std"):
            of = {
                quantity: self.metrics[f"{place.place}/{place.policy}/{quantity}"]
                for quantity in ("task_reward", "score_std", "response_length", "eos_share", "empty_share")
            }
            lines.append(
                f"{place.place}, {self.played} responses of the reference: score {of['task_reward']:.3g}, "
                f"standard deviation {of['score_std']:.3g}; {of['response_length']:.1f} tokens, "
                f"{1 - of['eos_share']:.0%} cut at their cap, {of['empty_share']:.0%} empty"
            )
        lines += [f"warning: {text}" for text in self.warnings]
        spent = ", ".join(
            f"{name} {self.metrics[f'time/{phase}/seconds']:.1f}"
            for phase, name in PHASES.items()
            if f"time/{phase}/seconds" in self.metrics
        )
        iteration = self.seconds * self.batch / self.played
        lines.append(
            f"seconds: {self.seconds:.1f} for {self.played} games and their update ({spent}); an iteration "
            f"of {self.batch} games takes some {iteration:.0f}, all {self.iterations} of them "
            f"{iteration * self.iterations / 60:.0f} minutes, and evaluations come on top"
        )
        return "\n".join(lines)


def few_games(config: Config) -> Config:
    """The settings with a batch of a few games, whole groups, learned from in one step."""
    group = algorithms.load(config.algorithm).needs(config.algorithm_options).group
    batch = min(config.batch, math.ceil(GAMES / group) * group)
    learner = replace(config.learner, minibatch=None, microbatches=1)
    return replace(config, batch=batch, learner=learner)


def check_run(trainer: Trainer, *, batch: int, about: Sequence[str] = ()) -> Check:
    """Play and learn from one batch; `batch` is that of the run, whose trainer has `few_games`."""
    start = time.perf_counter()
    metrics = trainer.iterate(0)
    seconds = time.perf_counter() - start
    config = trainer.config
    texts = {seat: trainer.game.texts(seat) for seat in trainer.batches}
    games = [
        [_turn(trainer, seat, batch, texts[seat][i], i) for seat, batch in trainer.batches.items()]
        for i in range(min(SHOWN, config.batch))
    ]
    raised = alerts.training([metrics], ends=config.responses_end, example=trainer.example)
    return Check(
        games=games,
        metrics=metrics,
        warnings=list(raised.values()),
        about=[*about, *data_of(trainer)["left_out"]],
        played=config.batch,
        batch=batch,
        iterations=config.iterations,
        seconds=seconds,
    )


def _turn(trainer: Trainer, seat: str, batch: Batch, response: str, i: int) -> SeatGame:
    tokenizer, length = trainer.task.tokenizer, int(batch.response_length_B[i])
    prompt = tokenizer.decode(batch.prompt_BP[i, : int(batch.prompt_length_B[i])].tolist())
    last = int(batch.response_BT[i, length - 1])
    return SeatGame(
        seat=seat,
        prompt=prompt,
        response=response,
        tokens=length,
        score=float(batch.score_B[i]),
        cut=last not in tokenizer.eos,
    )
