"""Time of CORY operator by operator, and of each operator in isolation.

    python -m benchmarks.speed.operator_profile                                  # W1 and W1 batch 256
    python -m benchmarks.speed.operator_profile W2 --precision bfloat16
    python -m benchmarks.speed.operator_profile --json FILE

An iteration, and then the sampling of 256 responses, are run once with a clock around every operator. Every
matrix product is then repeated in isolation, with operands of the same shapes and strides, the best of six.
All other operators are repeated in place, the best of three, except those that write to their inputs. The
isolated sum is the least time that these operators need in any order. Weights and queries are those of
throughput.py, and so is the lower bound.

Shapes: none.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.output import write_figures
from benchmarks.speed.roofline import peak
from benchmarks.speed.workers import CoryWorker, Figures
from benchmarks.speed.workloads import WORKLOADS, Workload

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
Operand = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Shape, stride and type."""


class OperatorTimer(TorchDispatchMode):
    """Seconds of all operators inside, by what they work on; how often each matrix product was called."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.vocab_size = vocab_size
        self.seconds: dict[str, float] = defaultdict(float)
        self.isolated: dict[str, float] = defaultdict(float)
        """The best time of each operator, without the matrix products."""
        self.products: Counter[tuple[Any, tuple[Operand, ...]]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        start = perf_counter()
        out = func(*args, **(kwargs or {}))
        spent = [perf_counter() - start]
        self.seconds[kind := self.kind(func, args, out)] += spent[0]
        if kind == "products":
            operands = [arg for arg in args if isinstance(arg, Tensor)]
            self.products[func, tuple((tuple(t.shape), t.stride(), t.dtype) for t in operands)] += 1
            return out
        for _ in range(0 if func._schema.is_mutable else 2):
            start = perf_counter()
            func(*args, **(kwargs or {}))
            spent.append(perf_counter() - start)
        self.isolated[kind] += min(spent)
        return out

    def kind(self, func: Any, args: tuple[Any, ...], out: Any) -> str:
        """What an operator works on."""
        if func.overloadpacket.__name__ in PRODUCTS:
            return "products"
        matrices = [tensor for tensor in tensors((*args, out)) if tensor.ndim > 1]
        if any(self.vocab_size in (tensor.shape[-1], tensor.stride(0)) for tensor in matrices):
            return "logits: softmax, entropy, KL, choice"
        if any(tensor.shape[0] == self.vocab_size for tensor in matrices) or "fused_adam" in str(func):
            return "weights: Adam, norms, sums of gradients"
        return "everything else of the trunk"


def tensors(arguments: Any) -> Iterator[Tensor]:
    """The tensors among the arguments of an operator, those in lists included."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, list | tuple):
            yield from tensors(argument)


def isolated(func: Any, operands: tuple[Operand, ...]) -> float:
    """Seconds of one product in isolation: the best of six, after one."""
    arguments = []
    for shape, stride, dtype in operands:
        extent = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
        arguments.append(torch.randn(extent).to(dtype).as_strided(shape, stride))
    seconds = []
    for _ in range(7):
        start = perf_counter()
        func(*arguments)
        seconds.append(perf_counter() - start)
    return min(seconds[1:])


def descending(seconds: Mapping[str, float]) -> dict[str, float]:
    """The entries, the largest first."""
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def measure(worker: CoryWorker, run: Callable[[], Figures], dtype: torch.dtype) -> Figures:
    """Seconds of `run` as it is, by kind of operator, and of each kind in isolation."""
    run(), run()
    best = min((run() for _ in range(3)), key=lambda figures: float(figures["seconds"]))
    with OperatorTimer(worker.trainer.policies["llm_1"].vocab_size) as timer:
        run()
    return {
        "seconds": best["seconds"],
        "lower_bound_seconds": best["lower_bound_flops"] / (fastest := peak(dtype)),
        "operators": descending(timer.seconds),
        "isolated": {
            "products": sum(times * isolated(*product) for product, times in timer.products.items()),
            **descending(timer.isolated),
        },
        "peak_flops": fastest,
    }


def profile(name: str, workload: Workload, precision: str, threads: int) -> Figures:
    """Profile an iteration and the sampling of a workload, and print both."""
    results: Figures = {}
    for part, sized in (("an iteration", workload), ("sampling, batch 256", replace(workload, batch=256))):
        job = {"kind": "cory", "workload": asdict(sized), "precision": precision, "threads": threads}
        with TemporaryDirectory() as folder:
            worker = CoryWorker({**job, "device": "cpu"}, Path(folder))
            run = worker.iterate if part == "an iteration" else worker.sample
            found = results[part] = measure(worker, run, getattr(torch, precision))
        bound = found["lower_bound_seconds"]
        print(f"\n{name}, {precision}, {part}: {found['seconds']:.3f} s; lower bound {bound:.3f} s")
        for kind, seconds in found["operators"].items():
            print(f"  {kind:<40} {seconds:8.3f} s, {found['isolated'][kind]:.3f} s isolated", flush=True)
        least = sum(found["isolated"].values())
        print(f"  {'all of them':<40} {sum(found['operators'].values()):8.3f} s, {least:.3f} s isolated:")
        print(f"  a share of the lower bound of {bound / least:.2f}", flush=True)
    return results


def main() -> int:
    """Measure, print, write; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", default=["W1", "W1 batch 256"], help=", ".join(WORKLOADS))
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path, help="file for every figure")
    options = parser.parse_args()
    if unknown := set(options.workloads) - set(WORKLOADS):
        parser.error(f"there is no workload {sorted(unknown)[0]!r}; there are {', '.join(WORKLOADS)}")
    results = {
        name: profile(name, WORKLOADS[name], options.precision, options.threads) for name in options.workloads
    }
    if options.json:
        write_figures(options.json, {"results": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
