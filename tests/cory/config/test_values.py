"""Settings from dictionaries: of Python, of YAML files and of stored results."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import yaml

from cory.config import presets
from cory.config.parsing import base_settings, completed, settings_of
from cory.config.schema import Config, RunOptions
from cory.config.values import convert, flat
from cory.functional.kl import KLConfig


@pytest.mark.parametrize(
    "text", ["kl.coef: 0.2\nkl: {coef: 0.1}", "max-response: [3, 3]\nmax_response: [4, 4]"]
)
def test_a_setting_that_a_file_gives_in_two_forms_is_refused(text, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"mine\.yaml: (kl\.coef|max_response) is given twice; give it once"):
        settings_of(tmp_path / "mine.yaml")


@pytest.mark.parametrize("name", presets.PRESETS)
def test_every_preset_survives_json_and_yaml(name):
    settings = flat(presets.get(name))
    assert flat(Config.from_flat(json.loads(json.dumps(settings)))) == settings
    assert flat(Config.from_flat(yaml.safe_load(yaml.safe_dump(settings)))) == settings


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("None", str | None, "None"),
        (None, str | None, None),
        ("-m", str, "-m"),
        ("--task", str, "--task"),
        (0.5, str, "0.5"),
        (((1, 0.5), (0, 1)), str, "[[1, 0.5], [0, 1]]"),
        ("1e-5", float, 1e-5),  # YAML takes it for text
        (3, float, 3.0),
        (np.int64(3), int, 3),
        (np.float32(0.5), float, 0.5),
        (False, Literal["auto", "yes", "no"], "no"),  # so does YAML for no
        (True, bool, True),
        ([3, 4], tuple[int, int], (3, 4)),
        ("a", tuple[str, ...], ("a",)),
        ([], tuple[str, ...], ()),
        ("auto", int | Literal["auto"], "auto"),
        (7, int | Literal["auto"], 7),
        ("x/y", str | Path, "x/y"),
        ("x/y", Path | None, Path("x/y")),
        ("none", float | None, None),
        ("None", float | None, None),
        ("none", str | None, "none"),
        ({"a": 1}, dict[str, int], {"a": 1}),
        ([1], Any, [1]),
    ],
)
def test_a_value_is_converted_to_the_type_of_its_setting(value, hint, expected):
    converted = convert(value, hint, "x")
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kl.coeff": 3}, "there is no setting 'kl.coeff'; did you mean 'kl.coef'"),
        ({"kl": {"coeff": 3}}, "there is no setting 'kl.coeff'; did you mean 'kl.coef'"),
        ({"coef": 3}, "there is no setting 'coef'; did you mean 'kl.coef'"),
        ({"lr": 3}, "there is no setting 'lr'; did you mean 'critic.lr' or 'learner.lr'"),
        ({"task": "relay", "task.length": 2}, "there is no setting 'task.length'"),
        ({"zzzz": 3}, "there is no setting 'zzzz'; `cory train --help-all` lists all"),
        ({"learner": {"lr": "fast"}}, "learner.lr is 'fast'; give a number"),
        ({"batch": True}, "batch is True; give a whole number"),
        ({"batch": 2.5}, "batch is 2.5; give a whole number"),
        ({"judge": None}, "judge is None; give text"),
        ({"payoff": max}, "<built-in function max>; give text, the name under which you cory.register it"),
        ({"kl.target": "never"}, "kl.target is 'never'; give a number or none"),
        ({"policy.precision": "half"}, "policy.precision is 'half'; give 'auto' or 'float32' or 'bfloat16'"),
        ({"max_response": 3}, "max_response is 3; give 2 values, each a whole number"),
        ({"export_best": "yes"}, "export_best is 'yes'; give true or false"),
        ({"policy.models": [1, None]}, "policy.models is None; give text"),
    ],
)
def test_unknown_settings_and_wrong_values_are_named_with_a_remedy(settings, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        Config.from_flat(settings)
    assert message in str(refused.value)


def test_later_settings_win_whether_they_are_nested_dotted_or_dataclasses():
    kl = KLConfig(kind="k3", coef=0.5)
    assert Config.from_flat({"kl": kl, "kl.coef": 0.25}).kl == KLConfig(kind="k3", coef=0.25)
    assert Config.from_flat({"kl.coef": 0.25, "kl": {"coef": 0.125}}).kl.coef == 0.125
    assert Config.from_flat(
        {"max-response": [2, 3], "judge_options": {"max-failures": 0.5}}
    ).max_response == (
        2,
        3,
    )


def test_a_preset_that_is_named_holds_for_a_run_that_is_resumed_too(tmp_path):
    """As on the command line; without one the settings are those the run has."""
    (tmp_path / "config.yaml").write_text("iterations: 7\npolicy.kernels: auto\n")  # the second one is gone
    for options, iterations in (
        ({}, 7),
        ({"preset": "pocket-arithmetic"}, presets.get("pocket-arithmetic").iterations),
    ):
        _, config = base_settings({}, RunOptions(run=tmp_path, resume="must", **options))
        assert config.iterations == iterations
    assert base_settings({}, RunOptions(run=tmp_path))[1] == presets.get("pocket")
    assert base_settings({}, RunOptions(config=tmp_path / "config.yaml", run=tmp_path))[1].iterations == 7


def test_a_setting_that_has_gone_counts_only_at_its_default(tmp_path):
    (tmp_path / "config.yaml").write_text("policy:\n  kernels: plain\n")
    with pytest.raises(ValueError, match=r"there is no setting 'policy\.kernels'"):
        Config.from_flat(settings_of(tmp_path / "config.yaml"))
    assert completed({"policy.kernels": "auto", "seed": 3}) == flat(Config(seed=3))
    assert completed({"policy.kernels": "plain"}) == {"policy.kernels": "plain"}
