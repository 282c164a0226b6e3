"""A task and an algorithm of another distribution: found by name, played, trained."""

import warnings

import pytest
from pettingzoo.test import api_test, seed_test

from cory_env import env, tasks

TASK = '''
from cory_env import Query
from cory_env.tokenizer import CharTokenizer


class Task:
    """Score 1 for beginning with a vowel."""

    max_query = 1

    def __init__(self, tokenizer=None, *, vowels="ae"):
        self.tokenizer = tokenizer or CharTokenizer("abcdef")
        self.vowels = tuple(vowels)
        queries = [Query(c, tuple(self.tokenizer.encode(c))) for c in "abcdef"]
        self._queries = {"train": queries[:4], "test": queries[4:]}

    def queries(self, split):
        return self._queries[split]

    def query(self, rng):
        return self._queries["train"][rng.integers(4)]

    def score(self, queries, responses):
        return [float(response.text.startswith(self.vowels)) for response in responses]

    def template(self, seat):
        return "{query}" if seat == "pioneer_0" else "{query}{response_0}"
'''

FILES = {
    "cory_vowels/__init__.py": "",
    "cory_vowels/task.py": TASK,
    "cory_vowels/gentle.py": "from cory.algorithms.ppo import Config, advantage, token_loss\n",
    "cory_vowels-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: cory-vowels\nVersion: 0.1\n",
    "cory_vowels-0.1.dist-info/entry_points.txt": (
        "[cory.tasks]\nvowels = cory_vowels.task\n[cory.algorithms]\ngentle = cory_vowels.gentle\n"
    ),
}


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A package as pip installs it, on the path."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plugin")
def test_a_task_of_another_distribution_passes_the_same_contract_tests():
    assert "vowels" in tasks.names()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        api_test(env("vowels"), num_cycles=30)
        seed_test(lambda: env("vowels"), num_cycles=30)
    with pytest.raises(ValueError, match="task vowels has no option 'vowel'; it has tokenizer, vowels"):
        tasks.load("vowels", vowel="a")


def test_the_task_is_unknown_without_its_distribution():
    assert "vowels" not in tasks.names()


@pytest.mark.usefixtures("plugin")
def test_the_task_is_trained_on_and_the_algorithm_is_found():
    pytest.importorskip("torch")
    from cory import algorithms
    from cory.algorithms import ppo
    from cory.config.schema import Config, PolicyConfig
    from cory.training.trainer import Trainer

    assert algorithms.load("gentle").token_loss is ppo.token_loss
    trainer = Trainer(
        Config.from_flat(
            {
                "task": "vowels",
                "policy": PolicyConfig(kind="table"),
                "batch": 128,
                "max_response": (1, 2),
                "iterations": 2,
            }
        )
    )
    metrics = [trainer.iterate(iteration) for iteration in range(2)]
    assert 0 < metrics[0]["pioneer_0/llm_1/task_reward"] < 1
