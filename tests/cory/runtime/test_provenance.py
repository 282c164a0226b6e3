"""The commit in a run's environment is that of this project's checkout, or none."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cory.runtime import provenance

ROOT = Path(provenance.__file__).resolve().parents[3]
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    command = ["git", *settings, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def repository(root: Path, source: str, monkeypatch) -> Path:
    """A repository with one commit that holds our module as `source`; the module believes it lies there."""
    file = root / source
    file.parent.mkdir(parents=True)
    shutil.copy(provenance.__file__, file)
    git(root, "init")
    git(root, "add", "--all")
    git(root, "commit", "--message", "one")
    monkeypatch.setattr(provenance, "__file__", str(file))
    return file


def test_without_git_on_the_path_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.commit() is None


@needs_git
def test_a_checkout_has_its_commit_and_shows_changes(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "cory"\n')
    file = repository(tmp_path, "agents/cory/runtime/provenance.py", monkeypatch)
    assert provenance.commit() == git(tmp_path, "rev-parse", "--short=7", "HEAD")
    dirty = git(tmp_path, "rev-parse", "--short=7", "HEAD") + "-dirty"
    new = file.with_name("new.py")
    new.write_text("")
    assert provenance.commit() == dirty
    new.unlink()
    file.write_text("")
    assert provenance.commit() == dirty


@needs_git
def test_results_that_a_program_wrote_are_no_change_of_the_code(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "cory"\n')
    results = tmp_path / "benchmarks/results/studies/a.json"
    results.parent.mkdir(parents=True)
    results.write_text("{}")
    file = repository(tmp_path, "agents/cory/runtime/provenance.py", monkeypatch)
    clean = git(tmp_path, "rev-parse", "--short=7", "HEAD")
    results.write_text("{1}")
    assert provenance.commit() == clean
    (tmp_path / "untracked").write_text("")
    assert provenance.commit() == clean
    file.write_text("")
    git(tmp_path, "add", "--all")
    assert provenance.commit() == clean + "-dirty"


@needs_git
@pytest.mark.parametrize(
    "source",
    [
        "vendor/cory/runtime/provenance.py",  # pip install --target vendor
        ".venv/lib/python3.11/site-packages/cory/runtime/provenance.py",
        "agents/cory/runtime/provenance.py",  # copied, without this project's pyproject.toml
    ],
)
def test_inside_another_project_its_commit_is_not_taken(tmp_path, monkeypatch, source):
    repository(tmp_path, source, monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert provenance.commit() is None


@needs_git
def test_a_repository_in_the_environment_is_not_taken(tmp_path, monkeypatch):
    """As inside a git hook, which sets GIT_DIR."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/pyproject.toml").write_text('[project]\nname = "cory"\n')
    repository(tmp_path / "ours", "agents/cory/runtime/provenance.py", monkeypatch)
    want = provenance.commit()
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init")
    (other / "file").write_text("other")
    git(other, "add", "--all")
    git(other, "commit", "--message", "another")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert provenance.commit() == want


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not in a checkout")
@needs_git
def test_the_commit_of_this_checkout():
    assert re.fullmatch(r"[0-9a-f]{7,}(-dirty)?", provenance.commit() or "")


def test_the_environment_of_a_run_names_versions_and_machine():
    environment = provenance.environment()
    assert environment["versions"]["torch"]
    assert environment["processor"]
    assert {"command", "commit", "python", "cpus", "threads", "matmul", "started"} <= environment.keys()
