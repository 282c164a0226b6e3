"""What a user can ask before a run: lists, options with their effects, help, machine."""

import re
import tomllib
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path

import pytest

import cory
from cory import algorithms
from cory.cli.doctor import EXTRAS
from cory.cli.main import COMMANDS, main
from cory.config import presets
from cory.config.help import COMMON, effects
from cory.config.schema import Config, RunOptions
from cory.config.task_options import task_options
from cory.config.values import flat
from cory_env import tasks


@pytest.fixture
def output_of(capsys):
    """What a command prints on stdout, its tables wide."""

    def run(*argv):
        helped = {"--help", "--help-all"} & set(argv)
        with pytest.raises(SystemExit) if helped else nullcontext():
            assert main(argv) == 0
        return capsys.readouterr().out

    return run


def options(text):
    """Flags that a help text lists."""
    return set(re.findall(r"^[│ ] (--[a-z][a-z0-9.-]*)", text, re.M)) - {"--help"}


def test_presets_are_listed_and_described_with_what_they_change(output_of):
    listed = output_of("presets")
    assert all(re.search(rf"^{name} ", listed, re.M) for name in presets.PRESETS)
    described = output_of("presets", "imdb")
    assert "the paper, table 1" in described
    assert re.search(r"^--iterations +100 *$", described, re.M)
    assert "--seats" not in described  # 2, as by default


def test_tasks_and_algorithms_are_listed_with_what_they_are(output_of, tmp_path):
    assert {line.split()[0] for line in output_of("tasks").splitlines()[1:-1]} == set(tasks.names())
    (tmp_path / "mine.py").write_text('"""Mine: steps at random."""\n\nfrom cory.algorithms.ppo import *\n')
    assert "Mine: steps at random." in output_of("algorithms", str(tmp_path / "mine.py"))
    assert re.search(r"^--algorithm.clip +0.2 +Probability ratios", output_of("algorithms", "ppo"), re.M)


@pytest.mark.parametrize("name", tasks.names())
def test_every_option_of_a_task_has_its_effect(name):
    kind = task_options(name)
    assert {one.name for one in fields(kind)} <= {key for key, text in effects(kind).items() if text}


@pytest.mark.parametrize("name", algorithms.names())
def test_every_option_of_an_algorithm_has_its_effect(name):
    kind = algorithms.load(name).Config
    assert {one.name for one in fields(kind)} <= {key for key, text in effects(kind).items() if text}


def test_help_shows_fifteen_settings_and_help_all_every_one_with_its_effect(output_of):
    assert len(COMMON) == 15
    words = {f"--{one.name.replace('_', '-')}" for one in fields(RunOptions)}
    common = {f"--{name.replace('_', '-')}" for name in COMMON}
    assert options(output_of("train", "--help")) == words | common
    text = output_of("train", "--help-all")
    every = {f"--{name.replace('_', '-')}" for name in flat(Config())}
    assert options(text) == words | every | {"--players"}  # by seat, and nobody plays by default
    effect = dict(re.findall(r"^[│ ] (--[a-z][a-z0-9.-]*)(.*?)\(default", text, re.S | re.M))
    assert [flag for flag in every if not re.search(r"[A-Za-z`]{3,} [a-z]", effect[flag])] == []


def test_help_of_a_task_and_an_algorithm_shows_their_options(output_of):
    shown = options(output_of("train", "--task", "echo", "--algorithm", "a2c", "--help"))
    assert {"--task.length", "--algorithm.gamma"} <= shown
    assert "--judge.label" not in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(output_of, name):
    assert output_of(name, "--help").startswith(f"usage: cory {name} ")


def test_a_misspelt_name_is_one_error(capsys):
    assert main(["tasks", "ehco"]) == 2
    assert "no task called 'ehco'; there are" in capsys.readouterr().err


def test_the_doctor_names_machine_devices_versions_and_what_is_missing(output_of, monkeypatch):
    monkeypatch.setattr("cory.cli.doctor.find_spec", lambda name: None if name == "math_verify" else name)
    text = output_of("doctor")
    assert re.search(r"^devices\n  cpu: \d+ threads", text, re.M)
    assert re.search(r"^  torch \d", text, re.M)
    assert "math: missing: pip install 'cory[math]' (for the judge math-verify:COLUMN)" in text
    assert text.count("missing") == 1


def test_every_extra_that_a_setting_needs_is_named_by_the_doctor():
    extras = tomllib.loads((Path(cory.__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    needed = extras["project"]["optional-dependencies"].keys() - {"test", "docs", "dev"}
    assert EXTRAS.keys() == needed


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"cory \d+\.\d+\.\d+\n", capsys.readouterr().out)
