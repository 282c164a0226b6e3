"""Algorithms, judges and tasks of other distributions, found by name and trained with.

Shapes: B games, T response tokens.
"""

import json
import shutil
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.speed import plugin
from cory import algorithms
from cory.batch import Batch
from cory.config.parsing import read
from cory.config.schema import Config
from cory.judges.parsing import is_classifier
from cory.learner.central_critic import CriticConfig
from cory.rollout.role_exchange import ExchangeConfig
from cory.training.trainer import Trainer
from tests.helpers.tables import TABLES

PLUGINS = Path(__file__).parents[3] / "examples/plugins"

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


def install(folder: Path, site: Path) -> None:
    """Copy the modules of the project in `folder` and write its metadata, as pip does."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    for module in folder.glob("*.py"):
        shutil.copy(module, site)
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {where}" for name, where in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """Both packages of examples/plugins, installed."""
    for folder in (PLUGINS / "cory_coma", PLUGINS / "cory_ppo_again"):
        install(folder, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def shouts(tmp_path, monkeypatch):
    """A package that brings a task, a judge and an algorithm, installed."""
    for name, content in SHOUTING.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    monkeypatch.syspath_prepend(tmp_path)


def gains(config: Config) -> dict[str, tuple[float, float]]:
    """Task reward of each policy on held-out queries, before and after training."""
    trainer = Trainer(config)

    def task_rewards():
        return {name: found.metrics(kl_coef=0)["task_reward"] for name, found in trainer.evaluate().items()}

    before = task_rewards()
    for iteration in range(config.iterations):
        trainer.iterate(iteration)
    after = task_rewards()
    return {name: (before[name], after[name]) for name in trainer.policies}


def flagged(*words: str) -> Config:
    return read(words, default=TABLES, about="", command="cory train")


@pytest.mark.usefixtures("examples")
def test_an_installed_algorithm_is_listed_with_the_built_in_ones():
    assert {"coma", "ppo", "ppo_again"} <= set(algorithms.names())
    coma = algorithms.load("coma")
    assert coma.needs(coma.Config(group=8)) == (True, 8)


def test_the_example_has_at_most_80_lines():
    assert len((PLUGINS / "cory_coma/cory_coma.py").read_text().splitlines()) <= 80


@pytest.mark.usefixtures("examples")
def test_the_command_line_takes_its_name_and_its_options():
    config = flagged("--algorithm", "coma", "--algorithm.group", "2", "--algorithm.clip", "0.3")
    assert (config.algorithm, config.algorithm_options.group, config.algorithm_options.clip) == (
        "coma",
        2,
        0.3,
    )
    with pytest.raises(ValueError, match="group is 1; a pioneer is compared with others"):
        flagged("--algorithm", "coma", "--algorithm.group", "1")
    with pytest.raises(ValueError, match="a batch of 63 games does not divide into groups of 4"):
        flagged("--algorithm", "coma", "--batch", "63")


def test_it_is_gone_with_its_distribution():
    assert "coma" not in algorithms.names()


@pytest.mark.usefixtures("examples")
def test_tables_learn_to_echo_with_counterfactual_credit():
    """At least half the gap to the best score, 1."""
    for before, after in gains(flagged("--algorithm", "coma", "--iterations", "30")).values():
        assert after > before + 0.5 * (1 - before)


@pytest.mark.usefixtures("examples")
def test_ppo_from_outside_takes_the_same_steps_as_ppo():
    inside, outside = (Trainer(flagged("--algorithm", name)) for name in ("ppo", "ppo_again"))
    for iteration in range(3):
        inside.iterate(iteration)
        outside.iterate(iteration)
    for name in inside.policies:
        assert torch.equal(inside.policies[name].logits_SV, outside.policies[name].logits_SV)


@pytest.mark.usefixtures("examples")
def test_the_pioneer_learns_to_pass_on_its_secret_for_the_observers_score():
    """relay: with a pioneer that maximises its own score no observer gets the sum above 1.5; best is 1.9.

    The observer does not see the secret, so only a central critic can estimate a response's effect on it.
    """
    config = replace(
        flagged("--task", "relay", "--algorithm", "coma", "--max-response", "1", "1", "--batch", "96"),
        critic=CriticConfig(kind="central", lr=1e-2, epochs=20),
        exchange=ExchangeConfig(every=0),
    )
    trainer = Trainer(config)
    sums = []
    for iteration in range(40):
        metrics = trainer.iterate(iteration)
        sums.append(sum(score for key, score in metrics.items() if key.endswith("/task_reward")))
    assert sums[0] < 1.1
    assert sum(sums[-5:]) / 5 > 1.6


def played(scores: list[list[float]], values: list[list[list[float]]]) -> dict[str, Batch]:
    """A group of two games of two seats, cooperative; poison where nothing was chosen."""
    payoff_B = torch.tensor(scores).sum(1)
    batches = {}
    for i, seat in enumerate(("pioneer_0", "observer_1")):
        values_BT = torch.tensor(values[i])
        same = dict.fromkeys(
            ("behaviour_logprobs_BT", "old_logprobs_BT", "ref_logprobs_BT", "exact_kl_BT"),
            torch.zeros_like(values_BT),
        )
        batches[seat] = Batch(
            prompt_BP=torch.ones(2, 1, dtype=torch.long),
            prompt_length_B=torch.tensor([1, 1]),
            response_BT=torch.tensor([[1, 9], [1, 2]]),
            response_length_B=torch.tensor([1, 2]),
            values_BT=values_BT,
            score_B=torch.tensor(scores)[:, i],
            payoff_B=payoff_B,
            **same,
        )
    return batches


@pytest.mark.usefixtures("examples")
def test_counterfactual_credit_by_hand():
    """Scores (pioneer, observer): game 0: 1 and 0, game 1: 0 and 4. Payoffs: 1 and 4.

    KL penalties: the pioneer 0.5 in game 1, on its first token; the observer 0.25 on its token in game 0.
    V_1 at its first token: 2 and 3, at the second of game 1: 3.5. So

        Q = (1 + 2, 0 - 0.5 + 3) = (3, 2.5)           the pioneer's A = (3 - 2.5, 2.5 - 3) = (0.5, -0.5)

    The observer's rewards less the pioneer's score: game 0: 1 - 0.25 - 1 = -0.25; game 1: 0 then 4 - 0 = 4.
    gamma 1, lambda 0.5: game 0: A = -0.25 - 2 = -2.25; game 1: second 4 - 3.5 = 0.5, first
    0 + 3.5 - 3 + 0.5 * 0.5 = 0.75. Returns A + V: -0.25; 3.75, 4.
    """
    coma = algorithms.load("coma")
    batches = played([[1.0, 0], [0, 4]], [[[7.0, 0], [7, 7]], [[2.0, 0], [3, 3.5]]])
    rewards = {
        "pioneer_0": torch.tensor([[1.0, 0], [-0.5, 4]]),
        "observer_1": torch.tensor([[0.75, 0], [0, 4]]),
    }
    config = coma.Config(group=2, whiten=False, lam=0.5)
    found = coma.advantage(batches, rewards, config, {seat: {} for seat in batches})
    assert found["pioneer_0"].advantage_BT.tolist() == [[0.5, 0], [-0.5, -0.5]]
    assert found["observer_1"].advantage_BT.tolist() == [[-2.25, 0], [0.75, 0.5]]
    assert found["observer_1"].return_BT.tolist() == [[-0.25, 0], [3.75, 4]]


@pytest.mark.usefixtures("examples")
def test_the_observers_credit_does_not_change_with_the_pioneers_score():
    coma = algorithms.load("coma")
    found = []
    for own in (0.0, 5.0):
        batches = played([[own, 1], [own, 2]], [[[0.0, 0], [0, 0]], [[1.0, 0], [1, 1]]])
        rewards_BT = torch.tensor([[own + 1, 0], [0, own + 2]])
        rewards = dict.fromkeys(batches, rewards_BT)
        found.append(coma.advantage(batches, rewards, coma.Config(group=2), {})["observer_1"].advantage_BT)
    assert torch.allclose(*found)


@pytest.mark.usefixtures("examples")
def test_a_team_is_paid_one_score():
    with pytest.raises(ValueError, match="coma shares one score among all seats"):
        Trainer(replace(flagged("--algorithm", "coma"), payoff="independent")).iterate(0)


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
            "no judge called 'loud'; there are gone, loudness, pocket, silence; a classifier is a folder",
        ),
        ("gone", "judge 'gone' cannot be imported"),
        ("silence", "judge 'silence' is a float, not a function"),
    ],
)
def test_an_unknown_judge_is_refused_with_the_known_ones(name, message):
    with pytest.raises(ValueError, match=message):
        Trainer(flagged("--task", "shouts", "--judge", name, "--max-response", "1", "1"))


def test_a_folder_and_a_hub_name_are_classifiers(tmp_path):
    assert all(is_classifier(spec, aliases=("pocket",)) for spec in ("pocket", str(tmp_path), "owner/name"))
    with pytest.raises(ValueError, match="no judge called 'pocket'"):
        is_classifier("pocket")


@pytest.mark.parametrize(("seconds", "code"), [(2.1, 0), (2.11, 1)])
def test_the_speed_check_fails_below_95_percent(tmp_path, monkeypatch, capsys, seconds, code):
    """2 / 2.1 = 0.952 and 2 / 2.11 = 0.948. The measurement itself finds both algorithms."""
    found = []

    def measure(rounds, batch):
        found.extend(algorithms.load(name).name for name in ("ppo", "ppo_again"))
        return {"ppo": 2.0, "ppo_again": seconds}

    file = tmp_path / "speed.json"
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["plugin.py", "--check", "--json", str(file)])
    monkeypatch.setattr(plugin, "measure", measure)
    assert plugin.main() == code
    assert found == ["ppo", "ppo_again"]
    assert ("too slow: 0.948" in capsys.readouterr().err) == bool(code)
    assert json.loads(file.read_text())["plugin_over_builtin"] == pytest.approx(2 / seconds)
