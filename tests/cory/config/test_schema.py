"""Settings as flags: those of the task and the algorithm that were named."""

import pytest

from cory.algorithms import ppo
from cory.config.schema import Config
from cory.config.parsing import read
from cory.config.task_options import task_options
from cory.config.parsing import flags_of, flat
from cory_env.payoff import Linear

LOOSE = """
from cory_env.tasks.echo import Task as Echo


class Backwards(Echo):
    def __init__(self, tokenizer=None, *, length=2, note=None, **others):
        super().__init__(tokenizer, length=length)


class Needy(Echo):
    def __init__(self, length=2):
        super().__init__(length=length)

    def score(self, queries, responses):
        return [1 / 0 for _ in queries]
"""


def told(*flags: str) -> Config:
    return read(flags, default=Config(), about="", command="cory train")


def test_the_named_task_says_which_options_there_are():
    assert told("--task", "echo", "--task.length", "2").task_options.length == 2
    assert told("--task=relay", "--task.price", "0.3").task_options.price == 0.3
    assert told("--task.max-query", "3", "4").task_options.max_query == (3, 4)
    with pytest.raises(ValueError, match=r"task\.length"):
        told("--task", "relay", "--task.length", "2")
    with pytest.raises(ValueError, match=r"no task called 'relax'; there are .*relay.*module:Class"):
        told("--task", "relax")


def test_in_python_options_left_out_are_the_defaults_of_the_task_and_the_algorithm():
    assert vars(Config(task="relay").task_options) == {"price": 0.2}
    assert Config().algorithm_options == ppo.Config()


def test_a_task_in_any_module_is_named_module_and_class(tmp_path, monkeypatch):
    (tmp_path / "loose_tasks.py").write_text(LOOSE)
    monkeypatch.syspath_prepend(tmp_path)
    config = told("--task", "loose_tasks:Backwards", "--task.length", "4", "--task.note", "x")
    assert vars(config.task_options) == {"length": 4, "note": "x"}
    assert vars(task_options("loose_tasks:Backwards")()) == {"length": 2, "note": None}
    with pytest.raises(ValueError, match="has no class 'Forwards'"):
        told("--task", "loose_tasks:Forwards")
    with pytest.raises(ValueError, match="cannot be imported"):
        told("--task", "no_such_module:Task")


def test_settings_that_would_be_ignored_are_refused(tmp_path, monkeypatch):
    from cory.training.factory import make_players

    (tmp_path / "loose_needy.py").write_text(LOOSE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="echo scores by itself and takes no judge"):
        make_players(told("--task", "echo", "--judge", "a:b", "--policy.kind", "table"))
    with pytest.raises(ValueError, match="takes none; give its class an argument `tokenizer`"):
        make_players(told("--task", "loose_needy:Needy"))


def test_an_error_in_a_users_score_is_not_taken_for_a_sick_run(tmp_path, monkeypatch):
    from cory.training.trainer import Trainer

    (tmp_path / "loose_sick.py").write_text(LOOSE)
    monkeypatch.syspath_prepend(tmp_path)
    trainer = Trainer(told("--task", "loose_sick:Needy", "--policy.kind", "table"))
    with pytest.raises(RuntimeError, match=r"loose_sick: score raised ZeroDivisionError"):
        trainer.iterate(0)


def test_a_payoff_may_move_and_every_setting_survives_its_own_yaml(tmp_path):
    config = told("--payoff", "cooperative", "--payoff.to", "-1", "--payoff.over", "10", "--task", "echo")
    assert config.payoff_rule == Linear("cooperative", -1, 10)
    assert told("--payoff", "[[1, 0.5], [0, 1]]").payoff_rule == [[1, 0.5], [0, 1]]
    import yaml

    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(flat(config)))
    again = told(*flags_of(path))
    assert flat(again) == flat(config)
    assert again.task == "echo"
    assert again.payoff_rule == config.payoff_rule


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--payoff", "sum"), "no payoff called 'sum'"),
        (("--payoff.to", "independent"), "give both"),
        (("--payoff.over", "3"), "give both"),
        (("--algorithm", "ppp"), "no algorithm called 'ppp'; there are .*ppo"),
        (("--algorithm.clip", "1.5"), "algorithm.clip is 1.5"),
        (("--kl.coef", "-1"), "kl.coef is -1"),
        (("--kl.place", "loss"), "k1 in the loss has a gradient of mean 0"),
        (("--kl.final", "0.1"), "kl.over"),
        (("--learner.lr", "nan"), "learner.lr is nan"),
        (("--policy.temperature", "0"), "policy.temperature is 0"),
        (("--policy.models", "a", "b", "--policy.kind", "table"), "policy.kind causal_lm"),
        (("--learner.minibatch", "48"), "128 rows is not divisible by learner.minibatch 48"),
    ],
)
def test_nonsense_is_refused_with_value_and_remedy(flags, message):
    with pytest.raises(ValueError, match=message):
        told(*flags)
