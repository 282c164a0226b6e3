"""A working directory for commands, and training without reports."""

import json
from pathlib import Path

import pytest

from tests.helpers.runs import without_report


@pytest.fixture(scope="module", autouse=True)
def no_report():
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        yield


@pytest.fixture
def workspace(tmp_path, monkeypatch) -> Path:
    """The working directory: a data file and a file that no command may change."""
    (tmp_path / "good.jsonl").write_text("\n".join(json.dumps({"prompt": f"say {n}"}) for n in range(40)))
    (tmp_path / "precious").write_text("mine")
    monkeypatch.chdir(tmp_path)
    return tmp_path
