"""Policies on held-out queries, with chance of its own: each as it is deployed, alone with the query only,
and each in its seat of the game.

Shapes: B games, T tokens, Q queries, S samples (responses to a query).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import get_args

import numpy as np

from agents import measures as say
from agents.policies.base import Policy
from agents.rollout import Deal, answer
from agents.sampling import Manner
from cory_env.tasks.base import Task
from cory_env.vector import VectorGame

Measure = Callable[[Sequence[str], np.ndarray], np.ndarray]
"""Texts (query + response) and their task rewards in, one number each out."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """When, on how much and how policies are judged."""

    every: int = 10
    """Iterations between evaluations during training; 0 = only before and after."""

    queries: int = 512
    """Held-out queries of every evaluation; one number for all, since distinct-n falls as texts are added."""

    samples: int = 1
    """Responses to each query; pass@k is told for k up to this."""

    sampling: Manner = "own"
    """`own` samples the policy's distribution; `paper` with repetition penalty 1.1, then top-k 10, then top-p
    0.7; `greedy` takes the likeliest token. KL and perplexity are of the policy's own in any case."""

    threshold: float | None = None
    """The task reward from which a response is correct; by default 1, where all rewards are 0 or 1."""

    batch: int = 256
    """Queries answered at once."""

    seed: int = 20_000
    """Key of the evaluation's chance; the same for all policies, so they compare pair by pair."""

    def __post_init__(self) -> None:
        if self.every < 0:
            raise ValueError(
                f"evaluation.every is {self.every}; give iterations, or 0 for before and after only"
            )
        for name in ("queries", "samples", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"evaluation.{name} is {getattr(self, name)}; give 1 or more")
        if self.sampling not in get_args(Manner):
            raise ValueError(
                f"evaluation.sampling is {self.sampling!r}; there are {', '.join(get_args(Manner))}"
            )
        if self.sampling == "greedy" and self.samples > 1:
            raise ValueError(
                f"evaluation.samples is {self.samples} and greedy sampling says the same each time; give 1, "
                "or another evaluation.sampling"
            )


@dataclass(frozen=True, kw_only=True)
class Answers:
    """S responses of one policy to each of Q queries, with what they are worth."""

    queries: list[str]
    texts: list[list[str]]
    """The responses to each query."""
    ids: list[list[tuple[int, ...]]]
    """The same as token ids, EOS included when it was chosen."""
    arrays: dict[str, np.ndarray]
    """Per response, [Q, S]: task_reward, kl (exact, nats), length (tokens), eos_share, repetition,
    reference_nats, the payoff in a game, and measures."""

    def per_query(self, *, kl_coef: float, threshold: float | None = None) -> dict[str, np.ndarray]:
        """Every quantity as numbers [Q] whose mean it is; see `agents.measures`.

        `kl_coef` is the fixed price of the combined reward. distinct-n is that of the first response to each
        query; accuracy and pass@k are there where `measures.passes` can tell what is correct.
        """
        told = {
            name: values_QS.mean(1) for name, values_QS in self.arrays.items() if name != "reference_nats"
        }
        tokens_Q = self.arrays["length"].sum(1)
        told["combined_reward"] = told["task_reward"] - kl_coef * told["kl"]
        told["kl_per_token"] = say.ratio(self.arrays["kl"].sum(1), tokens_Q)
        told["reference_perplexity"] = say.perplexity(self.arrays["reference_nats"].sum(1), tokens_Q)
        for n in (1, 2):
            told[f"distinct_{n}"] = say.distinct([texts[0] for texts in self.texts], n)
        correct_QS = say.passes(self.arrays["task_reward"], threshold)
        if correct_QS is not None:
            told["accuracy"] = correct_QS.mean(1)
            S = correct_QS.shape[1]
            for k in range(1, S + 1) if S > 1 else ():
                told[f"pass_at_{k}"] = np.array([say.pass_at_k(S, int(c), k) for c in correct_QS.sum(1)])
        return told

    def numbers(self, *, kl_coef: float, threshold: float | None = None) -> dict[str, float]:
        """The quantities themselves."""
        per_query = self.per_query(kl_coef=kl_coef, threshold=threshold)
        return {name: float(values_Q.mean()) for name, values_Q in per_query.items()}


def alone(
    policy: Policy,
    task: Task,
    config: Config,
    *,
    max_response: tuple[int, int],
    measures: Mapping[str, Measure],
    interrupt: Callable[[], None] = lambda: None,
) -> Answers:
    """What `policy` answers without partner and without a second prompt: a game of one seat."""
    game = VectorGame(task, seats=1, max_response=max_response, window=policy.window)
    (seat,) = game.seats
    return at_table(game, {seat: policy}, config, measures=measures, interrupt=interrupt)[seat]


def at_table(
    game: VectorGame,
    seating: Mapping[str, Policy],
    config: Config,
    *,
    measures: Mapping[str, Measure],
    interrupt: Callable[[], None] = lambda: None,
) -> dict[str, Answers]:
    """What every seat answers in games on the first held-out queries.

    Chance is keyed by seed, sample, seat and the query's index: two policies face the same numbers, and so
    does the next call, whatever the batch. The policies' own distributions are sampled, whatever they were
    trained under, or those of `config.sampling`.
    """
    held_out = game.task.queries("test")[: config.queries]
    if not held_out:
        raise ValueError("the task has no held-out queries; give it data with a test split")
    parts: dict[str, list[_Part]] = {seat: [] for seat in game.seats}
    for sample in range(config.samples):
        for start in range(0, len(held_out), config.batch):
            queries = held_out[start : start + config.batch]
            deal = Deal(
                queries=queries,
                games_B=np.arange(start, start + len(queries)),
                key=(config.seed, "evaluation", sample),
                max_response=game.cap_range,
            )
            for seat, part in _played(game, seating, deal, config.sampling, measures, interrupt).items():
                parts[seat].append(part)
    return {seat: _gathered([q.text for q in held_out], parts[seat]) for seat in game.seats}


@contextmanager
def as_deployed(policy: Policy) -> Iterator[None]:
    """Inside, what is sampled is what is scored."""
    before, policy.mismatch = policy.mismatch, "none"
    try:
        yield
    finally:
        policy.mismatch = before


_Part = tuple[list[str], list[tuple[int, ...]], dict[str, np.ndarray]]


def _played(
    game: VectorGame,
    seating: Mapping[str, Policy],
    deal: Deal,
    manner: Manner,
    measures: Mapping[str, Measure],
    interrupt: Callable[[], None],
) -> dict[str, _Part]:
    """One game per query of `deal`: texts, ids and arrays [B] of every seat."""
    game.reset(deal.queries, deal.caps(len(game.seats)))
    rows = {}
    for seat in game.seats:
        with as_deployed(seating[seat]):
            rows[seat], _ = answer(game, seat, seating[seat], deal, manner=manner, interrupt=interrupt)
    scores_BN, payoffs_BN = game.scores(), game.payoffs()
    told: dict[str, _Part] = {}
    for i, seat in enumerate(game.seats):
        seen = seating[seat].evaluate(rows[seat])
        responses = game.responses(seat)
        whole = [query.text + response.text for query, response in zip(deal.queries, responses, strict=True)]
        eos = game.task.tokenizer.eos
        written = [response.ids[:-1] if response.ids[-1] in eos else response.ids for response in responses]
        arrays = {
            "task_reward": scores_BN[:, i],
            "kl": seen.exact_kl_BT.sum(1).double().cpu().numpy(),
            "length": rows[seat].response_length_B.double().cpu().numpy(),
            "eos_share": np.array([r.ids[-1] in eos for r in responses], dtype=float),
            "repetition": np.array([say.repetition(ids) for ids in written]),
            "reference_nats": -seen.ref_logprobs_BT.sum(1).double().cpu().numpy(),
            **{name: np.asarray(measure(whole, scores_BN[:, i])) for name, measure in measures.items()},
        }
        if len(game.seats) > 1:
            arrays["payoff"] = payoffs_BN[:, i]
        told[seat] = ([r.text for r in responses], [tuple(r.ids) for r in responses], arrays)
    return told


def _gathered(queries: list[str], parts: Sequence[_Part]) -> Answers:
    """Answers out of parts that come sample by sample."""
    Q = len(queries)
    texts = [text for part in parts for text in part[0]]
    ids = [one for part in parts for one in part[1]]
    names = parts[0][2]
    return Answers(
        queries=queries,
        texts=[texts[i::Q] for i in range(Q)],
        ids=[ids[i::Q] for i in range(Q)],
        arrays={name: np.concatenate([part[2][name] for part in parts]).reshape(-1, Q).T for name in names},
    )
