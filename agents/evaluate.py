"""Each policy as it is deployed: alone, the query only, on held-out queries, with chance of its own.

Shapes: B responses, T tokens.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from agents.policies.base import Policy
from agents.rollout import Deal, answer
from cory_env.tasks.base import Task
from cory_env.vector import VectorGame

Measure = Callable[[Sequence[str], np.ndarray], np.ndarray]
"""Texts (query + response) and their task rewards in, one number each out."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """When and on how much policies are judged alone."""

    every: int = 10
    """Iterations between evaluations during training; 0 = only before and after."""

    queries: int = 512
    """Held-out queries of every evaluation; one number for all, since distinct-n falls as texts are added."""

    batch: int = 256
    """Queries answered at once."""

    seed: int = 20_000
    """Key of the evaluation's chance; the same for all policies, so they compare pair by pair."""

    def __post_init__(self) -> None:
        if self.every < 0:
            raise ValueError(
                f"evaluation.every is {self.every}; give iterations, or 0 for before and after only"
            )
        for name in ("queries", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"evaluation.{name} is {getattr(self, name)}; give 1 or more")


@dataclass(frozen=True, kw_only=True)
class Answers:
    """One policy's answers to B queries, with what they are worth; arrays are [B]."""

    queries: list[str]
    texts: list[str]
    arrays: dict[str, np.ndarray]
    """task_reward, kl (exact, nats per response), length, eos_share, reference_nats, and measures."""

    def numbers(self, *, kl_coef: float) -> dict[str, float]:
        """Means, and the quantities that belong to the whole set."""
        told = {
            name: float(values_B.mean()) for name, values_B in self.arrays.items() if name != "reference_nats"
        }
        tokens = float(self.arrays["length"].sum())
        told["reference_perplexity"] = float(np.exp(self.arrays["reference_nats"].sum() / tokens))
        told["combined_reward"] = told["task_reward"] - kl_coef * told["kl"]
        told["distinct_1"] = distinct(self.texts, 1)
        told["distinct_2"] = distinct(self.texts, 2)
        return told


def distinct(texts: Sequence[str], n: int) -> float:
    """Distinct n-grams of words over all n-grams of all texts (Li et al. 2016); 0 where there are none."""
    words = [text.lower().split() for text in texts]
    grams = [tuple(row[i : i + n]) for row in words for i in range(len(row) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 0.0


def alone(
    policy: Policy,
    task: Task,
    *,
    queries: int,
    batch: int,
    max_response: tuple[int, int],
    seed: int,
    measures: Mapping[str, Measure],
    interrupt: Callable[[], None] = lambda: None,
) -> Answers:
    """Let `policy` answer the first `queries` held-out queries, without partner and without template.

    Chance is keyed by `seed` and the query's index: two policies face the same numbers, and so does the next
    call. The policy's own distribution is sampled, whatever it was trained under.
    """
    held_out = task.queries("test")[:queries]
    game = VectorGame(task, seats=1, max_response=max_response, window=policy.window)
    texts: list[str] = []
    columns: dict[str, list[np.ndarray]] = {}
    for start in range(0, len(held_out), batch):
        part = held_out[start : start + batch]
        games_B = np.arange(start, start + len(part))
        deal = Deal(queries=part, games_B=games_B, key=(seed, "evaluation", 0), max_response=max_response)
        game.reset(part, deal.caps(1))
        with as_deployed(policy):
            rows, _ = answer(game, "pioneer_0", policy, deal, interrupt=interrupt)
        told = policy.evaluate(rows)
        score_B = game.scores()[:, 0]
        answered = game.texts("pioneer_0")
        whole = [query.text + text for query, text in zip(part, answered, strict=True)]
        ended_B = [response.ids[-1] in task.tokenizer.eos for response in game.responses("pioneer_0")]
        found = {
            "task_reward": score_B,
            "kl": told.exact_kl_BT.sum(1).double().cpu().numpy(),
            "length": rows.response_length_B.double().cpu().numpy(),
            "eos_share": np.array(ended_B, dtype=float),
            "reference_nats": -told.ref_logprobs_BT.sum(1).double().cpu().numpy(),
            **{name: measure(whole, score_B) for name, measure in measures.items()},
        }
        texts += answered
        for name, values_B in found.items():
            columns.setdefault(name, []).append(np.asarray(values_B))
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    return Answers(queries=[query.text for query in held_out], texts=texts, arrays=arrays)


@contextmanager
def as_deployed(policy: Policy) -> Iterator[None]:
    """Inside, what is sampled is what is scored."""
    before, policy.mismatch = policy.mismatch, "none"
    try:
        yield
    finally:
        policy.mismatch = before


def interval(values_B: np.ndarray, *, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval (BCa) of the mean; a constant is its own interval."""
    if len(values_B) < 2 or np.ptp(values_B) == 0:
        return float(values_B.mean()), float(values_B.mean())
    found = bootstrap(
        (values_B,),
        np.mean,
        confidence_level=level,
        n_resamples=2000,
        batch=200,
        rng=np.random.default_rng(seed),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def compare(answers: Answers, reference: Answers) -> dict[str, Any]:
    """The gain over the reference on the same queries, pair by pair, with its 95 % interval."""
    told: dict[str, Any] = {}
    for name in answers.arrays.keys() - {"kl", "reference_nats"}:
        gain_B = answers.arrays[name] - reference.arrays[name]
        low, high = interval(gain_B)
        spread = float(reference.arrays[name].std(ddof=1))
        told[name] = {"gain": float(gain_B.mean()), "low": low, "high": high}
        told[name]["in_reference_deviations"] = float(gain_B.mean()) / spread if spread else None
    return told
