"""Worker processes of the throughput benchmarks: which there are, and how they are started."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal

from benchmarks import ROOT
from benchmarks.speed.baselines.hf import ALLOCATOR, MINIBATCH
from benchmarks.speed.workloads import TEMPLATE, Workload
from cory.pocket import lm_path

TRL_PYTHON = ROOT / ".venv-trl/bin/python"
TRL_GRPO_PYTHON = ROOT / ".venv-trl-grpo/bin/python"
GROUP, GRPO_KL = 8, 0.04
"""Responses to a prompt, and the coefficient of the KL term, where GRPO is compared."""
Figures = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A row of a throughput table: which program, with which settings."""

    kind: Literal["cory", "lora_team", "hf", "trl", "trl_grpo"] = "cory"
    precision: Literal["float32", "bfloat16"] = "float32"
    algorithm: Literal["ppo", "grpo"] = "ppo"
    """Of CORY; GRPO has one seat."""
    compile: Literal["auto", "no"] = "auto"
    """CORY's `policy.compile`."""
    seat: Literal["pioneer_0", "observer_1"] = "pioneer_0"
    """The seat whose prompt lengths TRL's single policy gets."""


CORY = {
    "cory fp32": Worker(),
    "cory bf16": Worker(precision="bfloat16"),
    "lora team": Worker(kind="lora_team"),
}
LORA_BF16 = {"lora team bf16": Worker(kind="lora_team", precision="bfloat16")}
"""The adapters on frozen weights in bfloat16, as on GPUs by default."""
HF = {"hf fp32": Worker(kind="hf"), "hf bf16": Worker(kind="hf", precision="bfloat16")}
TRL = {
    "trl fp32 pioneer_0": Worker(kind="trl"),
    "trl fp32 observer_1": Worker(kind="trl", seat="observer_1"),
}
GRPO = {"cory grpo fp32": Worker(algorithm="grpo"), "trl grpo fp32": Worker(kind="trl_grpo")}
EAGER = {
    "cory fp32, not compiled": Worker(compile="no"),
    "cory bf16, not compiled": Worker(compile="no", precision="bfloat16"),
}
WORKERS = {**CORY, **LORA_BF16, **HF, **TRL, **GRPO, **EAGER}

W3_PAIRS = (
    ("cory fp32", "hf fp32"),
    ("cory fp32", "trl fp32 pioneer_0"),
    ("cory fp32", "trl fp32 observer_1"),
    ("cory fp32", "cory fp32, not compiled"),
    ("cory bf16", "cory bf16, not compiled"),
    ("cory grpo fp32", "trl grpo fp32"),
    ("lora team",),
)
"""Workers that are timed together on W3: two at a time, since three do not fit into 24 GiB."""


class WorkerProcess:
    """A process that runs one iteration for each line it receives."""

    def __init__(
        self, command: Sequence[str | Path], job: Figures, environment: Mapping[str, str] | None = None
    ) -> None:
        self.command = [str(word) for word in command]
        self.errors = TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - see `close`
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )
        self.about = self.send(json.dumps(job))
        """Threads and versions of the process."""

    def send(self, line: str) -> Figures:
        """Send a line and wait for the reply."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # the process has ended: reported below
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        reply = self.process.stdout.readline()
        if not reply:
            code = self.process.wait()
            self.errors.seek(0)
            raise RuntimeError(
                f"{' '.join(self.command)} ended with {code}; -9 means that there is too little memory for "
                f"the workers that are timed together. Its last words:\n{self.errors.read()[-2000:]}"
            )
        figures: Figures = json.loads(reply)
        return figures

    def close(self) -> None:
        """Close its input and wait for its end."""
        self.process.communicate()
        self.errors.close()


def start(name: str, workload: Workload, *, threads: int, device: str) -> WorkerProcess:
    """Start the process of the worker called `name`."""
    worker = WORKERS[name]
    if worker.kind == "trl":
        job = trl_job(worker, workload, threads=threads)
        return WorkerProcess([TRL_PYTHON, "-m", "benchmarks.speed.baselines.trl_ppo"], job)
    if worker.kind == "trl_grpo":
        job = trl_grpo_job(workload, threads=threads)
        return WorkerProcess([TRL_GRPO_PYTHON, "-m", "benchmarks.speed.baselines.trl_grpo"], job)
    job = {**asdict(worker), "workload": asdict(workload), "threads": threads, "device": device}
    environment = ALLOCATOR if worker.kind == "hf" else {}
    return WorkerProcess([sys.executable, "-m", "benchmarks.speed.workers"], job, environment)


def trl_grpo_job(workload: Workload, *, threads: int) -> Figures:
    """The job of baselines/trl_grpo.py: as many responses as a seat of the workload has."""
    shortest, longest = workload.query
    prompts = workload.batch // GROUP
    return {
        "folder": str(lm_path(workload.named)),
        "prompt_lengths": [shortest + i % (longest - shortest + 1) for i in range(prompts)],
        "group": GROUP,
        "response": workload.response,
        "epochs": 4,
        "kl_coef": GRPO_KL,
        "threads": threads,
    }


def trl_job(worker: Worker, workload: Workload, *, threads: int) -> Figures:
    """The job of baselines/trl_ppo.py: one policy's iteration on prompts as long as those of a seat."""
    shortest, longest = workload.query
    lengths = [shortest + i % (longest - shortest + 1) for i in range(workload.batch)]
    if worker.seat == "observer_1":
        texts = TEMPLATE.replace("{responses}", "").split("{query}")
        words = sum(len(ids) for ids in workload.tokenizer()(texts, add_special_tokens=False)["input_ids"])
        lengths = [2 * length + words + workload.response for length in lengths]
    shape = workload.model_config().to_diff_dict()
    return {
        "architecture": shape.pop("model_type"),
        "shape": {
            key: value for key, value in shape.items() if not key.startswith(("transformers", "dtype"))
        },
        "prompt_lengths": lengths,
        "response": workload.response,
        "chunk": min(MINIBATCH, workload.batch),
        "epochs": 4,
        "threads": threads,
    }


def installed(workers: Sequence[str]) -> bool:
    """Whether the environments of these workers are there (`setup.sh` makes TRL's)."""
    needed = {"trl": TRL_PYTHON, "trl_grpo": TRL_GRPO_PYTHON}
    return all(needed[kind].exists() for name in workers if (kind := WORKERS[name].kind) in needed)


def workers_of(workload: str, device: str) -> list[str]:
    """The workers that are timed on a workload together: baselines on W1 and on GPUs, where one is enough."""
    if workload.startswith("llama-"):
        return [*LORA_BF16]
    if device != "cpu":
        return ["cory bf16", "cory bf16, not compiled", *LORA_BF16, "hf bf16"]
    if workload == "tiny":
        return [*CORY, *HF]
    return [*CORY, *HF, *(TRL if installed(list(TRL)) else [])] if workload == "W1" else list(CORY)
