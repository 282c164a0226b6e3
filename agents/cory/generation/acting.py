"""Token-by-token play in an environment: the next token of a policy for an observation.

Knows no games.

Shapes: B = 1 row, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from cory import rng
from cory.batch import Rows
from cory.generation.sampling import inverse_cdf


@torch.no_grad()
def next_token(policy: Any, observation: Any, info: Mapping[str, Any], *, seed: int) -> int:
    """The next token id of the acting seat; pad once its response has ended.

    `observation` holds the seat's prompt and response so far (ids, padded to the right), or is a dict that
    holds them as `observation`; `info` tells their lengths, `prompt_length` and `response_length`, and the
    `cap`. The draw is a function of the seed and of the ids; every call reads all of them anew.
    """
    padded = observation["observation"] if isinstance(observation, Mapping) else observation
    split, length = int(info["prompt_length"]), int(info["response_length"])
    prompt, response = np.split(np.asarray(padded)[: split + length].astype(np.int64), [split])
    if length >= int(info["cap"]) or (length and int(response[-1]) in policy.eos):
        return int(policy.pad)
    key = (seed, "act", *prompt.tolist())
    uniform = torch.from_numpy(rng.uniforms(key, np.zeros(1), length + 1)[:, -1])
    rows = Rows(  # the token to come is predicted from those before it, whatever it is
        prompt_BP=torch.tensor([prompt.tolist()], device=policy.device),
        prompt_length_B=torch.tensor([split], device=policy.device),
        response_BT=torch.tensor([[*response.tolist(), policy.pad]], device=policy.device),
        response_length_B=torch.tensor([length + 1], device=policy.device),
    )
    logits_BV = policy.logits(policy.hidden_states(rows)[-1:])
    drawn = inverse_cdf(logits_BV, uniform.float().to(policy.device))
    if not bool(drawn.finite_B.all()):
        raise FloatingPointError("logits are not finite; the weights are broken")
    return int(drawn.token_B)
