"""Presets and data sets from the command line, on the real files, with a tiny random Llama as the model.

The files are no part of this repository.
"""

import json
from pathlib import Path

import pytest

from cory.cli.main import main
from cory.tracking.tracker import read
from tests.helpers.models import make_model
from tests.helpers.tables import letters

DATA = Path(__file__).parents[3] / "shared" / "data"
GSM8K = ("--preset", "gsm8k")
OLDER = (*GSM8K, "--task", "wordproblems", "--task.source")
RUNS = {
    "gsm8k": (*GSM8K, "--task.data", f"{DATA}/gsm8k"),
    "imdb": ("--preset", "imdb", "--judge", "pocket", "--task.data", f"{DATA}/imdb"),
    "svamp": (*GSM8K, "--task", "svamp", "--task.data", f"{DATA}/svamp/SVAMP.json"),
    **{s: (*OLDER, s, "--task.data", f"{DATA}/arithmetic") for s in ("multiarith", "addsub", "singleeq")},
}
"""The flags of each; the judge of the preset imdb is on the Hub, so the bundled one takes its place."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not at {DATA}"),
]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Random weights, an id per byte, a window for the worked example, a question and two responses."""
    folder, tokenizer = tmp_path_factory.mktemp("llama"), letters()
    tokenizer.save_pretrained(folder)
    make_model("llama", len(tokenizer), window=2048).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_two_iterations_on_the_real_files_run_end_to_end(name, llama, tmp_path, capsys):
    run = tmp_path / "run"
    arguments = ["train", *RUNS[name], "--policy.model", str(llama), "--iterations", "2", "--run", str(run)]
    assert main([*arguments, "--evaluation.queries", "32"]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "iteration 0 of 2: held out: " in printed
    rows = read(run)
    assert [row["iteration"] for row in rows] == [0, 0, 1, 2]
    assert rows[-1]["eval/llm_2/task_reward"] >= (0 if "gsm8k" in RUNS[name] else -20)
    data = json.loads((run / "environment.json").read_text())["data"]
    assert data["evaluated"] == 32
    assert all(line in printed for line in data["left_out"])
    assert (run / "report.html").is_file()
