"""The PPO update of the vanilla HF baseline: padded rows, statistics, rewards, advantages, four epochs.

Shapes: B rows, P prompt tokens, T response tokens, L = P + T, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

CLIP, VALUE_CLIP, VALUE_COEF, GAMMA, LAM, EPOCHS = 0.2, 0.2, 0.1, 1.0, 0.95, 4
Ids = Sequence[int]


class Rows(NamedTuple):
    """Prompts padded on the left, responses to them padded on the right."""

    ids_BL: Tensor
    real_BL: Tensor
    """True = not padding."""
    mask_BT: Tensor
    """True = a token the policy chose."""

    def at(self, rows: slice) -> "Rows":
        """Some of the rows."""
        return Rows(*(tensor[rows] for tensor in self))


Model = Callable[[Rows], tuple[Tensor, Tensor]]
"""Logits [B, T, V] and values [B, T] of the states in which a response's tokens were chosen."""


class Statistics(NamedTuple):
    """Statistics of responses before the first update; undefined past a response's end."""

    logprob_BT: Tensor
    ref_logprob_BT: Tensor
    kl_BT: Tensor
    """KL(policy || reference) over the whole vocabulary, in nats."""
    value_BT: Tensor


def padded(sequences: Sequence[Ids], pad: int, *, left: bool) -> tuple[Tensor, Tensor]:
    """The sequences as one tensor, and a mask that is False at padding."""
    width = max(map(len, sequences))
    ids, real = [], []
    for sequence in sequences:
        pads, ones = [pad] * (width - len(sequence)), [True] * len(sequence)
        ids.append([*pads, *sequence] if left else [*sequence, *pads])
        real.append([False] * len(pads) + ones if left else ones + [False] * len(pads))
    return torch.tensor(ids), torch.tensor(real)


def rows_of(prompts: Sequence[Ids], responses: Sequence[Ids], pad: int) -> Rows:
    """Prompts and responses as the models read them."""
    prompt_BP, real_BP = padded(prompts, pad, left=True)
    response_BT, mask_BT = padded(responses, pad, left=False)
    return Rows(torch.cat([prompt_BP, response_BT], 1), torch.cat([real_BP, mask_BT], 1), mask_BT)


def parts(count: int, chunk: int | None) -> Iterator[slice]:
    """Slices of `count` rows, `chunk` at a time."""
    size = chunk or count
    return (slice(first, first + size) for first in range(0, count, size))


def chosen(logprob_BTV: Tensor, rows: Rows) -> Tensor:
    """The log-probs of the response's own tokens [B, T]."""
    response_BT = rows.ids_BL[:, -rows.mask_BT.shape[1] :]
    return logprob_BTV.gather(2, response_BT[..., None]).squeeze(2)


@torch.no_grad()
def statistics(policy: Model, reference: Model, rows: Rows, chunk: int | None = None) -> Statistics:
    """One pass of the policy and one of the reference."""
    found = []
    for at in parts(len(rows.ids_BL), chunk):
        part = rows.at(at)
        logits_BTV, value_BT = policy(part)
        logprob_BTV, ref_logprob_BTV = logits_BTV.log_softmax(-1), reference(part)[0].log_softmax(-1)
        kl_BTV = nn.functional.kl_div(ref_logprob_BTV, logprob_BTV, reduction="none", log_target=True)
        logprobs = chosen(logprob_BTV, part), chosen(ref_logprob_BTV, part)
        found.append(Statistics(*logprobs, kl_BTV.sum(-1), value_BT))
    return Statistics(*map(torch.cat, zip(*found, strict=True)))


def token_rewards(payoff_B: Tensor, kl_BT: Tensor, mask_BT: Tensor, *, eta: float) -> Tensor:
    """-eta KL at each chosen token, plus the payoff at the last of them."""
    reward_BT = -eta * kl_BT * mask_BT
    reward_BT[torch.arange(len(payoff_B)), mask_BT.sum(1) - 1] += payoff_B
    return reward_BT


def gae(reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Advantages and returns (arXiv:1506.02438); value and reward are 0 past the end of a response."""
    value_BT = value_BT * mask_BT
    advantages, next_advantage_B, next_value_B = [], torch.zeros(()), torch.zeros(())
    for t in reversed(range(reward_BT.shape[1])):
        delta_B = reward_BT[:, t] + GAMMA * next_value_B - value_BT[:, t]
        next_advantage_B = delta_B + GAMMA * LAM * next_advantage_B
        next_value_B = value_BT[:, t]
        advantages.append(next_advantage_B)
    advantage_BT = torch.stack(advantages[::-1], dim=1)
    return advantage_BT, advantage_BT + value_BT


def whiten(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Chosen tokens with mean 0 and standard deviation 1."""
    chosen_N = values_BT[mask_BT]
    return (values_BT - chosen_N.mean()) * torch.rsqrt(chosen_N.var() + 1e-8)


def update(
    policy: Model,
    optimizer: torch.optim.Optimizer,
    rows: Rows,
    old: Statistics,
    advantage_BT: Tensor,
    return_BT: Tensor,
    chunk: int | None = None,
) -> list[dict[str, float]]:
    """Four steps of PPO on the whole batch, gradients accumulated over parts of it; the metrics of each step.

    The loss is the mean over all chosen tokens of the batch, whatever the parts.
    """
    history = []
    for _ in range(EPOCHS):
        optimizer.zero_grad(set_to_none=True)
        sums: dict[str, Tensor | float] = {}
        for at in parts(len(rows.ids_BL), chunk):
            part, mask_BT = rows.at(at), rows.mask_BT[at]
            logits_BTV, value_BT = policy(part)
            logprob_BTV = logits_BTV.log_softmax(-1)
            log_ratio_BT = chosen(logprob_BTV, part) - old.logprob_BT[at]
            gain_BT = log_ratio_BT.exp() * advantage_BT[at]
            clipped_BT = log_ratio_BT.exp().clamp(1 - CLIP, 1 + CLIP) * advantage_BT[at]
            old_value_BT = old.value_BT[at]
            near_BT = torch.clamp(value_BT, old_value_BT - VALUE_CLIP, old_value_BT + VALUE_CLIP)
            errors = (value_BT - return_BT[at]).square(), (near_BT - return_BT[at]).square()
            policy_BT, value_loss_BT = -torch.minimum(gain_BT, clipped_BT), torch.maximum(*errors) / 2
            loss_BT = policy_BT + VALUE_COEF * value_loss_BT
            (loss_BT[mask_BT].sum() / rows.mask_BT.sum()).backward()
            with torch.no_grad():
                entropy_BT = -(logprob_BTV.exp() * logprob_BTV).sum(-1)
            metrics = {
                "policy": policy_BT,
                "value": value_loss_BT,
                "total": loss_BT,
                "entropy": entropy_BT,
                "approxkl": log_ratio_BT.square() / 2,
                "clipfrac": (clipped_BT < gain_BT).float(),
            }
            for name, metric_BT in metrics.items():
                sums[name] = sums.get(name, 0.0) + metric_BT.detach()[mask_BT].sum()
        optimizer.step()
        history.append({name: float(total / rows.mask_BT.sum()) for name, total in sums.items()})
    return history
