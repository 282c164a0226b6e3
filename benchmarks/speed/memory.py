"""Memory of two LoRA policies on one backbone, compared with one such policy and with two full copies.

    python -m benchmarks.speed.memory                 # a table, and the estimates for the paper's models
    python -m benchmarks.speed.memory --check         # exit with 1 if a target is missed
    python -m benchmarks.speed.memory --json FILE     # write the figures and their provenance
    python -m benchmarks.speed.memory --device cuda   # on a GPU, with the peak of what torch allocates

Every case is a process of its own that plays and learns one iteration (sampling in every seat, statistics,
two PPO epochs for every policy) with a random GPT-2 of 124 million weights. Micro-batches are equal in rows
and in tokens: the queries of the game with one seat are as long as the observer's prompts. Peaks are of
resident memory above that after the imports.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from benchmarks import ROOT
from benchmarks.output import write_figures
from benchmarks.speed import memory_estimate
from benchmarks.speed.memory_table import markdown, table
from benchmarks.speed.process_memory import resident
from cory import algorithms
from cory.algorithms import ppo
from cory.config.schema import Config
from cory.functional import kl, token_rewards
from cory.learner.learner import Learner
from cory.learner.optimizer import LearnerConfig
from cory.policies.base import Policy
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.lora import LoraTeam
from cory.rollout.rollout import RolloutSpec, play
from cory.runtime.clock import Clock
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import wrap
from cory_env.vector import VectorGame

GAMES, MICROBATCHES, EPOCHS = 32, 2, 2
QUERY, RESPONSE = 8, 16
NAMES = ("llm_1", "llm_2")
CASES = ("lora_team", "single_lora", "full_copies")
PEAK_RATIO, STATE_RATIO = 1.05, 0.25
"""Targets of a LoRA team: its peak over that of one LoRA policy; its weights, gradients and optimisers over
those of two full copies and a reference."""
ESTIMATE_ERROR = 0.15
"""Target: how far a run's estimate of its memory may be from the measured peak, as a share of that."""


def backbone(device: str) -> tuple[GPT2LMHeadModel, PreTrainedTokenizerFast]:
    """GPT-2's smallest shape with random weights, and a tokenizer with a word per id."""
    torch.manual_seed(0)
    config = GPT2Config(attn_pdrop=0, resid_pdrop=0, embd_pdrop=0)
    attention = "eager" if device == "cpu" else "sdpa"
    model = GPT2LMHeadModel._from_config(config, attn_implementation=attention).to(device)
    words = {"<eos>": config.vocab_size - 1, **{f"w{i}": i for i in range(config.vocab_size - 1)}}
    inner = Tokenizer(models.WordLevel(words, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return model, PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", unk_token="w0")


def make_policies(case: str, device: str) -> tuple[dict[str, Policy], list[torch.nn.Module]]:
    """The policies of a case, and all modules with their weights."""
    if case == "full_copies":
        copies = [CausalLMPolicy(name, *backbone(device)).to(device) for name in ("reference", *NAMES)]
        copies[0].requires_grad_(False)
        for policy in copies:
            policy.set_reference(copies[0])
        return {policy.name: policy for policy in copies[1:]}, list(copies)
    names = NAMES if case == "lora_team" else NAMES[:1]
    team = LoraTeam(names, *backbone(device), path="random GPT-2")
    return dict(team.policies), [team.model, *team.policies.values(), team.reference]


def iterate(policies: Mapping[str, Policy]) -> tuple[list[Learner], int, int]:
    """One iteration as the trainer does it, a policy per seat.

    Returns the learners, the most bytes of gradients at a step (they are freed after it), and the bytes
    beside the weights that a run would estimate.
    """
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
    first: CausalLMPolicy = learners[0].policy  # type: ignore[assignment]
    length = QUERY if len(learners) > 1 else QUERY + RESPONSE
    tokenizer = wrap(first.tokenizer, eos=first.eos, vocab_size=first.vocab_size)
    task = Echo(tokenizer, length=length)
    game = VectorGame(task, seats=len(learners), max_response=RESPONSE, window=first.window)
    spec = RolloutSpec.draw(
        task.queries("train")[:GAMES],
        seats=game.seats,
        games_B=np.arange(GAMES),
        key=(0, "training", 0),
        max_response=(RESPONSE, RESPONSE),
    )
    learner_by_seat = dict(zip(game.seats, learners, strict=True))
    policies_by_seat = {seat: learner.policy for seat, learner in learner_by_seat.items()}
    batches = play(game, policies_by_seat, spec, clock=Clock())
    rewards = {seat: learner.rewards([batches[seat]])[0] for seat, learner in learner_by_seat.items()}
    states = {seat: learner.algorithm_state for seat, learner in learner_by_seat.items()}
    advantages = ppo.advantage(batches, rewards, config, states)
    gradients: list[int] = []
    for seat, learner in learner_by_seat.items():
        learner.optimizer.register_step_pre_hook(lambda *_: gradients.append(gradient_bytes(learners)))
        order_B = torch.arange(GAMES, device=first.device)
        learner.update(batches[seat], advantages[seat], [order_B] * EPOCHS)
    longest = max(view.max_prompt(task.max_query, RESPONSE) for view in game.views) + RESPONSE
    settings = Config(
        batch=GAMES, max_response=(RESPONSE, RESPONSE), learner=LearnerConfig(microbatches=MICROBATCHES)
    )
    _, needed = memory_estimate.peak(memory_estimate.of_run(settings, policies, longest))
    return learners, max(gradients), sum(needed.values())


def gradient_bytes(learners: list[Learner]) -> int:
    """Bytes of all gradients that exist now."""
    gradients = (p.grad for learner in learners for p in learner.trainable)
    return sum(gradient.nbytes for gradient in gradients if gradient is not None)


def state_bytes(modules: list[torch.nn.Module], learners: list[Learner]) -> dict[str, int]:
    """Bytes of weights and optimisers, each tensor counted once."""
    weights = {t.data_ptr(): t for module in modules for t in (*module.parameters(), *module.buffers())}
    states = [state for learner in learners for state in learner.optimizer.state.values()]
    tensors = {
        "weights": list(weights.values()),
        "optimizer": [value for state in states for value in state.values()],
    }
    return {name: sum(t.nbytes for t in held) for name, held in tensors.items()}


def run_case(case: str, device: str) -> dict[str, int]:
    """Bytes of one case, run in this process."""
    before = resident("VmRSS")
    policies, modules = make_policies(case, device)
    learners, gradients, estimated = iterate(policies)
    peak = resident("VmHWM") - before
    state = state_bytes(modules, learners)
    figures = {
        "peak_resident": peak,
        "estimated": state["weights"] + estimated,
        "gradients": gradients,
        **state,
    }
    if device != "cpu":
        figures["peak_allocated"] = torch.cuda.max_memory_allocated(device)
    return figures


def measure(device: str) -> dict[str, dict[str, int]]:
    """Bytes of every case, each run in a process of its own."""
    results = {}
    for case in CASES:
        command = [sys.executable, "-m", "benchmarks.speed.memory", "--case", case, "--device", device]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        results[case] = json.loads(done.stdout.splitlines()[-1])
    return results


def ratios(results: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """The ratios that have targets."""
    peaks = [name for name in ("peak_resident", "peak_allocated") if name in results["lora_team"]]
    state = {
        case: sum(figures[name] for name in ("weights", "gradients", "optimizer"))
        for case, figures in results.items()
    }
    return {
        **{name: results["lora_team"][name] / results["single_lora"][name] for name in peaks},
        "state": state["lora_team"] / state["full_copies"],
        **{
            f"estimated {case}": figures["estimated"] / figures[peaks[-1]]
            for case, figures in results.items()
        },
    }


def is_met(name: str, ratio: float) -> bool:
    """Whether a ratio meets its target."""
    if name.startswith("estimated"):
        return abs(ratio - 1) <= ESTIMATE_ERROR
    return ratio <= (STATE_RATIO if name == "state" else PEAK_RATIO)


def main() -> int:
    """Measure, print, write, check; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, ...")
    parser.add_argument("--case", choices=CASES, help="only this one, in this process, as JSON")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(run_case(options.case, options.device)))
        return 0
    results, paper = measure(options.device), table()
    found = ratios(results)
    for case, figures in results.items():
        print(f"{case:<12}", "  ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in figures.items()))
    for name, ratio in found.items():
        print(f"{name}: {ratio:.3f}")
    print(f"\n{markdown(paper)}")
    if options.json:
        write_figures(options.json, {"bytes": results, "ratios": found, "paper": paper})
    missed = [name for name, ratio in found.items() if options.check and not is_met(name, ratio)]
    for name in missed:
        print(f"{name} {found[name]:.3f} misses its target", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
