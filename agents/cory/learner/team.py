"""The team of an iteration: policies in their seats with their learners, as joint updates see them.

Shapes: B games, T response tokens, K chosen tokens, V vocabulary, N positions of a chunk.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cory import rng
from cory.algorithms.base import Algorithm, State
from cory.batch import Batch, Rows, columns, concat, stack
from cory.functional.advantage import Advantage
from cory.learner.central_critic import states, transcripts
from cory.learner.learner import Learner
from cory.policies.base import Policy
from cory.policies.scoring import evaluate

OUTLIERS = 0.01
"""Share of tokens on which sampler and learner may differ by more than the tolerance."""


class LearningData(NamedTuple):
    """What one policy learns from in an iteration."""

    batch: Batch
    """The rows of every seat it sat in, and those shared with it."""
    advantage: Advantage
    orders: list[Tensor]
    """A permutation of the rows per epoch."""
    own_rows: int
    """Rows, the first ones, that the policy sampled itself."""


@dataclass(frozen=True, kw_only=True)
class Team:
    """Policies and learners of one iteration, in the order of play."""

    learners: Mapping[str, Learner]
    """By the policy's name."""

    seating: Mapping[str, str]
    """Seat -> policy, in the order of play."""

    order_key: rng.Key
    """Key of the random order of rows."""

    algorithm: Algorithm

    options: Any
    """The algorithm's `Config`."""

    state: State = field(default_factory=State)
    """What the algorithm keeps for the team; each learner holds its policy's `algorithm_state`."""

    played: Mapping[str, Batch] = field(default_factory=dict)
    """The batches of all seats of the iteration, also of those that do not learn, in the order of play."""

    learned: dict[str, Advantage] = field(default_factory=dict)
    """What policies learned from by now, by seat: also what a joint update made of the advantages."""

    shared: Mapping[str, Sequence[tuple[Batch, Advantage]]] = field(default_factory=dict)
    """Rows that a policy learns from beside its own (`cory.learner.sharing`), by policy."""

    @property
    def policies(self) -> dict[str, Policy]:
        """The policy in each seat."""
        return {seat: self.learners[name].policy for seat, name in self.seating.items()}

    def seats_of(self, name: str) -> list[str]:
        """The seats of a policy; more than one for a shared policy."""
        return [seat for seat, policy in self.seating.items() if policy == name]

    def rewards(self, batches: Mapping[str, Batch]) -> dict[str, Tensor]:
        """Token rewards [B, T] of every seat, by the learner of the policy that sits there."""
        rewards: dict[str, Tensor] = {}
        for name, learner in self.learners.items():
            seats = self.seats_of(name)
            rewards |= zip(seats, learner.rewards([batches[seat] for seat in seats]), strict=True)
        return {seat: rewards[seat] for seat in self.seating}

    def advantages(self, batches: Mapping[str, Batch]) -> dict[str, Advantage]:
        """Advantages of every seat by the algorithm; ValueError for results that do not fit the batches."""
        states = {seat: self.learners[name].algorithm_state for seat, name in self.seating.items()}
        rewards = self.rewards(batches)
        before = _versions(batches)
        advantages = self.algorithm.advantage(batches, rewards, self.options, states)
        name = f"algorithm {self.algorithm.name!r}: the advantage hook"
        if written := [seat for seat, count in _versions(batches).items() if count != before[seat]]:
            raise ValueError(f"{name} wrote into the batch of {written[0]}; write into a clone of a tensor")
        where = f"{name} returned"
        check_advantages(advantages, batches, where, rewards=rewards)
        return advantages

    def data(
        self, name: str, batches: Mapping[str, Batch], advantages: Mapping[str, Advantage]
    ) -> LearningData:
        """What one policy learns from, in an order for each epoch.

        Advantages that `update_all` has changed are checked as those of the hook `advantage`. ArithmeticError
        if the policy's log-probs are not those its tokens were sampled with.
        """
        if self.algorithm.update_all is not None:
            where = f"algorithm {self.algorithm.name!r}: team.data was given"
            check_advantages(advantages, batches, where)
        seats, learner = self.seats_of(name), self.learners[name]
        self.learned.update({seat: advantages[seat] for seat in seats})
        played = stack(Batch, [batches[seat] for seat in seats])
        policy = learner.policy
        if policy.mismatch == "none" and (difference := disagreement(played, policy.tolerance)):
            kind = type(getattr(policy, "model", policy)).__name__
            reason = f"the architecture {kind} is not supported"
            advice = "take one that docs/api/families.md lists as trained"
            if policy.precision == "bfloat16":
                reason, advice = "bfloat16 rounds too much here", "set policy.precision to float32"
            raise ArithmeticError(
                f"sampler and learner disagree by {difference:.2g} nats on a token of policy {name!r}: "
                f"{reason}; {advice}"
            )
        others = self.shared.get(name, ())
        batch = stack(Batch, [played, *(rows for rows, _ in others)])
        parts = [*(advantages[seat] for seat in seats), *(advantage for _, advantage in others)]
        advantage = Advantage(*(concat(column) for column in zip(*parts, strict=True)))
        orders = [
            torch.from_numpy(rng.permutation((*self.order_key, name, epoch), len(batch)))
            for epoch in range(learner.epochs)
        ]
        device = batch.response_BT.device
        return LearningData(batch, advantage, [order_B.to(device) for order_B in orders], len(played))

    def update_all(
        self, batches: Mapping[str, Batch], advantages: Mapping[str, Advantage]
    ) -> dict[str, dict[str, float]]:
        """The algorithm's joint update, none without one; its metrics by policy, ValueError unless of all."""
        if self.algorithm.update_all is None:
            return {}
        updates: Any = self.algorithm.update_all(self, batches, advantages, self.options)
        if not isinstance(updates, Mapping) or set(updates) != set(self.learners):
            of = ", ".join(map(str, updates)) if isinstance(updates, Mapping) else type(updates).__name__
            raise ValueError(
                f"update_all returned metrics of {of or 'no policy'}; return a dict of numbers for each of "
                f"{', '.join(self.learners)}"
            )
        return {name: {key: float(value) for key, value in of.items()} for name, of in updates.items()}

    def logprobs(self, seat: str, batch: Batch) -> Tensor:
        """Log-probs [B, T] of the chosen tokens under the policy in `seat` as it is now, no gradient."""
        return evaluate(self.policies[seat], batch).logprobs_BT

    @torch.no_grad()
    def states(self) -> dict[str, Tensor]:
        """Hidden states [B, D] of a frozen reference before each seat responds, by seat.

        They are those of the transcript: the first seat's prompt and all earlier responses, also those that
        the seat does not see. The reference is that of the first policy. D is its width; for lookup tables it
        grows with the longest transcript. ValueError if a transcript does not fit the model's window.
        """
        reference = next(iter(self.learners.values())).policy.reference
        firsts = {
            seat: Rows(
                prompt_BP=rows.prompt_BP,
                prompt_length_B=rows.prompt_length_B,
                response_BT=rows.response_BT[:, :1],
                response_length_B=torch.ones_like(rows.response_length_B),
            )
            for seat, rows in transcripts(self.played).items()
        }
        longest = max(rows.max_length for rows in firsts.values())
        if reference.window is not None and longest > reference.window:
            raise ValueError(
                f"a transcript has {longest} tokens and the model's window is {reference.window}; lower "
                "max_response, shorten the query or take an algorithm that reads no whole games"
            )
        return {seat: states(reference, rows, longest) for seat, rows in firsts.items()}


def disagreement(batch: Batch, tolerance: float) -> float:
    """The largest difference in nats between sampler and learner on a token; 0 where it is rounding.

    A few tokens are ill-conditioned: on the second of a text, SmolLM2 in float32 is off by 0.003 with a cache
    and by 0.0003 without (in float64 they agree). So `OUTLIERS` of the tokens may differ by more than the
    tolerance, none by more than 30 times that, or by more than 1 nat.
    """
    difference_BT = (batch.behaviour_logprobs_BT - batch.old_logprobs_BT).abs() * batch.mask_BT
    largest = float(difference_BT.max())
    beyond = int((difference_BT > tolerance).sum())
    rounding = beyond <= OUTLIERS * int(batch.mask_BT.sum()) and largest <= min(30 * tolerance, 1.0)
    return 0.0 if rounding else largest


def check_advantages(
    advantages: Any, batches: Mapping[str, Batch], where: str, *, rewards: Mapping[str, Tensor] | None = None
) -> None:
    """Raise ValueError for advantages of the wrong seats or shapes.

    FloatingPointError for numbers that are not finite though those of the batches and rewards are: where
    those are not, the update names the rows. `where` begins the message.
    """
    if not isinstance(advantages, Mapping) or set(advantages) != set(batches):
        seats = (
            ", ".join(map(str, advantages))
            if isinstance(advantages, Mapping)
            else f"in a {type(advantages).__name__}"
        )
        raise ValueError(f"{where} seats {seats or 'none'}; the seats are {', '.join(batches)}")
    sound = all(map(_is_sound, batches.values()))
    sound = sound and all(bool(tensor.isfinite().all()) for tensor in (rewards or {}).values())
    for seat, advantage in advantages.items():
        if not isinstance(advantage, Advantage):
            kind = type(advantage).__name__
            raise ValueError(f"{where} a {kind} for {seat}; return Advantage(advantage_BT, return_BT)")
        for name, tensor in zip(Advantage._fields, advantage, strict=True):
            want = tuple(batches[seat].response_BT.shape)
            if not isinstance(tensor, Tensor) or tuple(tensor.shape) != want:
                got = tuple(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
                raise ValueError(f"{where} {name} of {seat} with shape {got}; the batch has {want}")
            if sound and not bool(tensor.isfinite().all()):
                rows = (~tensor.isfinite()).any(1).nonzero().flatten().tolist()
                raise FloatingPointError(
                    f"{where} {name} of {seat} with numbers that are not finite, in rows {rows[:8]}"
                )


def _versions(batches: Mapping[str, Batch]) -> dict[str, int]:
    """How often the tensors of each batch were written in place."""
    return {
        seat: sum(getattr(batch, name)._version for name in columns(Batch)) for seat, batch in batches.items()
    }


def _is_sound(batch: Batch) -> bool:
    """Whether all numbers that advantages are made of are finite."""
    used = (batch.payoff_B, batch.old_logprobs_BT, batch.ref_logprobs_BT, batch.values_BT)
    return all(bool(tensor.isfinite().all()) for tensor in used)
