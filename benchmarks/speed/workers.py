"""One contender of throughput.py, in a process of its own: an iteration and its figures for every line.

The first line is the job, as JSON: `who` (ours, lora_team, plain), `work` (fields of works.Work),
`precision`, `threads`, `device`, `what` (iterate, sample), `without` (a lever, or nothing), `one_pass` (of a
LoRA team: whether all rows are read at once), `way` (of the plain way: settings of peers/plain.py).
"""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch
from benchmarks.speed.roofline import Counted, counting_untaught, floor, settled
from benchmarks.speed.memory import resident
from benchmarks.speed.baselines.hf_generate import Plain, timed
from benchmarks.speed.workloads import PASS, WORDING, Task, Work, tokenizer

from cory.runtime import cpu
from cory.functional import logit_statistics
from cory.batch import Rows
from cory.training.factory import silence_transformers
from cory.config.schema import Config, PolicyConfig
from cory.rollout.role_exchange import ExchangeConfig
from cory.learner.learner import Learner
from cory.config.task_options import task_options
from cory.policies import causal_lm, chunked_loss, loading
from cory.policies.kernels import fused_lm_head
from cory.policies.lora_config import LoRAConfig as LoraConfig
from cory.policies.kernels.unpadding import TokenWise
from cory.training.trainer import Trainer
from cory_env.tokenizer import wrap

Figures = dict[str, Any]
EPOCHS = 4


def clocked(phases: dict[str, float], name: Callable[[], str], device: str, plain: Callable[..., Any]) -> Any:
    """`plain`, its seconds added to the phase that is `name` when it is called."""

    def call(*given: Any, **named: Any) -> Any:
        with timed(phases, name(), torch.device(device)):
            return plain(*given, **named)

    return call


class Ours:
    """The trainer itself; seats are exchanged before every iteration."""

    def __init__(self, job: dict[str, Any], folder: Path) -> None:
        work = self.work = Work(**job["work"])
        leave_out(without := job.get("without"))
        cpu.settle(threads=job["threads"], matmul="mkl" if without == "onednn" else "auto")
        silence_transformers()
        self.device = job["device"]
        model = work.embedded or str(work.write(folder))
        self.trainer = Trainer(
            Config(
                task="works:Task",
                task_options=task_options("works:Task")(shortest=work.query[0], longest=work.query[1]),
                seats=work.seats,
                batch=work.batch,
                max_response=(work.response, work.response),
                exchange=ExchangeConfig(every=1),
                policy=PolicyConfig(
                    model=model,
                    kind="lora_team" if job["who"] == "lora_team" else "causal_lm",
                    precision=job["precision"],
                    device=self.device,
                ),
                lora=LoraConfig(one_pass="yes" if job.get("one_pass") else "no"),
            )
        )
        self.iteration = 0
        self.phases: dict[str, float] = {}
        for name, policy in self.trainer.policies.items():
            learner = self.trainer.learners[name]
            policy.sample = clocked(self.phases, self._seat(name), self.device, policy.sample)  # type: ignore
            learner.update = clocked(self.phases, lambda n=name: f"update/{n}", self.device, learner.update)  # type: ignore

    def _seat(self, name: str) -> Callable[[], str]:
        return lambda: next(
            f"sample/{seat}" for seat, who in self.trainer.seating(self.iteration).items() if who == name
        )

    def iterate(self) -> Figures:
        """One iteration, whole; the operations of the first are counted."""
        self.phases.clear()
        began = perf_counter()
        operations = Counted() if self.iteration == 0 else None
        with counting_untaught() as counted, operations or nullcontext():
            numbers = self.trainer.iterate(self.iteration)
        settled(self.device)
        seconds = perf_counter() - began
        in_one = not any(phase.startswith("update/") for phase in self.phases)
        for phase in ("judge", "statistics", *(["update"] if in_one else [])):
            self.phases[phase] = numbers[f"time/{phase}/seconds"]
        self.phases["exchange"], moved_bytes = exchanged(self.trainer)
        seating = self.trainer.seating(self.iteration)
        self.iteration += 1
        batches, policies = self.trainer.batches, self.trainer.policies
        tokens = sum(int(batch.response_length_B.sum()) for batch in batches.values())
        whole = [
            floor(policies[name], batches[seat], epochs=EPOCHS, untaught=counted["untaught"] * (i == 0))
            for i, (seat, name) in enumerate(seating.items())
        ]
        return {
            "seconds": seconds,
            "phases": dict(self.phases),
            "flops": sum(whole),
            "counted_flops": operations.flops if operations else None,
            "untaught": counted["untaught"] / (EPOCHS * tokens),
            "tokens": tokens,
            "samples": sum(len(batch) for batch in batches.values()),
            "moved_bytes": moved_bytes,
        }

    def sample(self) -> Figures:
        """Every query answered once, by one policy."""
        game, policy = self.trainer.game, self.trainer.policies["llm_1"]
        deal = self.trainer.deal(self.iteration)
        game.reset(deal.queries, deal.caps(self.work.seats))
        prompt_BP, length_B = (
            torch.from_numpy(array).to(policy.device) for array in game.prompts(game.seats[0])
        )
        caps_B = torch.full_like(length_B, self.work.response)
        began = perf_counter()
        told = policy.sample(prompt_BP, length_B, uniforms_BT=deal.uniforms(game.seats[0]), caps_B=caps_B)
        settled(self.device)
        seconds = perf_counter() - began
        rows = Rows(
            prompt_BP=prompt_BP,
            prompt_length_B=length_B,
            response_BT=told.response_BT,
            response_length_B=told.response_length_B,
        )
        return {
            "seconds": seconds,
            "flops": floor(policy, rows, epochs=0) // 2,  # the other half is the reference's
            "tokens": int(told.response_length_B.sum()),
        }


def leave_out(lever: str | None) -> None:
    """Do without one of the levers of docs/performance.md, to see what it is worth."""
    match lever:
        case None | "onednn":  # the library is a setting
            pass
        case "kept memory":
            cpu.keep_memory = lambda: None
        case "blocks":
            logit_statistics.BLOCK = 1 << 62
        case "one GELU kernel":
            causal_lm.fuse_activations = lambda model: None
        case "biases after products":
            causal_lm.add_biases_after = lambda model: None
        case "large chunks":
            chunked_loss.CHUNK = 1 << 22
        case "aligned weights":
            loading.own_memory = lambda model: model
        case "only wanted tokens":
            causal_lm.token_wise = lambda model: TokenWise([], [])
        case "runs of the head":
            fused_lm_head.RUN = 1 << 62
        case "first pass kept":
            Learner.keeps = lambda self, rows, *, sharing: False  # type: ignore[method-assign]
        case "only tokens that teach":
            fused_lm_head.first = lambda idle_K, count, *, digits: torch.arange(len(idle_K))
        case _:
            raise ValueError(f"no lever called {lever!r}")


def exchanged(trainer: Trainer) -> tuple[float, int]:
    """Seconds of an exchange of seats, with all that happens between two iterations: the median of five; and
    bytes of weights that lie elsewhere or were written to after them."""
    before, seconds = {name: policy.fingerprint() for name, policy in trainer.policies.items()}, []
    for iteration in range(5):
        began = perf_counter()
        trainer.begin(iteration)
        trainer.seating(iteration)
        seconds.append(perf_counter() - began)
    moved = sum(
        p.numel() * p.element_size()
        for name, policy in trainer.policies.items()
        for p, old, now in zip(policy.parameters(), before[name], policy.fingerprint(), strict=True)
        if old != now
    )
    return median(seconds), moved


class Plainly:
    """peers/plain.py on the same queries and lengths."""

    def __init__(self, job: dict[str, Any], folder: Path) -> None:
        work = self.work = Work(**job["work"])
        torch.set_num_threads(job["threads"])
        config = work.shape()
        words = tokenizer(config.vocab_size)
        shortest, longest = work.query
        spoken = wrap(words, eos=frozenset({0}), vocab_size=config.vocab_size)
        self.task = Task(spoken, shortest=shortest, longest=longest)
        way = {"chunk": PASS, **job.get("way", {})}
        self.plain = Plain(
            config, response=work.response, precision=job["precision"], device=job["device"], **way
        )
        template = WORDING.replace("{responses}", "").split("{query}")
        self.parts = [words(part, add_special_tokens=False)["input_ids"] for part in template]
        self.device, self.iteration = job["device"], 0

    def queries(self) -> list[list[int]]:
        """Those of the next iteration."""
        drawn = np.random.default_rng(self.iteration)
        self.iteration += 1
        return [list(self.task.query(drawn).ids) for _ in range(self.work.batch)]

    def wording(self, query: list[int], response: list[int]) -> list[int]:
        """What the observer reads."""
        before, middle, after = self.parts
        return [*before, *query, *response, *middle, *query, *after]

    def iterate(self) -> Figures:
        """One iteration of both policies, then the exchange."""
        queries, began = self.queries(), perf_counter()
        phases = self.plain.iterate(
            queries, self.wording, lambda asked, said: [len(set(ids)) for ids in said]
        )
        with timed(phases, "exchange", torch.device(self.device)):
            self.plain.exchange()
        tokens = 2 * len(queries) * self.work.response
        return {
            "seconds": perf_counter() - began,
            "phases": phases,
            "tokens": tokens,
            "samples": 2 * len(queries),
        }

    def sample(self) -> Figures:
        """Every query answered once, by one policy."""
        queries, began = self.queries(), perf_counter()
        said = self.plain.sample(self.plain.policies["llm_1"], queries)
        settled(self.device)
        return {"seconds": perf_counter() - began, "tokens": sum(map(len, said))}


def serve(job: dict[str, Any]) -> None:
    """Answer lines until there are no more."""
    idle = resident("VmRSS")
    with TemporaryDirectory() as folder:
        kind = Plainly if job["who"] == "plain" else Ours
        contender = kind(job, Path(folder))
        say({"threads": torch.get_num_threads(), "versions": {"torch": torch.__version__}})
        for _ in sys.stdin:
            told = getattr(contender, job["what"])()
            if job["device"].startswith("cuda"):
                memory = {"peak_bytes": torch.cuda.max_memory_allocated(job["device"]), "idle_bytes": 0}
            else:
                memory = {"peak_bytes": resident("VmHWM"), "idle_bytes": idle}
            say({**told, **memory})


def say(told: Figures) -> None:
    """Answer."""
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    serve(json.loads(sys.stdin.readline()))
