"""The process behind a row of throughput.py: one iteration, and its figures, for each line of standard input.

The first line is the job, as JSON: `kind` (cory, lora_team, hf), `workload` (fields of `workloads.Workload`),
`precision`, `algorithm` and `compile` (of CORY's kinds), `threads`, `device`, `run` (iterate or sample).
"""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from benchmarks.speed.baselines.hf_generate import HFBaseline, timed
from benchmarks.speed.process_memory import resident
from benchmarks.speed.processes import GROUP, GRPO_KL
from benchmarks.speed.roofline import FlopCounter, lower_bound, sampling_lower_bound, synchronize
from benchmarks.speed.workloads import BASELINE_ROWS, Task, Workload, template_ids
from cory import algorithms
from cory.algorithms import ppo
from cory.config.schema import Config, PolicyConfig
from cory.config.task_options import task_options
from cory.functional.kl import KLConfig
from cory.rollout.role_exchange import ExchangeConfig
from cory.rollout.rollout import sample_responses
from cory.runtime import cpu
from cory.training.factory import silence_transformers
from cory.training.trainer import Trainer
from cory_env.tokenizer import wrap

Figures = dict[str, Any]
EPOCHS = 4
TASK = "benchmarks.speed.workloads:Task"


class CoryWorker:
    """CORY's trainer; seats are exchanged before every iteration."""

    def __init__(self, job: Figures, folder: Path) -> None:
        workload = self.workload = Workload(**job["workload"])
        cpu.configure_runtime(threads=job["threads"])
        silence_transformers()
        self.device = job["device"]
        model = workload.named or str(workload.save(folder))
        grpo = job.get("algorithm") == "grpo"
        self.trainer = Trainer(
            Config.from_flat(
                {
                    "task": TASK,
                    "task_options": task_options(TASK)(shortest=workload.query[0], longest=workload.query[1]),
                    "seats": 1 if grpo else workload.seats,
                    "algorithm": "grpo" if grpo else "ppo",
                    "algorithm_options": algorithms.load("grpo").Config(group=GROUP)
                    if grpo
                    else ppo.Config(),
                    "kl": KLConfig(place="loss", kind="k3", coef=GRPO_KL) if grpo else KLConfig(),
                    "batch": workload.batch,
                    "max_response": (workload.response, workload.response),
                    "exchange": ExchangeConfig(every=1),
                    "policy": PolicyConfig(
                        model=model,
                        kind="lora_team" if job["kind"] == "lora_team" else "causal_lm",
                        precision=job["precision"],
                        compile=job.get("compile", "auto"),
                        device=self.device,
                    ),
                }
            )
        )
        self.iteration = 0
        self.phases: dict[str, float] = {}
        for name, policy in self.trainer.policies.items():
            self._time(policy, "sample", partial(self._sample_phase, name))
            self._time(self.trainer.learners[name], "update", partial("update/{}".format, name))

    def _time(self, owner: Any, method: str, phase: Callable[[], str]) -> None:
        """Add the seconds of every call of a method to the phase that is current then."""
        untimed = getattr(owner, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            with timed(self.phases, phase(), torch.device(self.device)):
                return untimed(*args, **kwargs)

        setattr(owner, method, call)

    def _sample_phase(self, name: str) -> str:
        """`sample/<seat>`, with the policy's seat in the current iteration."""
        seating = self.trainer.seating(self.iteration)
        return next(f"sample/{seat}" for seat, policy in seating.items() if policy == name)

    def iterate(self) -> Figures:
        """One iteration; the operations of the first are counted.

        Nothing is compiled while they are: where blocks are, a second one follows that is not timed.
        """
        self.phases.clear()
        counter = FlopCounter() if self.iteration == 0 else None
        start = perf_counter()
        with counter or nullcontext():
            metrics = self.trainer.iterate(self.iteration)
        synchronize(self.device)
        seconds = perf_counter() - start
        for phase in ("judge", "statistics"):
            self.phases[phase] = metrics[f"time/{phase}/seconds"]
        self.phases["exchange"], moved_bytes = time_exchange(self.trainer)
        seating = self.trainer.seating(self.iteration)
        self.iteration += 1
        if counter is not None and self.trainer.config.policy.compile == "yes":
            self.trainer.iterate(self.iteration)
            self.iteration += 1
        batches, policies = self.trainer.batches, self.trainer.policies
        bounds = [
            lower_bound(policies[name], batches[seat], epochs=EPOCHS)  # type: ignore[arg-type]
            for seat, name in seating.items()
        ]
        return {
            "seconds": seconds,
            "phases": dict(self.phases),
            "lower_bound_flops": sum(bounds),
            "counted_flops": counter.flops if counter else None,
            "tokens": sum(int(batch.response_length_B.sum()) for batch in batches.values()),
            "samples": sum(len(batch) for batch in batches.values()),
            "moved_bytes": moved_bytes,
        }

    def sample(self) -> Figures:
        """One response of one policy to every query."""
        game, policy = self.trainer.game, self.trainer.policies["llm_1"]
        spec = self.trainer.spec(self.iteration)
        game.reset(spec.queries, spec.caps_BN)
        self.phases.clear()
        rows, _ = sample_responses(game, game.seats[0], policy, spec)
        return {
            "seconds": sum(self.phases.values()),
            "lower_bound_flops": sampling_lower_bound(policy, rows),  # type: ignore[arg-type]
            "tokens": int(rows.response_length_B.sum()),
        }


def time_exchange(trainer: Trainer) -> tuple[float, int]:
    """Seconds of an exchange of seats and all else between two iterations, and the bytes of weights it moved.

    The median of five; weights count as moved if they lie elsewhere or were written to.
    """
    before, seconds = {name: policy.fingerprint() for name, policy in trainer.policies.items()}, []
    for iteration in range(5):
        start = perf_counter()
        trainer.begin_iteration(iteration)
        trainer.seating(iteration)
        seconds.append(perf_counter() - start)
    moved = sum(
        p.numel() * p.element_size()
        for name, policy in trainer.policies.items()
        for p, old, new in zip(policy.parameters(), before[name], policy.fingerprint(), strict=True)
        if old != new
    )
    return median(seconds), moved


class HFWorker:
    """The vanilla HF baseline (baselines/hf_generate.py) on the same queries and lengths."""

    def __init__(self, job: Figures, folder: Path) -> None:
        workload = self.workload = Workload(**job["workload"])
        torch.set_num_threads(job["threads"])
        config = workload.model_config()
        tokenizer = workload.tokenizer()
        shortest, longest = workload.query
        wrapped = wrap(tokenizer, eos=frozenset({config.eos_token_id}), vocab_size=config.vocab_size)
        self.task = Task(wrapped, shortest=shortest, longest=longest)
        self.baseline = HFBaseline(
            config,
            response=workload.response,
            precision=job["precision"],
            device=job["device"],
            chunk=BASELINE_ROWS,
        )
        self.literals = template_ids(tokenizer)
        self.device, self.iteration = job["device"], 0

    def queries(self) -> list[list[int]]:
        """The queries of the next iteration."""
        rng = np.random.default_rng(self.iteration)
        self.iteration += 1
        return [list(self.task.query(rng).ids) for _ in range(self.workload.batch)]

    def observer_prompt(self, query: list[int], response: list[int]) -> list[int]:
        """The ids of the observer's prompt."""
        before, middle, after = self.literals
        return [*before, *query, *response, *middle, *query, *after]

    def iterate(self) -> Figures:
        """One iteration of both policies, then the exchange."""
        queries, start = self.queries(), perf_counter()
        phases = self.baseline.iterate(
            queries,
            self.observer_prompt,  # type: ignore[arg-type]
            lambda queries, responses: [len(set(ids)) for ids in responses],
        )
        with timed(phases, "exchange", torch.device(self.device)):
            self.baseline.exchange()
        return {
            "seconds": perf_counter() - start,
            "phases": phases,
            "tokens": 2 * len(queries) * self.workload.response,
            "samples": 2 * len(queries),
        }

    def sample(self) -> Figures:
        """One response of one policy to every query."""
        queries, start = self.queries(), perf_counter()
        responses = self.baseline.sample(self.baseline.policies["llm_1"], queries)
        synchronize(self.device)
        return {"seconds": perf_counter() - start, "tokens": sum(map(len, responses))}


def serve(job: Figures) -> None:
    """Reply to lines until there are no more."""
    idle = resident("VmRSS")
    with TemporaryDirectory() as folder:
        worker = (HFWorker if job["kind"] == "hf" else CoryWorker)(job, Path(folder))
        reply(
            {
                "threads": torch.get_num_threads(),
                "matmul": cpu.chosen_matmul(),
                "versions": {"torch": torch.__version__},
            }
        )
        for _ in sys.stdin:
            start = process_time()
            figures = getattr(worker, job["run"])()
            figures["cpu_seconds"] = process_time() - start
            if job["device"].startswith("cuda"):
                memory = {"peak_bytes": torch.cuda.max_memory_allocated(job["device"]), "idle_bytes": 0}
            else:
                memory = {"peak_bytes": resident("VmHWM"), "idle_bytes": idle}
            reply({**figures, **memory})


def reply(figures: Figures) -> None:
    """Write one line of JSON."""
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    serve(json.loads(sys.stdin.readline()))
