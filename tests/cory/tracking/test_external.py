"""Metrics in Weights & Biases, Trackio and MLflow, through accelerate's trackers."""

import json
import math

import pytest
from accelerate import tracking

from cory.config.command_line import parse_settings
from cory.config.schema import Config
from cory.tracking import external
from cory.tracking.tracker import Tracker, read
from tests.helpers.runs import train, without_report

METRICS = {"pioneer_0/llm_1/kl": 0.5, "eval/llm_1/task_reward": 0.25}


class Recorder(tracking.GeneralTracker):
    """A tracker of accelerate that writes down its calls."""

    name = "wandb"
    requires_logging_directory = False
    calls: list[tuple]

    def __init__(self, project, **options):
        super().__init__()
        self.id = options.get("id", "fresh")
        self.calls.append(("made", project, options))

    @property
    def tracker(self):
        return self

    def store_init_configuration(self, values):
        self.calls.append(("settings", values))

    def log(self, values, step=None, **_):
        self.calls.append(("log", step, values))

    def finish(self):
        self.calls.append(("finish",))


@pytest.fixture
def calls(monkeypatch):
    recorded = []
    monkeypatch.setattr(Recorder, "calls", recorded, raising=False)
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "wandb", Recorder)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return recorded


def started(run, *, resumed=False, warnings=None):
    run.mkdir(exist_ok=True)
    warn = (warnings if warnings is not None else []).append
    return external.start(["wandb"], run, {"batch": 8, "policy.models": []}, resumed=resumed, warn=warn)


def test_every_line_of_metrics_is_sent_under_its_own_keys_with_its_iteration(tmp_path, calls):
    """The first part of a key, a seat or eval, is the section that these tools fold."""
    with Tracker(tmp_path / "mine", external=started(tmp_path / "mine")) as tracker:
        tracker.log(3, METRICS)
        tracker.log(4, {"eval/llm_1/kl": math.nan, "eval/llm_1/length": 2})
    assert calls == [
        ("made", "cory", {"name": "mine", "dir": str(tmp_path / "mine"), "settings": {"console": "off"}}),
        ("settings", {"batch": 8, "policy.models": "[]"}),
        ("log", 3, METRICS),
        ("log", 4, {"eval/llm_1/length": 2.0}),
        ("finish",),
    ]


def test_a_resumed_run_goes_on_with_its_run_there_and_a_new_one_does_not(tmp_path, calls, monkeypatch):
    started(tmp_path)
    monkeypatch.setenv("WANDB_PROJECT", "films")
    (tmp_path / external.IDS).write_text('{"wandb": "abc"}')
    started(tmp_path, resumed=True)
    started(tmp_path)
    made = [(project, options.get("id"), options.get("resume")) for _, project, options in calls[::2]]
    assert made == [("cory", None, None), ("films", "abc", "allow"), ("films", None, None)]
    assert json.loads((tmp_path / external.IDS).read_text()) == {"wandb": "fresh"}


def test_a_tracker_that_fails_is_left_out_with_one_warning_and_the_run_goes_on(tmp_path, calls, monkeypatch):
    def unreachable(self, values, step=None):
        calls.append("tried")
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(Recorder, "log", unreachable)
    warnings = []
    with Tracker(tmp_path, external=started(tmp_path, warnings=warnings)) as tracker:
        tracker.log(0, METRICS)
        tracker.log(1, METRICS)
    assert warnings == ["warning: wandb failed (no route to host); metrics.jsonl has all metrics"]
    assert calls.count("tried") == 1
    assert [row["iteration"] for row in read(tmp_path)] == [0, 1]


def test_a_tracker_that_cannot_start_is_an_error_that_says_what_to_do(tmp_path, calls, monkeypatch):
    def not_logged_in(self):
        raise RuntimeError("api_key not configured (no-tty)")

    monkeypatch.setattr(Recorder, "start", not_logged_in)
    with pytest.raises(ValueError, match=r"log_to wandb cannot be started \(api_key not configured"):
        started(tmp_path)


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(external, "find_spec", lambda name: None if name == "trackio" else name)
    external.check_installed(["wandb"])
    with pytest.raises(ImportError, match=r"log_to trackio needs trackio; pip install 'cory\[trackio\]'"):
        external.check_installed(["wandb", "trackio"])


def test_a_run_logs_to_the_places_that_its_setting_names(tmp_path, calls, monkeypatch):
    without_report(monkeypatch)
    monkeypatch.setattr(external, "find_spec", lambda name: name)
    assert train(tmp_path / "run", 2, "--log-to", "wandb") == 0
    assert not (tmp_path / "run/tensorboard").exists()
    sent = {}
    for _, iteration, values in (call for call in calls if call[0] == "log"):
        sent.setdefault(iteration, {}).update(values)
    assert sent == curves_by_iteration(read(tmp_path / "run"))
    assert dict(calls[1][1])["kl.target"] == 1.0


def curves_by_iteration(rows):
    """The finite metrics of all lines, by iteration."""
    merged = {}
    for row in rows:
        finite = {key: value for key, value in row.items() if key != "iteration" and math.isfinite(value)}
        merged.setdefault(row["iteration"], {}).update(finite)
    return merged


@pytest.mark.parametrize(
    ("text", "names"),
    [("none", ()), ("tensorboard", ("tensorboard",)), ("wandb, mlflow", ("wandb", "mlflow"))],
)
def test_places_are_separated_by_commas(text, names):
    given = parse_settings(["--log-to", text], default=Config(), command="cory train")
    assert given["log_to"] == list(names)
    assert Config.from_flat({"log_to": text}).log_to == names


@pytest.mark.parametrize(("text", "message"), [("wnadb", "'wnadb'"), ("wandb,wandb", "once")])
def test_an_unknown_or_repeated_place_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Config.from_flat({"log_to": text})


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Write two iterations to a real tracker, whose files stay in a temporary folder."""
    monkeypatch.chdir(tmp_path)

    def play(name):
        run = tmp_path / "mine"
        run.mkdir(exist_ok=True)
        trackers = external.start([name], run, {"batch": 8}, resumed=False, warn=pytest.fail)
        with Tracker(run, external=trackers) as tracker:
            tracker.log(0, METRICS)
            tracker.log(1, {"eval/llm_1/task_reward": 0.75})
        return json.loads((run / external.IDS).read_text())[name]

    return play


def test_weights_and_biases_writes_offline(played, tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run_id = played("wandb")
    (file,) = tmp_path.glob(f"mine/wandb/offline-run-*/run-{run_id}.wandb")
    records = file.read_bytes()  # protobuf, whose texts are bytes as they are
    assert records.count(b"eval/llm_1/task_reward") >= 2
    assert b"0.25" in records
    assert b"0.75" in records


def test_trackio_writes_locally(played, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio", reason="needs the extra trackio")
    from trackio.sqlite_storage import SQLiteStorage

    name = played("trackio")
    rows = SQLiteStorage.get_logs("cory", name)
    assert {row["step"]: row["eval/llm_1/task_reward"] for row in rows} == {0: 0.25, 1: 0.75}


def test_mlflow_writes_to_a_local_data_base(played, tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs the extra mlflow")
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    run_id = played("mlflow")
    history = MlflowClient().get_metric_history(run_id, "eval/llm_1/task_reward")
    assert [(point.step, point.value) for point in history] == [(0, 0.25), (1, 0.75)]
    assert MlflowClient().get_run(run_id).data.params == {"batch": "8"}
