"""A study of tables from start to end: found again, continued, and with an arm that fails."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing.spawn import get_preparation_data

import psutil
import pytest
import yaml
from filelock import FileLock, Timeout

from cory.cli.main import main
from cory.study import study
from cory.study.engines import Outcome, worker
from cory.study.engines.local import CONTEXT, LocalEngine, Process, without_main_module
from cory.study.plan import make_plan
from cory.study.study import Study
from cory.tracking.tracker import read
from cory_env.registry import LOADED
from tests.cory.study.conftest import SMOKE, run_once
from tests.helpers.runs import cut_run, process_of

pytestmark = pytest.mark.slow
SMALL = {"settings": {"iterations": 4, "checkpoint_every": 2}, "evaluation": {"queries": 4, "every": 2}}


def small(values, **changes) -> dict:
    return values | {
        "settings": values["settings"] | SMALL["settings"],
        "evaluation": SMALL["evaluation"],
        **changes,
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two arms and a broken one, two seeds, trained once by one worker: values, lines, what it left."""

    values = small(yaml.safe_load(SMOKE.read_text("utf-8")))
    values["arms"]["broken"] = {"payoff": "tests.helpers.tasks:broken_payoff"}
    return run_once(tmp_path_factory, "study", values)


@pytest.fixture
def no_training(monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("a run was trained")

    monkeypatch.setattr(LocalEngine, "train", refuse)


def values_of(finished) -> dict:
    return {
        (run["arm"], run["seed"]): {key: run[key] for key in ("eval", "game", "budget")}
        for run in finished.results["runs"]
    }


def test_study_trains_every_arm_and_seed(made):
    _, lines, finished = made
    assert [(run["arm"], run["seed"]) for run in finished.results["runs"]] == [
        ("cooperative", 0),
        ("cooperative", 1),
        ("independent", 0),
        ("independent", 1),
    ]
    run = finished.results["runs"][0]
    assert run["budget"] == {"games": 128, "judge_calls": 256}
    assert [point[0] for point in run["eval"]["llm_2"]["task_reward"]] == [0, 2, 4]
    assert [row["n"] for row in finished.results["statistics"]] == [2, 2]
    assert any("6 of 6 runs" in line for line in lines)
    assert any("min left" in line for line in lines)


def test_runs_of_a_study_evaluate_no_validation_queries(made):
    _, _, finished = made
    lines = (finished.page.parent / "independent/relay/seed-1/metrics.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    assert "eval/llm_1/task_reward" in found[-1]
    assert not any(key.startswith("validation/") for row in found for key in row)


def test_failing_arm_is_reported_with_its_log_and_does_not_stop_the_others(made):
    _, lines, finished = made
    assert [one.run.name for one in finished.failed] == ["broken/relay/seed-0", "broken/relay/seed-1"]
    assert "no payoff today" in finished.failed[0].error
    assert any("broken_payoff" in line for line in finished.failed[0].log)
    assert "broken/relay/seed-0 failed" in finished.page.read_text("utf-8")
    reported = [line for line in lines if "no payoff today" in line]
    assert [line.partition(":")[0] for line in reported] == [f"broken/relay/seed-{n} failed" for n in (0, 1)]


def test_finished_runs_are_found_again_from_their_directories(copied, no_training, made):
    values, folder = copied
    (folder / "results.json").unlink()
    again = Study(**{**values, "arms": without_broken(values)}).run()
    assert values_of(again) == values_of(made[2])


def test_finished_runs_are_found_again_from_the_results(copied, no_training, made):
    values, folder = copied
    shutil.rmtree(folder / "cooperative")
    again = Study(**{**values, "arms": without_broken(values)}).run()
    assert values_of(again) == values_of(made[2])


def test_runs_that_another_process_adds_while_this_one_trains_are_kept(
    copied, no_training, made, monkeypatch
):
    """It adds them before the lines of progress begin; while they are counted, the file is locked."""
    values, folder = copied
    values["arms"] = without_broken(values)
    whole = (folder / "results.json").read_text("utf-8")
    for lost in ("results.json", "independent"):
        path = folder / lost
        path.unlink() if path.is_file() else shutil.rmtree(path)

    def analyse(results):
        with pytest.raises(Timeout):
            FileLock(folder / "results.json.lock", is_singleton=False).acquire(timeout=0)
        return original(results)

    original = study.analyse
    monkeypatch.setattr(study, "analyse", analyse)
    lines: list[str] = []

    def say(line):
        lines.append(line)
        (folder / "results.json").write_text(whole, "utf-8")

    finished = Study(**values).run(train=False, say=say)
    assert lines[0].startswith("study relay-smoke: 4 runs, 2 found")
    assert values_of(finished) == values_of(made[2])
    assert json.loads((folder / "results.json").read_text("utf-8"))["runs"] == finished.results["runs"]


def test_one_process_at_a_time_draws_the_figures_of_a_folder(copied, no_training, monkeypatch):
    values, folder = copied
    drawn = []

    def write_report(*arguments):
        with pytest.raises(Timeout):
            FileLock(folder / "report.html.lock", is_singleton=False).acquire(timeout=0)
        drawn.append(original(*arguments))
        return drawn[-1]

    original = study.write_report
    monkeypatch.setattr(study, "write_report", write_report)
    assert Study(**{**values, "arms": without_broken(values)}).run(train=False).page == drawn[0]


def test_stored_runs_are_removed_only_if_that_is_asked_for(copied, no_training):
    values, folder = copied
    arms = without_broken(values)
    del arms["independent"]
    changed = {**values, "arms": arms, "primary": []}
    before = (folder / "results.json").read_bytes()
    with pytest.raises(
        ValueError,
        match=r"independent on relay, seed 0 \(not in the study\); --retrain trains such runs again",
    ):
        Study(**changed).run(train=False)
    assert (folder / "results.json").read_bytes() == before
    finished = Study(**changed).run(train=False, retrain=True)
    assert {run["arm"] for run in finished.results["runs"]} == {"cooperative"}


def test_stored_runs_that_are_not_trained_again_are_never_removed(copied, no_training):
    values, folder = copied
    arms = without_broken(values)
    arms["independent"] = {"payoff": "independent", "batch": 16}
    shutil.rmtree(folder / "independent")
    before = (folder / "results.json").read_bytes()
    for options in ({"train": False}, {"arms": ["cooperative"]}):
        with pytest.raises(ValueError, match="independent on relay, seed 0"):
            Study(**{**values, "arms": arms}).run(retrain=True, **options)
    assert (folder / "results.json").read_bytes() == before


def test_an_arm_of_the_command_line_replaces_none_of_the_study(copied, no_training):
    values, _ = copied
    study = Study(**{**values, "arms": without_broken(values)})
    with pytest.raises(ValueError, match="the study has an arm 'cooperative'"):
        study.run(arms=["cooperative=happo"])
    with pytest.raises(ValueError, match="two of m=ppo, m=happo have one name"):
        study.run(arms=["m=ppo", "m=happo"])


def test_a_process_that_ends_without_a_result_has_failed(tmp_path):
    ours, theirs = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=theirs.close)  # it ends with code 0
    process.start()
    theirs.close()
    error = LocalEngine(tmp_path, jobs=1, say=str).error(Process(process, ours))
    assert error == "its process ended with code 0"


@pytest.fixture
def with_own_code(values, tmp_path, monkeypatch, in_this_process):
    """A study of one arm whose algorithm is mine.py, which imports helper.py; trained once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from cory.algorithms.ppo import *\nimport helper\n")
    (tmp_path / "helper.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    arms = {"mine": {"algorithm": "mine.py", "payoff": "cooperative"}}
    whole = small(values, arms=arms, primary=[], seeds=1, out=str(tmp_path / "study"))
    Study(**whole).run(say=str)
    return whole


@pytest.mark.parametrize("name", ["mine.py", "helper.py"])
@pytest.mark.parametrize("gone", ["results.json", "mine/relay/seed-0"])
def test_run_whose_code_was_edited_is_refused_and_trained_again_if_that_is_asked_for(
    with_own_code, tmp_path, name, gone
):
    """Also where only the results file or only the run directory is left."""
    path = tmp_path / "study" / gone
    path.unlink() if path.is_file() else shutil.rmtree(path)
    (tmp_path / name).write_text((tmp_path / name).read_text() + "edited = True\n")
    LOADED.clear()  # in another session
    with pytest.raises(ValueError, match=rf"{name}\)? has changed since seed 0 was trained.*--retrain"):
        Study(**with_own_code).run(say=str)
    lines: list[str] = []
    finished = Study(**with_own_code).run(say=lines.append, retrain=True)
    assert lines[-1].startswith("study relay-smoke: 1 runs, 0 found, 1 to run")
    assert [run["arm"] for run in finished.results["runs"]] == ["mine"]
    old = [path.name for path in (tmp_path / "study/mine/relay").glob("seed-0.old-*")]
    assert len(old) == (gone == "results.json")
    Study(**with_own_code).run(say=lines.append)
    assert lines[-1].startswith("study relay-smoke: 1 runs, 1 found, 0 to run")


def test_code_that_is_edited_while_a_study_runs_is_not_taken_for_what_it_was(with_own_code, tmp_path):
    (run,) = make_plan(Study(**with_own_code).spec).runs
    (tmp_path / "helper.py").write_text("edited = True")
    error = worker.train(tmp_path / "study/mine/relay/seed-9", run)
    assert "mine.py (helper.py) has changed since the study was started" in error


def test_comparisons_that_change_after_the_runs_are_pointed_out(copied, no_training):
    values, _ = copied
    values["arms"] = without_broken(values)
    changed = [{**values["primary"][0], "margin": 9.0}, *values["primary"][1:]]
    said: list[str] = []
    Study(**{**values, "primary": changed}).run(say=said.append)
    assert any("warning: the comparisons are not those that" in line for line in said)
    said.clear()
    Study(**{**values, "primary": changed}).run(say=said.append)
    assert not any("warning" in line for line in said)


def test_study_continues_runs_that_are_missing_or_were_cut(copied, made):
    values, folder = copied
    (folder / "results.json").unlink()
    shutil.rmtree(folder / "cooperative/relay/seed-0")
    whole, run = folder / "whole", folder / "independent/relay/seed-1"
    run.rename(whole)
    cut_run(whole, run, 2)
    rows = [{k: v for k, v in row.items() if not k.startswith(("time/", "speed/"))} for row in read(whole)]
    lines: list[str] = []
    again = Study(**{**values, "arms": without_broken(values)}).run(jobs=1, say=lines.append)
    assert lines[0] == "study relay-smoke: 4 runs, 2 found, 2 to run; verdicts need 5 seeds"
    assert "resumed at iteration 2" in run.with_name("seed-1.log").read_text("utf-8")
    assert values_of(again) == values_of(made[2])
    assert [
        {k: v for k, v in row.items() if not k.startswith(("time/", "speed/"))} for row in read(run)
    ] == rows


def test_report_counts_again_without_training(copied, no_training, capsys, tmp_path):
    values, folder = copied
    (folder / "report.html").unlink()
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(values))
    assert main(["study", str(path), "--report"]) == 0
    assert (folder / "report.html").exists()
    assert "results: " in capsys.readouterr().out


def test_changed_arm_is_refused_and_not_mixed_with_its_old_runs(copied, no_training):
    values, folder = copied
    arms = without_broken(values) | {"cooperative": {"payoff": "cooperative", "learner.lr": 0.2}}
    message = r"cooperative on relay, seed 0 \(other settings: learner\.lr was 0\.1 and is"
    with pytest.raises(ValueError, match=message):
        Study(**{**values, "arms": arms}).run()
    (folder / "results.json").unlink()
    with pytest.raises(ValueError, match=r"other settings: learner\.lr was 0\.1 and is 0\.2"):
        Study(**{**values, "arms": arms}).run()


def test_arms_tasks_seeds_and_out_narrow_the_study(values, tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(LocalEngine, "train", lambda self, runs: trained.extend(runs) or [])
    Study(**small(values)).run(arms=["independent"], seeds=3, out=tmp_path / "x", jobs=1)
    assert [run.name for run in trained] == [f"independent/relay/seed-{n}" for n in range(3)]
    assert (tmp_path / "x/results.json").exists()
    trained.clear()
    two_tasks = small(values, tasks={"relay": {}, "long": {"iterations": 30}})
    Study(**two_tasks).run(arms=["independent"], tasks=["long"], seeds=1, out=tmp_path / "y")
    assert [run.name for run in trained] == ["independent/long/seed-0"]
    with pytest.raises(ValueError, match="did you mean 'independent'"):
        Study(**small(values)).run(arms=["independen"])
    with pytest.raises(ValueError, match="tasks has no key 'relai'; did you mean 'relay'"):
        Study(**small(values)).run(tasks=["relai"])


def test_unknown_engine_is_refused_with_the_nearest(values, no_training, tmp_path, capsys):
    with pytest.raises(ValueError, match=r"there is no engine 'loca'; did you mean 'local'\?"):
        Study(**small(values)).run(engine="loca")
    with pytest.raises(ValueError, match="there are local, ray"):
        Study(**small(values)).run(engine="slurm")
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(values))
    assert main(["study", str(path), "--engine", "slurm"]) == 2
    assert "ray" in capsys.readouterr().err


def test_engine_ray_without_ray_names_the_extra(values, no_training, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "cory.study.engines.ray_cluster", raising=False)
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(values))
    assert main(["study", str(path), "--engine", "ray"]) == 2
    assert "pip install 'cory[ray]'" in capsys.readouterr().err


def test_study_without_runs_is_still_counted(values, tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(values | {"out": str(tmp_path / "out")}))
    assert main(["study", str(path), "--report"]) == 0
    assert capsys.readouterr().out.startswith("without runs: ")


def test_processes_of_runs_do_not_run_the_script_of_their_parent():
    with without_main_module():
        assert not [key for key in get_preparation_data("run") if key.startswith("init_main")]


@pytest.mark.faults
def test_killed_processes_and_ctrl_c_lose_no_more_than_iterations(values, tmp_path):
    long = {"iterations": 300, "checkpoint_every": 5}
    values |= {"settings": values["settings"] | long, "evaluation": {"queries": 4, "every": 0}}
    values |= {"out": str(tmp_path / "out"), "seeds": 1}
    path, folder = tmp_path / "study.yaml", tmp_path / "out/cooperative/relay/seed-0"
    path.write_text(yaml.safe_dump(values))
    command = [sys.executable, "-m", "cory.cli", "study", str(path), "--jobs", "1"]
    for killed, at, code in (("worker", 20, 1), (None, 60, 130), ("study", 100, -9), (None, 302, 0)):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            while iterations(folder) < at and process.poll() is None:
                time.sleep(0.05)
            worker = process_of(folder) if at < 300 else None
            if killed == "study":
                process.kill()
            elif killed == "worker":
                os.kill(worker, signal.SIGKILL)
            elif at < 300:
                process.send_signal(signal.SIGINT)
            error = process.communicate()[1]
        assert process.returncode == code, error
        assert killed != "worker" or "its process ended with code -9" in error
        while worker and psutil.pid_exists(worker):
            time.sleep(0.05)
    log = folder.with_name("seed-0.log").read_text("utf-8")
    assert log.count("resumed at iteration") == 3
    assert iterations(folder) == 302  # and two evaluations


def iterations(folder) -> int:
    """Lines of a run's metrics."""
    path = folder / "metrics.jsonl"
    return len(path.read_text("utf-8").splitlines()) if path.exists() else 0


def test_command_reports_bad_files_in_one_line(values, tmp_path, capsys):
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(values | {"sedes": 2}))
    assert main(["study", str(path)]) == 2
    assert "did you mean 'seeds'?" in capsys.readouterr().err


def without_broken(values) -> dict:
    return {name: settings for name, settings in values["arms"].items() if name != "broken"}


def test_a_run_that_another_process_trained_meanwhile_has_not_failed(values, tmp_path, monkeypatch):
    """This one was refused for the other's lock, and finds the run finished at the end."""
    train = LocalEngine.train

    def refused(engine, runs):
        train(engine, runs)
        return [Outcome(run=run, error="another process is training in it") for run in runs]

    monkeypatch.setattr(LocalEngine, "train", refused)
    finished = Study(**small(values, seeds=1, out=str(tmp_path / "out"))).run(jobs=1, say=str)
    assert len(finished.results["runs"]) == 2
    assert finished.failed == []
