"""`--overwrite` moves a run of CORY's aside, whole, and leaves every other folder of a user as it is."""

import os
import shutil
from pathlib import Path

import pytest

from cory.cli.main import main
from cory.training import checkpoint
from cory.training.overwriting import MARKER, check_unoccupied, mark, move_run_aside
from tests.helpers.runs import ECHO, assert_refused, contents, finished_run, train, without_report

ROW = '{"iteration": 0, "eval/llm_1/kl": 0.5}\n'


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    without_report(monkeypatch)


def made(run: Path) -> Path:
    """A run directory as CORY leaves it."""
    mark(run)
    (run / "config.yaml").write_text("task: echo\n")
    (run / "metrics.jsonl").write_text(ROW)
    (run / "checkpoints/step-000001").mkdir(parents=True)
    (run / "checkpoints/step-000001/weights").write_text("weights")
    return run


def project(folder: Path) -> Path:
    """A user's project with a configuration, as Hydra, Jekyll and conda-build have one."""
    (folder / "thesis").mkdir(parents=True)
    (folder / "thesis/chapter.tex").write_text("my thesis")
    (folder / "config.yaml").write_text("optimizer: adam\n")
    return folder


def with_file(name: str):
    def change(run: Path) -> None:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("mine")

    return change


NOT_OVERWRITTEN = {
    "a project with a config.yaml": (lambda run: (shutil.rmtree(run), project(run)), "no .cory"),
    "a run without its marker": (lambda run: (run / MARKER).unlink(), "no .cory"),
    "a marker of somebody else": (lambda run: (run / MARKER).write_text("{}"), "no .cory"),
    "a marker that is a link": (
        lambda run: ((run / MARKER).rename(run.parent / "m"), (run / MARKER).symlink_to(run.parent / "m")),
        "no .cory",
    ),
    "a note in a run": (with_file("notes.txt"), "holds notes.txt, which CORY has not written"),
    "a folder in a run": (with_file("thesis/a.tex"), "holds thesis, which CORY has not written"),
    "a repository in a run": (with_file(".git/HEAD"), "holds .git, which CORY has not written"),
    "a worktree in a run": (with_file(".git"), "holds .git, which CORY has not written"),
    "metrics of another program": (
        lambda run: (run / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5}\n'),
        "metrics.jsonl line 1 is not a row of an iteration",
    ),
    "metrics that are noise": (
        lambda run: (run / "metrics.jsonl").write_bytes(b"\xff\x00\n" + ROW.encode()),
        "metrics.jsonl line 1 is not JSON",
    ),
}


@pytest.mark.parametrize("case", NOT_OVERWRITTEN)
def test_a_folder_with_anything_that_is_not_a_runs_is_not_overwritten(case, tmp_path):
    change, message = NOT_OVERWRITTEN[case]
    run = made(tmp_path / "run")
    change(run)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=message):
        move_run_aside(run)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("place", [".", "plots", "checkpoints/step-000001"])
def test_the_working_directory_and_what_holds_it_are_not_overwritten(place, tmp_path, monkeypatch):
    run = made(tmp_path / "run")
    (run / place).mkdir(exist_ok=True)
    monkeypatch.chdir(run / place)
    for name in (run, Path(os.path.relpath(run))):
        with pytest.raises(ValueError, match="is the working directory, or holds it"):
            check_unoccupied(name, overwrite=True)


def test_home_and_the_root_are_not_overwritten(tmp_path, monkeypatch):
    run = made(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setenv("HOME", str(run / "checkpoints"))
        with pytest.raises(ValueError, match="is your home, or holds it"):
            check_unoccupied(run, overwrite=True)
    for place in (Path("/"), Path("/proc")):
        with pytest.raises(ValueError, match="is not overwritten"):
            check_unoccupied(place, overwrite=True)


def test_an_overwritten_run_is_whole_beside_the_new_one(tmp_path):
    run = made(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    aside = move_run_aside(run)
    assert aside.name.startswith("run.old-2")
    assert {path.name: path.read_bytes() for path in aside.rglob("*") if path.is_file()} == before
    assert not run.exists()
    again = move_run_aside(made(run))
    assert len({aside, again}) == 2
    assert aside.exists()


def test_links_are_renamed_and_never_followed(tmp_path):
    """A link to a run, and a link to a disk in a run: what they lead to stays."""
    disk = tmp_path / "disk"
    (disk / "step-000001").mkdir(parents=True)
    run = made(disk / "run")
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").symlink_to(disk)
    (tmp_path / "link").symlink_to(run)
    aside = move_run_aside(tmp_path / "link")
    assert aside.is_symlink()
    assert (run / "metrics.jsonl").read_text() == ROW
    assert (move_run_aside(run) / "checkpoints").is_symlink()
    assert (disk / "step-000001").is_dir()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    with pytest.raises(ValueError, match="a link that leads to no folder"):
        check_unoccupied(tmp_path / "nowhere", overwrite=True)


OWN = {
    "overwrite": "run: victim\noverwrite: true\n",
    "a dash": "run: victim\nover-write: true\n",
    "resume": "resume: auto\n",
    "a value that is a flag": "max_response: [3, 3, --overwrite, --run, victim]\n",
    "a name that is a flag": '"run=victim": 1\n',
    "a group": "task: echo\nrun:\n  victim: 1\n",
}


@pytest.mark.parametrize("case", OWN)
def test_a_settings_file_cannot_say_where_a_run_goes_or_what_it_replaces(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "victim")
    Path("theirs.yaml").write_text(f"policy.kind: table\niterations: 1\n{OWN[case]}")
    assert_refused((*ECHO, "--config", "theirs.yaml"), tmp_path, capsys, "")


def test_a_settings_file_with_options_of_the_command_is_refused_by_their_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("theirs.yaml").write_text("run: victim\noverwrite: true\nresume: auto\n")
    message = "theirs.yaml sets run, overwrite, resume, which only the command line sets"
    assert_refused((*ECHO, "--config", "theirs.yaml"), tmp_path, capsys, message)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_run_is_refused(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(project(tmp_path / "project"))
    assert_refused((*ECHO, "--run", name, "--overwrite"), tmp_path, capsys, "--run needs a value")


def test_auto_begins_no_run_in_a_project_that_has_a_config(tmp_path, capsys):
    """It has neither checkpoints nor metrics, as a run that was killed before its first iteration."""
    folder = project(tmp_path / "project")
    argv = (*ECHO, "--max-response", "3", "3", "--run", str(folder), "--resume", "auto")
    (folder / "config.yaml").write_text("task: echo\npolicy.kind: table\n")
    assert_refused(argv, tmp_path, capsys, "is not empty")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return finished_run(tmp_path_factory)


def test_an_overwritten_run_is_named_and_can_be_resumed_where_it_is(tmp_path, finished, capsys):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    assert train(run, 1, "--overwrite") == 0
    (aside,) = tmp_path.glob("run.old-*")
    assert f"the run that was in {run} is now {aside}" in capsys.readouterr().err
    assert checkpoint.finished(aside)[-1].name == "step-000006"
    assert checkpoint.finished(run)[-1].name == "step-000001"
    assert main(["train", "--run", str(aside), "--resume", "must"]) == 0


def test_policies_beside_files_of_a_user_are_moved_aside_as_they_are(tmp_path, finished):
    """A conversion in the folder of a policy, and a policy that is a link to a model of the user's."""
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    (run / "policies/llm_1/model.gguf").write_text("a conversion")
    theirs = tmp_path / "theirs"
    shutil.move(run / "policies/llm_2", theirs)
    (theirs / "table.safetensors").write_text("theirs")
    (run / "policies/llm_2").symlink_to(theirs)
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    assert (theirs / "table.safetensors").read_text() == "theirs"
    (aside,) = run.glob("policies.old-*")
    assert (aside / "llm_1/model.gguf").read_text() == "a conversion"
    assert (aside / "llm_2").is_symlink()
    for name in ("llm_1", "llm_2"):
        new, old = (folder / f"policies/{name}/table.safetensors" for folder in (run, finished))
        assert new.read_bytes() == old.read_bytes()
