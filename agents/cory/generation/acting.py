"""Token-by-token play in an environment: the next token for an observation, with the decoder's cache reused.

Knows no games.

Shapes: B = 1 row, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cory import rng
from cory.generation.sampling import Decoder, inverse_cdf


class Actor:
    """Samples one token per call and remembers the sequence, so that its next call decodes one token only."""

    def __init__(
        self,
        decoder: Callable[[], Decoder],
        *,
        eos: frozenset[int],
        pad: int,
        device: torch.device,
        seed: int,
    ) -> None:
        """`decoder` makes a fresh decoder."""
        self._make, self._eos, self._pad, self._device, self._seed = decoder, eos, pad, device, seed
        self._started: tuple[tuple[int, ...], int] | None = None
        self._response: tuple[int, ...] = ()
        self._decoder: Decoder | None = None

    @torch.no_grad()
    def act(self, observation: Any, info: Mapping[str, Any]) -> int:
        """The next token id of the acting seat; pad once its response has ended.

        `observation` holds the seat's prompt and response so far (ids, padded to the right), or is a dict
        that holds them as `observation`; `info` tells their lengths, `prompt_length` and `response_length`,
        and the `cap`. The draw is a function of the seed and of the ids.
        """
        padded = observation["observation"] if isinstance(observation, Mapping) else observation
        split, length = int(info["prompt_length"]), int(info["prompt_length"]) + int(info["response_length"])
        ids = tuple(int(token) for token in np.asarray(padded)[:length])
        prompt, response, cap = ids[:split], ids[split:], int(info["cap"])
        if len(response) >= cap or (response and response[-1] in self._eos):
            return self._pad
        uniform = rng.uniforms((self._seed, "act", *prompt), np.zeros(1), len(response) + 1)[:, -1]
        drawn = inverse_cdf(
            self._logits(prompt, response, cap), torch.from_numpy(uniform).float().to(self._device)
        )
        if not bool(drawn.finite_B.all()):
            raise FloatingPointError("logits are not finite; the weights are broken")
        return int(drawn.token_B)

    def _logits(self, prompt: tuple[int, ...], response: tuple[int, ...], cap: int) -> Tensor:
        one_more = len(response) == len(self._response) + 1 and response[:-1] == self._response
        if self._decoder is not None and (prompt, cap) == self._started and one_more:
            logits_BV = self._step(self._decoder, response[-1:])
        else:
            self._decoder = self._make()
            prompt_BP = torch.tensor([prompt], device=self._device)
            length_B = torch.tensor([len(prompt)], device=self._device)
            logits_BV = self._decoder.start(prompt_BP, length_B, tokens=cap)
            if response:
                logits_BV = self._step(self._decoder, response)
        self._started, self._response = (prompt, cap), response
        return logits_BV.clone()  # sampling overwrites them

    def _step(self, decoder: Decoder, tokens: Sequence[int]) -> Tensor:
        for token in tokens:
            logits_BV = decoder.step(torch.tensor([token], device=self._device))
        return logits_BV
