"""What reward functions take and return: served, or refused before a run with the judge's name."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cory.api.rewards import known_here, listed
from cory.judges import weighted_sum
from cory.judges.config import JudgeConfig
from cory.judges.parsing import make
from cory.judges.weighted_sum import Term, WeightedSum
from cory.judges.worker import scores
from cory_env.grading.reward_functions import Cases, Signature
from cory_env.tasks.prompts import Task as Prompts
from cory_env.tokenizer import CharTokenizer

HERE = "tests.helpers.reward_functions"
CASES = Cases(prompts=["p", "q"], answers=["a", "bcd"], texts=["pa", "qbcd"], ids=[(1,), (2, 3, 4)])


class Length:
    def __call__(self, completions, **columns):
        return [float(len(text)) for text in completions]

    def method(self, completions):
        return self(completions)


async def later(prompts, completions, **columns):
    return [float(len(text)) for text in completions]


def judge_of(reward) -> WeightedSum:
    with known_here(reward) as name:
        return make(name, JudgeConfig(), device="cpu")


@pytest.mark.parametrize(
    "reward",
    [
        later,
        Length(),
        Length().method,
        functools.partial(lambda completions, scale: [scale * len(c) for c in completions], scale=1),
        lambda completions: np.array([len(c) for c in completions]),
        lambda completions: torch.tensor([float(len(c)) for c in completions], requires_grad=True),
        lambda completions: (float(len(c)) for c in completions),
        lambda completions: [np.float32(len(c)) for c in completions],
        lambda completions: tuple(len(c) for c in completions),
        lambda **columns: [len(c) for c in columns["completions"]],
        lambda completion_ids, **columns: [len(ids) for ids in completion_ids],
        lambda prompts, completions, trainer_state=None: [len(c) for c in completions],
    ],
)
def test_a_reward_that_gives_a_number_for_each_response_is_served(reward):
    judge = judge_of(reward)
    judge.check(CASES)
    assert judge.judge(CASES) == [1.0, 3.0]


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        (None, "returned None for 2 responses; return one number for each"),
        (3.0, "returned 3.0 for 2 responses"),
        ([], "returned 0 scores for 2 responses"),
        ([1.0] * 3, "returned 3 or more scores for 2 responses"),
        ("ab", "returned 'ab' for 2 responses"),
        ({"a": 1, "b": 2}, "returned {'a': 1, 'b': 2} for 2 responses"),
        ({1.0, 2.0}, "returned {1.0, 2.0} for 2 responses"),
        (torch.tensor(1.0), r"returned tensor\(1.\) for 2 responses"),
        (torch.ones(2, 1), r"returned \[1.0\]; return one number for each response"),
        ([1.0, None], "returned None; return one number"),
        ([1.0, "2"], "returned '2'; return one number"),
        ([1.0, float("nan")], "returned nan; return one number for each response, from -1e.09 to 1e.09"),
        ([-np.inf, 1.0], "returned -inf; return one number"),
        ([1e30, 1e30], r"returned 1e\+30, beyond 1e\+09; return one number"),
        ([10**400, 1], "which is no number .int too large to convert to float.; return one number"),
    ],
)
def test_judge_that_returns_no_list_of_scores_is_refused_with_its_value(returned, what):
    judge = WeightedSum([Term("mine", 1.0, lambda completions: returned)])
    with pytest.raises(ValueError, match=f"judge 'mine' .*{what}"):
        judge.check(CASES)


@pytest.mark.parametrize(
    "reward",
    [
        lambda prompt, completion: 1.0,
        lambda queries, responses: [1.0],
        lambda: [1.0],
        lambda *, texts: [1.0],
    ],
)
def test_parameters_of_neither_convention_are_refused_with_both(reward):
    with pytest.raises(
        ValueError, match=r"^judge '.*': takes \(.*\); write f.prompts, completions, \*\*columns.*or f.texts."
    ):
        judge_of(reward).check(CASES)


def test_parameters_that_a_reward_needs_and_nothing_fills_are_named():
    with pytest.raises(
        ValueError, match=r"^judge '.*': it needs a column 'trainer_state'; .* or give it a default"
    ):
        judge_of(lambda completions, trainer_state: [1.0]).check(CASES)


def test_token_ids_go_to_functions_that_name_them_only():
    seen = {}

    def reward(completions, **columns):
        seen.update(columns)
        return [0.0] * len(completions)

    judge_of(reward).check(CASES)
    assert set(seen) == {"prompts"}
    assert Signature.of([]).problem.startswith("takes (); write")


@pytest.mark.parametrize("reward", [[], None, 5, {"a": len}, "name", [len, "name"], {len}])
def test_judge_that_is_no_reward_function_is_refused(reward):
    with pytest.raises(
        ValueError, match=r"^reward is .*; give a function, a list of functions, or a judge's name"
    ):
        listed(reward)


def test_two_scores_of_a_tensor_with_a_column_are_no_numbers():
    assert scores(np.ones((2, 1)), 2) == ["returned [1.0]"] * 2


@pytest.fixture
def prompts_of(tmp_path):
    """The task `prompts` with a judge whose processes end with the test."""
    rows = [json.dumps({"prompt": a + b}) for a in "abcdef" for b in "abcdef"]
    (tmp_path / "data.jsonl").write_text("\n".join(rows))
    judges = []

    def build(name):
        judges.append(make(f"{HERE}:{name}", JudgeConfig(timeout=20), device="cpu"))
        return Prompts(CharTokenizer("abcdef"), judges[-1], data=tmp_path / "data.jsonl")

    yield build
    for judge in judges:
        judge.close()


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("none", "returned None for 4 responses; return one number for each"),
        ("number", "returned 1.5 for 4 responses"),
        ("huge", r"returned 1e\+30, beyond 1e\+09; return smaller numbers"),
        ("of_one", r"takes \(prompt, completion\); write f.prompts, completions"),
    ],
)
def test_a_reward_of_a_worker_that_cannot_work_is_refused_before_a_run(prompts_of, name, what):
    with pytest.raises(ValueError, match=f"judge '{HERE}:{name}':? {what}"):
        weighted_sum.check(prompts_of(name))


def test_an_async_reward_of_a_worker_is_served_and_its_failures_do_not_refuse_a_run(prompts_of):
    task = prompts_of("later")
    weighted_sum.check(task)
    assert task.judge(["ab", "abc"]) == [2, 3]
    weighted_sum.check(prompts_of("fails"))


def test_prints_of_a_reward_function_go_to_the_log_of_the_run(prompts_of, tmp_path, capfd):
    task, log = prompts_of("prints"), tmp_path / "judge.log"
    weighted_sum.check(task)
    weighted_sum.of_task(task).log_to(log)
    assert not log.exists()
    assert task.judge(["ab"]) == [0.0]
    lines = log.read_text().splitlines()
    assert lines == ["scoring 1 of ['ab']", "a warning"]
    assert capfd.readouterr() == ("", "")


def test_a_full_log_takes_no_more(tmp_path, monkeypatch):
    from cory.judges import worker

    monkeypatch.setattr(worker, "LOG_BYTES", 10)
    log = worker.Log()
    print("dropped without a file", file=log)
    log.path = str(tmp_path / "log")
    for _ in range(3):
        print("123456", file=log)
    assert Path(tmp_path / "log").read_text() == "123456\n123"
