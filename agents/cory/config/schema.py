"""Settings of a run: one frozen tree of dataclasses, validated when made."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from tyro.conf import arg

from cory import algorithms
from cory.algorithms import ppo
from cory.config.task_options import task_options
from cory.config.values import BY_SEAT, LISTED, changed, convert, converted, dotted, grouped_by_seat, names_of
from cory.evaluation.config import EvaluationConfig
from cory.functional.kl import SAMPLED, KLConfig
from cory.functional.token_rewards import PayoffScalingConfig
from cory.judges.config import JudgeConfig
from cory.learner.critic_config import CriticConfig
from cory.learner.optimizer import LearnerConfig
from cory.learner.sharing import SharingConfig
from cory.policies.lora_config import LoRAConfig
from cory.rng import check_seed
from cory.rollout.role_exchange import ExchangeConfig, seating_at
from cory.runtime.checks import check_fields
from cory.tracking.alerts import AlertsConfig as AlertsConfig
from cory.tracking.external import check_places
from cory_env.nearest import did_you_mean
from cory_env.payoff import Linear, Mix, Payoff, rule
from cory_env.types import one_of, response_range, seat_names
from cory_env.views import SEES

POOL = "pool:"
"""Beginning of a player that is a checkpoint of the run itself."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """The model that policies start from, which is also their reference."""

    model: str = "pocket"
    """A folder in from_pretrained layout, a GGUF file, a hub name, an embedded model: `pocket` (reviews),
    `pocket-arithmetic` or `pocket-arithmetic-llama` (sums; GPT-2 and Llama architecture), or `smollm2` (135 M
    weights), which `make smollm2` makes once."""

    models: tuple[str, ...] = ()
    """One model per policy if they differ; their tokenizers must not. Each is its policy's reference."""

    kind: str = "causal_lm"
    """`causal_lm` trains all weights. `lora_team`: one frozen model, an adapter for each policy. `table`:
    lookup table indexed by (position, prompt token at that position), for tiny games. Or an entry point of
    `cory.policies`, or `module:Class`."""

    temperature: float = 1.0
    """Of sampling and scoring alike."""

    mismatch: Literal["none", "released"] = "none"
    """`released`: sample with repetition penalty 1.1 and dropout but score without, as the released code
    does; PPO's ratios are then not those of the sampled distribution."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Compute dtype of matrix products, in which the linear layers of frozen models are stored; trained
    weights are always float32. `auto` is bfloat16 on GPUs that have it."""

    gradient_checkpointing: bool = False
    """Whether layers are recomputed in the backward pass: slower, with less memory."""

    compile: Literal["auto", "yes", "no"] = "auto"
    """Whether the block that the transformer repeats is compiled by `torch.compile` for learning and scoring:
    faster, after a minute of one core at a first start. `auto` is yes for models of 50 million weights
    or more where a compiler is installed, without `gradient_checkpointing` and `shard`; config.yaml says
    which. Results differ by rounding."""

    device: str = "auto"
    """Where policies and judge live: cpu, cuda, cuda:1, ...; `auto` is cuda where there is one, else cpu."""

    def __post_init__(self) -> None:
        check_fields(self, "policy", rate="temperature")
        if self.models and self.kind != "causal_lm":
            raise ValueError("policy.models names one model per policy; it needs policy.kind causal_lm")


@dataclass(frozen=True, kw_only=True)
class PayoffConfig:
    """A schedule of the payoff."""

    to: str | None = None
    """The payoff moves linearly to this one (same syntax as `payoff`); none = it is constant."""

    over: int = 0
    """Iterations of the schedule."""

    def __post_init__(self) -> None:
        if (self.to is None) != (self.over == 0) or self.over < 0:
            raise ValueError(
                f"payoff.to {self.to} over {self.over} iterations; give both, payoff.over from 1"
            )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where a run is written and how it starts: words of a command, not settings of a run."""

    run: Path | None = None
    """Run directory; by default a new one, runs/<preset>-<seats>-seats-seed-<seed>."""

    preset: str | None = None
    """Settings to start from; `cory presets` lists them. None: `pocket`, and for a language model that is
    not bundled `own`."""

    config: Path | None = None
    """A YAML file of settings, such as the `config.yaml` of a run; flags change single ones."""

    overwrite: bool = False
    """Whether the run in the directory is moved aside first, to RUN.old-TIME; a folder that holds anything
    CORY has not written is refused."""

    resume: Literal["never", "auto", "must"] = "never"
    """Whether to resume the run in the directory from its newest whole checkpoint: `auto` starts anew if
    there is none, `must` makes that an error. Settings left out are those the run was started with."""

    quiet: bool = False
    """Whether only warnings and errors are printed."""

    def __post_init__(self) -> None:
        check_fields(self, "")
        if self.resume != "never" and self.run is None:
            raise ValueError(f"resume {self.resume} needs the run directory; name it with --run")
        if self.resume != "never" and self.overwrite:
            raise ValueError("resume goes on with a run and overwrite removes it; give one of them")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run of CORY; with one seat it is single-agent fine-tuning."""

    task: str = "reviews"
    """The task: a file in cory_env/tasks, an entry point, or `module:Class`."""

    task_options: Any = field(default_factory=lambda: task_options("reviews")())
    """The task's arguments."""

    judge: str = "pocket"
    """What scores responses: a classifier (folder or hub name), `pocket`, `smollm2`, `module:function`, an
    entry point, `regex:PATTERN`, `math-verify:COLUMN`, or a weighted sum: `0.5*module:function +
    2*regex:####`."""

    judge_options: Annotated[JudgeConfig, arg(name="judge")] = field(default_factory=JudgeConfig)

    policy: PolicyConfig = field(default_factory=PolicyConfig)

    seats: int = 2
    """Seats of the game: one pioneer, the others observers. 1 = single-agent training."""

    turns: Annotated[tuple[str, ...], LISTED] = ()
    """Policies in the order of play: with `llm_1,llm_2,llm_1` the first sits in two seats and learns from the
    rows of both in one update; `llm_1,llm_1` is parameter sharing. The number of seats follows. By default
    every seat has a policy of its own."""

    players: Annotated[Mapping[str, str], BY_SEAT] = field(default_factory=dict)
    """Who plays a seat without learning, as `--players.observer_1 frozen`: `frozen` (the reference), a run, a
    model folder or a hub name, `pool:K` (one of the learners' last K checkpoints, drawn in each iteration),
    or a function that returns an object with `act` or `respond`: `module:function`, `file.py:function`."""

    sees: Annotated[str | Mapping[str, str], BY_SEAT] = "all"
    """Which responses an observer reads: `all`, `previous`, `pioneer`, or `none`, the ablation without
    knowledge transfer; or by seat, as `--sees.observer_2 previous`."""

    payoff: str = "cooperative"
    """How scores become payoffs: cooperative (the sum of all scores, CORY's collective reward), independent,
    competitive, best (each is paid the highest score), difference (each what the highest score loses without
    it), shuffled (own + others' scores of another game of the batch, a control with the variance of the sum),
    a number lambda (own + lambda * others), a matrix as JSON, `[[1, 0.5], [0, 1]]`: row i pays seat i, or
    `module:function` or `file.py:function` (scores [B, N], iteration) -> payoffs [B, N]."""

    payoff_options: Annotated[PayoffConfig, arg(name="payoff")] = field(default_factory=PayoffConfig)

    iterations: int = 30
    """Batches of games, each followed by its updates."""

    batch: int = 128
    """Games per iteration; every seat's policy learns from this many responses."""

    max_response: tuple[int, int] = (4, 16)
    """The cap of each response is drawn between these, both included."""

    seed: int = 0
    """Random seed."""

    algorithm: str = "ppo"
    """Learning algorithm: a file in cory/algorithms, any `file.py`, an entry point, or an importable
    module."""

    algorithm_options: Any = field(default_factory=ppo.Config)
    """The `Config` of that algorithm."""

    critic: CriticConfig = field(default_factory=CriticConfig)
    exchange: ExchangeConfig = field(default_factory=ExchangeConfig)
    sharing: SharingConfig = field(default_factory=SharingConfig)
    lora: LoRAConfig = field(default_factory=LoRAConfig)
    kl: KLConfig = field(default_factory=KLConfig)
    payoff_scaling: PayoffScalingConfig = field(default_factory=PayoffScalingConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    export_best: bool = False
    """Whether the policies of the best checkpoint by the validation split are exported, instead of the
    last."""

    export: Literal["as_trained", "merged"] = "as_trained"
    """What is written to policies/: `as_trained` (adapters of a LoRA team as PEFT folders), or `merged`
    whole models."""

    checkpoint_every: int = 20
    """Iterations between checkpoints (one is written before the first and after the last, and after ten
    minutes without one); 0 = none, but where a signal stops the run."""

    keep_checkpoints: int = 2
    """How many of the latest checkpoints are kept."""

    alerts: AlertsConfig = field(default_factory=AlertsConfig)

    log_to: Annotated[tuple[str, ...], LISTED] = ("tensorboard",)
    """Where metrics go beside metrics.jsonl: `tensorboard`, `wandb`, `trackio`, `mlflow`, several separated
    by commas, or `none`."""

    memory: int | Literal["auto"] = "auto"
    """Bytes of activations that one pass may take, and a quarter as many of logits, beside the weights. It
    decides how passes are split, which changes the last digits of sums. `auto` is 1 GiB on a CPU; on an
    accelerator half of its free memory, which the run writes into its config.yaml."""

    threads: int = 0
    """CPU threads; 0 = as many as torch finds."""

    deterministic: bool = False
    """Whether a device must use deterministic operations only, so that a resumed run continues bit for bit
    there too. Slower on accelerators; an operation that has no such form ends the run."""

    shard: bool = False
    """Whether the processes that train together share out weights, gradients and optimisers of the layers
    (FSDP2) instead of each holding all: for models that fit no single card."""

    @classmethod
    def from_flat(cls, values: Mapping[str, Any], default: Self | None = None) -> Self:
        """`default` changed by settings: `{"task": "relay", "kl.coef": 0.1}`, or `{"kl": {"coef": 0.1}}`.

        Another task has its own defaults, and no judge but one that is given. Another algorithm has its own
        too, but for what `default` changes and both have with the same default. ValueError names unknown
        settings, and values of another type.
        """
        start = cls() if default is None else default
        given = dotted(values)
        all_see = given.get("sees", start.sees)
        sees = {} if isinstance(all_see, str) else all_see
        given = grouped_by_seat(given, {"players": start.players, "sees": sees})
        for name in ("turns", "log_to"):
            if isinstance(given.get(name), str):
                given[name] = names_of(given[name])
        if (turns := given.get("turns")) and "seats" not in given:
            given["seats"] = len(turns) + len(given.get("players", start.players))
        if isinstance(given.get("sees"), dict) and isinstance(all_see, str) and all_see != "all":
            seats = seat_names(convert(given.get("seats", start.seats), int, "seats"))
            given["sees"] = dict.fromkeys(seats[1:], all_see) | given["sees"]
        groups = {one.name.removesuffix("_options"): one.name for one in fields(cls)}
        groups = {group: name for group, name in groups.items() if is_dataclass(getattr(start, name))}
        parts = {name: getattr(start, name) for name in groups.values()}
        if (task := str(given.get("task", start.task))) != start.task:
            parts["task_options"] = task_options(task)()
            if "judge" not in given:  # that of another task scores other responses
                given["judge"], parts["judge_options"] = cls.judge, JudgeConfig()
        algorithm = algorithms.load(str(given.get("algorithm", start.algorithm)))
        if algorithm.name != start.algorithm:
            parts["algorithm_options"] = algorithms.carried(start.algorithm_options, algorithm.Config)
            if algorithms.load(start.algorithm).needs(start.algorithm_options).critic == "central":
                parts["critic"] = CriticConfig()
        known = [one.name for one in fields(cls) if one.name not in parts]
        known += [f"{group}.{one.name}" for group, name in groups.items() for one in fields(parts[name])]
        if unknown := [name for name in given if name not in known]:
            names = " or ".join(map(repr, unknown))
            raise ValueError(f"there is no setting {names}{nearest_setting(unknown[0], known)}")
        for group, name in groups.items():
            inside = {k.partition(".")[2]: v for k, v in given.items() if k.startswith(f"{group}.")}
            parts[name] = replace(parts[name], **converted(type(parts[name]), inside, f"{group}."))
        chosen = "critic.kind" in given and not is_dataclass(values.get("critic"))  # which holds every field
        if algorithm.needs(parts["algorithm_options"]).critic == "central" and not chosen:
            parts["critic"] = replace(parts["critic"], kind="central")
        top = {name: value for name, value in given.items() if "." not in name}
        return replace(start, **parts, **converted(cls, top))

    def __post_init__(self) -> None:
        check_integers(self)
        algorithm = algorithms.load(self.algorithm)
        self._check_seats()
        check_fields(self, "", count="iterations batch keep_checkpoints", natural="checkpoint_every threads")
        if self.memory != "auto" and self.memory < 1:
            raise ValueError(f"memory is {self.memory}; give the bytes of a pass, from 1, or auto")
        if self.policy.kind in ("causal_lm", "table") and (unused := changed(self.lora)):
            whole = " To train all weights from an adapter, name it as policy.model."
            raise ValueError(
                f"lora.{unused[0]} is of adapters, and policy.kind {self.policy.kind} trains none; take "
                f"policy.kind lora_team, or leave it out.{whole if unused[0] == 'adapter' else ''}"
            )
        check_places(self.log_to)
        response_range(self.max_response)
        rule(self.payoff_rule, self.seats)
        policies = len(set(self.policy_names))
        if self.policy.models and len(self.policy.models) != policies:
            raise ValueError(
                f"policy.models names {len(self.policy.models)} models for {policies} policies; give one each"
            )
        for name, kind in {"task": task_options(self.task), "algorithm": algorithm.Config}.items():
            if not isinstance(getattr(self, f"{name}_options"), kind):
                raise ValueError(
                    f"{name}_options are not those of the {name} {getattr(self, name)!r}; give them too, or "
                    f"use Config.from_flat({{{name!r}: {getattr(self, name)!r}, ...}}), which finds them"
                )
        needs = algorithm.needs(self.algorithm_options)
        if self.batch % needs.group:
            raise ValueError(f"a batch of {self.batch} games does not divide into groups of {needs.group}")
        scales = {"payoff-scaling.scaling": self.payoff_scaling.scaling}
        scales["algorithm.whiten-rewards"] = getattr(self.algorithm_options, "whiten_rewards", "none")
        for name, scale in scales.items():
            if scale != "none" and not needs.scaled_payoffs:
                raise ValueError(
                    f"algorithm {self.algorithm!r} needs payoffs as they are paid; leave out --{name} {scale}"
                )
        if needs.payoff != "any":
            self._check_payoff(needs.payoff)
        if needs.critic not in ("any", self.critic.kind):
            raise ValueError(
                f"algorithm {self.algorithm!r} has a critic of its own, the kind {needs.critic}; leave out "
                f"--critic.kind {self.critic.kind}, and in Python use Config.from_flat, which finds the kind"
            )
        if self.critic.kind == "own" and self.critic != CriticConfig():
            raise ValueError(
                "critic.lr and critic.epochs are of a critic of all seats, and critic.kind is own; take "
                "--critic.kind central, or for the policies' value heads --learner.value-lr"
            )
        if self.critic.kind != "own" and not needs.values:
            raise ValueError(
                f"algorithm {self.algorithm!r} uses no values; leave out --critic.kind {self.critic.kind}"
            )
        if self.sharing.same_view:
            self._check_sharing()
        if self.averages and len(set(self.policy.models)) > 1:
            name = "learner.ema" if self.learner.ema else "evaluation.average"
            raise ValueError(f"{name}: policies of several models have no mean; leave it out")
        if self.shard:
            self._check_shard(own_update=algorithm.update is not None)
        for seats in set(map(self.policy_names.count, self.policy_names)):
            self.learner.check_batch(self.batch * seats)

    def _check_payoff(self, needed: str) -> None:
        """Raise ValueError unless scores are paid as the algorithm needs it, first and last."""
        scores_BN = np.arange(4.0 * self.seats).reshape(4, self.seats) ** 2
        others = float(getattr(self.algorithm_options, "others", 1.0))
        if self.players and others and needed == "sum":
            raise ValueError(
                f"algorithm {self.algorithm!r} shares out scores of seats that all learn; leave out players"
            )
        sums_BN = scores_BN + others * (scores_BN.sum(1, keepdims=True) - scores_BN)
        words = (
            "cooperative or best" if needed == "common" else "cooperative" if others == 1 else f"{others:g}"
        )
        for iteration in (0, self.iterations):
            payoff_BN = rule(self.payoff_rule, self.seats, iteration=iteration)(scores_BN)
            if not np.allclose(payoff_BN, payoff_BN[:, :1] if needed == "common" else sums_BN):
                raise ValueError(
                    f"algorithm {self.algorithm!r} shares out another payoff than that of --payoff "
                    f"{self.payoff}; take --payoff {words}"
                )

    def _check_seats(self) -> None:
        """Raise ValueError for turns, players or views that do not fit the seats."""
        seats = seat_names(self.seats)
        by_seat = {"players": self.players, "sees": {} if isinstance(self.sees, str) else self.sees}
        for name, values in by_seat.items():
            for seat in values:
                one_of(name, seat, seats)
        for view in (self.sees,) if isinstance(self.sees, str) else self.sees.values():
            one_of("sees", view, SEES)
        learning = self.seats - len(self.players)
        if not learning:
            raise ValueError("players sit in all seats, and nobody learns; leave one of them out")
        if self.turns and len(self.turns) != learning:
            raise ValueError(
                f"turns are {', '.join(self.turns)}, and {learning} seats have no player; name a policy each"
            )
        named = sorted(set(self.turns))
        if named != sorted(f"llm_{i + 1}" for i in range(len(named))):
            raise ValueError(f"turns are {', '.join(self.turns)}; call the policies llm_1, llm_2, ...")
        if self.pool and not self.checkpoint_every:
            raise ValueError(f"pool:{self.pool} plays with checkpoints, and checkpoint_every is 0; raise it")
        if self.pool and len(set(self.policy.models)) > 1:
            raise ValueError(
                f"pool:{self.pool} plays with the checkpoints of all policies in one model; give one"
            )

    def _check_sharing(self) -> None:
        """Raise ValueError where there is nothing to share, or values and payoffs are not the policies'."""
        if len(set(self.policy_names)) < max(2, len(self.policy_names)):
            raise ValueError("sharing needs two policies or more, each in one seat; leave it out")
        if self.critic.kind != "own" or self.payoff_scaling.scaling != "none":
            raise ValueError(
                "sharing uses each policy's own critic and unscaled payoffs; leave the others out"
            )
        if self.kl.place == "loss" and self.kl.kind in SAMPLED:
            raise ValueError(
                f"kl.kind {self.kl.kind} in the loss needs tokens that the policy sampled itself, and "
                "sharing adds others; take full"
            )

    def _check_shard(self, *, own_update: bool) -> None:
        """Raise ValueError for what needs whole weights outside a pass."""
        refused = {
            "policy.kind table": self.policy.kind == "table",
            f"algorithm {self.algorithm}, which updates by itself": own_update,
            "learner.optimizer adam8bit": self.learner.optimizer == "adam8bit",
            "learner.elastic_reset": self.learner.elastic_reset > 0,
            "learner.ema": self.learner.ema > 0,
            "lora.four_bit yes": self.lora.four_bit == "yes",
            "policy.compile yes": self.policy.compile == "yes",
        }
        if conflicts := [what for what, given in refused.items() if given]:
            raise ValueError(f"--shard does not go with {conflicts[0]}; leave one of them out")

    @property
    def policy_names(self) -> tuple[str, ...]:
        """The policies in the seats that learn at iteration 0, in the order of play."""
        return self.turns or tuple(f"llm_{i + 1}" for i in range(len(self.learning_seats)))

    @property
    def pool(self) -> int:
        """K of the players `pool:K`, 0 without one; ValueError unless they are all of one number from 1."""
        sizes = [player.removeprefix(POOL) for player in self.players.values() if player.startswith(POOL)]
        if not sizes:
            return 0
        if len(set(sizes)) > 1 or not sizes[0].isdigit() or int(sizes[0]) < 1:
            raise ValueError(f"players name pools of {', '.join(sizes)} checkpoints; give one number from 1")
        return int(sizes[0])

    @property
    def averages(self) -> bool:
        """Whether the mean of the policies' weights is evaluated and exported."""
        return self.learner.ema > 0 or (self.evaluation.average and len(set(self.policy_names)) > 1)

    @property
    def learning_seats(self) -> tuple[str, ...]:
        """The seats without a player, in the order of play."""
        return tuple(seat for seat in seat_names(self.seats) if seat not in self.players)

    def seating(self, iteration: int) -> Mapping[str, str]:
        """The policy in each seat that learns, at the start of an iteration."""
        return seating_at(
            iteration,
            every=self.exchange.every,
            seats=self.learning_seats,
            first=self.policy_names,
            order=self.exchange.order,
            random_key=(self.seed,) if self.exchange.order == "random" else None,
        )

    @property
    def responses_end(self) -> bool:
        """Whether responses are meant to end before their cap: language models with one cap for all."""
        return self.policy.kind != "table" and self.max_response[0] == self.max_response[1]

    @property
    def payoff_rule(self) -> Payoff:
        """`payoff` as the game takes it: a name, a number, rows of numbers, or a schedule of them."""
        if self.payoff_options.to is None:
            return mix(self.payoff)
        return Linear(mix(self.payoff), mix(self.payoff_options.to), self.payoff_options.over)


def nearest_setting(name: str, known: Collection[str]) -> str:
    """`; did you mean 'kl.coef'?` for `kl.coeff` and for `coef`, and where all settings are listed."""
    alike = [one for one in known if one.rpartition(".")[2] == name.rpartition(".")[2]]
    if inside := [one for one in known if one.startswith(f"{name}.")]:
        return f": it is a group, with {', '.join(inside[:3])}, ..."
    near = f"; did you mean {' or '.join(map(repr, alike[:3]))}?" if alike else did_you_mean(name, known)
    return near or "; `cory train --help-all` lists all"


LARGEST = 2**31 - 1
"""The largest whole number that a setting takes, unless `LIMITS` says another."""

LIMITS = {
    "threads": 1024,
    "batch": 2**20,
    "max_response": 2**20,
    "evaluation.samples": 2**16,
    "memory": 2**63 - 1,
}


def check_integers(settings: Any, prefix: str = "") -> None:
    """Raise ValueError for a whole number that is too large, or a seed below 0, anywhere in the settings."""
    for one in fields(settings):
        value, name = getattr(settings, one.name), prefix + one.name.removesuffix("_options")
        if is_dataclass(value):
            check_integers(value, f"{name}.")
        for number in value if isinstance(value, tuple) else (value,):
            if not isinstance(number, int) or isinstance(number, bool):
                continue
            if one.name == "seed":
                check_seed(number, name)
            elif number > (most := LIMITS.get(name, LARGEST)):
                raise ValueError(f"{name} is {number}; give at most {most:,}")


def mix(text: str) -> Mix:
    """Parse a payoff as written on the command line: a name, a number, or rows as JSON."""
    try:
        rule: Mix = json.loads(text)
    except ValueError:
        return text
    return rule if type(rule) in (int, float, list) else text
