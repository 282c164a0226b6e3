"""`cory evaluate` of players: whatever chooses tokens by `act(observation, info)`."""

import json

import numpy as np
import pytest

import cory
from cory.cli.main import main
from cory.evaluation import evaluator
from cory.policies.table import TablePolicy
from cory.training.targets import find_all
from cory_env import env
from cory_env.tasks import load
from tests.helpers import players

TABLE = ["--task", "echo", "--policy.kind", "table", "--max-response", "3", "3"]
SETTINGS = {"task": "echo", "policy.kind": "table", "max_response": [3, 3]}
QUERIES = ["--queries", "9"]
HELPERS = "tests.helpers.players"


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def evaluated(*argv, name="summary.json"):
    assert main(["evaluate", *argv, "--out", name]) == 0
    with open(name, encoding="utf-8") as file:
        return json.load(file)


def test_a_player_is_scored_like_a_policy_and_its_kl_is_null():
    """It repeats the three letters of the query: every response scores 1, and both seats are paid 2."""
    result = evaluated(f"{HELPERS}:copy", *TABLE, *QUERIES)
    own, reference = (result["metrics"][name] for name in ("players", "reference"))
    assert (own["task_reward"], own["length"], own["eos_share"]) == (1.0, 3.0, 0.0)
    assert own["reference_perplexity"] == pytest.approx(8.0)  # the reference is uniform over 8 ids
    assert [own[name] for name in ("kl", "kl_per_token", "combined_reward")] == [None] * 3
    assert own.keys() == reference.keys()
    assert "accuracy" not in own  # all of its scores are 1, and those of the task are shares
    for seat in ("pioneer_0", "observer_1"):
        assert result["in_game"][f"{seat}/players"]["metrics"]["payoff"] == 2.0
    assert result["measured"]["weights"] == {"players": {"folder": f"{HELPERS}:copy", "sha256": None}}


def test_players_by_name_sit_in_every_seat_and_draw_the_same_again(monkeypatch):
    results = []
    for name, batch in (("a.json", 256), ("b.json", 4)):
        monkeypatch.setattr(evaluator, "BATCH", batch)
        results.append(evaluated(f"{HELPERS}:two", *TABLE, *QUERIES, "--samples", "2", name=name))
    first, again = results
    for part in ("metrics", "in_game", "comparison"):
        assert first[part] == again[part]
    assert {f"{seat}/{name}" for seat in ("pioneer_0", "observer_1") for name in ("copy", "chance")} <= set(
        first["in_game"]
    )
    assert 0 < first["metrics"]["chance"]["task_reward"] < 1


def test_a_player_sees_what_the_environment_shows():
    """Every observation and info of the evaluation is one that the AEC environment gives to the same ids."""
    find_all([f"{HELPERS}:watcher"], settings=SETTINGS | {"seed": 5})
    assert players.WATCHERS[-1].seed == 5
    cory.evaluate(
        f"{HELPERS}:watcher", task="echo", policy={"kind": "table"}, max_response=(3, 3), seed=2,
        evaluation={"queries": 1},
    )  # fmt: skip
    calls = players.WATCHERS[-1].calls
    task = load("echo")
    game = env(task, max_response=3)
    game.reset(options={"query": task.queries("test")[0]})
    shown = []
    for _ in game.agent_iter(6):
        observation, _, _, _, info = game.last()
        shown.append((observation.tolist(), info))
        game.step(2 if info["response_length"] == 0 else 1)
    alone, in_game = calls[-9:-6], calls[-6:]
    assert in_game == shown
    assert alone == shown[:3]


def test_a_policy_of_the_package_keeps_its_kl(monkeypatch):
    def load_table():
        table = TablePolicy("any", vocab_size=8, eos=frozenset({6}), pad=7, max_response=3)
        table.logits_SV.data[:, 1] = 50.0
        return table

    monkeypatch.setattr(players, "copy", load_table)
    result = evaluated(f"{HELPERS}:copy", *TABLE, *QUERIES, "--no-game")
    assert result["metrics"]["players"]["kl"] == pytest.approx(3 * np.log(8), abs=1e-4)


def test_a_player_beside_a_run_has_the_settings_of_the_run(tmp_path):
    settings = ["--iterations", "1", "--batch", "4", "--evaluation.queries", "8", "--run", "run"]
    assert main(["train", *TABLE, *settings]) == 0
    result = evaluated("run", f"{HELPERS}:copy", "--no-game")
    assert (result["queries"], result["metrics"][f"{HELPERS}:copy:players"]["task_reward"]) == (8, 1.0)
    difference = result["comparison"][f"{HELPERS}:copy:players minus run:llm_1"]
    assert difference["task_reward"]["value"] > 0
    assert "reference" in result["metrics"]  # one for both


def test_a_file_is_a_module(tmp_path):
    (tmp_path / "mine.py").write_text("from tests.helpers.players import copy as load\n")
    assert evaluated("mine.py:load", *TABLE, *QUERIES, "--no-game")["metrics"]["mine"]["task_reward"] == 1.0


BAD = {
    "no module": (["no_such_module:load"], "target 'no_such_module:load' cannot be imported"),
    "no file": (["nowhere.py:load"], "there is no file"),
    "no loader": ([f"{HELPERS}:load"], "has no 'load'"),
    "no function": ([f"{HELPERS}:no_function"], "is 3; give a function that returns a player"),
    "no act": ([f"{HELPERS}:nothing"], "returned 3, which has no method act(observation, info)"),
    "no player": ([f"{HELPERS}:empty"], "returned no player"),
    "a name in use": ([f"{HELPERS}:reference"], "a player called 'reference'"),
    "a loader that fails": ([f"{HELPERS}:broken"], "cannot load its player (OSError: no model there)"),
    "outside the vocabulary": ([f"{HELPERS}:outside"], "outside' played 8; it must play an id from 0 to 7"),
    "not a number": ([f"{HELPERS}:not_a_number"], "played nan; it must play an id from 0 to 7"),
    "greedy": ([f"{HELPERS}:copy", "--sampling", "greedy"], "evaluation.sampling is 'greedy', which"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_players_are_refused_before_anything_is_evaluated(case, capsys, monkeypatch):
    (target, *more), message = BAD[case]
    monkeypatch.setattr("cory.training.evaluate.make_measures", None)  # called before the first evaluation
    assert main(["evaluate", target, *TABLE, *more]) == 2
    assert message in capsys.readouterr().err
