"""The model card beside exported weights says what they are and how to load them."""

import re
from dataclasses import replace

import pytest
from peft import PeftModel
from transformers import AutoModelForCausalLM

from cory.algorithms import rloo
from cory.config.schema import PolicyConfig
from cory.config.values import flat
from cory.functional.kl import KLConfig
from cory.report.model_card import make_card, write_card
from cory.training.run_directory import export
from cory.training.trainer import Trainer
from tests.helpers.tables import TABLES

CONFIG = replace(TABLES, batch=8, iterations=7, seed=3, kl=KLConfig(kind="full", coef=0.25))


def exported(config, tmp_path):
    """The folder of an exported policy, and its card in one line."""
    trainer = Trainer(config)
    export(trainer, tmp_path, iteration=config.iterations)
    folder = tmp_path / "policies/llm_1"
    return folder, " ".join((folder / "README.md").read_text(encoding="utf-8").split())


def check_files(folder, card: str) -> None:
    """Weights that the card names exist, and those that exist in layouts of this project are named."""
    named = set(re.findall(r"`(\w+\.safetensors)`", card))
    present = {path.name for path in folder.glob("*.safetensors")}
    assert named == present - {"model.safetensors", "adapter_model.safetensors"}


def test_the_card_of_a_table(tmp_path):
    folder, card = exported(CONFIG, tmp_path)
    check_files(folder, card)
    assert "# llm_1 Trained from an empty lookup table by CORY (PPO) on the task `echo`: 2 seats" in card
    assert "7 iterations of 8 games, seed 3, KL penalty full with coefficient 0.25." in card
    for false in ("Fine-tuned", "from_pretrained", "value head"):
        assert false not in card


@pytest.mark.parametrize("form", ["as_trained", "merged"])
def test_the_card_of_a_lora_team_names_the_loader_that_works(tmp_path, tiny_folder, form):
    policy = PolicyConfig(kind="lora_team", model=str(tiny_folder))
    folder, card = exported(replace(CONFIG, policy=policy, export=form), tmp_path)
    check_files(folder, card)
    assert f"Fine-tuned from `{tiny_folder}` by CORY (PPO)" in card
    if form == "as_trained":
        assert "It is a PEFT adapter: load it with `PeftModel.from_pretrained`." in card
        PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_folder), folder)
    else:
        assert "Load it with `AutoModelForCausalLM.from_pretrained`." in card
        assert "adapter" not in card
        assert not (folder / "adapter_config.json").exists()
        AutoModelForCausalLM.from_pretrained(folder)


def test_the_average_of_a_lora_team_is_a_whole_model():
    settings = flat(replace(CONFIG, policy=PolicyConfig(kind="lora_team", model="pocket")))
    card = make_card(["average"], settings, iterations=7)
    assert "library_name: transformers" in card
    assert "PEFT" not in card
    assert "library_name: peft" in make_card(["llm_1"], settings, iterations=7)


def test_the_card_after_rloo_claims_no_trained_value_head(tmp_path, tiny_folder):
    policy = PolicyConfig(model=str(tiny_folder))
    options = rloo.Config(group=4)
    config = replace(CONFIG, policy=policy, algorithm="rloo", algorithm_options=options)
    folder, card = exported(config, tmp_path)
    assert "by CORY (RLOO) on the task" in card
    assert "value head it was trained with" not in card
    AutoModelForCausalLM.from_pretrained(folder)


def test_the_card_of_one_seat_is_of_single_agent_training(tmp_path, tiny_folder):
    config = replace(CONFIG, seats=1, policy=PolicyConfig(model=str(tiny_folder)))
    folder, card = exported(config, tmp_path)
    check_files(folder, card)
    assert "by single-agent PPO on the task `echo`: 1 seat, 7 iterations" in card
    assert "CORY" not in card
    assert "1 seats" not in card


def card_of(tmp_path, *, iterations=CONFIG.iterations, **settings) -> str:
    write_card(tmp_path, "llm_2", {**flat(CONFIG), **settings}, iterations=iterations)
    return " ".join((tmp_path / "README.md").read_text(encoding="utf-8").split())


def test_the_card_names_the_model_that_this_policy_started_from(tmp_path):
    card = card_of(tmp_path, **{"policy.kind": "causal_lm", "policy.models": ["one", "two"]})
    assert "Fine-tuned from `two` by" in card


def test_signs_of_collapse_are_against_the_reference_of_the_policys_model():
    """Training names a reference for each policy, `cory evaluate` one for each model; 1 and 3 share one."""
    settings = {**flat(CONFIG), "policy.kind": "causal_lm", "policy.models": ["one", "two", "one"]}
    fine, collapsed = {"distinct_2": 0.9}, {"distinct_2": 0.1}
    names = ["llm_1", "llm_2", "llm_3"]
    for references in (("llm_1", "llm_2"), names):
        results = dict.fromkeys(names, collapsed) | {f"reference_{name}": fine for name in references}
        card = make_card(names, settings, iterations=7, results=results)
        (signs,) = re.findall(r"Signs of collapse.*", card)
        assert all(f"{name}: " in signs for name in names)
        assert all(f" reference_{name} |" in card for name in references)


def test_the_card_names_the_adapter_that_training_went_on_with(tmp_path):
    lora = {"policy.kind": "lora_team", "policy.model": "base", "lora.adapter": "sft/adapter"}
    assert "Fine-tuned from the adapter `sft/adapter` on `base` by" in card_of(tmp_path, **lora)


def test_the_card_of_the_best_checkpoint_names_its_iterations(tmp_path):
    assert "2 seats, 4 iterations of 8 games" in card_of(tmp_path, iterations=4)


def test_the_card_of_a_foreign_kind_promises_no_transformers_loader(tmp_path):
    card = card_of(tmp_path, **{"policy.kind": "mine:Policy", "policy.model": "base"})
    assert "It is a policy of the kind `mine:Policy`" in card
    assert "from_pretrained" not in card
