"""A model that is not bundled does not start from the settings of the bundled ones."""

import pytest

from cory import pocket
from cory.cli.train import read
from cory.config import own_model, presets
from cory.config.own_model import Shape, by_shape, chosen, shape_of, start
from cory.config.parsing import base_settings
from cory.config.schema import Config, RunOptions
from cory.study import Study
from cory.study.plan import make_plan
from tests.helpers.models import make_model, save_backbone


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_backbone("gpt2", tmp_path_factory.mktemp("tiny") / "gpt2")


@pytest.mark.parametrize(
    ("preset", "model", "kind", "expected"),
    [
        (None, None, None, "pocket"),
        (None, "pocket-arithmetic", None, "pocket"),
        (None, str(pocket.LM), None, "pocket"),
        (None, "smollm2", None, "own"),
        (None, "owner/name", None, "own"),
        (None, "folder", "lora_team", "own"),
        (None, "folder", "table", "pocket"),
        (None, "folder", "my_module:MyPolicy", "pocket"),
        ("gsm8k", "folder", None, "gsm8k"),
        ("pocket", "folder", None, "pocket"),
    ],
)
def test_the_preset_follows_from_the_model_unless_it_is_named(preset, model, kind, expected):
    named = {"policy.model": model, "policy.kind": kind}
    assert (
        chosen(preset, named)
        == chosen(preset, {**named, "policy.models": "other"} if model else named)
        == expected
    )


@pytest.mark.parametrize(
    ("weights", "kind", "lr"),
    [
        (4_000_000, None, 1e-4),
        (135_000_000, None, 1.41e-5),
        (7_000_000_000, None, 1e-6),
        (7_000_000_000, "lora_team", 5e-5),
        (None, None, 1.41e-5),
    ],
)
def test_the_learning_rate_falls_with_the_size_of_what_is_trained(weights, kind, lr):
    assert by_shape(presets.get("own"), Shape(weights, 4096), kind).learner.lr == lr


@pytest.mark.parametrize(("window", "cap"), [(4096, 128), (256, 64), (None, 128)])
def test_responses_take_a_quarter_of_the_window_and_128_tokens_at_most(window, cap):
    assert by_shape(presets.get("own"), Shape(1, window), None).max_response == (cap, cap)


def test_a_model_is_measured_by_its_configuration(tiny, tmp_path):
    """GPT-2 of two layers: 12 D^2 + 13 D each, embeddings of V + 64 rows, a last norm; the head is tied."""
    make_model("gpt2", vocab_size=300).save_pretrained(tmp_path / "model")
    D = 32
    assert shape_of(tmp_path / "model") == (2 * (12 * D * D + 13 * D) + (300 + 64) * D + 2 * D, 64)
    (tiny / "model.safetensors").rename(tiny / "gone")
    assert shape_of(tiny).window == 64  # no weights are read
    assert shape_of("no/such/folder") == (None, None)


def test_flags_change_the_settings_of_an_own_model_and_help_names_them(tiny, capsys):
    given = read(["--policy.model", str(tiny), "--learner.lr", "0.5"], command="cory train")
    preset, base = base_settings(given, RunOptions())
    config = Config.from_flat(
        {name: given[name] for name in given if name in ("policy.model", "learner.lr")}, base
    )
    assert (preset, config.learner.lr, config.learner.max_grad_norm) == ("own", 0.5, 1.0)
    assert config.max_response == (16, 16)
    (line,) = own_model.lines("own", config)
    assert "learning rate 0.5, responses of up to 16 tokens" in line
    assert "--preset NAME starts from another" in line
    assert own_model.lines("pocket", config) == []
    with pytest.raises(SystemExit):
        read(["--policy.model", str(tiny), "--help"], command="cory train")
    assert "those of the preset own: any language model" in " ".join(capsys.readouterr().out.split())


def test_the_pocket_settings_stay_as_they_were():
    assert start(None, {}) == presets.get("pocket")


def test_several_models_and_studies_have_the_settings_of_an_own_model_too(tiny):
    several = read(["--policy.models", str(tiny), str(tiny)], command="cory train")
    preset, base = base_settings(several, RunOptions())
    assert (preset, base.max_response, base.learner.max_grad_norm) == ("own", (16, 16), 1.0)
    study = Study.from_settings(["ppo", "rloo"], seeds=1, **{"policy.model": str(tiny)})
    (run, _) = make_plan(study.spec).runs
    assert (study.spec.preset, run.settings["max_response"], run.settings["learner.lr"]) == (
        "own",
        [16, 16],
        1e-4,
    )
