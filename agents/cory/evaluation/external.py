"""Players of other libraries in an evaluation: whatever chooses tokens by `act(observation, info)`.

Shapes: B rows, P prompt tokens, T response tokens.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cory.generation import SamplingStrategy
from cory.generation.sampling import Sampled
from cory.policies.base import Policy
from cory.runtime import signals
from cory_env.types import token_id


class ExternalPlayer:
    """A player that can be evaluated like a policy; its distribution is not known."""

    mismatch = "none"

    def __init__(
        self,
        name: str,
        player: Any,
        *,
        source: str,
        vocab_size: int,
        pad: int,
        width: int,
        reference: Policy,
    ) -> None:
        """`source` names the player in errors; `width` is the length of an observation in tokens.

        The `reference`, whose game it plays, scores its responses.
        """
        check_player(player, source)
        self.name, self.player, self.source, self.reference = name, player, source, reference
        self.vocab_size, self.pad, self.width = vocab_size, pad, width
        self.window, self.device = reference.window, reference.device

    def sample(
        self,
        prompt_BP: Tensor,
        prompt_length_B: Tensor,
        *,
        uniforms_BT: Tensor,
        caps_B: Tensor,
        strategy: SamplingStrategy = "own",
    ) -> Sampled:
        """Play one response after another, token by token, as in the PettingZoo AEC environment.

        torch's generator is seeded for each response by its uniforms and restored afterwards, so that players
        that draw from it respond the same in every evaluation. Log-probs are NaN.
        """
        if strategy != "own":
            raise ValueError(
                f"evaluation.sampling is {strategy!r}, which processes logits, and {self.source} plays by "
                "act(observation, info); give 'own'"
            )
        B, T = len(prompt_BP), int(caps_B.max())
        response_BT = torch.zeros(B, T, dtype=torch.long)
        length_B = torch.zeros(B, dtype=torch.long)
        prompts, lengths, caps = prompt_BP.cpu().numpy(), prompt_length_B.tolist(), caps_B.tolist()
        for row in range(B):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(_seed(uniforms_BT[row]))
                ids = self._respond(prompts[row, : lengths[row]], int(caps[row]))
            response_BT[row, : len(ids)] = torch.tensor(ids)
            length_B[row] = len(ids)
        return Sampled(
            response_BT=response_BT.to(prompt_BP.device),
            response_length_B=length_B.to(prompt_BP.device),
            logprobs_BT=torch.full((B, T), torch.nan, device=prompt_BP.device),
        )

    def _respond(self, prompt_P: np.ndarray, cap: int) -> list[int]:
        """One response: at most `cap` tokens, EOS included when it was chosen."""
        row, start = np.full(self.width, self.pad, dtype=np.int64), len(prompt_P)
        ids: list[int] = []
        row[:start] = prompt_P
        while len(ids) < cap and not (ids and ids[-1] in self.reference.eos):
            signals.check()
            info = {"prompt_length": start, "response_length": len(ids), "cap": cap, "score": 0.0}
            action = self.player.act(row.copy(), info)
            ids.append(token_id(action, seat=self.source, vocab_size=self.vocab_size))
            row[start + len(ids) - 1] = ids[-1]
        return ids


Player = Policy | ExternalPlayer


def check_player(player: Any, source: str) -> None:
    """Raise ValueError for an object without a method `act`."""
    if not callable(getattr(player, "act", None)):
        raise ValueError(
            f"{source} returned {player!r:.80}, which has no method act(observation, info); return an object "
            "that has one, or a dict of them by name"
        )


def named_players(made: Any, source: str, *, name: str) -> Mapping[str, Any]:
    """The players that a loader returned by name; one alone is called `name`.

    ValueError for none, for one without `act`, and for names that evaluations use otherwise.
    """
    players = dict(made) if isinstance(made, Mapping) else {name: made}
    if not players:
        raise ValueError(f"{source} returned no player; return an object with act(observation, info)")
    for key, player in players.items():
        if not isinstance(key, str) or not key or "/" in key or key.startswith("reference"):
            raise ValueError(
                f"{source} returned a player called {key!r}; name players by text without / that does not "
                "begin with 'reference'"
            )
        check_player(player, source)
    return players


def _seed(uniform_T: Tensor) -> int:
    """A seed of torch from the random numbers of a response."""
    digest = hashlib.blake2b(uniform_T.cpu().numpy().tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
