"""Query -> pioneer -> observer -> scores: B games at once, one Batch per seat.

Shapes: B games, P prompt tokens, T response tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from agents import randomness
from agents.batch import Batch, Rows, pad_to
from agents.passes import evaluations
from agents.policies.base import Evaluation, Policy
from agents.sampling import Manner
from cory_env.game import Query
from cory_env.vector import VectorGame


@dataclass
class Clock:
    """Seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to `name`."""
        began = perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - began


@dataclass(frozen=True, kw_only=True)
class Deal:
    """What a batch of games is a function of, beside the weights."""

    queries: Sequence[Query]
    games_B: np.ndarray
    """Global index of each game: with `key`, the source of its chance."""
    key: tuple[int | str, ...]
    """(seed, purpose, iteration)."""
    max_response: tuple[int, int]
    """Caps are drawn between these, both included, for every game and seat."""
    cap_per_batch: bool = False
    """One cap for all of them instead."""

    def caps(self, seats: int) -> np.ndarray:
        """Response caps [B, N]."""
        low, high = self.max_response
        if self.cap_per_batch:
            one = randomness.caps((*self.key, "cap"), np.zeros(1), 1, low=low, high=high)
            return np.broadcast_to(one, (len(self.games_B), seats))
        return randomness.caps((*self.key, "cap"), self.games_B, seats, low=low, high=high)

    def uniforms(self, seat: str) -> Tensor:
        """The numbers that choose the tokens of `seat` [B, T]."""
        numbers_BT = randomness.uniforms((*self.key, seat), self.games_B, self.max_response[1])
        return torch.from_numpy(numbers_BT)


def answer(
    game: VectorGame,
    seat: str,
    policy: Policy,
    deal: Deal,
    *,
    manner: Manner = "own",
    interrupt: Callable[[], None] = lambda: None,
) -> tuple[Rows, Tensor]:
    """Let `policy` write the response of `seat` in every game; the rows, and the sampler's log-probs [B,
    T]."""
    prompt_BP, length_B = (torch.from_numpy(array).to(policy.device) for array in game.prompts(seat))
    caps_B = torch.from_numpy(game.caps_BN[:, game.seats.index(seat)])
    told = policy.sample(
        prompt_BP,
        length_B,
        uniforms_BT=deal.uniforms(seat),
        caps_B=caps_B.to(policy.device),
        manner=manner,
        interrupt=interrupt,
    )
    game.respond(seat, told.response_BT.cpu().numpy(), told.response_length_B.cpu().numpy())
    rows = Rows(
        prompt_BP=prompt_BP,
        prompt_length_B=length_B,
        response_BT=told.response_BT,
        response_length_B=told.response_length_B,
    )
    return rows, told.logprobs_BT


def record(
    told: Evaluation, rows: Rows, behaviour_logprobs_BT: Tensor, score_B: Tensor, payoff_B: Tensor
) -> Batch:
    """Everything the learner must know of `rows` before its first step."""
    return Batch(
        prompt_BP=rows.prompt_BP,
        prompt_length_B=rows.prompt_length_B,
        response_BT=rows.response_BT,
        response_length_B=rows.response_length_B,
        behaviour_logprobs_BT=pad_to(behaviour_logprobs_BT, rows.response_BT.shape[1]),
        old_logprobs_BT=told.logprobs_BT,
        ref_logprobs_BT=told.ref_logprobs_BT,
        exact_kl_BT=told.exact_kl_BT,
        values_BT=told.values_BT,
        score_B=score_B,
        payoff_B=payoff_B,
        live=told.live,
    )


def play(
    game: VectorGame,
    seating: Mapping[str, Policy],
    deal: Deal,
    *,
    clock: Clock,
    interrupt: Callable[[], None] = lambda: None,
    keeps: Callable[[Policy, Rows], bool] = lambda policy, rows: False,
) -> dict[str, Batch]:
    """One game per query of `deal`; the batch of every seat, in the order of play.

    `interrupt` is called before every token and between the phases, and may raise. Passes that `keeps` names
    are kept to learn from (`Batch.live`).
    """
    game.reset(deal.queries, deal.caps(len(game.seats)))
    written = {}
    with clock.phase("sample"):
        for seat in game.seats:
            written[seat] = answer(game, seat, seating[seat], deal, interrupt=interrupt)
    with clock.phase("judge"):
        interrupt()
        scores_BN, payoffs_BN = game.scores(), game.payoffs()
    interrupt()
    with clock.phase("statistics"):
        at_table = [seating[seat] for seat in game.seats]
        told = evaluations(at_table, [written[seat][0] for seat in game.seats], keeps)
        return {
            seat: record(told[i], *written[seat], *_columns(seating[seat], i, scores_BN, payoffs_BN))
            for i, seat in enumerate(game.seats)
        }


def _columns(policy: Policy, i: int, *arrays_BN: np.ndarray) -> list[Tensor]:
    return [torch.from_numpy(array[:, i]).to(policy.device, torch.float32) for array in arrays_BN]
