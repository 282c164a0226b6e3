"""Settings as flags, with the options of the task and the algorithm that are named."""

from pathlib import Path

import pytest

from cory.algorithms import ppo
from cory.config import presets
from cory.config.command_line import parse_settings, value_of
from cory.config.parsing import settings_of
from cory.config.schema import Config, RunOptions
from cory.config.task_options import task_options
from cory.config.values import flat
from cory.judges.config import JudgeConfig
from cory.judges.parsing import parse as parse_judge
from cory.learner.critic_config import CriticConfig
from cory.policies.lora_config import LoRAConfig
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


def config_of(*flags: str) -> Config:
    return Config.from_flat(parse_settings(flags, default=Config(), command="cory train"))


def test_the_named_task_determines_the_task_options():
    assert config_of("--task", "echo", "--task.length", "2").task_options.length == 2
    assert config_of("--task=relay", "--task.price", "0.3").task_options.price == 0.3
    assert config_of("--task.max-query", "3", "4").task_options.max_query == (3, 4)
    with pytest.raises(ValueError, match=r"task\.length"):
        config_of("--task", "relay", "--task.length", "2")
    with pytest.raises(ValueError, match=r"no task called 'relax'; there are .*relay.*module:Class"):
        config_of("--task", "relax")


def test_omitted_options_are_the_defaults_of_the_task_and_the_algorithm():
    assert vars(Config.from_flat({"task": "relay"}).task_options) == {"price": 0.2}
    assert Config().algorithm_options == ppo.Config()
    with pytest.raises(ValueError, match=r"task_options are not those of the task 'relay'; .*from_flat"):
        Config(task="relay")


def test_a_task_in_any_module_is_named_module_and_class(tmp_path, monkeypatch):
    (tmp_path / "loose_tasks.py").write_text(LOOSE)
    monkeypatch.syspath_prepend(tmp_path)
    config = config_of("--task", "loose_tasks:Backwards", "--task.length", "4", "--task.note", "x")
    assert vars(config.task_options) == {"length": 4, "note": "x"}
    assert vars(task_options("loose_tasks:Backwards")()) == {"length": 2, "note": None}
    with pytest.raises(ValueError, match="loose_tasks has no 'Forwards'"):
        config_of("--task", "loose_tasks:Forwards")
    with pytest.raises(ValueError, match="cannot be imported"):
        config_of("--task", "no_such_module:Task")


def test_settings_that_would_be_ignored_are_refused(tmp_path, monkeypatch):
    from cory.training.factory import make_players

    (tmp_path / "loose_needy.py").write_text(LOOSE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="echo scores by itself and takes no judge"):
        make_players(config_of("--task", "echo", "--judge", "a:b", "--policy.kind", "table"))
    with pytest.raises(ValueError, match="takes none; give its class an argument `tokenizer`"):
        make_players(config_of("--task", "loose_needy:Needy"))


def test_an_error_in_a_users_score_is_not_taken_for_a_diverged_run(tmp_path, monkeypatch):
    from cory.training.trainer import Trainer

    (tmp_path / "loose_failing.py").write_text(LOOSE)
    monkeypatch.syspath_prepend(tmp_path)
    trainer = Trainer(config_of("--task", "loose_failing:Needy", "--policy.kind", "table"))
    with pytest.raises(RuntimeError, match=r"loose_failing: score raised ZeroDivisionError"):
        trainer.iterate(0)


def test_a_payoff_may_be_scheduled_and_every_setting_survives_a_round_trip_through_yaml(tmp_path):
    config = config_of(
        "--payoff", "cooperative", "--payoff.to", "-1", "--payoff.over", "10", "--task", "echo"
    )
    assert config.payoff_rule == Linear("cooperative", -1, 10)
    assert config_of("--payoff", "[[1, 0.5], [0, 1]]").payoff_rule == [[1, 0.5], [0, 1]]
    import yaml

    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(flat(config)))
    again = Config.from_flat(settings_of(path))
    assert flat(again) == flat(config)
    assert again.task == "echo"
    assert again.payoff_rule == config.payoff_rule


@pytest.mark.parametrize("rows", ["[[1, 0.5], [0, 1]]", "\n- [1, 0.5]\n- [0, 1]"])
def test_a_payoff_in_yaml_may_be_rows(tmp_path, rows):
    (tmp_path / "c.yaml").write_text(f"task: echo\npayoff: {rows}\n")
    assert Config.from_flat(settings_of(tmp_path / "c.yaml")).payoff_rule == [[1, 0.5], [0, 1]]


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
        (("--critic.lr", "0.01"), "critic.kind is own; take --critic.kind central, or .* --learner.value-lr"),
        (("--learner.lr", "nan"), "learner.lr is nan"),
        (("--policy.temperature", "0"), "policy.temperature is 0"),
        (("--policy.models", "a", "b", "--policy.kind", "table"), "policy.kind causal_lm"),
        (("--learner.minibatch", "48"), "128 rows is not divisible by learner.minibatch 48"),
        (
            ("--turns", "llm_1,llm_2,llm_1", "--batch", "6", "--learner.minibatch", "4"),  # llm_1 has 12 rows
            "6 rows is not divisible by learner.minibatch 4",
        ),
    ],
)
def test_invalid_settings_are_refused_with_the_value_and_a_remedy(flags, message):
    with pytest.raises(ValueError, match=message):
        config_of(*flags)


def test_a_central_critic_goes_with_the_algorithm_that_needed_it():
    mappo = Config.from_flat({"algorithm": "mappo"})
    assert mappo.critic.kind == "central"
    assert Config.from_flat({"algorithm": "ppo"}, mappo).critic.kind == "own"
    assert Config.from_flat({"algorithm": "ppo", "critic.kind": "central"}, mappo).critic.kind == "central"
    assert Config.from_flat({"algorithm": "mappo"}, mappo).critic.kind == "central"
    slow = Config.from_flat({"algorithm": "mappo", "critic.lr": 1e-4})
    assert Config.from_flat({"algorithm": "ppo"}, slow).critic == CriticConfig()
    chosen = Config.from_flat({"critic.kind": "central"})
    assert Config.from_flat({"algorithm": "seq"}, chosen).critic.kind == "central"


def test_a_tilde_is_the_home_folder_in_flags_files_and_python(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "set.yaml").write_text("policy:\n  model: ~/m\n  models: [~/m, ~/n]\n")
    (tmp_path / "a").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / "a" / name).touch()
    home = str(tmp_path)
    words = ["--policy.model", "~/m", "--policy.models=~/m", "~/n"]
    groups = {"policy": {"model": "~/m", "models": ["~/m", "~/n"]}}
    for config in (
        config_of(*words),
        Config.from_flat(settings_of(tmp_path / "set.yaml")),
        Config.from_flat(groups),
    ):
        assert config.policy.model == f"{home}/m"
        assert config.policy.models == (f"{home}/m", f"{home}/n")
    (tmp_path / "team.yaml").write_text("policy.kind: lora_team\nlora.adapter: ~/a\n")
    for config in (
        config_of("--policy.kind=lora_team", "--lora.adapter=~/a"),
        Config.from_flat(settings_of(tmp_path / "team.yaml")),
        Config.from_flat({"policy.kind": "lora_team", "lora": LoRAConfig(adapter=Path("~/a"))}),
    ):
        assert config.lora.adapter == tmp_path / "a"
    with pytest.raises(ValueError, match=r"policy\.kind causal_lm trains none.*name it as policy\.model"):
        config_of("--lora.adapter=~/a")
    data = config_of("--task", "prompts", "--task.data=~/x", "--task.observer", "~ {query} {references}")
    assert data.task_options.data in (f"{home}/x", tmp_path / "x")
    assert data.task_options.observer == "~ {query} {references}"
    options = parse_settings(
        ["--run=~/r", "--config", "~/c"], default=Config(), command="cory train", options=RunOptions
    )
    assert (options["run"], options["config"]) == (f"{home}/r", f"{home}/c")
    assert value_of(["--config=~/c"], "--config") == f"{home}/c"
    assert [term.name for term in parse_judge("0.5*~/j + ~/k")] == [f"{home}/j", f"{home}/k"]


def test_a_view_of_one_seat_leaves_those_of_the_others():
    config = Config.from_flat({"seats": 3, "sees": "none"})
    changed = Config.from_flat({"sees.observer_2": "previous"}, config)
    assert changed.sees == {"observer_1": "none", "observer_2": "previous"}
    config = Config.from_flat({"seats": 3, "sees.observer_1": "none"})
    changed = Config.from_flat({"sees.observer_2": "previous"}, config)
    assert changed.sees == {"observer_1": "none", "observer_2": "previous"}
    both = Config.from_flat({"seats": 3, "sees": "none", "sees.observer_2": "previous"})
    assert both.sees == {"observer_1": "none", "observer_2": "previous"}
    assert Config.from_flat({"sees": "all", "sees.observer_2": "previous"}, changed).sees == {
        "observer_2": "previous"
    }
    with pytest.raises(ValueError, match=r"--sees none is for all seats, --sees\.SEAT for one"):
        config_of("--seats", "3", "--sees", "none", "--sees.observer-2", "previous")


def test_a_critic_that_is_given_is_not_replaced_by_the_algorithms():
    assert Config.from_flat({"algorithm": "mappo"}).critic.kind == "central"
    with pytest.raises(ValueError, match=r"leave out --critic\.kind own"):
        Config.from_flat({"algorithm": "mappo", "critic.kind": "own"})


@pytest.mark.parametrize("preset", ["smollm2", "imdb"])
def test_another_task_does_not_take_the_judge_of_the_preset(preset):
    config = Config.from_flat({"task": "relay", "max_response": [1, 1]}, presets.get(preset))
    assert (config.judge, config.judge_options) == ("pocket", JudgeConfig())
    named = Config.from_flat({"task": "prompts", "judge": "mine.py:f"}, presets.get(preset))
    assert named.judge == "mine.py:f"


def test_settings_of_adapters_are_refused_where_none_are_trained():
    with pytest.raises(
        ValueError, match=r"lora\.rank is of adapters, and policy\.kind causal_lm trains none"
    ):
        Config.from_flat({"lora.rank": 4})
    assert Config.from_flat({"lora.rank": 4, "policy.kind": "lora_team"}).lora.rank == 4


def test_lists_of_names_may_be_lists_or_texts_with_commas_and_spaces(tmp_path):
    def of_file(text):
        (tmp_path / "c.yaml").write_text(text)
        return Config.from_flat(settings_of(tmp_path / "c.yaml"))

    assert of_file("log_to: [tensorboard, wandb]").log_to == ("tensorboard", "wandb")
    assert of_file("log_to: []").log_to == of_file("log_to: none").log_to == ()
    assert of_file("turns: llm_1, llm_1").turns == ("llm_1", "llm_1")
    assert config_of("--turns", "llm_1, llm_1").turns == ("llm_1", "llm_1")
