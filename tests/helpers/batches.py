"""Rows and batches for tiny policies: prompts of unequal lengths, responses of unequal caps.

Shapes: B rows, P prompt tokens, T response tokens.
"""

import numpy as np
import torch
from torch import Tensor

from cory import rng
from cory.batch import Batch, Rows
from cory.generation.sampling import Sampled
from cory.policies import scoring
from cory.policies.base import Policy
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.table import TablePolicy

B, P, T = 6, 5, 7
LENGTHS = [5, 2, 3, 5, 1, 4]
"""Prompt tokens of each row."""
CAPS = [7, 4, 6, 5, 7, 3]
TABLE_B = 8
TABLE_LENGTHS = [7, 4, 6, 5, 7, 3, 1, 2]
"""Response tokens of each row of `make_table_batch`."""


def prompts(poison: int = 9, *, lowest: int = 1, highest: int = 20) -> tuple[Tensor, Tensor]:
    """Prompts [B, P] of random ids from `lowest` to below `highest`, `poison` behind them; lengths."""
    length_B = torch.tensor(LENGTHS)
    prompt_BP = torch.tensor(np.random.default_rng(0).integers(lowest, highest, (B, P)))
    return torch.where(torch.arange(P) < length_B[:, None], prompt_BP, poison), length_B


def sample_responses(policy: Policy, *, rows=slice(None), poison: int = 9, key: int = 0) -> Sampled:
    """Sample a response to each prompt, as a rollout does."""
    prompt_BP, length_B = prompts(poison)
    return policy.sample(
        prompt_BP[rows],
        length_B[rows],
        uniforms_BT=torch.from_numpy(rng.uniforms((key, "test"), np.arange(B)[rows], T)),
        caps_B=torch.tensor(CAPS)[rows],
    )


def make_rows(policy: Policy, *, poison: int = 9, key: int = 0) -> tuple[Rows, Tensor]:
    """Prompts with sampled responses, and the sampler's log-probs."""
    drawn = sample_responses(policy, poison=poison, key=key)
    prompt_BP, length_B = prompts(poison)
    return rows_of(prompt_BP, length_B, drawn), drawn.logprobs_BT


def make_batch(policy: Policy) -> Batch:
    """A batch of sampled responses; scores and payoffs rise from -1 to 1."""
    rows, behaviour_BT = make_rows(policy)
    score_B = torch.linspace(-1, 1, B, device=policy.device)
    return scoring.make_batch(policy, rows, behaviour_BT, score_B, score_B)


def sampled(policy: CausalLMPolicy, *, poison: int = 9) -> tuple[Rows, Tensor]:
    """Responses of a causal LM to prompts over more of its vocabulary, and the sampler's log-probs."""
    prompt_BP, length_B = prompts(poison, lowest=3, highest=40)
    drawn = policy.sample(
        prompt_BP,
        length_B,
        uniforms_BT=torch.from_numpy(rng.uniforms(("test",), np.arange(B), T)),
        caps_B=torch.tensor(CAPS),
    )
    return rows_of(prompt_BP, length_B, drawn), drawn.logprobs_BT


def rows_of(prompt_BP: Tensor, prompt_length_B: Tensor, drawn: Sampled) -> Rows:
    """Prompts and sampled responses as rows, where the responses are."""
    device = drawn.response_BT.device
    return Rows(
        prompt_BP=prompt_BP.to(device),
        prompt_length_B=prompt_length_B.to(device),
        response_BT=drawn.response_BT,
        response_length_B=drawn.response_length_B,
    )


@torch.no_grad()
def single_row_logprobs(policy: CausalLMPolicy, rows: Rows, i: int) -> Tensor:
    """Log-probs of row i from the whole model on this row only, without padding, mask or cache."""
    p, r = int(rows.prompt_length_B[i]), int(rows.response_length_B[i])
    response = rows.response_BT[i, :r]
    ids = torch.cat([rows.prompt_BP[i, :p], response])[None]
    logits = policy.model(input_ids=ids).logits[0, p - 1 : -1, : policy.vocab_size].double()
    return logits.log_softmax(-1).gather(1, response[:, None])[:, 0].float()


def make_table_batch(policy: TablePolicy) -> Batch:
    """Random prompts, responses and scores for `make_table_policy`; the sampler's log-probs are 0."""
    generator, V = np.random.default_rng(0), policy.vocab_size
    rows = Rows(
        prompt_BP=torch.tensor(generator.integers(1, V, (TABLE_B, P))),
        prompt_length_B=torch.tensor([5, 2, 3, 5, 1, 4, 3, 2]),
        response_BT=torch.tensor(generator.integers(0, V, (TABLE_B, T))),
        response_length_B=torch.tensor(TABLE_LENGTHS),
    )
    score_B = torch.tensor(generator.normal(size=TABLE_B)).float()
    zeros_BT = torch.zeros(TABLE_B, T)
    return scoring.make_batch(policy, rows, zeros_BT, score_B, score_B)
