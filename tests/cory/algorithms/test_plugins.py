"""Algorithms, judges and tasks of other distributions, found by name and trained with."""

import pytest
import torch

from cory import algorithms
from cory.judges.parsing import is_classifier
from cory.training.trainer import Trainer
from tests.helpers.tables import flagged

SHOUTS = '''
from cory_env.types import Query
from cory_env.tokenizer import CharTokenizer


class Task:
    """Continue a letter so that the judge gives both together a high score."""

    max_query = 1

    def __init__(self, tokenizer=None, judge=None, *, letters="abc"):
        self.tokenizer = tokenizer or CharTokenizer("abc!")
        self.judge = judge
        made = [Query(c, tuple(self.tokenizer.encode(c))) for c in letters]
        self._queries = {"train": made[:2], "test": made[2:]}

    def queries(self, split):
        return self._queries[split]

    def query(self, rng):
        return self._queries["train"][rng.integers(2)]

    def score(self, queries, responses):
        return self.judge([q.text + r.text for q, r in zip(queries, responses, strict=True)])

    def template(self, seat):
        return "{query}" if seat == "pioneer_0" else "{query}{response_0}"


def loudness(texts):
    """1 for a text that ends with an exclamation mark."""
    return [float(text.endswith("!")) for text in texts]


SILENCE = 0.0
'''

SHOUTING = {
    "cory_shouts/__init__.py": "",
    "cory_shouts/task.py": SHOUTS,
    "cory_shouts/calm.py": "from cory.algorithms.rloo import Config, advantage, needs, token_loss\n",
    "cory_shouts-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: cory-shouts\nVersion: 0.1\n",
    "cory_shouts-0.1.dist-info/entry_points.txt": (
        "[cory.tasks]\nshouts = cory_shouts.task\n"
        "[cory.judges]\nloudness = cory_shouts.task:loudness\nsilence = cory_shouts.task:SILENCE\n"
        "gone = cory_shouts.missing:judge\n"
        "[cory.algorithms]\ncalm = cory_shouts.calm\n"
    ),
}


@pytest.fixture(scope="module", autouse=True)
def cached_entry_points():
    """Look plug-ins up anew: packages come and go in these tests."""


@pytest.fixture
def shouts(tmp_path, monkeypatch):
    """A package that brings a task, a judge and an algorithm, installed."""
    for name, content in SHOUTING.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("examples")
def test_an_installed_algorithm_is_listed_with_the_built_in_ones():
    assert {"vdac_sum", "ppo", "ppo_again"} <= set(algorithms.names())
    assert (
        flagged("--algorithm", "vdac_sum", "--algorithm.value-coef", "0.5").algorithm_options.value_coef
        == 0.5
    )


def test_algorithm_is_gone_with_its_distribution():
    assert "vdac_sum" not in algorithms.names()


@pytest.mark.usefixtures("examples")
def test_ppo_from_outside_takes_the_same_steps_as_ppo():
    inside, outside = (Trainer(flagged("--algorithm", name)) for name in ("ppo", "ppo_again"))
    for iteration in range(3):
        inside.iterate(iteration)
        outside.iterate(iteration)
    for name in inside.policies:
        assert torch.equal(inside.policies[name].logits_SV, outside.policies[name].logits_SV)


@pytest.mark.slow
@pytest.mark.usefixtures("shouts")
def test_a_task_a_judge_and_an_algorithm_of_one_package_are_trained_with():
    config = flagged(
        *("--task", "shouts", "--judge", "loudness", "--algorithm", "calm", "--algorithm.group", "2"),
        *("--max-response", "1", "1", "--iterations", "40", "--exchange.every", "0"),
    )
    trainer = Trainer(config)
    assert trainer.task.judge(["a!", "!a"]) == [1.0, 0.0]
    history = [trainer.iterate(iteration) for iteration in range(config.iterations)]
    score = [metrics["pioneer_0/llm_1/task_reward"] for metrics in history[:5] + history[-10:-5]]
    assert sum(score[:5]) / 5 < 0.5
    assert sum(score[5:]) / 5 > 0.9


@pytest.mark.usefixtures("shouts")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "loud",
            "no judge called 'loud'; there are gone, loudness, pocket, silence, smollm2; a classifier is a",
        ),
        ("gone", "judge 'gone' cannot be imported"),
        ("silence", "judge 'silence' is a float, not a function"),
    ],
)
def test_an_unknown_judge_is_refused_with_the_known_ones(name, message):
    with pytest.raises(ValueError, match=message):
        Trainer(flagged("--task", "shouts", "--judge", name, "--max-response", "1", "1"))


def test_a_folder_and_a_hub_name_are_classifiers(tmp_path):
    assert all(is_classifier(spec) for spec in ("pocket", str(tmp_path), "owner/name"))
    with pytest.raises(ValueError, match="no judge called 'nowhere'"):
        is_classifier("nowhere")
