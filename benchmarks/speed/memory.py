"""Memory of two LoRA policies on one backbone, beside one such policy, and beside two full copies.

    python -m benchmarks.speed.memory                 # a table, and what the paper's models need
    python -m benchmarks.speed.memory --check         # and exit 1 where a figure falls short of what is promised
    python -m benchmarks.speed.memory --json FILE     # and the figures with command, commit and machine
    python -m benchmarks.speed.memory --device cuda   # there, with the peak of what torch allocates

Every case is a process of its own that plays and learns one whole iteration (sample every seat, statistics,
two PPO epochs for every policy) with a random GPT-2 of 124 million weights. Micro-batches are equal in rows
and in tokens: the queries of the game with one seat are as long as what the observer reads. Peaks are of
resident memory, above what it was when everything was imported.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from benchmarks.speed.memory_table import markdown, table
from benchmarks.learning.runs import provenance
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from cory import algorithms
from cory.functional import kl, token_rewards
from cory.algorithms import ppo
from cory.learner.learner import Learner
from cory.learner.optimizer import LearnerConfig
from cory.policies.base import Policy
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.lora import LoraTeam
from cory.runtime.clock import Clock
from cory.rollout.spec import RolloutSpec
from cory.rollout.rollout import play
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import wrap
from cory_env.vector import VectorGame

GAMES, MICROBATCHES, EPOCHS = 32, 2, 2
QUERY, RESPONSE = 8, 16
NAMES = ("llm_1", "llm_2")
CASES = ("lora_team", "single_lora", "full_copies")
PEAK_RATIO, STATE_RATIO = 1.05, 0.25
"""What a LoRA team promises: its peak over that of one LoRA policy, and its weights, gradients and optimisers
over those of two full copies and a reference."""


def backbone(device: str) -> tuple[GPT2LMHeadModel, PreTrainedTokenizerFast]:
    """GPT-2's smallest shape with random weights, and as many words as it has ids."""
    torch.manual_seed(0)
    shape = GPT2Config(attn_pdrop=0, resid_pdrop=0, embd_pdrop=0)
    attention = "eager" if device == "cpu" else "sdpa"
    model = GPT2LMHeadModel._from_config(shape, attn_implementation=attention).to(device)
    words = {"<eos>": shape.eos_token_id, **{f"w{i}": i for i in range(shape.vocab_size - 1)}}
    inner = Tokenizer(models.WordLevel(words, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return model, PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", unk_token="w0")


def players(case: str, device: str) -> tuple[dict[str, Policy], list[torch.nn.Module]]:
    """The policies of a case, and all modules whose weights it keeps."""
    if case == "full_copies":
        made = [CausalLMPolicy(name, *backbone(device)).to(device) for name in ("reference", *NAMES)]
        made[0].requires_grad_(False)
        for policy in made:
            policy.set_reference(made[0])
        return {policy.name: policy for policy in made[1:]}, list(made)
    names = NAMES if case == "lora_team" else NAMES[:1]
    team = LoraTeam(names, *backbone(device), path="random GPT-2")
    return dict(team.policies), [team.model, *team.policies.values(), team.reference]


def iterate(policies: Mapping[str, Policy]) -> list[Learner]:
    """One whole iteration of the trainer, a policy per seat; the learners as it leaves them."""
    config = ppo.Config(epochs=EPOCHS)
    learners = [
        Learner(
            policy,
            algorithms.load("ppo"),
            config,
            config=LearnerConfig(microbatches=MICROBATCHES),
            kl_config=kl.KLConfig(),
            payoff_config=token_rewards.PayoffScalingConfig(),
        )
        for policy in policies.values()
    ]
    first = learners[0].policy
    length = QUERY if len(learners) > 1 else QUERY + RESPONSE
    tokenizer = wrap(first.tokenizer, eos=first.eos, vocab_size=first.vocab_size)
    task = Echo(tokenizer, length=length)
    game = VectorGame(task, seats=len(learners), max_response=RESPONSE, window=first.window)
    deal = RolloutSpec(
        queries=task.queries("train")[:GAMES],
        games_B=np.arange(GAMES),
        key=(0, "training", 0),
        max_response=(RESPONSE, RESPONSE),
    )
    sitting = dict(zip(game.seats, learners, strict=True))
    batches = play(game, {seat: learner.policy for seat, learner in sitting.items()}, deal, clock=Clock())
    rewards_BT = {seat: learner.rewards([batches[seat]])[0] for seat, learner in sitting.items()}
    memory = {seat: learner.memory for seat, learner in sitting.items()}
    advantages = ppo.advantage(batches, rewards_BT, config, memory)
    for seat, learner in sitting.items():
        order_B = torch.arange(GAMES, device=first.device)
        learner.update(batches[seat], advantages[seat], [order_B] * EPOCHS)
    return learners


def state_bytes(modules: list[torch.nn.Module], learners: list[Learner]) -> dict[str, int]:
    """Weights, gradients and optimisers as they lie in memory, each tensor once."""
    weights = {t.data_ptr(): t for module in modules for t in (*module.parameters(), *module.buffers())}
    states = [state for learner in learners for state in learner.optimizer.state.values()]
    held = {
        "weights": list(weights.values()),
        "gradients": [tensor.grad for tensor in weights.values() if tensor.grad is not None],
        "optimizer": [value for state in states for value in state.values()],
    }
    return {name: sum(t.numel() * t.element_size() for t in tensors) for name, tensors in held.items()}


def resident(entry: str) -> int:
    """Bytes of this process in memory: `VmRSS` now, `VmHWM` at most since it began (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{entry}:"))


def run_case(case: str, device: str) -> dict[str, int]:
    """One case, in this process; bytes."""
    before = resident("VmRSS")
    policies, modules = players(case, device)
    learners = iterate(policies)
    told = {"peak_resident": resident("VmHWM") - before, **state_bytes(modules, learners)}
    if device != "cpu":
        told["peak_allocated"] = torch.cuda.max_memory_allocated(device)
    return told


def measure(device: str) -> dict[str, dict[str, int]]:
    """Every case in a process of its own."""
    told = {}
    for case in CASES:
        command = [sys.executable, __file__, "--case", case, "--device", device]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        told[case] = json.loads(done.stdout.splitlines()[-1])
    return told


def ratios(told: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """What is promised, as measured."""
    peaks = [name for name in ("peak_resident", "peak_allocated") if name in told["lora_team"]]
    state = {
        case: sum(figures[name] for name in ("weights", "gradients", "optimizer"))
        for case, figures in told.items()
    }
    return {
        **{name: told["lora_team"][name] / told["single_lora"][name] for name in peaks},
        "state": state["lora_team"] / state["full_copies"],
    }


def main() -> int:
    """Measure, print, write, check; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--device", default="cpu", help="where to run: cpu, cuda, ...")
    parser.add_argument("--case", choices=CASES, help="only this one, in this process, as JSON")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run_case(options.case, options.device)))
        return 0
    told, paper = measure(options.device), table()
    found = ratios(told)
    for case, figures in told.items():
        print(f"{case:<12}", "  ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in figures.items()))
    for name, ratio in found.items():
        print(f"{name}: {ratio:.3f}")
    print(f"\n{markdown(paper)}")
    if options.json:
        command = " ".join(["python", *sys.argv])
        figures = {"bytes": told, "ratios": found, "paper": paper, **provenance(command)}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    limits = {name: STATE_RATIO if name == "state" else PEAK_RATIO for name in found}
    short = [name for name, ratio in found.items() if options.check and ratio > limits[name]]
    for name in short:
        print(f"too much memory: {name} {found[name]:.3f}, {limits[name]} is promised", file=sys.stderr)
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
