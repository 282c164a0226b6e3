"""Algorithms, judges and tasks of other distributions, found by name and trained with.

Shapes: B games, T response tokens.
"""

import importlib.util
import json
import shutil
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cory import algorithms
from cory.batch import Batch
from cory.config.schema import Config, PolicyConfig
from cory.learner.central_critic import CriticConfig
from cory.evaluation.evaluator import EvaluationConfig
from cory.rollout.role_exchange import ExchangeConfig
from cory.config.parsing import read
from cory.judges.parsing import is_classifier
from cory.functional.kl import KLConfig
from cory.learner.optimizer import LearnerConfig
from cory.training.trainer import Trainer

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "examples/plugins"
SPEC = importlib.util.spec_from_file_location("plugin_speed", ROOT / "benchmarks/speed/plugin.py")
plugin_speed = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(plugin_speed)

TABLES = Config(
    task="echo",
    policy=PolicyConfig(kind="table"),
    batch=64,
    max_response=(3, 3),
    iterations=60,
    exchange=ExchangeConfig(every=5),
    kl=KLConfig(coef=0.01),
    learner=LearnerConfig(lr=0.1),
    evaluation=EvaluationConfig(queries=64, every=0),
)

SHOUTS = '''
from cory_env.game import Query
from cory_env.tokenizer import CharTokenizer


class Task:
    """Answer a letter so that the judge likes both together."""

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
    """What pip would leave of the project in `folder`: its modules, its metadata."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    for module in folder.glob("*.py"):
        shutil.copy(module, site)
    told = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {where}" for name, where in entries.items()))
    ]
    (told / "entry_points.txt").write_text("\n".join(lines))


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
    """What each policy scores alone on held-out queries, before and after training."""
    trainer = Trainer(config)

    def alone():
        return {name: told.numbers(kl_coef=0)["task_reward"] for name, told in trainer.answers().items()}

    before = alone()
    for iteration in range(config.iterations):
        trainer.iterate(iteration)
    after = alone()
    return {name: (before[name], after[name]) for name in trainer.policies}


def flagged(*words: str) -> Config:
    return read(words, default=TABLES, about="", command="cory train")


@pytest.mark.usefixtures("examples")
def test_an_installed_algorithm_is_offered_beside_the_built_in_ones():
    assert {"coma", "ppo", "ppo_again"} <= set(algorithms.names())
    coma = algorithms.load("coma")
    assert coma.needs(coma.Config(group=8)) == (True, 8)


def test_the_example_is_no_longer_than_it_promises():
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
    with pytest.raises(ValueError, match="a batch of 63 games does not fall into groups of 4"):
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
def test_the_pioneer_learns_to_tell_what_a_selfish_one_keeps_to_itself():
    """relay: with a pioneer that looks after its own score no observer gets the sum above 1.5; best is 1.9.

    The observer does not read the secret, so what a response changes for it only a central critic can tell.
    """
    config = replace(
        flagged("--task", "relay", "--algorithm", "coma", "--max-response", "1", "1", "--batch", "96"),
        critic=CriticConfig(kind="central", lr=1e-2, epochs=20),
        exchange=ExchangeConfig(every=0),
    )
    trainer = Trainer(config)
    sums = []
    for iteration in range(40):
        told = trainer.iterate(iteration)
        sums.append(sum(score for key, score in told.items() if key.endswith("/task_reward")))
    assert sums[0] < 1.1
    assert sum(sums[-5:]) / 5 > 1.6


def played(scores: list[list[float]], values: list[list[list[float]]]) -> dict[str, Batch]:
    """A group of two games of two seats, cooperative; poison where nothing was chosen."""
    payoff_B = torch.tensor(scores).sum(1)
    told = {}
    for i, seat in enumerate(("pioneer_0", "observer_1")):
        values_BT = torch.tensor(values[i])
        same = dict.fromkeys(
            ("behaviour_logprobs_BT", "old_logprobs_BT", "ref_logprobs_BT", "exact_kl_BT"),
            torch.zeros_like(values_BT),
        )
        told[seat] = Batch(
            prompt_BP=torch.ones(2, 1, dtype=torch.long),
            prompt_length_B=torch.tensor([1, 1]),
            response_BT=torch.tensor([[1, 9], [1, 2]]),
            response_length_B=torch.tensor([1, 2]),
            values_BT=values_BT,
            score_B=torch.tensor(scores)[:, i],
            payoff_B=payoff_B,
            **same,
        )
    return told


@pytest.mark.usefixtures("examples")
def test_counterfactual_credit_by_hand():
    """Scores (pioneer, observer): game 0: 1 and 0, game 1: 0 and 4. Paid: 1 and 4.

    KL prices: the pioneer 0.5 in game 1, on its first token; the observer 0.25 on its token in game 0.
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
    told = coma.advantage(batches, rewards, config, {seat: {} for seat in batches})
    assert told["pioneer_0"].advantage_BT.tolist() == [[0.5, 0], [-0.5, -0.5]]
    assert told["observer_1"].advantage_BT.tolist() == [[-2.25, 0], [0.75, 0.5]]
    assert told["observer_1"].return_BT.tolist() == [[-0.25, 0], [3.75, 4]]


@pytest.mark.usefixtures("examples")
def test_the_observers_credit_does_not_change_with_the_pioneers_score():
    coma = algorithms.load("coma")
    told = []
    for own in (0.0, 5.0):
        batches = played([[own, 1], [own, 2]], [[[0.0, 0], [0, 0]], [[1.0, 0], [1, 1]]])
        rewards_BT = torch.tensor([[own + 1, 0], [0, own + 2]])
        rewards = dict.fromkeys(batches, rewards_BT)
        told.append(coma.advantage(batches, rewards, coma.Config(group=2), {})["observer_1"].advantage_BT)
    assert torch.allclose(*told)


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
    told = [trainer.iterate(iteration) for iteration in range(config.iterations)]
    score = [numbers["pioneer_0/llm_1/task_reward"] for numbers in told[:5] + told[-10:-5]]
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
        ("silence", "judge 'silence' is no function but a float"),
    ],
)
def test_a_judge_that_is_not_there_is_answered_with_those_that_are(name, message):
    with pytest.raises(ValueError, match=message):
        Trainer(flagged("--task", "shouts", "--judge", name, "--max-response", "1", "1"))


def test_a_folder_and_a_hub_name_are_classifiers(tmp_path):
    assert all(is_classifier(spec) for spec in ("pocket", str(tmp_path), "owner/name"))


@pytest.mark.parametrize(("seconds", "code"), [(2.1, 0), (2.11, 1)])
def test_the_speed_check_fails_below_95_percent(tmp_path, monkeypatch, capsys, seconds, code):
    """2 / 2.1 = 0.952 and 2 / 2.11 = 0.948. The measurement itself finds both algorithms."""
    found = []

    def measure(rounds, batch):
        found.extend(algorithms.load(name).name for name in ("ppo", "ppo_again"))
        return {"ppo": 2.0, "ppo_again": seconds}

    file = tmp_path / "speed.json"
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["plugin_speed.py", "--check", "--json", str(file)])
    monkeypatch.setattr(plugin_speed, "measure", measure)
    assert plugin_speed.main() == code
    assert found == ["ppo", "ppo_again"]
    assert ("too slow: 0.948" in capsys.readouterr().err) == bool(code)
    assert json.loads(file.read_text())["plugin_over_builtin"] == pytest.approx(2 / seconds)
