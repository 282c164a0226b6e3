"""Players that are no policies: whatever chooses tokens by `act(observation, info)` or texts by `respond`.

Shapes: B rows, P prompt tokens, T response tokens.
"""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cory.generation import SamplingStrategy
from cory.generation.sampling import Sampled
from cory.policies.base import Policy
from cory.runtime import signals
from cory_env.tokenizer import Tokenizer, encode_inside
from cory_env.types import token_id

METHODS = "act(observation, info) or respond(texts)"
TIMEOUT = 60.0
"""Seconds that a call of `respond` may take, unless the player has an attribute `timeout`."""


class ExternalPlayer:
    """A player that responds like a policy; its distribution is not known.

    It has `act(observation, info) -> token id`, as in the PettingZoo AEC environment, or
    `respond(texts) -> texts`: prompts in, responses out, as of a program or of a model behind an API. Those
    are encoded, cut at their caps, and ended with EOS where they are shorter.
    """

    def __init__(
        self,
        name: str,
        player: Any,
        *,
        source: str,
        tokenizer: Tokenizer,
        width: int,
        reference: Policy,
    ) -> None:
        """`source` names the player in errors; `width` is the length of an observation in tokens.

        The `reference`, whose game it plays, scores its responses.
        """
        check_player(player, source)
        self.name, self.player, self.source, self.reference = name, player, source, reference
        self.tokenizer, self.width = tokenizer, width
        self.window, self.device = reference.window, reference.device

    def sample(
        self,
        prompt_BP: Tensor,
        prompt_length_B: Tensor,
        *,
        uniforms_BT: Tensor,
        caps_B: Tensor,
        strategy: SamplingStrategy | None = None,
    ) -> Sampled:
        """Respond to each prompt; log-probs are NaN.

        For `act`, torch's generator is seeded for each response by its uniforms and restored afterwards, so
        that players that draw from it respond the same in every evaluation. ValueError for responses that
        are none, and for a call of `respond` that fails or takes too long.
        """
        if strategy not in (None, "own"):
            raise ValueError(
                f"evaluation.sampling is {strategy!r}, which processes logits, and {self.source} has none; "
                "give 'own'"
            )
        rows = zip(prompt_BP.cpu().numpy(), prompt_length_B.tolist(), strict=True)
        prompts, caps = [ids_P[:length] for ids_P, length in rows], caps_B.tolist()
        if callable(getattr(self.player, "respond", None)):
            responses = self._texts(prompts, caps)
        else:
            seeds = map(_seed, uniforms_BT)
            responses = [self._tokens(*one) for one in zip(prompts, caps, seeds, strict=True)]
        B, T = len(prompts), max(caps)
        response_BT = torch.zeros(B, T, dtype=torch.long)
        for row, ids in enumerate(responses):
            response_BT[row, : len(ids)] = torch.tensor(ids)
        return Sampled(
            response_BT=response_BT.to(prompt_BP.device),
            response_length_B=torch.tensor([len(ids) for ids in responses], device=prompt_BP.device),
            logprobs_BT=torch.full((B, T), torch.nan, device=prompt_BP.device),
        )

    def _texts(self, prompts: Sequence[np.ndarray], caps: Sequence[int]) -> list[list[int]]:
        """Responses of `respond` to all prompts at once."""
        texts = [self.tokenizer.decode(ids_P.tolist()) for ids_P in prompts]
        seconds = float(getattr(self.player, "timeout", TIMEOUT))
        results: list[Any] = []

        def call() -> None:
            try:
                results.append(self.player.respond(list(texts)))
            except Exception as error:  # whatever the user's code raises
                results.append(error)

        caller = threading.Thread(target=call, daemon=True)  # one that hangs does not keep the process
        caller.start()
        for _ in range(max(1, round(seconds / 0.1))):
            caller.join(0.1)
            signals.check()
            if results:
                break
        else:
            raise ValueError(
                f"{self.source} took longer than {seconds:g} s to respond to {len(texts)} prompts; give the "
                "player an attribute `timeout` in seconds"
            )
        answer = results[0]
        if isinstance(answer, Exception):
            raise ValueError(
                f"{self.source} failed to respond ({type(answer).__name__}: {answer})"
            ) from answer
        whole = isinstance(answer, Sequence) and not isinstance(answer, str) and len(answer) == len(texts)
        if not whole or not all(isinstance(text, str) for text in answer):
            raise ValueError(
                f"{self.source} responded {answer!r:.80} to {len(texts)} prompts; return a list of texts, "
                "one for each"
            )
        return [self._encoded(text, cap) for text, cap in zip(answer, caps, strict=True)]

    def _encoded(self, text: str, cap: int) -> list[int]:
        try:
            ids = encode_inside(self.tokenizer, text)
        except ValueError as error:
            raise ValueError(f"{self.source} responded {text!r:.80}: {error}") from error
        ids = list(takewhile(lambda token: token not in self.tokenizer.eos, ids))[:cap]
        return ids if len(ids) == cap else [*ids, min(self.tokenizer.eos)]

    def _tokens(self, prompt_P: np.ndarray, cap: int, seed: int) -> list[int]:
        """One response of `act`, token by token: at most `cap`, EOS included when it was chosen."""
        row, start = np.full(self.width, self.tokenizer.pad, dtype=np.int64), len(prompt_P)
        ids: list[int] = []
        row[:start] = prompt_P
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            while len(ids) < cap and not (ids and ids[-1] in self.tokenizer.eos):
                signals.check()
                info = {"prompt_length": start, "response_length": len(ids), "cap": cap, "score": 0.0}
                action = self.player.act(row.copy(), info)
                ids.append(token_id(action, seat=self.source, vocab_size=self.tokenizer.vocab_size))
                row[start + len(ids) - 1] = ids[-1]
        return ids


Player = Policy | ExternalPlayer


def check_player(player: Any, source: str) -> None:
    """Raise ValueError for an object without a method `act` or `respond`."""
    if not any(callable(getattr(player, name, None)) for name in ("act", "respond")):
        raise ValueError(
            f"{source} returned {player!r:.80}, which has no method {METHODS}; return an object that "
            "has one, or a dict of them by name"
        )


def named_players(made: Any, source: str, *, name: str) -> Mapping[str, Any]:
    """The players that a loader returned by name; one alone is called `name`.

    ValueError for none, for one without `act`, and for names that evaluations use otherwise.
    """
    players = dict(made) if isinstance(made, Mapping) else {name: made}
    if not players:
        raise ValueError(f"{source} returned no player; return an object with {METHODS}")
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
