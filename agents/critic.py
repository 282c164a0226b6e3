"""A central critic (MAPPO: arXiv:2103.01955): it values every token of every seat from all that was said
before, also where the seat's own view hides it.

It reads the transcript of a game, the pioneer's prompt and then the responses in the order of play, with the
eyes of the frozen reference, and has one small head per seat. Seats belong to the game: when policies are
exchanged, the heads stay with the seats.

Shapes: B games, P prompt tokens, T response tokens, K chosen tokens, D width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from agents import randomness
from agents.batch import Batch, Rows
from agents.policies.base import Policy


@dataclass(frozen=True, kw_only=True)
class Config:
    """Whose values advantages are reckoned with."""

    kind: Literal["own", "central"] = "own"
    """`own`: each policy's value head, which reads what its seat reads. `central`: one critic for all seats
    that reads everything; the policies' value heads are then left as they are (`value_loss` of a policy is
    told, not minimised)."""

    lr: float = 3e-3
    """Learning rate of the central critic's Adam."""

    epochs: int = 8
    """Its passes over each batch."""

    hidden: int = 64
    """Width of its heads' hidden layer."""

    def __post_init__(self) -> None:
        if self.kind not in ("own", "central"):
            raise ValueError(f"critic.kind is {self.kind!r}; there are own, central")
        if not 0 < self.lr < float("inf"):
            raise ValueError(f"critic.lr is {self.lr}; give a finite number above 0")
        for name in ("epochs", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"critic.{name} is {getattr(self, name)}; give 1 or more")


def transcripts(batches: Mapping[str, Batch]) -> dict[str, Rows]:
    """Each seat's responses behind all that was said before them; `batches` come in the order of play.

    The first seat's prompt opens every transcript. Responses keep the EOS they were ended with.
    """
    first = next(iter(batches.values()))
    said_BP, length_B = first.prompt_BP, first.prompt_length_B
    told = {}
    for seat, batch in batches.items():
        told[seat] = Rows(
            prompt_BP=said_BP,
            prompt_length_B=length_B,
            response_BT=batch.response_BT,
            response_length_B=batch.response_length_B,
        )
        said_BP, length_B = told[seat].joined(), length_B + batch.response_length_B
    return told


class Head(nn.Module):
    """A perceptron with one hidden layer that expects 0 until it has learned otherwise."""

    def __init__(self, width: int, hidden: int, *, key: tuple[int | str, ...]) -> None:
        """`key` is the source of the first layer's weights, uniform with variance 1 / width."""
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, hidden), nn.Linear(hidden, 1)
        drawn_HD = torch.from_numpy(randomness.uniforms(key, np.arange(hidden), width))
        with torch.no_grad():
            self.inner.weight.copy_((2 * drawn_HD - 1) * (3 / width) ** 0.5)
            for zero in (self.inner.bias, self.outer.weight, self.outer.bias):
                zero.zero_()

    def forward(self, state_KD: Tensor) -> Tensor:
        """Expected payoff still to come [K]."""
        value_K1: Tensor = self.outer(torch.tanh(self.inner(self.norm(state_KD.float()))))
        return value_K1.squeeze(1)


class CentralCritic:
    """One head per seat on what the reference makes of the transcript, and their optimiser."""

    def __init__(
        self, reference: Policy, seats: Sequence[str], config: Config, *, longest: int, seed: int
    ) -> None:
        """`longest` is how many tokens a transcript may reach, the last response included."""
        if reference.window is not None and longest > reference.window:
            raise ValueError(
                f"a central critic reads all that is said in a game, up to {longest} tokens; the model's "
                f"window is {reference.window}: lower max_response, shorten the query or take critic.kind own"
            )
        self.reference, self.config, self.longest = reference, config, longest
        width = _width(reference, longest)
        self.heads = nn.ModuleDict(
            {seat: Head(width, config.hidden, key=(seed, "critic", seat)) for seat in seats}
        ).to(reference.device)
        self.optimizer = torch.optim.Adam(self.heads.parameters(), lr=config.lr)
        self._heard: dict[str, tuple[Tensor, Tensor]] = {}

    @torch.no_grad()
    def value(self, batches: Mapping[str, Batch]) -> dict[str, Batch]:
        """The batches, in the order of play, with this critic's values in place of the policies' own."""
        told, self._heard = {}, {}
        for seat, rows in transcripts(batches).items():
            state_KD, mask_BT = self.reference.critic_states(rows, self.longest), rows.mask_BT
            values_BT = torch.zeros_like(batches[seat].values_BT)
            values_BT[mask_BT] = self.heads[seat](state_KD)
            told[seat] = replace(batches[seat], values_BT=values_BT)
            self._heard[seat] = state_KD, mask_BT
        return told

    def update(self, returns: Mapping[str, Tensor]) -> dict[str, float]:
        """Learn the returns [B, T] of the games that were valued last, by seat.

        The loss is the mean of (V - R)^2 over the chosen tokens of all seats. Returns it as it was before the
        first pass, and the share of the returns' variance that the values explained then.
        """
        return_K = torch.cat([returns[seat][mask_BT] for seat, (_, mask_BT) in self._heard.items()])
        numbers: dict[str, float] = {}
        for _ in range(self.config.epochs):
            value_K = torch.cat([self.heads[seat](state_KD) for seat, (state_KD, _) in self._heard.items()])
            loss = (value_K - return_K).square().mean()
            if not numbers:
                explained = 1 - (return_K - value_K).var() / return_K.var()
                numbers = {"value_loss": loss.item(), "explained_variance": explained.item()}
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
        return numbers

    def save(self, folder: Path) -> None:
        """As one safetensors file."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.heads.state_dict(), folder / "heads.safetensors")

    def restore(self, folder: Path) -> None:
        """Take what `save` wrote, in place."""
        self.heads.load_state_dict(load_file(folder / "heads.safetensors"))


@torch.no_grad()
def _width(reference: Policy, longest: int) -> int:
    """The D of what `reference` makes of any transcript."""
    id_11 = torch.zeros(1, 1, dtype=torch.long, device=reference.device)
    one_1 = torch.ones_like(id_11[0])
    rows = Rows(prompt_BP=id_11, prompt_length_B=one_1, response_BT=id_11, response_length_B=one_1)
    return reference.critic_states(rows, longest).shape[-1]
