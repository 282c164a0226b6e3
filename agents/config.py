"""Everything a run is: one frozen tree of settings, refused at once where it makes no sense."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from agents.algorithms.ppo import Config as PPOConfig
from agents.evaluate import Config as EvaluationConfig
from agents.exchange import Config as ExchangeConfig
from agents.kl import Config as KLConfig
from agents.learner import Config as LearnerConfig
from agents.rewards import Config as PayoffScalingConfig


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """Where the queries come from."""

    data: Path | None = None
    """Your reviews: parquet, CSV or JSONL with a column `text`, or a folder of train* and test* files."""

    max_query: tuple[int, int] = (2, 7)
    """Shortest and longest query in tokens, where queries are cut from longer texts."""


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """How a classifier's output becomes a score."""

    label: str = "positive"
    """The label that earns."""

    output: Literal["log_odds", "logit", "probability"] = "log_odds"
    """What of it is the score."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """The model that both policies start from and are priced against."""

    model: str = "pocket"
    """A folder in from_pretrained layout, a hub name, or `pocket`, the embedded one."""

    kind: Literal["causal_lm", "table"] = "causal_lm"
    """`table` is a lookup table for tiny games."""

    temperature: float = 1.0
    """Of sampling and scoring alike."""

    device: str = "cpu"
    """Where policies live: cpu, cuda, cuda:1, ..."""

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ValueError(f"policy.temperature is {self.temperature}; give a number above 0")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run of CORY; with one seat it is single-agent PPO."""

    task: str = "reviews"
    """What is played."""

    task_options: Annotated[TaskConfig, arg(name="task")] = field(default_factory=TaskConfig)

    judge: str = "pocket"
    """Who scores: a classifier (folder or hub name), a function `module:function`, or `pocket`."""

    judge_options: Annotated[JudgeConfig, arg(name="judge")] = field(default_factory=JudgeConfig)

    policy: PolicyConfig = field(default_factory=PolicyConfig)

    seats: int = 2
    """Policies at the table: one pioneer, the others observers."""

    sees: Literal["all", "previous", "pioneer", "none"] = "all"
    """Whose responses an observer reads; `none` is the ablation without knowledge transfer."""

    payoff: str = "cooperative"
    """How scores are paid: cooperative (the sum), independent, competitive, a number lambda (own + lambda *
    others), or a matrix as JSON, `[[1, 0.5], [0, 1]]`: row i pays seat i."""

    iterations: int = 30
    """Batches of games, each followed by its updates."""

    batch: int = 128
    """Games per iteration; every seat's policy learns from this many responses."""

    max_response: tuple[int, int] = (4, 16)
    """The cap of each response is drawn between these, both included."""

    seed: int = 0
    """Source of all chance."""

    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    kl: KLConfig = field(default_factory=KLConfig)
    payoff_scaling: PayoffScalingConfig = field(default_factory=PayoffScalingConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    run: Path | None = None
    """Run directory; by default a new one, runs/<preset>-<seats>-seats-seed-<seed>."""

    overwrite: bool = False
    """Whether a run directory that is not empty is emptied first."""

    checkpoint_every: int = 20
    """Iterations between checkpoints (one is written before the first and after the last); 0 = none."""

    keep_checkpoints: int = 2
    """How many of the latest checkpoints stay."""

    sample_rows: int = 8
    """Games per evaluation written to samples.jsonl."""

    threads: int = 0
    """CPU threads; 0 = as many as torch finds."""

    def __post_init__(self) -> None:
        if not 1 <= self.seats <= 16:
            raise ValueError(f"seats is {self.seats}; a game has 1 to 16 seats")
        for name, least in {
            "iterations": 1,
            "batch": 1,
            "checkpoint_every": 0,
            "keep_checkpoints": 1,
        }.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; give {least} or more")
        low, high = self.max_response
        if not 1 <= low <= high:
            raise ValueError(
                f"max_response is {low} {high}; give the smallest and the largest cap in order, from 1"
            )
        self.learner.check_batch(self.batch)

    @property
    def policy_names(self) -> tuple[str, ...]:
        """llm_1, llm_2, ...: who sits in the seats at iteration 0, in their order."""
        return tuple(f"llm_{i + 1}" for i in range(self.seats))

    @property
    def payoff_rule(self) -> str | float | list[list[float]]:
        """`payoff` as the game takes it: a name, a number, or rows of numbers."""
        try:
            rule: float | list[list[float]] = json.loads(self.payoff)
        except ValueError:
            return self.payoff
        return rule
