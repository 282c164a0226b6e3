"""Language models as networks and as partners of other libraries' learners.

Knows no games.

Shapes: R rows, U different rows, L tokens of an observation, D width of the model.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cory.policies.base import Policy
from cory.policies.causal_lm import CausalLMPolicy

Partner = Callable[[tuple[int, ...], int, np.random.Generator], list[int]]
"""(prompt, cap, random generator) -> ids of a response, as `cory_env.seat_env` calls it."""


def next_token_states(policy: CausalLMPolicy, ids_RL: Tensor) -> Tensor:
    """Hidden states [R, D] from which the token after each row is predicted, with gradient.

    Rows are observations of the token-level environments: ids, then pads. A row that another one begins with
    is read in the pass of the longer one, so that the rows of a response take one pass, in any order.
    ValueError for a row of pads only.
    """
    if not len(ids_RL):
        return torch.zeros(0, policy.value_head.in_features, device=ids_RL.device)
    at_L = torch.arange(1, ids_RL.shape[1] + 1, device=ids_RL.device)
    length_R = ((ids_RL != policy.pad) * at_L).amax(1)
    if int(length_R.min()) < 1:
        raise ValueError(f"a row holds the pad id {policy.pad} only; give observations with a prompt")
    # Sorted, with pads below every id: a row stands directly before one that begins with it.
    rows_UL, index_R = ids_RL.masked_fill(at_L > length_R[:, None], -1).unique(dim=0, return_inverse=True)
    begins_next = ((rows_UL[1:] == rows_UL[:-1]) | (rows_UL[:-1] < 0)).all(1)
    last_U = torch.cat([~begins_next, begins_next.new_ones(1)])
    inputs = rows_UL[last_U].clamp(min=0)[:, : int(length_R.max())]
    states = policy.trunk(input_ids=inputs, use_cache=False).last_hidden_state
    length_U = (rows_UL >= 0).sum(1)
    states_RD: Tensor = states[last_U.cumsum(0) - last_U.long(), length_U - 1][index_R]
    return states_RD


def response(player: Any, prompt: Sequence[int], uniforms_1T: np.ndarray) -> list[int]:
    """The ids with which a policy or another player responds to one prompt, at most one for each number."""
    sampled = player.sample(
        torch.tensor([prompt]),
        torch.tensor([len(prompt)]),
        uniforms_BT=torch.from_numpy(uniforms_1T),
        caps_B=torch.tensor([uniforms_1T.shape[1]]),
    )
    ids: list[int] = sampled.response_BT[0, : int(sampled.response_length_B)].tolist()
    return ids


def partner(policy: Policy) -> Partner:
    """A policy as a partner in `cory_env.seat_env`: it samples from its own distribution."""
    return lambda prompt, cap, rng: response(policy, prompt, rng.random((1, cap)))
