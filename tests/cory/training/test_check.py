"""`cory check`: prompts, responses, scores and caps of a run before it, and nothing is written."""

import pytest

import cory
from cory.cli.main import main
from cory.config import presets
from cory.config.schema import Config
from cory.training.check import few_games
from tests.helpers.models import save_backbone
from tests.helpers.tables import TABLES


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_backbone("gpt2", tmp_path_factory.mktemp("tiny") / "gpt2")


def constant(prompts, completions, answer, **columns):
    return [0.5] * len(completions)


def test_the_command_shows_what_each_seat_reads_and_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--task", "echo", "--policy.kind", "table", "--max-response", "3", "3", "--batch", "64"]
    assert main(["check", *words, "--seed", "1", "--threads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    reads = [line for line in lines if " reads: " in line]
    assert [line.split(" reads:")[0] for line in reads] == [
        f"game {n}, {seat}" for n in range(1, 5) for seat in ("pioneer_0", "observer_1")
    ]
    query = reads[0].split("reads: ")[1].strip("'")
    assert query in reads[1]  # the observer reads the query too
    response = next(line for line in lines if line.startswith("  responds: ")).split("'")[1]
    assert response in reads[1]  # and the pioneer's response
    assert any("16 responses of the reference: score" in line for line in lines)
    assert "an iteration of 64 games takes some" in lines[-1]
    assert list(tmp_path.iterdir()) == []


def test_a_constant_reward_and_cut_responses_are_warnings_before_any_run(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"a good film about {n}", "answer": "good"} for n in range(30)]
    rows += [{"prompt": "a good film about 3", "answer": "bad"}]
    found = cory.check(tiny, rows, constant, max_response=(2, 2), policy={"device": "cpu"}, threads=1)
    assert found.warnings[0].startswith("every response has the same score, 0.5 (for example ")
    assert "columns prompts, completions, answer" in found.warnings[0]
    assert any("cut at their cap" in text for text in found.warnings)
    assert all(turn.score == 0.5 and turn.tokens <= 2 for game in found.games for turn in game)
    assert found.batch == presets.get("own").batch
    assert "1 rows repeat an earlier prompt with other values" in str(found)
    assert list(tmp_path.iterdir()) == []


def test_mistakes_of_a_check_are_those_of_training(capsys, tmp_path):
    assert main(["check", "--task", "prompts", "--task.data", str(tmp_path / "no.jsonl")]) == 2
    assert main(["check", "--bath", "3"]) == 2
    assert "--batch" in capsys.readouterr().err


def test_a_check_plays_whole_groups_in_one_step():
    few = few_games(Config.from_flat({"algorithm": "grpo", "algorithm.group": 10, "batch": 100}, TABLES))
    assert few.batch == 20
    few = few_games(
        Config.from_flat({"batch": 128, "learner.minibatch": 64, "learner.microbatches": 32}, TABLES)
    )
    assert (few.batch, few.learner.minibatch, few.learner.microbatches) == (16, None, 1)
