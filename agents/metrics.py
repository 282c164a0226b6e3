"""Numbers of a run, kept as JSON lines and TensorBoard curves. Knows no policy, no game and no plot.

Every key has three parts, so curves of two seats can never mix: `pioneer_0/llm_1/kl`, `alone/llm_1/kl`,
`time/sample/seconds`.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TextIO

METRICS = "metrics.jsonl"
SAMPLES = "samples.jsonl"


class Key(NamedTuple):
    """The three parts of a metric's name: a seat, `alone` or `time`; whose number; what it measures."""

    place: str
    policy: str
    quantity: str


class Curve(NamedTuple):
    """One metric over the run; iterations rise, and `values` may hold NaN where a number was not finite."""

    iterations: list[int]
    values: list[float]


class Tracker:
    """Writes a run's numbers and samples as they come; each line is on disk before the call returns."""

    def __init__(self, run: Path, *, tensorboard: bool = True, start: int = 0) -> None:
        """A run that goes on at iteration `start` hides what TensorBoard was told of it and later ones."""
        run.mkdir(parents=True, exist_ok=True)
        self._metrics = _appending(run / METRICS)
        self._samples = _appending(run / SAMPLES)
        self._board = None
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run / "tensorboard"), purge_step=start or None)

    def log(self, iteration: int, numbers: Mapping[str, float]) -> None:
        """Append one line of numbers keyed `place/policy/quantity`; what is not finite is kept as null."""
        numbers = {"/".join(split(key)): float(number) for key, number in numbers.items()}
        _write(self._metrics, {"iteration": iteration, **numbers})
        if self._board is not None:
            for key, number in numbers.items():
                if math.isfinite(number):
                    self._board.add_scalar(key, number, iteration)

    def samples(self, iteration: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append games as text, one line each; the fields are those `report.py` tabulates."""
        for row in rows:
            _write(self._samples, {"iteration": iteration, **row})

    def close(self) -> None:
        """Flush and close every file; needed for the last TensorBoard points to reach the disk."""
        self._metrics.close()
        self._samples.close()
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(run: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl` in the order written, null read as NaN.

    A last line cut short by a killed run is left out; a broken line elsewhere is a ValueError.
    """
    rows = read_lines(run / METRICS)
    return [{key: math.nan if value is None else value for key, value in row.items()} for row in rows]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file, by the same rule for a broken line as `read`."""
    rows = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines):  # no newline after it: the writer was stopped in the middle
                break
            raise ValueError(
                f"{path} line {number} is not JSON ({error}); remove or repair that line"
            ) from error
    return rows


def curves(rows: Iterable[Mapping[str, Any]]) -> dict[Key, Curve]:
    """One curve per metric; of an iteration written twice (after a resume) the later counts."""
    points: dict[Key, dict[int, float]] = {}
    for row in rows:
        for name, value in row.items():
            if name != "iteration":
                points.setdefault(split(name), {})[row["iteration"]] = value
    return {key: Curve(*map(list, zip(*sorted(of.items()), strict=True))) for key, of in points.items()}


def split(name: str) -> Key:
    """`pioneer_0/llm_1/kl` as a `Key`; ValueError for a name without exactly three parts."""
    parts = name.split("/")
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"metric {name!r} is not of the form seat/policy/quantity; name all three parts")
    return Key(*parts)


def _appending(path: Path) -> TextIO:
    """The file opened at its end, less a last line that a killed run left unfinished."""
    if path.exists():
        written = path.read_bytes()
        os.truncate(path, written.rfind(b"\n") + 1)
    return path.open("a", encoding="utf-8", newline="\n", buffering=1)


def _write(file: TextIO, row: Mapping[str, Any]) -> None:
    file.write(json.dumps(_finite(row), ensure_ascii=False, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    """The same value with None for numbers JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
