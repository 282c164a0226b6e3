"""Mistakes of users: one line on stderr, exit code 2, nothing written or changed."""

import io
import json
import sys
import warnings
from importlib import import_module
from types import SimpleNamespace

import pytest

from cory.cli.main import main, short_warnings
from tests.helpers.runs import assert_refused
from tests.helpers.tables import made_up_reviews

BAD = {
    "unknown flag": (["--learner.lrr", "1"], "--learner.lr"),
    "unknown command value": (["--kl.kind", "k7"], "k7"),
    "not a number": (["--iterations", "many"], "many"),
    "unknown preset": (["--preset", "poket"], "there are pocket, pocket-ppo"),
    "preset without a name": (["--preset"], "--preset needs a value"),
    "missing settings file": (["--config", "nowhere.yaml"], "there is no settings file nowhere.yaml"),
    "missing model folder": (["--policy.model", "./nowhere"], "there is no model folder ./nowhere"),
    "model without weights": (["--policy.model", "{place}/empty-model"], "holds no weights"),
    "missing data": (["--task.data", "nowhere.jsonl"], "nowhere.jsonl"),
    "empty data": (["--task.data", "{place}/empty.jsonl"], "empty.jsonl"),
    "malformed data": (["--task.data", "{place}/broken.jsonl"], "broken.jsonl"),
    "data of another kind": (["--task.data", "{place}/data.exe"], "data.exe"),
    "minibatch": (
        ["--learner.minibatch", "48"],
        "a batch of 128 rows is not divisible by learner.minibatch 48",
    ),
    "window": (["--max-response", "4", "4000"], "window"),
    "no seats": (["--seats", "0"], "seats is 0"),
    "payoff": (["--payoff", "selfish"], "selfish"),
    "matrix of the wrong shape": (["--payoff", "[[1, 0, 0], [0, 1, 0]]"], "2"),
    "matrix of words": (["--payoff", '[["a", "b"], ["c", "d"]]'], "payoff"),
    "one competitor": (["--seats", "1", "--payoff", "competitive"], "competitive"),
    "negative KL coefficient": (["--kl.coef", "-1"], "kl.coef is -1"),
    "judge": (["--judge", "./nowhere"], "nowhere"),
    "judge function": (["--judge", "json:nothing"], "cannot be imported"),
    "occupied folder": (
        ["--run", "{place}/occupied"],
        "is not empty; name another with --run, or pass --overwrite",
    ),
    "a folder that is no run": (["--run", "{place}/occupied", "--overwrite"], "holds no run"),
    "a file as folder": (["--run", "{place}/empty.jsonl"], "is a file"),
    "task": (["--task", "revues"], "no task called 'revues'; there are"),
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "empty-model").mkdir()
    (tmp_path / "empty-model/config.json").write_text("{}")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "broken.jsonl").write_text('{"text": "good"\n[1, 2')
    (tmp_path / "data.exe").touch()
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied/precious").write_text("mine")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_error_line_and_changes_nothing(case, place, capsys):
    flags, message = BAD[case]
    assert_refused(["train", *flags], place, capsys, message)


@pytest.mark.parametrize("wrong", ["1 / 0", 'int("x")'])
def test_an_error_in_a_users_function_names_its_line_and_is_no_divergence(wrong, place, capsys):
    (place / "mine.py").write_text(f"def pay(scores, iteration):\n    return scores * ({wrong})\n")
    words = [
        "--task",
        "echo",
        "--policy.kind",
        "table",
        "--max-response",
        "3",
        "3",
        "--payoff",
        "mine.py:pay",
    ]
    assert main(["train", *words, "--evaluation.queries", "8", "--batch", "8"]) == 2
    error = capsys.readouterr().err
    assert "diverged" not in error
    assert f"({place / 'mine.py'}, line 2)" in " ".join(error.split())


def test_unknown_keys_of_a_settings_file_are_errors_like_flags(place, capsys):
    (place / "mine.yaml").write_text("kl:\n  coeff: 0.1\n")
    assert main(["train", "--config", "mine.yaml"]) == 2
    assert "there is no setting 'kl.coeff'; did you mean 'kl.coef'?" in capsys.readouterr().err


def test_the_error_for_an_unknown_command_names_the_right_one(capsys):
    assert main(["trian"]) == 2
    assert "did you mean 'train'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        (["train", "--task", "echo"], "loading torch and transformers\n"),
        (["evaluate", "runs/a"], "loading torch and transformers\n"),
        (["train", "--quiet"], ""),
        (["train", "--help"], ""),
        (["tasks"], ""),
    ],
)
def test_a_command_that_loads_torch_says_so_before_it_is_imported(argv, printed, monkeypatch, capsys):
    name = argv[0]
    seen = []
    commands = {"command": lambda words: seen.append(capsys.readouterr().err), name: lambda words: None}
    monkeypatch.setattr(sys.modules["cory.cli.main"], "module_of", lambda name: SimpleNamespace(**commands))
    monkeypatch.delitem(sys.modules, "torch")
    assert main(argv) == 0
    assert seen == ([printed] if name != "tasks" else [])
    assert capsys.readouterr().err == ""


def test_help_names_the_commands(capsys):
    assert main([]) == 0
    assert "evaluate" in capsys.readouterr().out


def test_evaluating_a_folder_that_is_no_run_is_refused(place, capsys):
    assert main(["evaluate", str(place)]) == 2
    assert "neither a run directory" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_repeats_its_evaluation_exactly(tmp_path, capsys, tiny_folder):
    """Through the command line, with a settings file written by the run itself."""
    (tmp_path / "reviews.jsonl").write_text(made_up_reviews())
    run = tmp_path / "run"
    flags = ["--task.data", str(tmp_path / "reviews.jsonl"), "--judge", "tests.helpers.scorers:judge"]
    flags += ["--policy.model", str(tiny_folder), "--batch", "4", "--iterations", "1"]
    flags += ["--max-response", "2", "3", "--evaluation.queries", "8", "--run", str(run)]
    assert main(["train", *flags]) == 0
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert main(["evaluate", str(run)]) == 0
    (written,) = (run / "evaluations").glob("*[0-9a-f].json")
    metrics = json.loads(written.read_text())["metrics"]
    for policy in ("reference", "llm_1", "llm_2"):
        for name, value in metrics[policy].items():
            assert last[f"eval/{policy}/{name}"] == value
    again = tmp_path / "again"
    assert main(["train", "--config", str(run / "config.yaml"), "--run", str(again)]) == 0
    lines = (again / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["eval/llm_2/task_reward"] == last["eval/llm_2/task_reward"]


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "latin-1", "utf-8"])
def test_characters_that_a_console_cannot_show_are_replaced(encoding, monkeypatch):
    module = import_module("cory.cli.main")
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding=encoding) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)

    def command(argv):
        print("größer 日本")
        raise ValueError("größer 日本")

    monkeypatch.setattr(module, "run", command)
    assert module.main(["play"]) == 2
    shown = {}
    for name, stream in streams.items():
        stream.flush()
        shown[name] = stream.buffer.getvalue().decode(encoding).strip()
    text = "größer 日本".encode(encoding, "replace").decode(encoding)
    assert shown == {"stdout": text, "stderr": f"error: {text}"}


def test_a_warning_is_one_line_while_a_command_runs():
    with short_warnings():
        assert warnings.formatwarning("a file is not used", UserWarning, "tables.py", 1) == (
            "warning: a file is not used\n"
        )
    assert "tables.py" in warnings.formatwarning("text", UserWarning, "tables.py", 1)
