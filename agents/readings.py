"""What an iteration and an evaluation say about themselves, keyed seat/policy/quantity.

Shapes: B games, T response tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import torch

from agents.batch import Batch
from agents.evaluate import Answers
from agents.measures import diversity


def of_iteration(
    seating: Mapping[str, str],
    batches: Mapping[str, Batch],
    updates: Mapping[str, Mapping[str, float]],
    seconds: Mapping[str, float],
    *,
    kl_coef: float,
    eos: Iterable[int],
) -> dict[str, float]:
    """Everything that is logged: of each seat, of the update of the policy that sits there, of the clock.

    `seconds` are by phase; `kl_coef` is the fixed price of the combined reward.
    """
    told: dict[str, float] = {}
    for seat, name in seating.items():
        seen = of_batch(batches[seat], kl_coef=kl_coef, eos=eos) | updates[name]
        told |= {f"{seat}/{name}/{quantity}": number for quantity, number in seen.items()}
    told |= {f"time/{phase}/seconds": spent for phase, spent in seconds.items()}
    tokens = sum(int(batch.response_length_B.sum()) for batch in batches.values())
    told["speed/tokens/per_second"] = tokens / sum(seconds.values())
    return told


def of_batch(batch: Batch, *, kl_coef: float, eos: Iterable[int]) -> dict[str, float]:
    """Means over the games of one seat; KL in nats per response, lengths in tokens."""
    last_B1 = batch.response_BT.gather(1, batch.response_length_B[:, None] - 1)
    ended_B1 = torch.isin(last_B1, torch.tensor(sorted(eos), device=last_B1.device))
    score, kl = float(batch.score_B.mean()), float(batch.exact_kl_BT.sum(1).mean())
    return {
        "task_reward": score,
        "payoff": float(batch.payoff_B.mean()),
        "kl": kl,
        "kl_sampled": float((batch.old_logprobs_BT - batch.ref_logprobs_BT).sum(1).mean()),
        "combined_reward": score - kl_coef * kl,
        "response_length": float(batch.response_length_B.double().mean()),
        "eos_share": float(ended_B1.double().mean()),
    }


def of_answers(
    answers: Mapping[str, Answers], policies: Sequence[str], *, kl_coef: float, threshold: float | None
) -> dict[str, float]:
    """What everyone is alone, and under `all/policies` how differently `policies` answer the same queries:
    the mean over their pairs."""
    told = {
        f"alone/{name}/{quantity}": number
        for name, of in answers.items()
        for quantity, number in of.numbers(kl_coef=kl_coef, threshold=threshold).items()
    }
    pairs = list(combinations(policies, 2))
    for one, other in pairs:
        for quantity, values_Q in diversity(answers[one].texts, answers[other].texts).items():
            key = f"all/policies/{quantity}"
            told[key] = told.get(key, 0.0) + float(values_Q.mean()) / len(pairs)
    return told
