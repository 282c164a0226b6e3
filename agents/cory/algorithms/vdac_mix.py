"""VDAC-mix (arXiv:2007.12306, section 4.2): VDAC whose V_tot is a monotonic mix of the seats' values.

In place of the sum of `vdac`, a network f mixes the values of the seats up to the one that plays:

    V_tot(i, t) = |u(s_i)| . elu(|w(s_i)| V_i(t) + sum over j < i of |w(s_j)| V_j(first) + b(s_i)) + c(s_i)

s_j is the frozen reference's hidden state of the transcript before seat j responds; w, u, b and c are
hypernetworks. Weights that are not negative make V_tot monotonic in every value: what is better for a seat
is never worse for the team. The mixer starts close to the sum and belongs to the team: it is not exchanged,
and has an optimiser of its own that minimises (V_tot - R)^2.

Value heads learn through the mixer. The gradient of (R - V_tot)^2 / 2 with respect to V_i is that of
(target - V_i)^2 / 2 with target = V_i + (R - V_tot) dV_tot/dV_i, the target that they are given. Of later
seats nothing is mixed, for the reason given in `vdac`.

Shapes: B games, T response tokens, D width of the states, W projected width, H hidden units.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import elu, layer_norm

from cory import rng
from cory.algorithms import ppo, vdac
from cory.algorithms.base import Advantages, Batches, Rewards
from cory.algorithms.ppo import token_loss, verdict
from cory.algorithms.vdac import advantage, needs
from cory.functional.advantage import Advantage
from cory.functional.value_fit import fit

__all__ = ["Config", "advantage", "needs", "team_state", "token_loss", "update_all", "verdict"]

WIDTH = 64
"""W, to which states are projected."""


@dataclass(frozen=True, kw_only=True)
class Config(ppo.Config):
    """Settings of PPO and of the mixer."""

    mixer_lr: float = 3e-3
    """Learning rate of the mixer's Adam."""

    mixer_epochs: int = 8
    """The mixer's passes over each batch."""

    mixer_hidden: int = 32
    """Hidden units of the mixer."""


class Turn(NamedTuple):
    """What is mixed when a seat plays."""

    own_BT: Tensor
    """The seat's values."""
    state_BW: Tensor
    earlier: tuple[tuple[Tensor, Tensor], ...]
    """Value [B] and state [B, W] of each earlier seat."""


class Mixer(nn.Module):
    """f, for any number of seats: a seat's weights are a function of the state in which it plays."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        even = hidden**-0.5  # products of two of them add up to 1 over the hidden units
        self.weight = _linear("weight", hidden, bias=even, scale=0.1 * even)
        self.out = _linear("out", hidden, bias=even, scale=0.1 * even)
        self.shift = _linear("shift", hidden)
        self.inner = _linear("inner", hidden, scale=1.0)
        self.outer = nn.Linear(hidden, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, turn: Turn) -> Tensor:
        """V_tot before each token [B, T]."""
        hidden_BH = self.shift(turn.state_BW)
        for value_B, state_BW in turn.earlier:
            hidden_BH = hidden_BH + value_B[:, None] * self.weight(state_BW).abs()
        own_BTH = turn.own_BT[:, :, None] * self.weight(turn.state_BW).abs()[:, None]
        units_BTH = elu(own_BTH + hidden_BH[:, None]) * self.out(turn.state_BW).abs()[:, None]
        bias_B1 = self.outer(torch.tanh(self.inner(turn.state_BW)))
        total_BT: Tensor = units_BTH.sum(2) + bias_B1
        return total_BT


class TeamMixer:
    """The mixer and its optimiser: the team's state."""

    def __init__(self, config: Config, device: torch.device) -> None:
        self.mixer, self.lr = Mixer(config.mixer_hidden).to(device), config.mixer_lr
        self.reset()

    def reset(self) -> None:
        """Start the optimiser anew; the mixer keeps its weights."""
        self.optimizer = torch.optim.Adam(self.mixer.parameters(), lr=self.lr)

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimiser."""
        return {"mixer": self.mixer.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, content: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self.mixer.load_state_dict(content["mixer"])
        self.optimizer.load_state_dict(content["optimizer"])

    def totals(self, turns: Mapping[str, Turn]) -> dict[str, tuple[Tensor, Tensor]]:
        """V_tot and dV_tot/dV_i before each token, both [B, T], by seat; no gradient."""
        by_seat = {}
        for seat, turn in turns.items():
            own_BT = turn.own_BT.detach().requires_grad_()
            with torch.enable_grad():
                total_BT = self.mixer(turn._replace(own_BT=own_BT))
                (slope_BT,) = torch.autograd.grad(total_BT.sum(), own_BT)
            by_seat[seat] = total_BT.detach(), slope_BT
        return by_seat

    def fit(
        self,
        turns: Mapping[str, Turn],
        returns: Mapping[str, Tensor],
        masks: Mapping[str, Tensor],
        *,
        epochs: int,
    ) -> dict[str, float]:
        """Minimise the mean of (V_tot - R)^2 over the chosen tokens of all seats.

        Returns the loss before the first step and the explained variance of the returns then;
        FloatingPointError if the loss is not finite.
        """
        return_K = torch.cat([returns[seat][masks[seat]] for seat in turns])

        def totals() -> Tensor:
            return torch.cat([self.mixer(turn)[masks[seat]] for seat, turn in turns.items()])

        loss, explained = fit(totals, return_K, self.optimizer, epochs=epochs, lr="algorithm.mixer_lr")
        return {"mixer_loss": loss, "mixer_explained_variance": explained}


def team_state(learners: Mapping[str, Any], config: Config) -> TeamMixer:
    """Make the mixer, on the device of the policies."""
    return TeamMixer(config, next(iter(learners.values())).policy.device)


def update_all(
    team: Any, batches: Batches, advantages: Advantages, config: Config
) -> dict[str, dict[str, float]]:
    """Update every policy with advantages from the mixed V_tot, then the mixer.

    `advantages`, those of `vdac`, are replaced, but for rows of `sharing`. Metrics by policy, each with the
    loss of the mixer and the variance of the returns that V_tot explained.
    """
    turns, rewards = turns_of(batches, team.states()), team.rewards(batches)
    mixed, returns = mixed_advantages(batches, rewards, team.state.totals(turns), config)
    metrics = {
        name: learner.update(*team.data(name, batches, mixed)) for name, learner in team.learners.items()
    }
    masks = {seat: batch.mask_BT for seat, batch in batches.items()}
    of_mixer = team.state.fit(turns, returns, masks, epochs=config.mixer_epochs)
    return {name: of_policy | of_mixer for name, of_policy in metrics.items()}


def mixed_advantages(
    batches: Batches,
    rewards: Rewards,
    totals: Mapping[str, tuple[Tensor, Tensor]],
    config: Config,
) -> tuple[dict[str, Advantage], dict[str, Tensor]]:
    """PPO's advantages on V_tot with the value heads' targets, and the returns that V_tot should predict."""
    vdac.check_common_payoff(batches)
    mixed = {seat: replace(batch, values_BT=totals[seat][0]) for seat, batch in batches.items()}
    advantages, returns = {}, {}
    for seat, of_total in ppo.advantage(mixed, rewards, config, {}).items():
        (total_BT, slope_BT), batch = totals[seat], batches[seat]
        target_BT = batch.values_BT + slope_BT * (of_total.return_BT - total_BT)
        advantages[seat] = of_total._replace(return_BT=torch.where(batch.mask_BT, target_BT, 0.0))
        returns[seat] = of_total.return_BT
    return advantages, returns


def turns_of(batches: Batches, states: Mapping[str, Tensor]) -> dict[str, Turn]:
    """What is mixed when each seat plays, from states [B, D] by seat; values where no token is are 0."""
    turns: dict[str, Turn] = {}
    earlier: tuple[tuple[Tensor, Tensor], ...] = ()
    for seat, batch in batches.items():
        state_BW = projected(states[seat])
        own_BT = torch.where(batch.mask_BT, batch.values_BT, 0.0)
        turns[seat] = Turn(own_BT, state_BW, earlier)
        earlier = (*earlier, (own_BT[:, 0], state_BW))
    return turns


def projected(state_BD: Tensor) -> Tensor:
    """The states times a fixed random matrix [D, W], normalised to mean 0 and variance 1.

    Row d of the matrix is a function of d alone: states of lookup tables, which are wider for longer games,
    are projected alike whatever their width.
    """
    drawn_DW = rng.uniforms(("vdac_mix", "projection"), np.arange(state_BD.shape[1]), WIDTH)
    matrix_DW = 2 * torch.from_numpy(drawn_DW).to(state_BD.device) - 1
    return layer_norm(state_BD.float() @ matrix_DW, (WIDTH,))


def _linear(name: str, outputs: int, *, bias: float = 0.0, scale: float = 0.0) -> nn.Linear:
    """A layer from W; its outputs have mean `bias` and standard deviation `scale` before training."""
    layer = nn.Linear(WIDTH, outputs)
    drawn_OW = torch.from_numpy(rng.uniforms(("vdac_mix", name), np.arange(outputs), WIDTH))
    with torch.no_grad():
        layer.weight.copy_((2 * drawn_OW - 1) * scale * (3 / WIDTH) ** 0.5)
        layer.bias.fill_(bias)
    return layer
