"""TensorBoard, and through `accelerate.tracking` Weights & Biases, Trackio and MLflow.

Each of these three is set up by its own environment variables (`WANDB_PROJECT`, `WANDB_MODE`,
`TRACKIO_PROJECT`, `MLFLOW_TRACKING_URI`, ...). Keys are those of `metrics.jsonl`, whose first part, the seat
or `eval`, is the section that these tools fold. A run that resumes goes on with its own run there.
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cory.runtime.files import read_json

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

TENSORBOARD = "tensorboard"
EXTERNAL = ("wandb", "trackio", "mlflow")
"""Trackers that are written through `accelerate.tracking`; each is an extra of this project."""

IDS = "trackers.json"
"""In the run directory: the id of the run at each tracker."""

PROJECT = "cory"
"""Name of the project where the environment has none."""

PROJECT_VARIABLES = {
    "wandb": "WANDB_PROJECT",
    "trackio": "TRACKIO_PROJECT",
    "mlflow": "MLFLOW_EXPERIMENT_NAME",
}


class TensorBoard:
    """Curves in `tensorboard/` of a run directory, as a tracker of accelerate."""

    name = TENSORBOARD

    def __init__(self, run: Path) -> None:
        """Write nothing before the first metrics come."""
        self._folder = run / TENSORBOARD
        self._writer: Any = None

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Add points, in place of those that a run resumed at `step` had already there."""
        from torch.utils.tensorboard import SummaryWriter

        self._writer = self._writer or SummaryWriter(str(self._folder), purge_step=step)
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def finish(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()


class ExternalTrackers:
    """Several trackers as one; what fails is left out for the rest of the run, with one warning."""

    def __init__(self, trackers: Iterable[Any], *, warn: Callable[[str], None]) -> None:
        """Take trackers that have been started; `warn` prints a line."""
        self._trackers, self._warn = list(trackers), warn

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics that are finite."""
        finite = {key: value for key, value in metrics.items() if math.isfinite(value)}
        self._call(lambda tracker: tracker.log(finite, step=iteration))

    def close(self) -> None:
        """End the run at every tracker, which sends what is left."""
        self._call(lambda tracker: tracker.finish())

    def _call(self, do: Callable[[Any], Any]) -> None:
        for tracker in list(self._trackers):
            try:
                do(tracker)
            except Exception as error:  # of any library; a run is worth more than its curves elsewhere
                self._trackers.remove(tracker)
                reason = " ".join(str(error).split())
                self._warn(f"warning: {tracker.name} failed ({reason:.200}); metrics.jsonl has all metrics")


def check_places(names: Sequence[str]) -> None:
    """Raise ValueError for a place of `log_to` that is unknown or there twice."""
    known = (TENSORBOARD, *EXTERNAL)
    if wrong := [name for name in names if name not in known]:
        raise ValueError(
            f"log_to names {wrong[0]!r}; give {', '.join(known)}, several separated by commas, or none"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"log_to is {', '.join(names)}; name each place once")


def check_installed(places: Iterable[str]) -> None:
    """Raise ImportError, which names the extra, if the package of a tracker is missing."""
    for name in (name for name in places if name in EXTERNAL):
        if missing := [package for package in (name, "accelerate") if find_spec(package) is None]:
            raise ImportError(f"log_to {name} needs {' and '.join(missing)}; pip install 'cory[{name}]'")


def start(
    places: Iterable[str],
    run: Path,
    settings: Mapping[str, Any],
    *,
    resumed: bool,
    warn: Callable[[str], None],
) -> ExternalTrackers:
    """Start a run named like the run directory at each tracker, or continue it; send the settings.

    ValueError if a tracker cannot be started.
    """
    started: list[GeneralTracker | TensorBoard] = [TensorBoard(run)] if TENSORBOARD in places else []
    names = [name for name in places if name in EXTERNAL]
    if not names:
        return ExternalTrackers(started, warn=warn)
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    PartialState()  # its trackers log through it
    path = run / IDS
    ids = read_json(path) if resumed and path.is_file() else {}
    values = {key: str(value) if isinstance(value, list) else value for key, value in settings.items()}
    for name in names:
        project = os.environ.get(PROJECT_VARIABLES[name], PROJECT)
        try:
            tracker = LOGGER_TYPE_TO_CLASS[name](project, **_options(name, run, ids.get(name)))
            tracker.start()
            if name != "mlflow" or name not in ids:  # MLflow refuses parameters that have changed
                tracker.store_init_configuration(values)
        except Exception as error:  # of any library: not logged in, no network, no such server
            raise ValueError(
                f"log_to {name} cannot be started ({' '.join(str(error).split()):.300}); mend that, or leave "
                f"{name} out of log_to"
            ) from error
        ids[name] = _id(name, tracker)
        started.append(tracker)
    path.write_text(json.dumps(ids, indent=1), encoding="utf-8")
    return ExternalTrackers(started, warn=warn)


def _options(name: str, run: Path, known: str | None) -> dict[str, Any]:
    """Return the arguments of a tracker's own constructor of runs; `known` is the id of a run to continue."""
    if name == "wandb":
        again = {} if known is None else {"id": known, "resume": "allow"}
        return {"name": run.name, "dir": str(run), "settings": {"console": "off"}, **again}
    if name == "trackio":
        return {"name": known or run.name, "resume": "never" if known is None else "allow"}
    return {"run_name": run.name, "run_id": known}


def _id(name: str, tracker: "GeneralTracker") -> str:
    """Return the id by which a run is continued."""
    of_run: Any = tracker.tracker
    if name == "mlflow":
        return str(of_run.info.run_id)
    return str(of_run.id if name == "wandb" else of_run.name)
