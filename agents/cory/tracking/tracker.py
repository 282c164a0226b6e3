"""Tracker: metrics and samples of a run as JSON lines, TensorBoard curves, and in external trackers.

Imports no policy, game or plot. Every key has three parts, so that the curves of two seats never mix:
`pioneer_0/llm_1/kl`, `eval/llm_1/kl`, `time/sample/seconds`.
"""

import contextlib
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from cory.tracking.external import ExternalTrackers

METRICS = "metrics.jsonl"
SAMPLES = "samples.jsonl"


class Key(NamedTuple):
    """The three parts of a metric's name.

    `place` is a seat, `eval`, `team`, `validation`, `all`, `judge`, `time` or `speed`; `policy` names the
    policy, judge or phase, and the seat (or `all`) for `team`.
    """

    place: str
    policy: str
    quantity: str


class Curve(NamedTuple):
    """One metric over the run; iterations increase, and a value is NaN if it was not finite."""

    iterations: list[int]
    values: list[float]


NO_CURVE = Curve([], [])
"""That of a metric that was never logged."""


class Tracker:
    """Writes the metrics and samples of a run; each line is on disk before the call returns.

    If the disk is full, lines are buffered in memory, in order, and every call tries again: nothing is lost
    as long as `flush` succeeds before a checkpoint is written.
    """

    def __init__(
        self, run: Path, *, tensorboard: bool = True, external: ExternalTrackers | None = None,
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    ) -> None:  # fmt: skip
        """Open the files in `run`; `say` prints a warning when lines begin to be buffered.

        `external` trackers also receive all metrics, and are closed with this one.

        On resume all lines are written to a new TensorBoard file that replaces the old one: a killed process
        leaves points in it that were rewound, and loses others.
        """
        run.mkdir(parents=True, exist_ok=True)
        self._metrics, self._samples = _Lines(run / METRICS), _Lines(run / SAMPLES)
        self._run, self._say, self._warned = run, say, False
        self._tensorboard, self._board, self._external = tensorboard, None, external

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Append one line of metrics keyed `place/policy/quantity`; values not finite become null."""
        metrics = {"/".join(split(key)): float(value) for key, value in metrics.items()}
        self._add(self._metrics, [{"iteration": iteration, **metrics}])
        if self._tensorboard:
            self._add_to_tensorboard(iteration, metrics)
        if self._external is not None:
            self._external.log(iteration, metrics)

    def samples(self, iteration: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append games as text, one line each, with the fields that `cory.report.page` tabulates."""
        self._add(self._samples, [{"iteration": iteration, **row} for row in rows])

    def flush(self) -> None:
        """Write and sync all lines given so far; OSError if the disk is full."""
        for lines in (self._metrics, self._samples):
            lines.write()
            os.fsync(lines.file.fileno())
        self._warned = False

    def close(self) -> None:
        """Close every file, which also writes the last TensorBoard points.

        OSError if lines are still buffered: they are lost.
        """
        try:
            if self._board is not None:
                _ignore_full_disk(self._board.close)
            if self._external is not None:
                self._external.close()
            self.flush()
        except OSError as error:
            lost = len(self._metrics.buffered) + len(self._samples.buffered)
            raise OSError(
                error.errno,
                f"{lost} lines of metrics and samples could not be written ({error.strerror}); make room "
                "and go on with --resume must",
                str(self._run),
            ) from error
        finally:
            self._metrics.file.close()
            self._samples.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except OSError as full:
            if kind is None:
                raise
            self._say(f"warning: {full}")  # the exception that ended the run matters more

    def _add(self, lines: "_Lines", rows: Iterable[Mapping[str, Any]]) -> None:
        lines.buffered += [json.dumps(_finite(row), ensure_ascii=False, allow_nan=False) for row in rows]
        try:
            lines.write()
        except OSError as error:
            if not self._warned:
                reason = error.strerror
                self._say(f"warning: {lines.path} cannot be written ({reason}); its lines stay in memory")
            self._warned = True

    def _add_to_tensorboard(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Add points to TensorBoard: all lines at the first call and after a full disk, else only these."""
        try:
            if self._metrics.buffered:
                raise OSError("the disk is full")  # TensorBoard's writer thread would die of it
            if self._board is not None:
                _add_points(self._board, iteration, metrics)
                return
            self._board = _open_board(self._run)
            for row in read(self._run):
                _add_points(self._board, row.pop("iteration"), row)
        except OSError:
            if self._board is not None:
                _ignore_full_disk(self._board.close)
            self._board = None


def read(run: Path) -> list[dict[str, Any]]:
    """Return the lines of `metrics.jsonl` in the order written, null as NaN.

    An incomplete last line, left by a killed run, is skipped; a broken line elsewhere is a ValueError.
    """
    rows = read_lines(run / METRICS)
    return [{key: math.nan if value is None else value for key, value in row.items()} for row in rows]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON-lines file with an iteration each; broken lines are handled as by `read`."""
    rows = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):  # no newline after it: the writer was killed in the middle
                break
            raise ValueError(
                f"{path} line {number} is not JSON ({error}); remove or repair that line"
            ) from error
        if not isinstance(row, dict) or not isinstance(row.get("iteration"), int):
            raise ValueError(f"{path} line {number} is not a row of an iteration; remove or repair that line")
        rows.append(row)
    return rows


def curves(rows: Iterable[Mapping[str, Any]]) -> dict[Key, Curve]:
    """Return one curve per metric; of an iteration written twice (after a resume) the later row counts."""
    points: dict[Key, dict[int, float]] = {}
    for row in rows:
        for name, value in row.items():
            if name != "iteration":
                points.setdefault(split(name), {})[row["iteration"]] = value
    return {
        key: Curve(*map(list, zip(*sorted(of_key.items()), strict=True))) for key, of_key in points.items()
    }


def split(name: str) -> Key:
    """Split `pioneer_0/llm_1/kl` into a `Key`; ValueError for a name without exactly three parts."""
    parts = name.split("/")
    if len(parts) != 3 or not all(parts):
        raise ValueError(f"metric {name!r} is not of the form seat/policy/quantity; name all three parts")
    return Key(*parts)


class _Lines:
    """A file to which complete lines are appended."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending, without an incomplete last line that a killed run has left."""
        if path.exists():
            written = path.read_bytes()
            os.truncate(path, written.rfind(b"\n") + 1)
        self.path, self.file = path, path.open("ab", buffering=0)
        self.buffered: list[str] = []

    def write(self) -> None:
        """Append the buffered lines; a line that does not fit whole is removed again, and OSError raised."""
        while self.buffered:
            start, left = os.fstat(self.file.fileno()).st_size, f"{self.buffered[0]}\n".encode()
            try:
                while left:
                    left = left[self.file.write(left) :]
            except OSError:
                os.truncate(self.file.fileno(), start)
                raise
            del self.buffered[0]


def _open_board(run: Path) -> Any:
    """Return a TensorBoard writer on a new file; older files are removed."""
    from torch.utils.tensorboard import SummaryWriter

    shutil.rmtree(run / "tensorboard", ignore_errors=True)
    return SummaryWriter(str(run / "tensorboard"))


def _add_points(board: Any, iteration: int, metrics: Mapping[str, float]) -> None:
    for key, value in metrics.items():
        if math.isfinite(value):
            board.add_scalar(key, value, iteration)


def _ignore_full_disk(call: Callable[[], None]) -> None:
    """Call and ignore OSError: TensorBoard's points can be restored from the lines."""
    with contextlib.suppress(OSError):
        call()


def _finite(value: Any) -> Any:
    """Return the value with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
