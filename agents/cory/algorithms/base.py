"""The contract of an algorithm and what its hooks exchange with the learner.

Shapes: T response tokens, K chosen tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from cory.functional.advantage import totals
from cory.runtime.checks import check_fields

if TYPE_CHECKING:
    from torch import Tensor

    from cory.batch import Batch
    from cory.functional.advantage import Advantage
    from cory.token_loss import TokenLoss

Batches: TypeAlias = "Mapping[str, Batch]"
Rewards: TypeAlias = "Mapping[str, Tensor]"
States: TypeAlias = "Mapping[str, State]"
Advantages: TypeAlias = "Mapping[str, Advantage]"
"""What hooks receive, each by seat; rewards are those of tokens [B, T]."""

Verdict = Literal["step", "skip", "stop"]
"""What to do with a minibatch's gradient: take the step, skip it, or end this policy's update."""


RULES = {
    "count": ("epochs", "cg_steps", "fisher_every", "tries", "mixer_epochs", "mixer_hidden"),
    "natural": ("value_steps",),
    "group": ("group",),
    "share": ("gamma", "lam", "seat_lam"),
    "below_1": ("decay",),
    "fraction": ("clip", "shrink"),
    "weight": ("entropy_coef", "value_coef"),
    "positive": ("value_clip", "target_kl"),
    "rate": ("max_kl", "damping", "mixer_lr"),
    "above_1": ("ratio_guard",),
}
"""What the settings of algorithms may be, by their names (`cory.runtime.checks`)."""


class Settings:
    """The base of `Config` in the algorithms here: checks every setting that `RULES` name."""

    def __post_init__(self) -> None:
        for rule, names in RULES.items():
            given = " ".join(name for name in names if hasattr(self, name))
            check_fields(self, "algorithm", **{rule: given})


@dataclass(frozen=True, kw_only=True)
class GAEConfig(Settings):
    """Settings of generalised advantage estimation (arXiv:1506.02438)."""

    gamma: float = 1.0
    """Discount per token."""

    lam: float = 0.95
    """GAE lambda; 1 = the return minus the value."""

    whiten: bool = True
    """Whether advantages are shifted and scaled to mean 0 and standard deviation 1 over the batch."""

    whiten_rewards: Literal["none", "tokens", "released"] = "none"
    """`tokens`: token rewards are first scaled to standard deviation 1 over the batch; their mean stays.
    `released`: the padding behind each response is scaled too, as in the released code, and its spurious
    rewards leak into every advantage."""


@dataclass(frozen=True, kw_only=True)
class ClippedConfig(Settings):
    """Settings of PPO's clipped surrogate."""

    epochs: int = 4
    """Passes over each batch."""

    clip: float = 0.2
    """Probability ratios are clipped to [1 - clip, 1 + clip]."""

    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""

    target_kl: float | None = None
    """The update of an iteration stops once a minibatch is 1.5 times this many nats per token away from the
    old policy (`approx_kl`); none = never."""

    ratio_guard: float | None = None
    """A minibatch whose mean ratio exceeds this is skipped (the released code: 10); none = never."""


def expected_score(reward_BT: Tensor, batch: Batch) -> Tensor:
    """What a seat expects to score before it responds [B]: its value there, plus the KL penalty it then paid.

    The value is of rewards less that penalty, which no other seat owes.
    """
    expected_B: Tensor = batch.values_BT[:, 0] + (batch.payoff_B - totals(reward_BT, batch.mask_BT))
    return expected_B


def check_undiscounted(config: GAEConfig, algorithm: str) -> None:
    """Raise ValueError for a discount where `expected_score` is added to scores, which have none."""
    if config.gamma != 1:
        raise ValueError(
            f"algorithm {algorithm!r} adds what a later seat expects to score, undiscounted; leave out "
            f"--algorithm.gamma {config.gamma:g}"
        )


class State(dict[str, Any]):
    """What an algorithm keeps between iterations: numbers, tensors, and lists and dicts of them by name.

    A policy's state belongs to the policy, moves with it through every exchange and is saved in its
    checkpoints; a team's state belongs to all. An object of another class with these two methods, such as an
    `nn.Module` or an optimiser, may take its place (`policy_state`, `team_state`). `exchange.reset` makes a
    policy's state anew, and calls `reset` of a team's state that has it.
    """

    def state_dict(self) -> dict[str, Any]:
        """The content, to be saved."""
        return dict(self)

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Replace the content by what `state_dict` returned."""
        self.clear()
        self.update(content)


def check_state(state: Any, owner: str, algorithm: str) -> None:
    """Raise ValueError for a state that cannot be saved; `owner` is a policy or the team."""
    if not all(hasattr(state, method) for method in ("state_dict", "load_state_dict")):
        raise ValueError(
            f"the state that algorithm {algorithm!r} made for {owner} is {type(state).__name__}; it needs "
            "state_dict and load_state_dict"
        )


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What an algorithm needs from the policies and the games."""

    values: bool = True
    """Whether it uses a value head."""

    group: int = 1
    """Games per query; the games of a group are neighbours in every batch."""

    scaled_payoffs: bool = True
    """Whether it can learn from payoffs or rewards of another scale than scores have, which `payoff_scaling`
    and `algorithm.whiten_rewards` make."""

    payoff: Literal["any", "sum", "common"] = "any"
    """What the seats must be paid: `sum`, each its score and `others` times those of the others, which all
    learn (`others` is a setting of the algorithm or 1); `common`, all the same. With `sum` no response may
    change the scores of earlier seats, as it can where a task scores whole games."""

    critic: Literal["any", "own", "central"] = "any"
    """Whose values it learns with: `own` the policies' value heads, `central` one critic that sees what every
    seat wrote, which is then made without `critic.kind`; `any` whichever `critic.kind` names."""

    def __post_init__(self) -> None:
        check_fields(self, "needs", count="group")


HOOKS = {
    "advantage": ("batches", "rewards", "config", "states"),
    "token_loss": ("tokens", "config"),
    "needs": ("config",),
    "verdict": ("metrics", "config"),
    "update": ("learner", "batch", "advantage", "config"),
    "update_all": ("team", "batches", "advantages", "config"),
    "policy_state": ("learner", "config"),
    "team_state": ("learners", "config"),
}
"""The hooks of an algorithm module, and what each is called with."""


@cache
def _check_calls(name: str, module: ModuleType) -> None:
    """Raise ValueError for a hook that takes something else; once, as settings load their algorithm often."""
    from cory_env.registry import check_call

    for hook, takes in HOOKS.items():
        if (function := getattr(module, hook, None)) is not None:
            check_call(f"{hook} of algorithm {name!r}", function, *takes)


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """An algorithm module's hooks, with defaults for those it leaves out."""

    name: str

    Config: type[Any]
    """Frozen dataclass; a field `epochs` is the number of passes over a batch (default 1)."""

    advantage: Callable[..., dict[str, Any]]
    """(batches, rewards, config, states) -> an `Advantage` per seat. All but `config` are keyed by seat;
    `states` holds the `State` of the policy in that seat and may be written to."""

    token_loss: Callable[..., TokenLoss]
    """(tokens, config) -> loss per token; pure, called chunk by chunk."""

    needs: Callable[[Any], Requirements]
    """(config) -> requirements; by default a value head and single games."""

    verdict: Callable[[Mapping[str, float], Any], Verdict]
    """(means over a minibatch, config) -> what to do with its gradient; by default always a step."""

    update: Callable[..., dict[str, float]] | None
    """(learner, batch, advantage, config) -> metrics, in place of the learner's passes of token losses."""

    update_all: Callable[..., dict[str, dict[str, float]]] | None
    """(team, batches, advantages, config) -> metrics by policy, in place of one update after another.

    `team` (`cory.learner.team.Team`) has the learners, the seating and the orders of rows."""

    policy_state: Callable[..., Any]
    """(learner, config) -> the policy's state, by default an empty `State`."""

    team_state: Callable[..., Any]
    """(learners, config) -> the team's state, by default an empty `State`."""

    @classmethod
    def from_module(cls, name: str, module: ModuleType) -> Algorithm:
        """Collect the hooks of `module`; ValueError for one that is missing or takes something else.

        Also for a Config that is not frozen or has no defaults.
        """
        missing = [part for part in ("Config", "advantage", "token_loss") if not hasattr(module, part)]
        if missing:
            raise ValueError(
                f"algorithm {name!r} ({module.__name__}) has no {', '.join(missing)}; see docs/extending.md"
            )
        params = getattr(module.Config, "__dataclass_params__", None)
        if not getattr(params, "frozen", False):
            raise ValueError(
                f"algorithm {name!r} ({module.__name__}): Config is no frozen dataclass; write "
                "@dataclass(frozen=True, kw_only=True)"
            )
        if required := [
            one.name
            for one in fields(module.Config)
            if one.init and one.default is MISSING and one.default_factory is MISSING
        ]:
            raise ValueError(
                f"algorithm {name!r} ({module.__name__}): {required[0]} of its Config has no default; give "
                "it one"
            )
        _check_calls(name, module)
        return cls(
            name=name,
            Config=module.Config,
            advantage=module.advantage,
            token_loss=module.token_loss,
            needs=getattr(module, "needs", lambda config: Requirements()),
            verdict=getattr(module, "verdict", lambda metrics, config: "step"),
            update=getattr(module, "update", None),
            update_all=getattr(module, "update_all", None),
            policy_state=getattr(module, "policy_state", lambda learner, config: State()),
            team_state=getattr(module, "team_state", lambda learners, config: State()),
        )
