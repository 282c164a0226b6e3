"""Tracker: metrics and samples of a run as JSON lines, and in TensorBoard and other trackers.

Imports no policy, game or plot. Every key has three parts, so that the curves of two seats never mix:
`pioneer_0/llm_1/kl`, `eval/llm_1/kl`, `time/sample/seconds`.
"""

import errno
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from cory.tracking.external import ExternalTrackers
from cory_env.nearest import did_you_mean_path

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
    """Writes the metrics and samples of a run; each line is on disk before the call returns."""

    def __init__(self, run: Path, *, external: ExternalTrackers | None = None) -> None:
        """Open the files in `run`; `external` trackers also receive all metrics, and are closed with it."""
        run.mkdir(parents=True, exist_ok=True)
        self._metrics, self._samples = _Lines(run / METRICS), _Lines(run / SAMPLES)
        self._external = external

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Append one line of metrics keyed `place/policy/quantity`; values not finite become null."""
        metrics = {"/".join(split(key)): float(value) for key, value in metrics.items()}
        self._metrics.write([{"iteration": iteration, **metrics}])
        if self._external is not None:
            self._external.log(iteration, metrics)

    def samples(self, iteration: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append games as text, one line each, with the fields that `cory.report.page` tabulates."""
        self._samples.write({"iteration": iteration, **row} for row in rows)

    def flush(self) -> None:
        """Sync all lines; FileNotFoundError if one of their files was removed."""
        for lines in (self._metrics, self._samples):
            if not lines.path.exists():
                raise FileNotFoundError(
                    errno.ENOENT, "this was removed or renamed while the run trained", str(lines.path)
                )
            os.fsync(lines.file.fileno())

    def close(self) -> None:
        """Close every file and tracker."""
        try:
            if self._external is not None:
                self._external.close()
        finally:
            for lines in (self._metrics, self._samples):
                os.fsync(lines.file.fileno())
                lines.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_run(run: Path) -> None:
    """Raise ValueError for what is no run directory, or one in which no run has begun."""
    if not (run / METRICS).is_file():
        raise ValueError(
            f"{run} holds no {METRICS}; name the folder of a run, such as runs/<name>{did_you_mean_path(run)}"
        )


def read(run: Path) -> list[dict[str, Any]]:
    """Return the lines of `metrics.jsonl` in the order written, null as NaN.

    Lines are handled as by `read_lines`; ValueError also for one that holds something else than metrics.
    """
    path, rows = run / METRICS, []
    for number, row in _numbered(path):
        try:
            rows.append({key: _value(key, value) for key, value in row.items()})
        except ValueError as error:
            raise ValueError(f"{path} line {number}: {error}; remove or repair that line") from error
    return rows


def _value(key: str, value: Any) -> Any:
    """A value of a row of metrics; ValueError for what is neither a metric nor the iteration."""
    if key == "iteration":
        return value
    split(key)
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{key!r} is {value!r:.60}, no number")
    return value


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON-lines file with an iteration each.

    What follows the last newline and is no whole line is left out: a killed process or a power cut has torn
    it. A damaged line elsewhere is a ValueError that names file and line.
    """
    return [row for _, row in _numbered(path)]


class Samples(NamedTuple):
    """The rows of `samples.jsonl`."""

    games: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    """Responses that a judge failed on."""


def read_samples(run: Path) -> Samples:
    """Return the sample games and judge failures of a run directory; none without their file.

    Lines are handled as by `read_lines`; ValueError also for one that holds something else.
    """
    path, samples = run / SAMPLES, Samples([], [])
    for number, row in _numbered(path) if path.is_file() else ():
        texts = row.get("eval", {})
        is_game = isinstance(row.get("score"), dict) and isinstance(texts, dict)
        is_game = is_game and all(isinstance(text, str) for text in [row.get("query"), *texts.values()])
        if not ("failure" in row or is_game):  # the query of a failure may be the messages of a chat
            raise ValueError(f"{path} line {number} is no sample of a run; remove or repair that line")
        (samples.failures if "failure" in row else samples.games).append(row)
    return samples


def _numbered(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a JSON-lines file with the numbers of their lines."""
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise ValueError(
                f"{path} line {number} is not JSON ({error}); remove or repair that line"
            ) from error
        if not isinstance(row, dict) or type(row.get("iteration")) is not int:
            raise ValueError(f"{path} line {number} is not a row of an iteration; remove or repair that line")
        yield number, row


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
    """A file to which whole lines are appended."""

    def __init__(self, path: Path) -> None:
        """Open the file for appending, without an incomplete last line that a killed run has left."""
        if path.exists():
            written = path.read_bytes()
            os.truncate(path, written.rfind(b"\n") + 1)
        self.path, self.file = path, path.open("a+b", buffering=0)

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append a line for each row; OSError, and no half line, if the disk is full."""
        for row in rows:
            line = f"{json.dumps(_finite(row), ensure_ascii=False, allow_nan=False)}\n".encode()
            start = os.fstat(self.file.fileno()).st_size
            try:
                while line:
                    line = line[self.file.write(line) :]
            except OSError:
                os.truncate(self.file.fileno(), start)
                raise


def _finite(value: Any) -> Any:
    """Return the value with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
