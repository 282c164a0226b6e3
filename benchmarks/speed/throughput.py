"""How fast an iteration of CORY is: beside TRL's PPO, the plain way, and what the machine can do.

    sh benchmarks/speed/baselines/setup.sh                    # once, for TRL
    python -m benchmarks.speed.throughput                 # all works; a table
    python -m benchmarks.speed.throughput W1 W2           # only these works
    python -m benchmarks.speed.throughput --check         # and exit 1 where a figure falls short of its promise
    python -m benchmarks.speed.throughput --json FILE     # and every figure with command, commit and machine
    python -m benchmarks.speed.throughput --scaling       # cost and memory by batch, length, seats, size; plotted
    python -m benchmarks.speed.throughput --others        # every work beside TRL and the plain way (two hours)
    python -m benchmarks.speed.throughput --plain         # W1 by several ways to write the plain way
    python -m benchmarks.speed.throughput --levers        # W1 without each of the levers of docs/performance.md
    python -m benchmarks.speed.throughput --device cuda   # the works of a GPU

Every contender of a work is a process of its own; they take turns, an iteration each, and the median of
rounds after a warm-up is told. Weights are random (but those of the pocket models), queries too; the judge
costs nothing. Peaks are of resident memory above what the imports take. The share is that of the FLOP floor
(floor.py) at the speed of the machine's fastest matrix product, measured between the rounds.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.speed.roofline import peak
from benchmarks.speed.baselines.hf_generate import ALLOCATOR
from benchmarks.learning.runs import ROOT, provenance
from benchmarks.speed.workloads import GPU_WORKS, PASS, WORDING, WORKS, Work

from cory.policies.loading import check_device

ROUNDS = 5
TRL = ROOT / ".venv-peers/bin/python"
OURS = ("ours fp32", "ours bf16", "lora team")
PLAIN = ("plain fp32", "plain bf16")
OTHERS = {
    "the plain way": ("ours fp32", "plain fp32"),
    "TRL, pioneer": ("ours fp32", "trl fp32 pioneer_0"),
    "TRL, observer": ("ours fp32", "trl fp32 observer_1"),
    "itself": ("lora team", "lora team in one pass"),
    "the plain way, ours in bf16": ("ours bf16", "plain fp32"),
}
"""Who is measured together: two at a time, since three on llama do not fit into 24 GiB."""
WAYS: dict[str, dict[str, int | str]] = {
    "plain fp32": {},
    "plain fp32, parts of 16": {"chunk": 16},
    "plain fp32, parts of 32": {"chunk": 32},
    "plain fp32, SDPA": {"attention": "sdpa"},
    "plain fp32, head at responses": {"keep": "responses"},
}
"""Ways to write the plain way: what is said of each, and how it differs from the first (peers/plain.py)."""
LEVERS = {
    "fp32": (
        "onednn",
        "kept memory",
        "large chunks",
        "aligned weights",
        "only wanted tokens",
        "one GELU kernel",
        "biases after products",
        "blocks",
        "runs of the head",
        "only tokens that teach",
        "first pass kept",
    ),
    "bf16": ("only wanted tokens", "runs of the head", "only tokens that teach", "first pass kept"),
}
TOGETHER = 6
"""Levers that are measured together, for the same reason."""
Told = dict[str, Any]


class Contender:
    """A process that does one iteration for each line it is sent."""

    def __init__(self, command: Sequence[str | Path], job: Told, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
        self.about = self.send(json.dumps(job))

    def send(self, line: str) -> Told:
        """What it answers to a line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended: said below
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(
                f"{' '.join(map(str, self.process.args))} ended with {self.process.wait()}; -9 is what too "
                "little memory for all that are measured together looks like"
            )
        told: Told = json.loads(answer)
        return told

    def close(self) -> None:
        """No more lines."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def contender(who: str, work: Work, *, threads: int, device: str, what: str = "iterate") -> Contender:
    """`who` is one of OURS, PLAIN or `trl fp32 pioneer_0` and the like."""
    precision = "bfloat16" if "bf16" in who else "float32"
    if who.startswith("trl"):
        return Contender(
            [TRL, "benchmarks/speed/baselines/trl_ppo.py"], trl_job(who, work, precision, threads, device), {}
        )
    kind = "plain" if who.startswith("plain") else "lora_team" if who.startswith("lora team") else "ours"
    job = {"who": kind, "work": asdict(work), "precision": precision}
    job |= {"threads": threads, "device": device, "what": what, "one_pass": who.endswith("in one pass")}
    job |= {"without": who.split(" without ")[1] if " without " in who else None}
    job |= {"way": WAYS.get(who, {})}
    environment = ALLOCATOR if kind == "plain" else {}
    return Contender([sys.executable, "benchmarks/speed/workers.py"], job, environment)


def trl_job(who: str, work: Work, precision: str, threads: int, device: str) -> Told:
    """One policy's iteration, on prompts as long as those of a seat."""
    shortest, longest = work.query
    lengths = [shortest + i % (longest - shortest + 1) for i in range(work.batch)]
    if who.endswith("observer_1"):
        words = len(WORDING.replace("{query}", "").replace("{responses}", "").split())
        lengths = [2 * length + words + work.response for length in lengths]
    shape = work.shape().to_diff_dict()
    return {
        "architecture": shape.pop("model_type"),
        "shape": {
            key: value for key, value in shape.items() if not key.startswith(("transformers", "dtype"))
        },
        "prompt_lengths": lengths,
        "response": work.response,
        "chunk": min(PASS, work.batch),
        "epochs": 4,
        "precision": precision,
        "threads": threads,
        "device": device,
    }


def contenders_of(name: str, device: str) -> list[str]:
    """Who is measured on a work: the others on W1 alone, unless `--others` asks for them."""
    if device != "cpu":
        teams = ["lora team", "lora team in one pass"]
        return teams if name == "llama-1b" else ["ours bf16", *teams, "plain bf16"]
    if name != "W1":
        return list(OURS)
    trl = [f"trl {p} {seat}" for p in ("fp32", "bf16") for seat in ("pioneer_0", "observer_1")]
    return [*OURS, *PLAIN, *(trl if TRL.exists() else [])]


def measure(
    name: str, work: Work, who: Sequence[str], *, threads: int, device: str, what: str = "iterate"
) -> Told:
    """Rounds in turns: contender -> what it answered, and the machine's speed between them."""
    running = {one: contender(one, work, threads=threads, device=device, what=what) for one in who}
    told: dict[str, list[Told]] = {one: [] for one in who}
    peaks: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    try:
        for lap in range(-1, ROUNDS):
            for one, process in running.items():
                told[one].append(process.send("go"))
            for dtype, speeds in peaks.items():
                speeds.append(peak(getattr(torch, dtype), device))
            print(f"{name}: round {lap + 1} of {ROUNDS}", file=sys.stderr)
    finally:
        for process in running.values():
            process.close()
    speed = {dtype: statistics.median(speeds) for dtype, speeds in peaks.items()}
    return {
        "work": asdict(work),
        "peak_flops": speed,
        "contenders": {
            one: {**running[one].about, **summary(one, *rows, speed=speed)} for one, rows in told.items()
        },
    }


def summary(who: str, warm_up: Told, *rows: Told, speed: Mapping[str, float]) -> Told:
    """Medians over the rounds; the share of the floor where the floor is known, and how many times its
    operations were counted in the warm-up."""
    middle = statistics.median
    seconds = middle([row["seconds"] for row in rows])
    told: Told = {
        "seconds": seconds,
        "rounds": [row["seconds"] for row in rows],
        "phases": {
            phase: middle([row["phases"][phase] for row in rows]) for phase in rows[0].get("phases", {})
        },
        "peak_bytes": max(row["peak_bytes"] - row["idle_bytes"] for row in rows),
    }
    for kind in ("tokens", "samples"):
        if kind in rows[0]:
            told[f"{kind}_per_second"] = middle([row[kind] / row["seconds"] for row in rows])
    if "flops" in rows[0]:
        dtype = "bfloat16" if "bf16" in who else "float32"
        told["share_of_floor"] = middle([row["flops"] / row["seconds"] for row in rows]) / speed[dtype]
    if "moved_bytes" in rows[0]:
        told["moved_bytes"] = max(row["moved_bytes"] for row in rows)
        told["untaught"] = middle([row["untaught"] for row in rows])
        told["operations_over_floor"] = warm_up["counted_flops"] / warm_up["flops"]
    return told


def lines(name: str, told: Told) -> list[str]:
    """A work as a table."""
    peaks = ", ".join(f"{dtype} {speed / 1e9:.0f}" for dtype, speed in told["peak_flops"].items())
    out = [f"\n{name}: fastest product, GFLOP/s: {peaks}"]
    for who, figures in told["contenders"].items():
        share = f"{figures['share_of_floor']:5.2f} of the floor" if "share_of_floor" in figures else ""
        rate = f"{figures['tokens_per_second']:7.0f} tok/s" if "tokens_per_second" in figures else ""
        memory = f"{figures['peak_bytes'] / 2**30:6.2f} GiB"
        out.append(f"  {who:<22} {figures['seconds']:8.3f} s  {rate:<14} {memory}  {share}")
        out += [f"      {phase:<20} {spent * 1e3:9.1f} ms" for phase, spent in figures["phases"].items()]
    return out


def promises(told: Mapping[str, Told]) -> list[tuple[str, float | None, float, bool]]:
    """What is promised: its name, what was measured, if it was, the limit, whether it is a most instead of a
    least.

    Ours in bfloat16 too is held against the others in float32, which is what they do unless told otherwise.
    """
    rows: list[tuple[str, float | None, float, bool]] = []

    def of(work: str, who: str, figure: str = "seconds") -> float:
        found: float = told[work]["contenders"][who][figure]
        return found

    if "W1" in told:
        with_trl = "trl fp32 pioneer_0" in told["W1"]["contenders"]
        for short, trl_least, plain_least in (("fp32", 9, 4), ("bf16", 12, 6)):
            ours = of("W1", f"ours {short}")
            seats = ("pioneer_0", "observer_1")
            trl = sum(of("W1", f"trl fp32 {seat}") for seat in seats) / ours if with_trl else None
            rows.append((f"W1, {short}: times faster than TRL in fp32", trl, trl_least, False))
            plain = of("W1", "plain fp32") / ours
            rows.append((f"W1, {short}: times faster than the plain way in fp32", plain, plain_least, False))
        peak_of_trl = of("W1", "trl fp32 observer_1", "peak_bytes") if with_trl else None
        memory = of("W1", "ours fp32", "peak_bytes") / peak_of_trl if peak_of_trl else None
        rows.append(("W1: peak memory, two policies over TRL's one", memory, 0.5, True))
        phases = told["W1"]["contenders"]["ours fp32"]["phases"]
        rows.append(("W1: milliseconds of an exchange", phases["exchange"] * 1e3, 1, True))
        rows.append(("W1: bytes moved by an exchange", of("W1", "ours fp32", "moved_bytes"), 0, True))
    for work, who, least in (
        ("W1 batch 256", "ours fp32", 0.70),
        ("W2", "ours fp32", 0.65),
        ("W2", "ours bf16", 0.45),
    ):
        if work in told:
            rows.append(
                (f"{work}, {who}: share of the FLOP floor", of(work, who, "share_of_floor"), least, False)
            )
    for work, least in (("sampling W1", 10), ("sampling W2", 3)):
        if work in told:
            rate = of(work, "ours fp32", "tokens_per_second") / of(work, "plain fp32", "tokens_per_second")
            rows.append((f"{work}, batch 256: times the tokens/s of model.generate", rate, least, False))
    return rows


def check(told: Mapping[str, Told]) -> list[str]:
    """A line per promise; those that fall short say so."""
    out = []
    for name, found, limit, most in promises(told):
        if found is None:
            out.append(f"SHORT {name}: not measured; `sh benchmarks/speed/baselines/setup.sh` installs TRL")
            continue
        kept = found <= limit if most else found >= limit
        sign = "at most" if most else "at least"
        out.append(f"{'ok   ' if kept else 'SHORT'} {name}: {found:.3g}, {sign} {limit:g} is promised")
    return out


def save(told: Mapping[str, Told], path: Path | None) -> None:
    """Every figure so far, with command, commit and machine."""
    if path:
        about = provenance(shlex.join(["python", *sys.argv]))
        path.write_text(json.dumps({"told": told, **about}, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Measure, print, write, check; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    works = {**WORKS, **GPU_WORKS}
    parser.add_argument(
        "works", nargs="*", help=f"{', '.join(works)}, sampling; by default those of the device"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure falls short")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--scaling", action="store_true", help="cost and memory by size, plotted")
    parser.add_argument("--levers", action="store_true", help="W1 without each lever")
    parser.add_argument("--plain", action="store_true", help="W1 by several ways to write the plain way")
    parser.add_argument("--others", action="store_true", help="each work beside TRL and the plain way")
    parser.add_argument("--device", default="cpu", help="where to run: cpu, cuda, ...")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="CPU threads of everybody"
    )
    options = parser.parse_args()
    names = options.works or [*(WORKS if options.device == "cpu" else GPU_WORKS), "sampling"]
    try:
        check_device(options.device)
    except ValueError as error:
        parser.error(str(error))
    if options.check and options.device != "cpu":
        parser.error("--check holds a CPU against its promises; there are none for other devices")
    if unknown := set(names) - set(works) - {"sampling"}:
        parser.error(f"no work called {sorted(unknown)[0]!r}; there are {', '.join(works)}, sampling")
    given = {"threads": options.threads, "device": options.device}
    told: dict[str, Any] = {}

    def tell(title: str, work: Work, who: Sequence[str], **more: str) -> None:
        told[title] = measure(title, work, who, **given, **more)
        print("\n".join(lines(title, told[title])), flush=True)
        save(told, options.json)

    if options.scaling:
        from benchmarks.speed.scaling import draw, scale

        told = scale(given)
        save(told, options.json)
        draw(told, ROOT / "docs/scaling.png")
    elif options.levers:
        for precision, levers in LEVERS.items():
            ours = f"ours {precision}"
            for start in range(0, len(levers), TOGETHER):
                without = [f"{ours} without {lever}" for lever in levers[start : start + TOGETHER]]
                tell(f"levers, {precision}, from {start + 1}", WORKS["W1"], [ours, *without])
    elif options.plain:
        tell("W1 by plain ways", WORKS["W1"], list(WAYS))
    elif options.others:
        for name in (one for one in names if one != "sampling"):
            for other, who in OTHERS.items():
                tell(f"{name} beside {other}", works[name], who)
    else:
        for name in names:
            if name != "sampling":
                tell(name, works[name], contenders_of(name, options.device))
                continue
            for short in ("W1", "W2"):
                work = replace(WORKS[short], batch=256)
                tell(f"sampling {short}", work, ("ours fp32", "ours bf16", "plain fp32"), what="sample")
    kept = check(told) if options.device == "cpu" else []
    print("\n".join(["", *kept]))
    return 1 if options.check and any(line.startswith("SHORT") for line in kept) else 0


if __name__ == "__main__":
    sys.exit(main())
