"""What a user can do wrong: one paragraph on stderr, exit code 2, nothing written or changed."""

import json

import pytest

from cory.cli.main import main
from tests.cory.training.test_trainer import made_up_reviews

BAD = {
    "unknown flag": (["--learner.lrr", "1"], "--learner.lr"),
    "unknown command value": (["--kl.kind", "k7"], "k7"),
    "not a number": (["--iterations", "many"], "many"),
    "unknown preset": (["--preset", "poket"], "there are pocket, pocket-ppo"),
    "preset without a name": (["--preset"], "--preset needs a value"),
    "missing settings file": (["--config", "nowhere.yaml"], "nowhere.yaml cannot be read"),
    "missing model folder": (["--policy.model", "./nowhere"], "there is no model folder ./nowhere"),
    "model without weights": (["--policy.model", "{tmp}/empty-model"], "holds no weights"),
    "missing data": (["--task.data", "nowhere.jsonl"], "nowhere.jsonl"),
    "empty data": (["--task.data", "{tmp}/empty.jsonl"], "empty.jsonl"),
    "malformed data": (["--task.data", "{tmp}/broken.jsonl"], "broken.jsonl"),
    "data of another kind": (["--task.data", "{tmp}/data.exe"], "data.exe"),
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
    "negative price": (["--kl.coef", "-1"], "kl.coef is -1"),
    "judge": (["--judge", "./nowhere"], "nowhere"),
    "judge function": (["--judge", "json:nothing"], "cannot be imported"),
    "occupied folder": (
        ["--run", "{tmp}/occupied"],
        "is not empty; name another with --run, or pass --overwrite",
    ),
    "a folder that is no run": (["--run", "{tmp}/occupied", "--overwrite"], "holds no run"),
    "a file as folder": (["--run", "{tmp}/empty.jsonl"], "is a file"),
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


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_paragraph_and_changes_nothing(case, place, capsys):
    flags, says = BAD[case]
    before = {str(p): p.read_bytes() for p in place.rglob("*") if p.is_file()}
    code = main(["train", *(flag.replace("{tmp}", str(place)) for flag in flags)])
    told = capsys.readouterr().err
    assert code == 2
    assert told.startswith("error: ")
    assert says in told
    assert told.count("\n") == 1
    assert "Traceback" not in told
    assert {str(p): p.read_bytes() for p in place.rglob("*") if p.is_file()} == before


def test_unknown_keys_of_a_settings_file_are_errors_like_flags(place, capsys):
    (place / "mine.yaml").write_text("kl:\n  coeff: 0.1\n")
    assert main(["train", "--config", "mine.yaml"]) == 2
    assert "--kl.coef" in capsys.readouterr().err


def test_an_unknown_command_is_answered_with_the_right_one(capsys):
    assert main(["trian"]) == 2
    assert "did you mean 'train'?" in capsys.readouterr().err


def test_help_costs_nothing_and_names_the_commands(capsys):
    assert main([]) == 0
    assert "evaluate" in capsys.readouterr().out


def test_evaluating_what_is_no_run_is_refused(place, capsys):
    assert main(["evaluate", str(place)]) == 2
    assert "neither a run directory" in capsys.readouterr().err


def test_another_agents_package_in_the_way_is_named(monkeypatch, capsys):
    import cory

    monkeypatch.setattr(cory, "__file__", "/elsewhere/agents/__init__.py")
    assert main(["train"]) == 2
    assert "another package called `cory` is in the way (/elsewhere/agents)" in capsys.readouterr().err


def test_a_run_repeats_its_evaluation_exactly(tmp_path, capsys, tiny_folder):
    """Through the command line, with a settings file written by the run itself."""
    (tmp_path / "reviews.jsonl").write_text(made_up_reviews())
    run = tmp_path / "run"
    flags = ["--task.data", str(tmp_path / "reviews.jsonl"), "--judge", "tests.helpers.scorers:judge"]
    flags += [
        "--policy.model",
        str(tiny_folder),
        "--batch",
        "4",
        "--iterations",
        "1",
        "--max-response",
        "2",
        "3",
    ]
    flags += ["--evaluation.queries", "8", "--run", str(run)]
    assert main(["train", *flags]) == 0
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert main(["evaluate", str(run)]) == 0
    figures = json.loads((run / "evaluation.json").read_text())["figures"]
    for policy in ("reference", "llm_1", "llm_2"):
        for name, value in figures[policy].items():
            assert last[f"eval/{policy}/{name}"] == value
    again = tmp_path / "again"
    assert main(["train", "--config", str(run / "config.yaml"), "--run", str(again)]) == 0
    lines = (again / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["eval/llm_2/task_reward"] == last["eval/llm_2/task_reward"]
