"""Sums scored by a rule and a judge of style: answers whose scores are known, and their weighted sum."""

from dataclasses import replace

import pytest

from cory.judges import parsing
from cory.judges.classifier import Classifier
from cory.judges.config import JudgeConfig
from cory_env.types import Response
from examples import hybrid_sums

ANSWERS = {  # to 37 + 48 - 12: its text, whether it is right, whether it shows steps
    "37 + 48 = 85\n85 - 12 = 73\n#### 73": (1.0, True),
    "37 + 48 = 84\n84 - 12 = 72\n#### 72": (0.0, True),
    "#### 73": (1.0, False),
    "#### 72": (0.0, False),
}


@pytest.fixture(scope="module")
def scored():
    def scores(judge: str) -> list[float]:
        made = parsing.make(judge, JudgeConfig(output="probability"), device="cpu")
        task = hybrid_sums.Task(judge=made)
        query = replace(task.queries("train")[0], text="37 + 48 - 12", row={"answer": "#### 73"})
        return task.score([query] * 4, [Response((), text) for text in ANSWERS])

    return scores


@pytest.mark.slow
def test_rule_and_style_are_added_with_their_weight(scored):
    rule = scored("examples/hybrid_sums.py:correct")
    style = scored("examples/style_judge")
    assert rule == [right for right, _ in ANSWERS.values()]
    assert [score > 0.9 for score in style] == [steps for _, steps in ANSWERS.values()]
    both = scored("examples/hybrid_sums.py:correct + 0.5*examples/style_judge")
    assert both == pytest.approx([r + 0.5 * s for r, s in zip(rule, style, strict=True)])


def test_only_the_rule_tells_right_from_wrong():
    assert hybrid_sums.Task(judge=Classifier("examples/style_judge")).correct_from is None


@pytest.mark.parametrize("committed", [False, True])
def test_the_judge_tells_steps_from_bare_results(committed, tmp_path):
    folder = "examples/style_judge"
    if not committed:
        folder = tmp_path / "judge"
        hybrid_sums.fit(hybrid_sums.Config(out=folder, answers=200))
    texts, shows_steps = hybrid_sums.drawn(600)
    assert [score > 0 for score in Classifier(folder)(texts[500:])] == shows_steps[500:]
