"""Where the time of ours goes, operator by operator, and how long the operators take alone.

    python -m benchmarks.speed.operator_profile                                  # W1 and W1 batch 256
    python -m benchmarks.speed.operator_profile W2 --precision bfloat16
    python -m benchmarks.speed.operator_profile --json FILE

An iteration, and then the answers to 256 queries, are run once with a clock around every operator. Then every
product of matrices is repeated by itself, with operands of the same shapes and strides, the best of six. All
other operators are repeated where they stand, the best of three, but for those that write to what they are
given. In less time no order of the work can be done with these operators. Weights and queries are those of
throughput.py, and so are shares of the floor.

Shapes: none.
"""

import argparse
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from benchmarks.speed.workers import Ours
from benchmarks.speed.roofline import peak
from benchmarks.learning.runs import provenance
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from benchmarks.speed.workloads import WORKS, Work

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
Operand = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Shape, stride and type."""


class Clocked(TorchDispatchMode):
    """Seconds of all operators inside, by what they work on; how often each product was asked for."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.seconds: Counter[str] = Counter()
        self.alone: Counter[str] = Counter()
        """The same, each operator but the products at its best."""
        self.products: Counter[tuple[Any, tuple[Operand, ...]]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        began = perf_counter()
        out = func(*args, **(kwargs or {}))
        spent = [perf_counter() - began]
        self.seconds[kind := self.kind(func, args, out)] += spent[0]
        if kind == "products":
            given = [arg for arg in args if isinstance(arg, Tensor)]
            self.products[func, tuple((tuple(t.shape), t.stride(), t.dtype) for t in given)] += 1
            return out
        for _ in range(0 if func._schema.is_mutable else 2):
            began = perf_counter()
            func(*args, **(kwargs or {}))
            spent.append(perf_counter() - began)
        self.alone[kind] += min(spent)
        return out

    def kind(self, func: Any, args: tuple[Any, ...], out: Any) -> str:
        """What an operator works on."""
        if func.overloadpacket.__name__ in PRODUCTS:
            return "products"
        given = [tensor for tensor in tensors((*args, out)) if tensor.ndim > 1]
        if any(self.vocab_size in (tensor.shape[-1], tensor.stride(0)) for tensor in given):
            return "logits: softmax, entropy, KL, choice"
        if any(tensor.shape[0] == self.vocab_size for tensor in given) or "fused_adam" in str(func):
            return "weights: Adam, norms, sums of gradients"
        return "everything else of the trunk"


def tensors(given: Any) -> Iterator[Tensor]:
    """All there are, lists looked into."""
    for one in given:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, list | tuple):
            yield from tensors(one)


def alone(func: Any, operands: tuple[Operand, ...]) -> float:
    """Seconds of one product by itself: the best of six, after one."""
    given = []
    for shape, stride, dtype in operands:
        extent = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
        given.append(torch.randn(extent).to(dtype).as_strided(shape, stride))
    seconds = []
    for _ in range(7):
        began = perf_counter()
        func(*given)
        seconds.append(perf_counter() - began)
    return min(seconds[1:])


def measure(ours: Ours, run: Callable[[], Any], dtype: torch.dtype) -> dict[str, Any]:
    """Seconds of `run` as it is and by kind of operator, and of each kind alone."""
    run(), run()
    best = min((run() for _ in range(3)), key=lambda told: float(told["seconds"]))
    policy = ours.trainer.policies["llm_1"]
    with Clocked(policy.vocab_size) as clocked:
        run()
    return {
        "seconds": best["seconds"],
        "floor_seconds": best["flops"] / (fastest := peak(dtype)),
        "operators": dict(clocked.seconds.most_common()),
        "alone": {
            "products": sum(count * alone(*one) for one, count in clocked.products.items()),
            **dict(clocked.alone.most_common()),
        },
        "peak_flops": fastest,
    }


def report(name: str, work: Work, precision: str, threads: int) -> dict[str, Any]:
    """Both halves of a work, printed."""
    told: dict[str, Any] = {}
    for what, sized in (("an iteration", work), ("sampling, batch 256", replace(work, batch=256))):
        job = {"who": "ours", "work": asdict(sized), "precision": precision, "threads": threads}
        with TemporaryDirectory() as folder:
            ours = Ours({**job, "device": "cpu"}, Path(folder))
            run = ours.iterate if what == "an iteration" else ours.sample
            found = measure(ours, run, getattr(torch, precision))
        told[what] = found
        print(
            f"\n{name}, {precision}, {what}: {found['seconds']:.3f} s; floor {found['floor_seconds']:.3f} s"
        )
        for kind, seconds in found["operators"].items():
            print(f"  {kind:<40} {seconds:8.3f} s, {found['alone'][kind]:.3f} s alone", flush=True)
        least = sum(found["alone"].values())
        print(f"  {'all of them':<40} {sum(found['operators'].values()):8.3f} s, {least:.3f} s alone, with")
        print(f"  which the share of the floor would be {found['floor_seconds'] / least:.2f}", flush=True)
    return told


def main() -> int:
    """Measure, print, write; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("works", nargs="*", default=["W1", "W1 batch 256"], help=", ".join(WORKS))
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="write every figure here")
    options = parser.parse_args()
    if unknown := set(options.works) - set(WORKS):
        parser.error(f"no work called {sorted(unknown)[0]!r}; there are {', '.join(WORKS)}")
    told = {name: report(name, WORKS[name], options.precision, options.threads) for name in options.works}
    if options.json:
        about = provenance(shlex.join(["python", *sys.argv]))
        options.json.write_text(json.dumps({"told": told, **about}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
