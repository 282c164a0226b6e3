"""Token-by-token play in an environment: a response is sampled whole when its first token is asked for.

Knows no games.

Shapes: B = 1 row, P prompt tokens, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cory import rng
from cory.generation.sampling import Decoder, sample


class Turn(NamedTuple):
    """What the acting seat knows in a token env."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    """Ids that it has played."""
    cap: int

    @classmethod
    def of(cls, observation: Any, info: Mapping[str, Any]) -> "Turn":
        """From `env.last()`: the observation holds prompt and response so far, padded to the right."""
        padded = observation["observation"] if isinstance(observation, Mapping) else observation
        split, length = int(info["prompt_length"]), int(info["prompt_length"]) + int(info["response_length"])
        ids = tuple(int(token) for token in np.asarray(padded)[:length])
        return cls(ids[:split], ids[split:], int(info["cap"]))


@dataclass(frozen=True)
class Continued:
    """A decoder whose first logits are those behind the prompt and a begun response."""

    decoder: Decoder
    response: Sequence[int]

    def start(self, prompt_BP: Tensor, prompt_length_B: Tensor, *, tokens: int) -> Tensor:
        """Process the prompt and the response."""
        logits_BV = self.decoder.start(prompt_BP, prompt_length_B, tokens=len(self.response) + tokens)
        for token in self.response:
            logits_BV = self.step(torch.tensor([token], device=prompt_BP.device))
        return logits_BV

    def step(self, token_B: Tensor) -> Tensor:
        """Append one token."""
        return self.decoder.step(token_B)


def finish(
    decoder: Decoder, turn: Turn, *, eos: frozenset[int], device: torch.device, seed: int
) -> list[int]:
    """The ids that follow in the response; each draw is a function of `seed`, the prompt and its position."""
    begun = len(turn.response)
    uniforms_BT = torch.from_numpy(rng.uniforms((seed, "act", *turn.prompt), np.zeros(1), turn.cap))
    sampled = sample(
        Continued(decoder, turn.response),
        torch.tensor([turn.prompt], device=device),
        torch.tensor([len(turn.prompt)], device=device),
        uniforms_BT=uniforms_BT[:, begun:].to(device),
        caps_B=torch.tensor([turn.cap - begun], device=device),
        eos=eos,
    )
    ids: list[int] = sampled.response_BT[0].tolist()
    return ids
