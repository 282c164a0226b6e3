"""Runs of a study as tasks of a Ray cluster: a cluster of two nodes on this machine."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from cory.runtime.signals import Stopped
from cory.study.plan import make_plan
from cory.study.reading import make_spec
from cory.study.study import Study
from cory.tracking.tracker import read
from tests.helpers.runs import process_of

ray = pytest.importorskip("ray", reason="ray is not installed (the extra `ray`)")
cluster_utils = pytest.importorskip("ray.cluster_utils")

from cory.study.engines import ray_cluster  # noqa: E402 (needs ray)

pytestmark = pytest.mark.slow
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one CPU, connected."""
    found = cluster_utils.Cluster(initialize_head=True, head_node_args=NODE)
    found.add_node(**NODE)
    ray.init(address=found.address, log_to_driver=False)
    yield found
    ray.shutdown()
    found.shutdown()


def smaller(values, iterations: int, **changes) -> dict:
    return values | {
        "settings": values["settings"] | {"iterations": iterations, "checkpoint_every": 2},
        "evaluation": {"queries": 4, "every": 2 if iterations < 10 else 0},
        **changes,
    }


def rows(folder: Path) -> list[dict]:
    """A run's metrics without times."""
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "speed/"))} for row in read(folder)]


def lines(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return len(path.read_text("utf-8").splitlines()) if path.exists() else 0


def log(folder: Path) -> str:
    return folder.with_name(f"{folder.name}.log").read_text("utf-8")


def once(condition, action) -> threading.Thread:
    """A thread that acts as soon as a condition holds."""

    def wait() -> None:
        while not condition():
            time.sleep(0.05)
        action()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def long_runs(values, out: Path, *, seeds: int):
    """Runs of 150 iterations, an engine for them, and their directories."""
    runs = make_plan(make_spec(smaller(values, 150, seeds=seeds, arms={"a": {}}, primary=[]))).runs
    return runs, ray_cluster.RayEngine(out, jobs=None, say=str), [out / run.name for run in runs]


def test_ray_and_local_processes_have_equal_metrics(values, tmp_path, cluster):
    values = smaller(values, 4)
    said: list[str] = []
    local = Study(**values | {"out": str(tmp_path / "1/local")}).run(jobs=1, say=str)
    other = Study(**values | {"out": str(tmp_path / "2/ray")}).run(engine="ray", say=said.append)
    measured = [
        [{k: v for k, v in run.items() if k != "seconds"} for run in one.results["runs"]]
        for one in (local, other)
    ]
    assert measured[0] == measured[1]
    assert local.results["statistics"] == other.results["statistics"]
    names = [f"{arm}/relay/seed-{seed}" for arm in ("cooperative", "independent") for seed in (0, 1)]
    for name in names:
        assert rows(tmp_path / "1/local" / name) == rows(tmp_path / "2/ray" / name)
    nodes = {log(tmp_path / "2/ray" / name).splitlines()[0].split()[3] for name in names}
    assert len(nodes) == 2
    assert any("4 of 4 runs (0.0 min left)" in line for line in said)


def test_a_run_is_evaluated_on_another_task_by_its_node(values, tmp_path, cluster):
    more = {"tasks": {"relay": {}, "same": {}}, "cross": {"relay": ["same"]}, "out": str(tmp_path / "out")}
    arms = {"cooperative": values["arms"]["cooperative"]}
    values = smaller(values, 2, **more, arms=arms, primary=[], seeds=1)
    done = Study(**values).run(engine="ray", say=str)
    run = next(run for run in done.results["runs"] if run["task"] == "relay")
    (found,) = run["on"]["same"]["eval"]["llm_1"]["task_reward"]
    assert found == run["eval"]["llm_1"]["task_reward"][-1]
    assert "evaluating same" in log(tmp_path / "out/cooperative/relay/seed-0")


def test_failing_arm_is_reported_with_its_log_and_does_not_stop_the_others(values, tmp_path, cluster):
    arms = {"good": {}, "broken": {"payoff": "tests.helpers.tasks:broken_payoff"}}
    changes = {"arms": arms, "primary": [], "seeds": 1, "out": str(tmp_path)}
    finished = Study(**smaller(values, 2, **changes)).run(engine="ray", jobs=1, say=str)
    assert [run["arm"] for run in finished.results["runs"]] == ["good"]
    (failed,) = finished.failed
    assert "no payoff today" in failed.error
    assert any("broken_payoff" in line for line in failed.log)


@pytest.mark.faults
def test_signal_saves_the_runs_that_go_on_when_started_again(values, tmp_path, cluster):
    runs, engine, folders = long_runs(values, tmp_path, seeds=3)
    thread = once(
        lambda: sum(lines(folder) > 10 for folder in folders) == 2,
        lambda: os.kill(os.getpid(), signal.SIGINT),
    )
    with pytest.raises(Stopped):
        engine.train(runs)
    thread.join()
    begun = [folder for folder in folders if folder.exists()]
    assert len(begun) == 2
    assert all("stopped by SIGINT" in log(folder) for folder in begun)
    outcomes = ray_cluster.RayEngine(tmp_path, jobs=2, say=str).train(runs)
    assert [one.error for one in outcomes] == [""] * 3
    assert all(log(folder).count("resumed at iteration") == 1 for folder in begun)
    assert [lines(folder) for folder in folders] == [152] * 3  # and two evaluations


@pytest.mark.faults
def test_run_of_a_killed_process_goes_on(values, tmp_path, cluster):
    runs, engine, (folder,) = long_runs(values, tmp_path, seeds=1)
    thread = once(lambda: lines(folder) > 10, lambda: os.kill(process_of(folder), signal.SIGKILL))
    (outcome,) = engine.train(runs)
    thread.join()
    assert outcome.error == ""
    assert log(folder).count("resumed at iteration") == 1
    assert lines(folder) == 152


def test_nodes_with_another_learning_version_are_refused(values, tmp_path, cluster, monkeypatch):
    monkeypatch.setattr(ray_cluster, "LEARNING_VERSION", 99)
    runs, engine, (folder,) = long_runs(values, tmp_path, seeds=1)
    (outcome,) = engine.train(runs)
    assert "has learning version 1, the study 99" in outcome.error
    assert not folder.exists()


def test_run_that_the_driver_does_not_see_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_cluster.ray, "get", lambda task: (tmp_path / "run", "n7", ""))
    error = ray_cluster.RayEngine(tmp_path, jobs=None, say=str).error("task")
    assert "node n7" in error
    assert "file system that all nodes share" in error


@pytest.mark.faults
def test_run_of_a_lost_node_goes_on_at_another(values, tmp_path, cluster):
    """The last test: it takes a node away."""
    runs, engine, folders = long_runs(values, tmp_path, seeds=2)
    (other,) = [node for node in cluster.list_all_nodes() if node is not cluster.head_node]
    thread = once(
        lambda: all(lines(folder) > 10 for folder in folders),
        lambda: cluster.remove_node(other, allow_graceful=False),
    )
    outcomes = engine.train(runs)
    thread.join()
    assert [one.error for one in outcomes] == [""] * 2
    assert sorted(log(folder).count("resumed at iteration") for folder in folders) == [0, 1]
    assert [lines(folder) for folder in folders] == [152] * 2
