"""Seconds of an evaluation that samples every query several times, together and one sample after another.

    python -m benchmarks.speed.evaluation                # SmolLM2 (`make smollm2` first)
    python -m benchmarks.speed.evaluation --model FOLDER --samples 16

Queries have 32 to 64 random tokens, responses up to 32; both take turns, with as many responses to the same
queries.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

from benchmarks.speed.workloads import Task
from cory.evaluation.config import EvaluationConfig
from cory.evaluation.evaluator import SEED, evaluate_standalone
from cory.pocket import lm_path
from cory.policies.causal_lm import CausalLMPolicy
from cory.runtime import cpu
from cory_env.tokenizer import HFTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="a folder or the name of a model")
    parser.add_argument("--queries", type=int, default=16)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cpu.configure_runtime(threads=1)
    policy = CausalLMPolicy.load("reference", lm_path(options.model)).freeze()
    policy.set_reference(policy)
    tokens = HFTokenizer(policy.tokenizer, eos=policy.eos, pad=policy.pad, vocab_size=policy.vocab_size)
    task = Task(tokens, shortest=32, longest=64)
    config = EvaluationConfig(queries=options.queries, samples=options.samples)

    def evaluate(config: EvaluationConfig, seed: int = SEED) -> None:
        evaluate_standalone(policy, task, config, max_response=(32, 32), measures={}, seed=seed)

    def apart() -> None:
        for i in range(options.samples):
            evaluate(replace(config, samples=1), SEED + i)

    ways: dict[str, Callable[[], None]] = {"together": lambda: evaluate(config), "one by one": apart}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    evaluate(replace(config, queries=1))
    for _ in range(options.rounds):
        for name, way in ways.items():
            start = perf_counter()
            way()
            seconds[name].append(perf_counter() - start)
    together, one_by_one = (statistics.median(times) for times in seconds.values())
    print(f"together {together:.1f} s, one by one {one_by_one:.1f} s, ratio {one_by_one / together:.2f}")


if __name__ == "__main__":
    main()
