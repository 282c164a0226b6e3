"""Advantages over the tokens of a response.

Shapes: B games, T response tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cory.runtime.arithmetic import running_sums

if TYPE_CHECKING:
    from torch import Tensor


class Advantage(NamedTuple):
    """Advantages and value targets of a batch; both are zero where no token was chosen."""

    advantage_BT: Tensor
    return_BT: Tensor
    """Target of the value head."""


def gae(
    rewards_BT: Tensor,
    values_BT: Tensor,
    mask_BT: Tensor,
    *,
    gamma: float,
    lam: float,
    beyond_B: Tensor | None = None,
) -> Advantage:
    """Generalised advantage estimation (arXiv:1506.02438) of each chosen token.

        delta_t = r_t + gamma V_{t+1} - V_t        A_t = delta_t + gamma lam A_{t+1}

    The episode of a seat ends with its response, so V and A are zero past its last token; `beyond_B` sets
    another A there, which only the released code's reward whitening needs.
    """
    import torch

    columns: list[Tensor] = []
    next_value_B = torch.zeros_like(rewards_BT[:, 0])
    beyond_B = next_advantage_B = next_value_B if beyond_B is None else beyond_B
    for t in reversed(range(rewards_BT.shape[1])):
        value_B = torch.where(mask_BT[:, t], values_BT[:, t], 0.0)
        delta_B = rewards_BT[:, t] + gamma * next_value_B - value_B
        next_advantage_B = torch.where(mask_BT[:, t], delta_B + gamma * lam * next_advantage_B, beyond_B)
        next_value_B = value_B
        columns.append(next_advantage_B)
    advantage_BT = torch.stack(columns[::-1], dim=1)
    advantage_BT = torch.where(mask_BT, advantage_BT, 0.0)
    return Advantage(advantage_BT, torch.where(mask_BT, advantage_BT + values_BT, 0.0))


def whiten(values_BT: Tensor, mask_BT: Tensor, *, shift_mean: bool = True) -> Tensor:
    """Chosen tokens with standard deviation 1, and mean 0 unless `shift_mean` is off; zero elsewhere.

    The variance is the sample's (n - 1) and 1e-8 is added to it, as in the released code.
    """
    chosen_N = values_BT[mask_BT]
    mean = chosen_N.mean()
    variance = chosen_N.var() if len(chosen_N) > 1 else mean.new_zeros(())
    whitened_BT = (values_BT - mean) * (variance + 1e-8).rsqrt()
    return (whitened_BT if shift_mean else whitened_BT + mean).where(mask_BT, 0.0)


def undiscounted(rewards_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Reward-to-go of each chosen token [B, T]: sum of r_s over s >= t."""
    chosen_BT = rewards_BT.where(mask_BT, 0.0)
    return running_sums(chosen_BT.flip(1)).flip(1).where(mask_BT, 0.0)


def totals(rewards_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return of each response [B]: the sum of its token rewards."""
    return rewards_BT.where(mask_BT, 0.0).sum(1)


def per_response(advantage_B: Tensor, rewards_BT: Tensor, mask_BT: Tensor) -> Advantage:
    """The same advantage at every chosen token of a response, with undiscounted returns."""
    return Advantage(advantage_B[:, None].where(mask_BT, 0.0), undiscounted(rewards_BT, mask_BT))


def leave_one_out(totals_B: Tensor, *, group: int) -> Tensor:
    """Each total less the mean of the others of its group (RLOO: arXiv:2402.14740, eq. 8).

    A_i = R_i - sum_{j != i} R_j / (G - 1). Groups are G neighbours in the batch.
    """
    totals_XG = totals_B.reshape(-1, group)
    others_XG = (totals_XG.sum(1, keepdim=True) - totals_XG) / (group - 1)
    return (totals_XG - others_XG).flatten()


def group_standardised(totals_B: Tensor, *, group: int, scale: bool = True) -> Tensor:
    """Each total less the mean of its group, over the group's deviation (GRPO: arXiv:2402.03300, sec. 4.1).

    A_i = (R_i - mean R) / (std R + 1e-4), the sample's deviation; without `scale` (arXiv:2503.20783) only the
    difference.
    """
    totals_XG = totals_B.reshape(-1, group)
    difference_XG = totals_XG - totals_XG.mean(1, keepdim=True)
    if scale:
        difference_XG = difference_XG / (totals_XG.std(1, keepdim=True) + 1e-4)
    return difference_XG.flatten()
