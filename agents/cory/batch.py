"""Prompts, responses and everything recorded about them: what travels from rollout to learner.

Knows neither games nor transformers.

Shapes: B games, P prompt tokens, T response tokens, L tokens of the longest prompt + response, K chosen
tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Prompts and their responses, both right-padded. Lengths say what is padding; ids never do."""

    prompt_BP: Tensor
    """Token ids the policy conditions on."""

    prompt_length_B: Tensor
    """Number of real prompt tokens, at least 1."""

    response_BT: Tensor
    """Token ids the policy chose, EOS included when it was chosen."""

    response_length_B: Tensor
    """Number of real response tokens, at least 1."""

    annotation_BA: Tensor = None  # type: ignore[assignment]
    """Token ids that the task shows to later seats behind the response; none by default."""

    annotation_length_B: Tensor = None  # type: ignore[assignment]
    """Number of tokens of the annotation, from 0."""

    def __post_init__(self) -> None:
        B = self.response_BT.shape[0]
        if self.annotation_BA is None:
            object.__setattr__(self, "annotation_BA", self.response_BT[:, :0])
            object.__setattr__(self, "annotation_length_B", torch.zeros_like(self.response_length_B))
        _check(self, "prompt_length_B", (B,))
        _check(self, "response_length_B", (B,))
        _check(self, "prompt_BP", (B, self.prompt_BP.shape[-1]))
        if B and int(torch.minimum(self.prompt_length_B, self.response_length_B).min()) < 1:
            name = "response" if int(self.prompt_length_B.min()) > 0 else "prompt"
            raise ValueError(
                f"Rows.{name}_length_B holds a 0; every row needs a prompt and a response of one token or "
                "more"
            )

    @cached_property
    def mask_BT(self) -> Tensor:
        """True = a token the policy chose."""
        at_T = torch.arange(self.response_BT.shape[1], device=self.response_BT.device)
        return at_T < self.response_length_B[:, None]

    @cached_property
    def max_length(self) -> int:
        """L, read from the device once."""
        return int((self.prompt_length_B + self.response_length_B).max())

    @cached_property
    def _chosen_K(self) -> Tensor:
        return self.mask_BT.flatten().nonzero()[:, 0]

    def chosen(self, values_BT: Tensor) -> Tensor:
        """Values at the chosen tokens [K], in the order of `mask_BT`."""
        if values_BT.shape != self.response_BT.shape:
            raise ValueError(
                f"values have shape {tuple(values_BT.shape)}; the responses have shape "
                f"{tuple(self.response_BT.shape)}"
            )
        return values_BT.flatten()[self._chosen_K]

    def joined(self) -> Tensor:
        """Each prompt followed directly by its response [B, L]; zeros past both.

        Right padding needs neither an attention mask nor position ids under causal attention.
        """
        parts = (self.prompt_BP, self.prompt_length_B), (self.response_BT, self.response_length_B)
        return joined(*parts, length=self.max_length)

    def take(self, index_B: Tensor) -> Self:
        """The rows at `index_B`, in that order, cut to the longest of them."""
        return type(self)(**_cut({name: getattr(self, name)[index_B] for name in columns(type(self))}))

    def pieces(self, size: int, index_B: Tensor | None = None) -> list[Tensor]:
        """Indices of all rows, or those given, in pieces of at most `size`, of like lengths for less padding.

        What fits one piece keeps its order.
        """
        length_B = self.prompt_length_B + self.response_length_B
        if index_B is None:
            index_B = torch.arange(len(length_B), device=length_B.device)
        if len(index_B) <= size:
            return [index_B]
        by_length_B = index_B[length_B[index_B].argsort(stable=True)]
        return list(by_length_B.chunk(-(-len(index_B) // size)))

    def in_passes(self, size: int, states_of: Callable[[Self], Tensor]) -> Tensor:
        """What `states_of` computes at the chosen tokens [K, ...] in the order of `mask_BT`, by `pieces`."""
        pieces = self.pieces(size)
        if len(pieces) == 1:
            return states_of(self)
        at_BT = (self.mask_BT.flatten().cumsum(0) - 1).view_as(self.mask_BT)
        states, at = [], []
        for index_B in pieces:
            rows = self.take(index_B)
            states.append(states_of(rows))
            at.append(rows.chosen(at_BT[index_B, : rows.response_BT.shape[1]]))
        return torch.cat(states)[torch.cat(at).argsort()]

    def input_ids(self) -> Tensor:
        """Model input that predicts every response token [B, L - 1]: `joined()` without its last column."""
        return self.joined()[:, :-1]

    def predicting_positions(self) -> Tensor:
        """Index [K] into the flattened `input_ids()` of the token before each chosen token."""
        B, T = self.response_BT.shape
        device = self.response_BT.device
        row_start_B1 = torch.arange(B, device=device)[:, None] * (self.max_length - 1)
        return self.chosen(row_start_B1 + torch.arange(T, device=device) + self.prompt_length_B[:, None] - 1)


@dataclass(frozen=True, kw_only=True)
class Batch(Rows):
    """Rows with everything recorded before the first update. Zero where `mask_BT` is False."""

    behaviour_logprobs_BT: Tensor
    """Log-probability of each chosen token, from the very logits it was sampled from."""

    old_logprobs_BT: Tensor
    """The same, as the learner computes it; with our sampler they are equal up to rounding."""

    ref_logprobs_BT: Tensor
    """Log-probability of each chosen token under the reference."""

    exact_kl_BT: Tensor
    """KL(policy || reference) over the whole vocabulary, in nats, in the state each token was chosen in."""

    values_BT: Tensor
    """The value head's estimate of the payoff still to come, before each token."""

    score_B: Tensor
    """Score of each response in task units."""

    payoff_B: Tensor
    """Payoff of the seat: its row of W times the scores of all seats."""

    def __post_init__(self) -> None:
        super().__post_init__()
        B, T = self.response_BT.shape
        for name in columns(Batch):
            if name.endswith("_BT"):
                _check(self, name, (B, T))
        _check(self, "score_B", (B,))
        _check(self, "payoff_B", (B,))

    def __len__(self) -> int:
        return len(self.response_BT)


def joined(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], *, length: int) -> Tensor:
    """Each row of the first ids, of which these many count, and directly behind it that of the second.

    [B, length], with zeros past both.
    """
    (first_BX, first_length_B), (second_BY, second_length_B) = first, second
    at_1L = torch.arange(length, device=first_BX.device)[None]
    source_BZ = torch.cat([first_BX, second_BY], dim=1)
    behind_BL = first_BX.shape[1] + at_1L - first_length_B[:, None]
    index_BL = torch.where(at_1L < first_length_B[:, None], at_1L, behind_BL)
    taken_BL = source_BZ.gather(1, index_BL.clamp(max=source_BZ.shape[1] - 1))
    return taken_BL * (at_1L < (first_length_B + second_length_B)[:, None])


R = TypeVar("R")


def columns(kind: type[Any]) -> list[str]:
    """Names of the tensors that hold one row per game."""
    return [field.name for field in fields(kind) if field.name.endswith(("_B", "_BA", "_BP", "_BT"))]


def _cut(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Prompts and responses without the columns that no row reaches."""
    P, T = torch.stack([tensors[f"{part}_length_B"].max() for part in ("prompt", "response")]).tolist()
    width = {"_BP": P, "_BT": T}
    return {
        name: tensor[:, : width[name[-3:]]] if name[-3:] in width else tensor
        for name, tensor in tensors.items()
    }


def concat(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors [B] or [B, T] concatenated along the rows, narrower ones padded with zeros on the right."""
    if tensors[0].ndim == 1:
        return torch.cat(list(tensors))
    width = max(tensor.shape[1] for tensor in tensors)
    return torch.cat([pad(tensor, (0, width - tensor.shape[1])) for tensor in tensors])


def stack(kind: type[R], parts: Sequence[R]) -> R:
    """The rows of several parts as one `kind` of rows; a single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    return kind(**{name: concat([getattr(part, name) for part in parts]) for name in columns(kind)})


def _check(holder: Rows, name: str, want: tuple[int, ...]) -> None:
    got = tuple(getattr(holder, name).shape)
    if got != want:
        raise ValueError(f"{type(holder).__name__}.{name} has shape {got}; response_BT asks for {want}")
