"""Whether scores tell right from wrong: the task, the judge or the settings say it, never the scores."""

import json

import pytest

from cory import rewards
from cory.evaluation.config import EvaluationConfig
from cory.evaluation.evaluator import threshold
from cory.judges.config import JudgeConfig
from cory.judges.parsing import make
from cory_env import tasks
from cory_env.tasks.base import correct_from
from cory_env.tasks.prompts import Task as Prompts
from cory_env.tokenizer import CharTokenizer
from tests.cory.judges.test_returned import judge_of


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("arithmetic", {}, 1.0),
        ("handover", {}, 1.0),
        ("verify", {}, 1.0),
        ("echo", {}, None),
        ("relay", {}, None),
    ],
)
def test_built_in_tasks_say_from_which_score_a_response_is_correct(name, options, expected):
    assert correct_from(tasks.load(name, **options)) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("regex:yes", 1.0), ("cory.rewards:accuracy", 1.0), ("cory.rewards:brevity", None),
     ("2*regex:yes", None), ("regex:yes + regex:no", None)],
)  # fmt: skip
def test_a_judge_says_whether_its_scores_tell_right_from_wrong(spec, expected):
    judge = make(spec, JudgeConfig(), device="cpu")
    assert judge.correct_from == expected
    judge.close()


def test_a_reward_in_this_process_says_it_by_its_attribute():
    def graded(completions):
        return [1.0 for _ in completions]

    assert judge_of(graded).correct_from is None
    assert judge_of(rewards.accuracy).correct_from == 1.0
    graded.correct_from = 0.5
    assert judge_of(graded).correct_from == 0.5


def test_prompts_have_the_threshold_of_their_judge_and_settings_come_first(prompts_with):
    task = prompts_with(judge_of(rewards.accuracy))
    assert threshold(EvaluationConfig(), task) == 1.0
    assert threshold(EvaluationConfig(threshold=0.3), task) == 0.3
    assert threshold(EvaluationConfig(), prompts_with(len)) is None


@pytest.fixture
def prompts_with(tmp_path):
    rows = [json.dumps({"prompt": a + b}) for a in "abcdef" for b in "abcdef"]
    (tmp_path / "data.jsonl").write_text("\n".join(rows))

    def build(judge):
        return Prompts(CharTokenizer("abcdef"), judge, data=tmp_path / "data.jsonl")

    return build
