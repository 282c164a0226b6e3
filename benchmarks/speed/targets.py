"""What `throughput.py --check` requires of the figures."""

from collections.abc import Mapping
from typing import Any

FAST_MACHINE = 400e9
"""FLOP/s of the fastest float32 product from which a speed relative to other trainers is required.

They are bound by something else than matrix products, so the ratios fall on slower machines."""
SHARES = {("W1", "cory fp32"): 0.50, ("W1 batch 256", "cory fp32"): 0.70, ("W2", "cory fp32"): 0.65}
SHARES |= {("W2", "cory bf16"): 0.45}
"""Least shares of the FLOP lower bound."""
TRL_SEATS = ("trl fp32 pioneer_0", "trl fp32 observer_1")


def check(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One line per target that the measured workloads have; those that are missed begin with SHORT.

    CORY in bfloat16 is compared with baselines in float32, which is their default.
    """
    lines = []
    if "W1" in results:
        lines += _of_w1(results["W1"])
    if any(title.startswith("W3") for title in results):
        lines += _of_w3(results)
    for (workload, worker), least in SHARES.items():
        if workload in results:
            share = results[workload]["workers"][worker]["share_of_lower_bound"]
            lines.append(_line(f"{workload}, {worker}: share of the FLOP lower bound", share, least))
    for workload, least in (("sampling W1", 10), ("sampling W2", 3)):
        if workload in results:
            workers = results[workload]["workers"]
            ratio = workers["cory fp32"]["tokens_per_second"] / workers["hf fp32"]["tokens_per_second"]
            fast = results[workload]["peak_flops"]["float32"] >= FAST_MACHINE
            name = f"{workload}, batch 256: times the tokens/s of model.generate"
            lines.append(_line(name, ratio, least if fast else None))
    return lines


def _line(name: str, value: float | None, limit: float | None, *, at_most: bool = False) -> str:
    """A figure and its limit; None = not measured, or reported only."""
    if value is None:
        verdict, shown = "SHORT", "not measured; `sh benchmarks/speed/baselines/setup.sh` installs TRL"
        return f"{'     ' if limit is None else verdict} {name}: {shown}"
    if limit is None:
        return f"      {name}: {value:.3g}, no target below {FAST_MACHINE / 1e9:g} GFLOP/s"
    met = value <= limit if at_most else value >= limit
    most = "most" if at_most else "least"
    return f"{'ok   ' if met else 'SHORT'} {name}: {value:.3g}, target at {most} {limit:g}"


def _of_w1(result: Mapping[str, Any]) -> list[str]:
    """Speed, memory and exchange of W1, beside TRL and the vanilla HF baseline."""
    workers, lines = result["workers"], []
    trl = [workers[name] for name in TRL_SEATS if name in workers]
    fast = result["peak_flops"]["float32"] >= FAST_MACHINE
    for precision, trl_least, hf_least in (("fp32", 8, 4), ("bf16", 12, 6)):
        seconds = workers[f"cory {precision}"]["seconds"]
        ratio = sum(one["seconds"] for one in trl) / seconds if trl else None
        lines.append(
            _line(f"W1, {precision}: times faster than TRL in fp32", ratio, trl_least if fast else None)
        )
        name = f"W1, {precision}: times faster than the vanilla HF baseline in fp32"
        lines.append(_line(name, workers["hf fp32"]["seconds"] / seconds, hf_least if fast else None))
    ours = workers["cory fp32"]
    memory = ours["peak_bytes"] / trl[1]["peak_bytes"] if trl else None
    lines.append(_line("W1: peak memory, two policies over TRL's one", memory, 0.5, at_most=True))
    lines.append(_line("W1: milliseconds of an exchange", ours["phases"]["exchange"] * 1e3, 1, at_most=True))
    lines.append(_line("W1: bytes moved by an exchange", ours["moved_bytes"], 0, at_most=True))
    return lines


def _of_w3(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Speed of W3 relative to each worker that was timed beside CORY, and CORY's memory."""
    ratios: dict[str, float] = {}
    peaks: list[float] = []
    for title, result in results.items():
        if title.startswith("W3"):
            ours, *others = result["workers"].items()
            peaks.append(ours[1]["peak_bytes"] / 1e9)
            ratios |= {name: figures["seconds"] / ours[1]["seconds"] for name, figures in others}
    seats = [ratios.pop(name) for name in TRL_SEATS if name in ratios]
    grpo = ratios.pop("trl grpo fp32", None)
    return [
        _line("W3, fp32: times faster than TRL 1.12's PPO", sum(seats) if len(seats) == 2 else None, 4),
        _line("W3, grpo fp32: times faster than TRL 1.16's GRPO", grpo, 2),
        *(_line(f"W3: times faster than {name}", ratio, 1) for name, ratio in ratios.items()),
        _line("W3: peak memory of two policies in GB", max(peaks), 6.5, at_most=True),
    ]
