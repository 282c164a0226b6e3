"""A central critic (MAPPO, arXiv:2103.01955): values of every seat's tokens from the whole transcript so far.

Its input is the transcript of a game, the pioneer's prompt and then the responses in the order of play, each
with the task's annotation, as hidden states of the frozen reference, including what a seat's own view hides.
It has one small head per seat; heads stay with the seats when policies are exchanged.

Shapes: B games, P prompt tokens, T response tokens, K chosen tokens, D width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cory import rng
from cory.batch import Batch, Rows, joined
from cory.functional.value_fit import fit
from cory.learner.critic_config import CriticConfig
from cory.policies.base import Policy
from cory_env.registry import Registry


def transcripts(batches: Mapping[str, Batch]) -> dict[str, Rows]:
    """Each seat's responses after the transcript before them; `batches` come in the order of play.

    The first seat's prompt opens every transcript. Responses keep their EOS, and annotations follow them.
    """
    first = next(iter(batches.values()))
    transcript_BP, length_B = first.prompt_BP, first.prompt_length_B
    rows_by_seat = {}
    for seat, batch in batches.items():
        rows_by_seat[seat] = Rows(
            prompt_BP=transcript_BP,
            prompt_length_B=length_B,
            response_BT=batch.response_BT,
            response_length_B=batch.response_length_B,
        )
        transcript_BP, length_B = rows_by_seat[seat].joined(), length_B + batch.response_length_B
        if batch.annotation_BA.shape[1]:
            before, annotation = (transcript_BP, length_B), (batch.annotation_BA, batch.annotation_length_B)
            length_B = length_B + batch.annotation_length_B
            transcript_BP = joined(before, annotation, length=int(length_B.max()))
    return rows_by_seat


def states(reference: Policy, rows: Rows, max_length: int) -> Tensor:
    """Hidden states [K, D] of the reference before each chosen token, in passes that fit its memory."""
    size = reference.max_rows(max_length, learning=False)
    return rows.in_passes(size, lambda part: reference.critic_states(part, max_length))


class Head(nn.Module):
    """A perceptron with one hidden layer that predicts 0 before training."""

    def __init__(self, width: int, hidden: int, *, key: tuple[int | str, ...]) -> None:
        """`key` seeds the first layer's weights, uniform with variance 1 / width."""
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner, self.outer = nn.Linear(width, hidden), nn.Linear(hidden, 1)
        drawn_HD = torch.from_numpy(rng.uniforms(key, np.arange(hidden), width))
        with torch.no_grad():
            self.inner.weight.copy_((2 * drawn_HD - 1) * (3 / width) ** 0.5)
            for zero in (self.inner.bias, self.outer.weight, self.outer.bias):
                zero.zero_()

    def forward(self, state_KD: Tensor) -> Tensor:
        """Expected payoff still to come [K]."""
        value_K1: Tensor = self.outer(torch.tanh(self.inner(self.norm(state_KD.float()))))
        return value_K1.squeeze(1)


class CentralCritic:
    """One head per seat on the reference's hidden states of the transcript, and their optimiser."""

    def __init__(
        self, reference: Policy, seats: Sequence[str], config: CriticConfig, *, max_length: int, seed: int
    ) -> None:
        """`max_length` is the largest number of tokens of a transcript, the last response included."""
        if reference.window is not None and max_length > reference.window:
            raise ValueError(
                f"a central critic reads whole games, up to {max_length} tokens; the model's "
                f"window is {reference.window}: lower max_response, shorten the query or take critic.kind own"
            )
        self.reference, self.config, self.max_length = reference, config, max_length
        width = _width(reference, max_length)
        self.heads = nn.ModuleDict(
            {seat: Head(width, HIDDEN, key=(seed, "critic", seat)) for seat in seats}
        ).to(reference.device)
        self.reset()
        self._states: dict[str, tuple[Tensor, Tensor]] = {}

    def reset(self) -> None:
        """Start the optimizer anew; the heads keep their weights."""
        self.optimizer = torch.optim.Adam(self.heads.parameters(), lr=self.config.lr)

    @torch.no_grad()
    def value(self, batches: Mapping[str, Batch]) -> dict[str, Batch]:
        """The batches of all seats, in the order of play, with this critic's values where a policy learns."""
        valued, self._states = dict(batches), {}
        for seat, rows in transcripts(batches).items():
            if seat in self.heads:
                state_KD = states(self.reference, rows, self.max_length)
                values_BT = torch.zeros_like(batches[seat].values_BT)
                values_BT[rows.mask_BT] = self.heads[seat](state_KD)
                valued[seat] = replace(batches[seat], values_BT=values_BT)
                self._states[seat] = state_KD, rows.mask_BT
        return valued

    def update(self, returns: Mapping[str, Tensor]) -> dict[str, float]:
        """Learn the returns [B, T] of the games that were valued last, by seat.

        The loss is the mean of (V - R)^2 over the chosen tokens of all seats. Returns the loss before the
        first pass and the explained variance of the returns then.
        """
        return_K = torch.cat([returns[seat][mask_BT] for seat, (_, mask_BT) in self._states.items()])

        def values() -> Tensor:
            return torch.cat([self.heads[seat](state_KD) for seat, (state_KD, _) in self._states.items()])

        loss, explained = fit(values, return_K, self.optimizer, epochs=self.config.epochs, lr="critic.lr")
        return {"value_loss": loss, "explained_variance": explained}

    def save(self, folder: Path) -> None:
        """Write one safetensors file."""
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self.heads.state_dict(), folder / "heads.safetensors")

    def restore(self, folder: Path) -> None:
        """Load what `save` wrote, in place."""
        self.heads.load_state_dict(load_file(folder / "heads.safetensors"))


@torch.no_grad()
def _width(reference: Policy, max_length: int) -> int:
    """D, the width of the critic's inputs."""
    id_11 = torch.zeros(1, 1, dtype=torch.long, device=reference.device)
    one_1 = torch.ones_like(id_11[0])
    rows = Rows(prompt_BP=id_11, prompt_length_B=one_1, response_BT=id_11, response_length_B=one_1)
    return reference.critic_states(rows, max_length).shape[-1]


HIDDEN = 64
"""Width of a head's hidden layer."""

METHODS = ("value", "update", "reset", "save", "restore")


REGISTRY: Registry[Any] = Registry(
    "critic.kind",
    "cory.critics",
    {"own": None, "central": CentralCritic},
    form="module:Class or file.py:Class",
)
"""Critics of all seats by name; `own` is the policies' value heads."""


def critic_class(kind: str) -> Any:
    """The class of a critic of all seats; ValueError if there is none, or if it lacks one of `METHODS`."""
    critic = REGISTRY.load(kind)
    if missing := [method for method in METHODS if not hasattr(critic, method)]:
        raise ValueError(f"critic.kind {kind!r} has no {', '.join(missing)}; see CentralCritic")
    return critic
