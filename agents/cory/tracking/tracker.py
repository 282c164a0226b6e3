"""Numbers of a run, kept as JSON lines and TensorBoard curves. Knows no policy, no game and no plot.

Every key has three parts, so curves of two seats can never mix: `pioneer_0/llm_1/kl`, `eval/llm_1/kl`,
`time/sample/seconds`.
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
    """Writes a run's numbers and samples as they come; each line is on disk before the call returns.

    Where the disk takes no more, lines wait in memory, in order, and each call tries again: nothing is lost
    as long as `flush` comes through before a checkpoint claims that it is there.
    """

    def __init__(
        self, run: Path, *, tensorboard: bool = True,
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    ) -> None:  # fmt: skip
        """`say` prints a warning once when lines begin to wait.

        Of a run that goes on TensorBoard is told every line once more, in a new file instead of the old: a
        killed process leaves points in it that are no longer true, and takes others along.
        """
        run.mkdir(parents=True, exist_ok=True)
        self._metrics, self._samples = _Lines(run / METRICS), _Lines(run / SAMPLES)
        self._run, self._say, self._said = run, say, False
        self._tensorboard, self._board = tensorboard, None

    def log(self, iteration: int, numbers: Mapping[str, float]) -> None:
        """Append one line of numbers keyed `place/policy/quantity`; what is not finite is kept as null."""
        numbers = {"/".join(split(key)): float(number) for key, number in numbers.items()}
        self._add(self._metrics, [{"iteration": iteration, **numbers}])
        if self._tensorboard:
            self._draw(iteration, numbers)

    def samples(self, iteration: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append games as text, one line each; the fields are those `report.py` tabulates."""
        self._add(self._samples, [{"iteration": iteration, **row} for row in rows])

    def flush(self) -> None:
        """Every line given so far is on disk, synced, when this returns; OSError where the disk is full."""
        for lines in (self._metrics, self._samples):
            lines.write()
            os.fsync(lines.file.fileno())
        self._said = False

    def close(self) -> None:
        """Close every file, needed for the last TensorBoard points to reach the disk. OSError if lines still
        wait: they are lost."""
        try:
            if self._board is not None:
                _ignore_full_disk(self._board.close)
            self.flush()
        except OSError as error:
            waiting = len(self._metrics.waiting) + len(self._samples.waiting)
            raise OSError(
                error.errno,
                f"{waiting} lines of metrics and samples could not be written ({error.strerror}); make room "
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
            self._say(f"warning: {full}")  # what ended the run says more

    def _add(self, lines: "_Lines", rows: Iterable[Mapping[str, Any]]) -> None:
        lines.waiting += [json.dumps(_finite(row), ensure_ascii=False, allow_nan=False) for row in rows]
        try:
            lines.write()
        except OSError as error:
            if not self._said:
                self._say(f"warning: {lines.path} cannot be written ({error.strerror}); its lines wait")
            self._said = True

    def _draw(self, iteration: int, numbers: Mapping[str, float]) -> None:
        """Tell TensorBoard; at first, and after a full disk, which may have cost it points, tell it all."""
        try:
            if self._metrics.waiting:
                raise OSError("the disk is full")  # its writer is a thread, which would die of that
            if self._board is not None:
                _add_points(self._board, iteration, numbers)
                return
            self._board = _open_board(self._run)
            for row in read(self._run):
                _add_points(self._board, row.pop("iteration"), row)
        except OSError:
            if self._board is not None:
                _ignore_full_disk(self._board.close)
            self._board = None


def read(run: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl` in the order written, null read as NaN.

    A last line cut short by a killed run is left out; a broken line elsewhere is a ValueError.
    """
    rows = read_lines(run / METRICS)
    return [{key: math.nan if value is None else value for key, value in row.items()} for row in rows]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file, each of an iteration, by the same rule for a broken line as `read`."""
    rows = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):  # no newline after it: the writer was stopped in the middle
                break
            raise ValueError(
                f"{path} line {number} is not JSON ({error}); remove or repair that line"
            ) from error
        if not isinstance(row, dict) or not isinstance(row.get("iteration"), int):
            raise ValueError(f"{path} line {number} is no row of an iteration; remove or repair that line")
        rows.append(row)
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


class _Lines:
    """A file that whole lines are appended to."""

    def __init__(self, path: Path) -> None:
        """The file opened at its end, less a last line that a killed run left unfinished."""
        if path.exists():
            written = path.read_bytes()
            os.truncate(path, written.rfind(b"\n") + 1)
        self.path, self.file = path, path.open("ab", buffering=0)
        self.waiting: list[str] = []

    def write(self) -> None:
        """Append the lines that wait; of one that does not go in whole, nothing stays. OSError says why."""
        while self.waiting:
            start, left = os.fstat(self.file.fileno()).st_size, f"{self.waiting[0]}\n".encode()
            try:
                while left:
                    left = left[self.file.write(left) :]
            except OSError:
                os.truncate(self.file.fileno(), start)
                raise
            del self.waiting[0]


def _open_board(run: Path) -> Any:
    """TensorBoard's writer, on a new file and no other."""
    from torch.utils.tensorboard import SummaryWriter

    shutil.rmtree(run / "tensorboard", ignore_errors=True)
    return SummaryWriter(str(run / "tensorboard"))


def _add_points(board: Any, iteration: int, numbers: Mapping[str, float]) -> None:
    for key, number in numbers.items():
        if math.isfinite(number):
            board.add_scalar(key, number, iteration)


def _ignore_full_disk(call: Callable[[], None]) -> None:
    """TensorBoard's points can be had again from the lines, so losing some is no error."""
    with contextlib.suppress(OSError):
        call()


def _finite(value: Any) -> Any:
    """The same value with None for numbers JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
