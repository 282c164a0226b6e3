"""What `throughput.py --check` requires of the figures."""

from collections.abc import Mapping
from typing import Any, NamedTuple

FAST_MACHINE = 400e9
"""FLOP/s of the fastest float32 product from which a speed relative to other trainers is required.

They are bound by something else than matrix products, so the ratios fall on slower machines."""


class Target(NamedTuple):
    """A figure and its limit."""

    name: str
    value: float | None
    """None = not measured."""
    limit: float | None
    """None = reported only."""
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether the figure is within the limit."""
        if self.limit is None:
            return True
        if self.value is None:
            return False
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def line(self) -> str:
        """One line of the check."""
        verdict = "     " if self.limit is None else "ok   " if self.met else "SHORT"
        if self.value is None:
            return (
                f"{verdict} {self.name}: not measured; `sh benchmarks/speed/baselines/setup.sh` installs TRL"
            )
        if self.limit is None:
            return f"{verdict} {self.name}: {self.value:.3g}, no target below {FAST_MACHINE / 1e9:g} GFLOP/s"
        return (
            f"{verdict} {self.name}: {self.value:.3g}, target at {'most' if self.at_most else 'least'} "
            f"{self.limit:g}"
        )


def targets(results: Mapping[str, Mapping[str, Any]]) -> list[Target]:
    """Every target that the measured workloads have.

    CORY in bfloat16 is compared with baselines in float32, which is their default.
    """
    found: list[Target] = []

    def figure(workload: str, worker: str, name: str = "seconds") -> float:
        value: float = results[workload]["workers"][worker][name]
        return value

    if "W1" in results:
        found += _against_baselines(results["W1"])
        phases = results["W1"]["workers"]["cory fp32"]["phases"]
        found.append(Target("W1: milliseconds of an exchange", phases["exchange"] * 1e3, 1, at_most=True))
        moved = figure("W1", "cory fp32", "moved_bytes")
        found.append(Target("W1: bytes moved by an exchange", moved, 0, at_most=True))
    if any(title.startswith("W3") for title in results):
        found += _of_w3(results)
    for workload, worker, least in (
        ("W1", "cory fp32", 0.50),
        ("W1 batch 256", "cory fp32", 0.70),
        ("W2", "cory fp32", 0.65),
        ("W2", "cory bf16", 0.45),
    ):
        if workload in results:
            share = figure(workload, worker, "share_of_lower_bound")
            found.append(Target(f"{workload}, {worker}: share of the FLOP lower bound", share, least))
    for workload, least in (("sampling W1", 10), ("sampling W2", 3)):
        if workload in results:
            ours, theirs = (
                figure(workload, worker, "tokens_per_second") for worker in ("cory fp32", "hf fp32")
            )
            name = f"{workload}, batch 256: times the tokens/s of model.generate"
            fast = results[workload]["peak_flops"]["float32"] >= FAST_MACHINE
            found.append(Target(name, ours / theirs, least if fast else None))
    return found


def _against_baselines(result: Mapping[str, Any]) -> list[Target]:
    """Speed and memory of W1, compared with TRL and the vanilla HF baseline."""
    workers, found = result["workers"], []
    trl = [workers.get(f"trl fp32 {seat}") for seat in ("pioneer_0", "observer_1")]
    seconds_of_trl = sum(of["seconds"] for of in trl) if all(trl) else None
    fast = result["peak_flops"]["float32"] >= FAST_MACHINE
    for precision, trl_least, hf_least in (("fp32", 8, 4), ("bf16", 12, 6)):
        seconds = workers[f"cory {precision}"]["seconds"]
        ratio = seconds_of_trl / seconds if seconds_of_trl else None
        found.append(
            Target(f"W1, {precision}: times faster than TRL in fp32", ratio, trl_least if fast else None)
        )
        name = f"W1, {precision}: times faster than the vanilla HF baseline in fp32"
        found.append(Target(name, workers["hf fp32"]["seconds"] / seconds, hf_least if fast else None))
    memory = workers["cory fp32"]["peak_bytes"] / trl[1]["peak_bytes"] if trl[1] else None
    found.append(Target("W1: peak memory, two policies over TRL's one", memory, 0.5, at_most=True))
    return found


def _of_w3(results: Mapping[str, Mapping[str, Any]]) -> list[Target]:
    """Speed of W3 relative to each worker that was timed beside CORY, and CORY's memory."""
    ratios: dict[str, float] = {}
    peaks: list[float] = []
    for title, result in results.items():
        if title.startswith("W3"):
            ours, *others = result["workers"].items()
            peaks.append(ours[1]["peak_bytes"] / 1e9)
            ratios |= {name: figures["seconds"] / ours[1]["seconds"] for name, figures in others}
    of_trl = [ratios.pop(f"trl fp32 {seat}", None) for seat in ("pioneer_0", "observer_1")]
    seats = [ratio for ratio in of_trl if ratio is not None]
    return [
        Target("W3, fp32: times faster than TRL 1.12's PPO", sum(seats) if len(seats) == 2 else None, 4),
        Target("W3, grpo fp32: times faster than TRL 1.16's GRPO", ratios.pop("trl grpo fp32", None), 2),
        *(Target(f"W3: times faster than {name}", ratio, 1) for name, ratio in ratios.items()),
        Target("W3: peak memory of two policies in GB", max(peaks), 6.5, at_most=True),
    ]
