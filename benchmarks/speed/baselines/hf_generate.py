"""The vanilla Hugging Face baseline: an iteration of CORY with transformers and without our learner.

Two whole causal LMs with value heads beside a frozen third; `model.generate` on prompts padded on the left;
log-probs from forward passes over whole padded sequences, the head at every position; the exact KL as a
penalty on each token; PPO's four epochs with the batch as one minibatch. It computes what our learner
computes (tests/benchmarks/test_hf_generate.py) with what the libraries offer: fused Adam, autocast, several
passes per batch. Imports neither `cory` nor `cory_env`.

Shapes: B rows, P prompt tokens, T response tokens, L = P + T, V vocabulary.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from benchmarks.speed.baselines.hf_ppo_update import (
    Ids,
    Rows,
    gae,
    padded,
    rows_of,
    statistics,
    token_rewards,
    update,
    whiten,
)

ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**28)}
"""Environment in which glibc keeps freed memory, so that large tensors need no page faults. CORY does the
same."""


class PolicyWithValueHead(nn.Module):
    """A causal LM, dropout off, with a linear value head on its last hidden states."""

    def __init__(self, lm: PreTrainedModel, *, precision: str = "float32") -> None:
        super().__init__()
        self.lm = lm.eval()
        self.precision = getattr(torch, precision)
        self.value_head = nn.Linear(lm.config.hidden_size, 1)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)

    def autocast(self) -> torch.autocast:
        """Autocast of products to the precision; weights stay float32."""
        return torch.autocast(
            self.lm.device.type, self.precision, enabled=self.precision is not torch.float32
        )

    def forward(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Logits [B, T, V] and values [B, T] of the states in which a response's tokens were chosen."""
        T = rows.mask_BT.shape[1]
        with self.autocast():
            out = self.lm(
                input_ids=rows.ids_BL,
                attention_mask=rows.real_BL.long(),
                position_ids=(rows.real_BL.cumsum(1) - 1).clamp(min=0),
                output_hidden_states=True,
                use_cache=False,
            )
        value_BL = self.value_head(out.hidden_states[-1].float()).squeeze(-1)
        return out.logits[:, -T - 1 : -1].float(), value_BL[:, -T - 1 : -1]


class HFBaseline:
    """Two policies and their reference, all of random weights, that play and learn."""

    def __init__(
        self,
        config: PretrainedConfig,
        *,
        response: int = 10,
        eta: float = 0.3,
        lr: float = 1.41e-5,
        precision: Literal["float32", "bfloat16"] = "float32",
        chunk: int | None = None,
        device: str = "cpu",
    ) -> None:
        """`response` is the cap; learning takes `chunk` rows per pass, sampling all at once."""
        self.response, self.eta, self.chunk = response, eta, chunk
        self.eos = config.eos_token_id
        lm = AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(device)
        reference = PolicyWithValueHead(lm, precision=precision).to(device)
        self.reference = reference.requires_grad_(False)
        self.policies = {name: copy.deepcopy(self.reference).requires_grad_() for name in ("llm_1", "llm_2")}
        self.optimizers = {
            name: torch.optim.Adam(policy.parameters(), lr=lr, fused=True)
            for name, policy in self.policies.items()
        }
        self.seating = {"pioneer_0": "llm_1", "observer_1": "llm_2"}

    @torch.no_grad()
    def sample(self, policy: PolicyWithValueHead, prompts: Sequence[Ids]) -> list[list[int]]:
        """A response to each prompt, EOS included if it was chosen."""
        ids_BP, real_BP = (t.to(policy.lm.device) for t in padded(prompts, self.eos, left=True))
        with policy.autocast():
            ids_BL = policy.lm.generate(
                input_ids=ids_BP,
                attention_mask=real_BP.long(),
                do_sample=True,
                top_k=0,
                max_new_tokens=self.response,
                pad_token_id=self.eos,
            )
        return [
            response[: response.index(self.eos) + 1] if self.eos in response else response
            for response in ids_BL[:, ids_BP.shape[1] :].tolist()
        ]

    def iterate(
        self,
        queries: Sequence[Ids],
        observer_prompt: Callable[[Ids, Ids], Ids],
        judge: Callable[[Sequence[Ids], Sequence[Ids]], Sequence[float]],
    ) -> dict[str, float]:
        """One iteration, every seat paid the sum of both scores; seconds by phase.

        `observer_prompt(query, response)` receives the pioneer's response without EOS.
        """
        seconds: dict[str, float] = {}
        device = self.reference.lm.device
        pioneer, observer = (self.policies[name] for name in self.seating.values())
        with timed(seconds, "sample/pioneer_0", device):
            first = self.sample(pioneer, queries)
        without_eos = [[id for id in response if id != self.eos] for response in first]
        prompts = [observer_prompt(query, ids) for query, ids in zip(queries, without_eos, strict=True)]
        with timed(seconds, "sample/observer_1", device):
            second = self.sample(observer, prompts)
        with timed(seconds, "judge", device):
            payoff_B = torch.tensor([judge(queries, first), judge(queries, second)], device=device).sum(0)
        batches = []
        with timed(seconds, "statistics", device):
            for policy, read, responses in ((pioneer, queries, first), (observer, prompts, second)):
                rows = Rows(*(tensor.to(device) for tensor in rows_of(read, responses, self.eos)))
                old = statistics(policy, self.reference, rows, self.chunk)
                reward_BT = token_rewards(payoff_B, old.kl_BT, rows.mask_BT, eta=self.eta)
                advantage_BT, return_BT = gae(reward_BT, old.value_BT, rows.mask_BT)
                batches.append((rows, old, whiten(advantage_BT, rows.mask_BT), return_BT))
        for name, batch in zip(self.seating.values(), batches, strict=True):
            with timed(seconds, f"update/{name}", device):
                update(self.policies[name], self.optimizers[name], *batch, chunk=self.chunk)
        return seconds

    def exchange(self) -> None:
        """Let the policies change seats."""
        pioneer, observer = self.seating.values()
        self.seating = {"pioneer_0": observer, "observer_1": pioneer}


@contextmanager
def timed(seconds: dict[str, float], phase: str, device: torch.device) -> Iterator[None]:
    """Add the seconds spent inside to `phase`; waits for an accelerator."""
    start = perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds[phase] = seconds.get(phase, 0.0) + perf_counter() - start
