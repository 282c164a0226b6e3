"""Every preset builds and runs, with a tiny model of the same architecture in place of the hub's."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import Qwen2Config, Qwen2ForCausalLM

from cory.cli.main import main
from cory.config import presets
from cory.config.parsing import as_json
from cory.config.schema import Config
from cory.functional.kl import HORIZON
from cory.study.plan import make_plan
from cory.study.study import Study
from cory.training.trainer import Trainer
from tests.helpers.models import make_model
from tests.helpers.runs import without_report
from tests.helpers.tables import flagged, letters, made_up_reviews

ROOT = Path(__file__).parents[3]
KIND = {"imdb": "gpt2", "gsm8k": "llama", "one": "qwen2", "own": "qwen2", "smollm2": "llama"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model folder per architecture, all with the same tokenizer; windows as long as a worked example."""
    made, tokenizer = {}, letters()
    shape = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=1400, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    models = {
        "gpt2": make_model("gpt2", len(tokenizer), window=1400),
        "llama": make_model("llama", len(tokenizer), window=1400),
        "qwen2": Qwen2ForCausalLM._from_config(shape, attn_implementation="eager"),
    }
    for kind, model in models.items():
        made[kind] = tmp_path_factory.mktemp(kind)
        tokenizer.save_pretrained(made[kind])
        model.save_pretrained(made[kind])
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Reviews, and sums in the layout of GSM8K."""
    folder, chance = tmp_path_factory.mktemp("data"), random.Random(0)
    (folder / "reviews.jsonl").write_text(made_up_reviews())
    sums = [(chance.randrange(90), chance.randrange(90)) for _ in range(60)]
    rows = [{"question": f"What is {a} + {b}?", "answer": f"It is {a + b}.\n#### {a + b}"} for a, b in sums]
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def flags_for(name, folders, data):
    reviews = presets.get(name).task == "reviews"
    return [
        *("--policy.model", str(folders[KIND[name.split("-")[0]]])),
        *("--task.data", str(data / ("reviews.jsonl" if reviews else "sums.jsonl"))),
        *("--batch", "16", "--max-response", "2", "4", "--evaluation.queries", "2"),
        *(("--judge", "tests.helpers.scorers:judge", "--task.min-chars", "1") if reviews else ()),
        *(("--lora.four-bit", "no") if name.startswith("gsm8k") else ()),  # needs an extra package
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in presets.PRESETS if not name.startswith("pocket")])
def test_a_preset_builds_and_runs_two_iterations(name, folders, data):
    flags = flags_for(name, folders, data)
    trainer = Trainer(flagged(*flags, default=presets.get(name)))
    for iteration in range(2):
        metrics = trainer.iterate(iteration)
        seats = {key.split("/")[0] for key in metrics if key.endswith("/task_reward")}
        assert seats == ({"pioneer_0"} if "-ppo" in name else {"pioneer_0", "observer_1"})
        # four epochs of one step each (smollm2: one); if no response was right, its gradient is 0
        epochs = 1.0 if name.startswith("smollm2") else 4.0
        assert {metrics[key] for key in metrics if key.endswith("/steps")} == {epochs}


def test_a_preset_that_has_not_been_run_says_so_and_names_its_sources(
    folders, data, tmp_path, capsys, monkeypatch
):
    flags = [*flags_for("imdb-ppo", folders, data), "--iterations", "1", "--evaluation.every", "0"]
    without_report(monkeypatch)
    assert main(["train", "--preset", "imdb-ppo", *flags, "--run", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().err
    assert "Not yet run on its real weights" in printed
    assert "[the paper, table 1]" in printed


def test_pairs_differ_only_in_the_settings_they_name():
    for name in ("imdb", "gsm8k", "one-gpu-24gb", "smollm2", "smollm2-words"):
        both, single = presets.get(name), presets.get(f"{name}-ppo")
        alike = replace(single, seats=2, exchange=both.exchange, learner=both.learner)
        assert alike == both


def test_the_plus_presets_are_arms_of_the_study_plus():
    plan = make_plan(Study.from_yaml(ROOT / "benchmarks/studies/plus.yaml").spec)
    arms = {(run.arm, run.task): run.settings for run in plan.runs if run.seed == 0}
    for task, name in (("reviews", "pocket"), ("arithmetic", "pocket-arithmetic")):
        for arm, preset in (("calibrated", f"{name}-plus"), ("two-ppo", f"{name}-plus-ppo")):
            settings = as_json(presets.get(preset))
            differing = {key for key, value in arms[arm, task].items() if settings[key] != value}
            assert {key for key in differing if not key.startswith("evaluation.")} == {"threads"}
            assert settings["evaluation.average"]


def test_the_papers_numbers():
    imdb, gsm8k = presets.get("imdb"), presets.get("gsm8k")
    assert (imdb.learner.lr, imdb.batch, imdb.iterations, imdb.kl.coef, imdb.kl.kind) == (
        *(1.41e-5, 256, 100, 0.3, "full"),
    )
    ppo = imdb.algorithm_options
    assert (ppo.epochs, ppo.gamma, ppo.lam, ppo.clip, ppo.value_clip, ppo.value_coef) == (
        4,
        1,
        0.95,
        0.2,
        0.2,
        0.1,
    )
    assert (gsm8k.batch, gsm8k.learner.microbatches, gsm8k.kl.coef, gsm8k.learner.lr) == (32, 16, 0.01, 1e-4)
    assert presets.get("gsm8k-ppo").learner.lr == 1e-5
    released = presets.get("imdb-released")
    assert (released.kl.target, HORIZON, released.kl.coef) == (6, 10_000, 0.4)
    assert released.exchange.reset


def test_the_error_for_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no preset called 'imbd'; there are pocket, .*, imdb,"):
        presets.get("imbd")


def test_presets_settings_of_ppo_hold_for_the_algorithms_that_share_the_default():
    arithmetic = presets.get("pocket-arithmetic")
    assert (arithmetic.algorithm_options.lam, arithmetic.algorithm_options.value_clip) == (1.0, 5.0)
    for name in ("seq", "mappo", "coma"):
        options = Config.from_flat({"algorithm": name}, arithmetic).algorithm_options
        assert (options.lam, options.value_clip, options.clip) == (1.0, 5.0, 0.2)
    given = Config.from_flat({"algorithm": "seq", "algorithm.lam": 0.5}, arithmetic)
    assert given.algorithm_options.lam == 0.5
    two_epochs = Config.from_flat({"algorithm.epochs": 2}, arithmetic)
    a2c = Config.from_flat({"algorithm": "a2c"}, two_epochs).algorithm_options
    assert a2c.epochs == 1  # its own default is another than PPO's
