"""The process behind a row of throughput.py: one iteration, and its figures, for each line of standard input.

The first line is the job, as JSON: the fields of `processes.Worker`, `workload` (fields of
`workloads.Workload`), `threads` and `device`.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch

from benchmarks.speed import memory_estimate
from benchmarks.speed.baselines import hf
from benchmarks.speed.process_memory import resident
from benchmarks.speed.processes import GROUP, GRPO_KL
from benchmarks.speed.roofline import lower_bound
from benchmarks.speed.workloads import Task, Workload
from cory import algorithms
from cory.algorithms import ppo
from cory.config.schema import Config, PolicyConfig
from cory.config.task_options import task_options
from cory.functional.kl import KLConfig
from cory.rollout.role_exchange import ExchangeConfig
from cory.runtime import cpu
from cory.runtime.device import synchronize
from cory.training.factory import silence_transformers
from cory.training.trainer import Trainer
from cory_env import VectorGame
from cory_env.tokenizer import HFTokenizer
from examples.cory_single_file import Rollout, play

Figures = dict[str, Any]
EPOCHS = 4
TASK = "benchmarks.speed.workloads:Task"
PHASES = ("sample", "judge", "statistics", "update", "exchange")


class CoryWorker:
    """CORY's trainer; seats are exchanged before every iteration."""

    def __init__(self, job: Figures, folder: Path) -> None:
        workload = Workload(**job["workload"])
        cpu.configure_runtime(threads=job["threads"])
        silence_transformers()
        self.device, self.iteration = job["device"], 0
        shortest, longest = workload.query
        settings = {
            "task": TASK,
            "task_options": task_options(TASK)(shortest=shortest, longest=longest),
            "batch": workload.batch,
            "max_response": (workload.response, workload.response),
            "exchange": ExchangeConfig(every=1),
            "algorithm_options": ppo.Config(epochs=EPOCHS),
            "policy": PolicyConfig(
                model=workload.named or str(workload.save(folder)),
                kind="lora_team" if job["kind"] == "lora_team" else "causal_lm",
                precision=job["precision"],
                compile=job["compile"],
                device=self.device,
            ),
        }
        if job["algorithm"] == "grpo":
            settings |= {
                "algorithm": "grpo",
                "algorithm_options": algorithms.load("grpo").Config(group=GROUP, epochs=EPOCHS),
                "kl": KLConfig(place="loss", kind="k3", coef=GRPO_KL),
                "seats": 1,
            }
        self.trainer = Trainer(Config.from_flat(settings))

    def iterate(self) -> Figures:
        """One iteration."""
        start = perf_counter()
        metrics = self.trainer.iterate(self.iteration)
        synchronize(torch.device(self.device))
        seconds = perf_counter() - start
        batches, policies = self.trainer.batches, self.trainer.policies
        bounds = [
            lower_bound(policies[name], batches[seat], epochs=EPOCHS)  # type: ignore[arg-type]
            for seat, name in self.trainer.seating(self.iteration).items()
        ]
        self.iteration += 1
        return {
            "seconds": seconds,
            "phases": {phase: metrics[f"time/{phase}/seconds"] for phase in PHASES},
            "lower_bound_flops": sum(bounds),
            "tokens": sum(int(batch.response_length_B.sum()) for batch in batches.values()),
            "samples": sum(len(batch) for batch in batches.values()),
            "estimated_bytes": memory_estimate.of_trainer(self.trainer),
        }


class HFWorker:
    """The vanilla HF baseline (baselines/hf.py) on the same queries and lengths."""

    def __init__(self, job: Figures, folder: Path) -> None:
        workload = self.workload = Workload(**job["workload"])
        torch.set_num_threads(job["threads"])
        model = workload.make_model(attn_implementation="eager").float().to(job["device"])
        self.learners = hf.make_learners(model, batch=workload.batch, precision=job["precision"])
        self.device, self.iteration = job["device"], 0
        eos = frozenset({model.config.eos_token_id})
        tokenizer = HFTokenizer(workload.tokenizer(), eos=eos, vocab_size=model.config.vocab_size)
        task = Task(tokenizer, shortest=workload.query[0], longest=workload.query[1])
        self.game = VectorGame(task, seats=2, max_response=workload.response)

    def iterate(self) -> Figures:
        """One iteration; seats are exchanged before it."""
        batch, queries = self.workload.batch, self.game.task.queries("train")
        first = self.iteration * batch % (len(queries) - batch)
        names = list(self.learners)[:: (-1) ** self.iteration]
        self.iteration += 1
        seating = dict(zip(self.game.seats, names, strict=True))
        policies = {seat: self.learners[name].policy for seat, name in seating.items()}
        phases, start = {}, perf_counter()
        caps_BN = np.full((batch, len(seating)), self.workload.response)
        rollouts = play(self.game, policies, list(queries[first : first + batch]), caps_BN)
        synchronize(torch.device(self.device))
        phases["sample"] = perf_counter() - start
        for seat, name in seating.items():
            rollout = Rollout(*(tensor.to(self.device) for tensor in vars(rollouts[seat]).values()))
            self.learners[name].update(rollout, [torch.randperm(batch)] * EPOCHS)
        synchronize(torch.device(self.device))
        seconds = perf_counter() - start
        return {
            "seconds": seconds,
            "phases": {**phases, "update": seconds - phases["sample"]},
            "tokens": sum(int(rollout.mask_BT.sum()) for rollout in rollouts.values()),
            "samples": batch * len(rollouts),
        }


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
            figures = worker.iterate()
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
