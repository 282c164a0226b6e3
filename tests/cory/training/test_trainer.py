"""The trainer on tables and tiny models, checkpoints, and what a run leaves behind."""

import copy
import math
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

import cory
from cory.algorithms.ppo import Config as PPOConfig
from cory.cli.main import main
from cory.config.schema import PayoffConfig, PolicyConfig
from cory.config.values import flat
from cory.evaluation.config import EvaluationConfig
from cory.functional.kl import KLConfig
from cory.functional.token_rewards import PayoffScalingConfig
from cory.learner.optimizer import LearnerConfig
from cory.learner.team import disagreement
from cory.policies.causal_lm import CausalLMPolicy
from cory.rollout.role_exchange import ExchangeConfig
from cory.rollout.rollout import play_shared
from cory.runtime.clock import Clock
from cory.tracking.tracker import read
from cory.training import checkpoint, factory
from cory.training.held_out import HeldOut
from cory.training.run import train
from cory.training.run_directory import free_name
from cory.training.targets import find
from cory.training.trainer import Trainer
from tests.helpers.runs import without_report
from tests.helpers.tables import TABLES, flagged, tiny_reviews


def rewards_of(trainer: Trainer, iterations: int) -> list[dict[str, float]]:
    return [
        {key: value for key, value in trainer.iterate(i).items() if key.endswith("/task_reward")}
        for i in range(iterations)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seats", [1, 2])
def test_tables_learn_to_echo(seats):
    """Random responders echo few of 3 letters; the best score is 1. One seat is single-agent PPO."""
    trainer = Trainer(replace(TABLES, seats=seats))
    before = HeldOut(trainer).evaluate()["llm_1"].metrics(kl_coef=0)["task_reward"]
    rewards_of(trainer, TABLES.iterations)
    after = {
        name: found.metrics(kl_coef=0)["task_reward"] for name, found in HeldOut(trainer).evaluate().items()
    }
    assert before < 0.2
    assert all(after[name] > before + 0.5 * (1 - before) for name in trainer.policies)
    assert after["reference"] == before


def test_policy_that_equals_its_reference_is_not_evaluated_again(monkeypatch):
    evaluation = EvaluationConfig(queries=8, samples=2, average=True)
    trainer, other = (Trainer(replace(TABLES, evaluation=evaluation)) for _ in range(2))
    monkeypatch.setattr(type(other.policies["llm_1"]), "equals_reference", lambda one: one is one.reference)
    everything: list[str] = []
    expected = HeldOut(other).evaluate(everything.append)
    monkeypatch.undo()
    names: list[str] = []
    held_out = HeldOut(trainer)
    found = held_out.evaluate(names.append)
    assert (names, everything) == (["reference"], ["reference", "llm_1", "llm_2", "average"])
    assert {name: responses.ids for name, responses in found.items()} == {
        name: responses.ids for name, responses in expected.items()
    }
    held_out.validate(names.append)
    assert names == ["reference", "llm_1"]
    trainer.iterate(0)
    later = held_out.evaluate(names.append)
    assert names == ["reference", "llm_1", "llm_1", "llm_2", "average"]
    assert later["reference"].ids == found["reference"].ids != later["llm_1"].ids


def test_each_policy_sits_in_each_seat_in_turn_and_no_weight_moves_at_an_exchange():
    trainer = Trainer(replace(TABLES, exchange=ExchangeConfig(every=1)))
    assert trainer.seating(0) == {"pioneer_0": "llm_1", "observer_1": "llm_2"}
    assert trainer.seating(1) == {"pioneer_0": "llm_2", "observer_1": "llm_1"}
    seen = rewards_of(trainer, 2)
    assert set(seen[0]) == {"pioneer_0/llm_1/task_reward", "observer_1/llm_2/task_reward"}
    assert set(seen[1]) == {"pioneer_0/llm_2/task_reward", "observer_1/llm_1/task_reward"}
    before = [p.clone() for p in trainer.policies["llm_1"].parameters()]
    trainer.seating(2)
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.policies["llm_1"].parameters(), strict=True))
    assert not torch.equal(*(trainer.policies[name].logits_SV for name in ("llm_1", "llm_2")))


def test_cooperative_seats_are_paid_the_sum_and_independent_seats_their_own_score():
    for payoff, want in {"cooperative": lambda a, b: a + b, "independent": lambda a, b: a}.items():
        trainer = Trainer(replace(TABLES, payoff=payoff))
        metrics = trainer.iterate(0)
        a, b = metrics["pioneer_0/llm_1/task_reward"], metrics["observer_1/llm_2/task_reward"]
        assert metrics["pioneer_0/llm_1/payoff"] == pytest.approx(want(a, b), abs=1e-6)
        assert metrics["observer_1/llm_2/payoff"] == pytest.approx(want(b, a), abs=1e-6)


def test_a_payoff_schedule_moves_with_the_iterations():
    """From r_1 + r_2 to r_1 - r_2 in 2 steps: both are paid r_1 + r_2, r_i, r_i - r_j, r_i - r_j."""
    options = PayoffConfig(to="competitive", over=2)
    trainer = Trainer(replace(TABLES, payoff_options=options, exchange=ExchangeConfig(every=0)))
    for iteration, others in enumerate([1, 0, -1, -1]):
        metrics = trainer.iterate(iteration)
        a, b = metrics["pioneer_0/llm_1/task_reward"], metrics["observer_1/llm_2/task_reward"]
        assert metrics["pioneer_0/llm_1/payoff"] == pytest.approx(a + others * b, abs=1e-6)
        assert metrics["observer_1/llm_2/payoff"] == pytest.approx(b + others * a, abs=1e-6)


def test_one_policy_may_sit_in_all_seats():
    trainer = Trainer(replace(TABLES, turns=("llm_1", "llm_1")))
    assert list(trainer.policies) == ["llm_1"]
    metrics = trainer.iterate(0)
    assert {key.split("/")[1] for key in metrics if "observer_1" in key} == {"llm_1"}
    # four epochs of one minibatch that holds the rows of both seats
    assert trainer.policies["llm_1"].version == 4
    for iteration in range(1, 40):
        trainer.iterate(iteration)
    assert HeldOut(trainer).evaluate()["llm_1"].metrics(kl_coef=0)["task_reward"] > 0.5


def test_each_of_several_models_is_its_own_policys_reference(tiny_folder, tmp_path):
    """KL is 0 at step 0 for both although the models differ."""
    other = tmp_path / "other"
    policy = CausalLMPolicy.load("other", tiny_folder)
    with torch.no_grad():
        policy.model.transformer.h[0].mlp.c_fc.weight += 0.5
    policy.save(other)
    models = (str(tiny_folder), str(other))
    trainer = Trainer(replace(TABLES, policy=PolicyConfig(models=models), learner=LearnerConfig()))
    metrics = trainer.iterate(0)
    for seat, name in {"pioneer_0": "llm_1", "observer_1": "llm_2"}.items():
        assert metrics[f"{seat}/{name}/kl"] == pytest.approx(0, abs=1e-6)
    assert set(HeldOut(trainer).evaluate()) == {"reference_llm_1", "reference_llm_2", "llm_1", "llm_2"}
    assert trainer.references["llm_1"] is not trainer.references["llm_2"]
    three = replace(
        TABLES, seats=3, policy=PolicyConfig(models=(*models, models[0])), learner=LearnerConfig()
    )
    found = HeldOut(Trainer(three)).evaluate()
    assert found["reference_llm_3"] is found["reference_llm_1"]  # of one model, evaluated once
    with pytest.raises(ValueError, match="1 models for 2 policies"):
        replace(TABLES, policy=PolicyConfig(models=models[:1]))


@pytest.mark.parametrize("reset", [False, True])
def test_a_learners_state_stays_with_its_policy_unless_an_exchange_resets_it(reset):
    config = replace(
        TABLES,
        exchange=ExchangeConfig(every=2, reset=reset),
        kl=KLConfig(coef=0.05, target=1.0),
        payoff_scaling=PayoffScalingConfig(scaling="scale"),
    )
    trainer = Trainer(config)
    states = []
    for iteration in range(3):
        trainer.iterate(iteration)
        learner = trainer.learners["llm_1"]
        steps = next(iter(learner.optimizer.state.values()))["step"].item()
        states.append((round(learner.moments.count), steps))
        assert learner.kl_coef != 0.05
    # 64 payoffs and 4 steps an iteration
    assert states == [(64, 4), (128, 8), (64, 4) if reset else (192, 12)]


@pytest.mark.parametrize("harm", ["weights", "frozen"])
def test_a_weight_that_changes_or_freezes_between_iterations_stops_the_run(harm):
    trainer = Trainer(TABLES)
    trainer.iterate(0)
    table = trainer.policies["llm_2"].logits_SV
    if harm == "weights":
        with torch.no_grad():
            table[0, 0] += 1
    else:
        table.requires_grad_(False)
    with pytest.raises(RuntimeError, match="weights of policy 'llm_2' changed, or were frozen"):
        trainer.iterate(1)


def test_games_of_a_group_share_their_query_and_nothing_else():
    trainer = Trainer(TABLES)
    trainer.group = 4
    spec = trainer.spec(0)
    ids = [query.ids for query in spec.queries]
    assert all(len(set(ids[i : i + 4])) == 1 for i in range(0, 64, 4))
    assert len(set(ids[::4])) == 16
    assert len({tuple(row.tolist()) for row in spec.uniforms_BT["pioneer_0"]}) == 64


def test_the_same_seed_plays_the_same_games_and_another_does_not():
    first, again, other = (rewards_of(Trainer(replace(TABLES, seed=s)), 3) for s in (0, 0, 1))
    assert first == again
    assert first != other


def test_every_training_query_comes_once_an_epoch():
    trainer = Trainer(replace(TABLES, batch=64))
    train_set = trainer.task.queries("train")
    drawn = [q.ids for i in range(math.ceil(len(train_set) / 64)) for q in trainer.spec(i).queries]
    assert sorted(drawn[: len(train_set)]) == sorted(q.ids for q in train_set)


@pytest.mark.parametrize("cut", [4, 5])
def test_a_restored_trainer_continues_as_if_nothing_had_happened(tmp_path, cut):
    """Bit for bit, between exchanges and right at one."""
    config = replace(TABLES, kl=KLConfig(coef=0.05, target=1.0))
    whole = Trainer(config)
    want = rewards_of(whole, 8)
    first = Trainer(config)
    rewards_of(first, cut)
    folder = first.save(tmp_path, cut)
    second = Trainer(config)
    second.load(folder)
    got = [
        {key: value for key, value in second.iterate(i).items() if key.endswith("/task_reward")}
        for i in range(cut, 8)
    ]
    assert got == want[cut:]
    for name in whole.policies:
        assert whole.learners[name].kl_coef == second.learners[name].kl_coef
        pairs = zip(whole.policies[name].parameters(), second.policies[name].parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_damaged_checkpoint_is_refused(tmp_path, harm):
    trainer = Trainer(TABLES)
    folder = trainer.save(tmp_path, 0)
    victim = folder / "llm_1/table.safetensors"
    content = bytearray(victim.read_bytes())
    if harm == "flip":
        content[random.Random(0).randrange(len(content))] ^= 1
        victim.write_bytes(content)
    elif harm == "cut":
        victim.write_bytes(content[:-1])
    else:
        victim.unlink()
    with pytest.raises(ValueError, match="use an older checkpoint"):
        checkpoint.load(folder, trainer.learners)


@pytest.mark.slow
def test_a_run_leaves_everything_behind(tmp_path, tiny_folder):
    run = tmp_path / "run"
    config = tiny_reviews(
        tmp_path,
        tiny_folder,
        iterations=3,
        algorithm_options=PPOConfig(epochs=2),
        evaluation=EvaluationConfig(queries=8, every=2),
        checkpoint_every=2,
    )
    report, _ = train(config, run)
    rows = read(run)
    assert report.stat().st_size > 10_000
    assert "%) are in train or validation too and left out." in report.read_text(encoding="utf-8")
    assert [row["iteration"] for row in rows] == [0, 0, 1, 2, 2, 3]
    assert rows[0]["eval/llm_1/kl"] == 0
    assert "eval/llm_2/second_judge" in rows[-1]
    assert rows[1]["pioneer_0/llm_1/first_ratio_deviation"] < 1e-5
    for name in ("config.yaml", "environment.json", "samples.jsonl", "plots", "tensorboard"):
        assert (run / name).exists()
    assert {p.name for p in (run / "policies/llm_2").iterdir()} >= {"model.safetensors", "README.md"}
    assert (run / "checkpoints/step-000003/MANIFEST.json").exists()


def test_a_second_run_takes_the_next_free_name(tmp_path):
    assert free_name(tmp_path / "a") == tmp_path / "a"
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").touch()
    assert free_name(tmp_path / "a") == tmp_path / "a-2"


@pytest.mark.parametrize(
    ("off", "tokens", "refused"), [(0.0, 0, False), (0.002, 2, False), (0.002, 3, True), (0.04, 1, True)]
)
def test_rounding_of_few_tokens_is_no_disagreement(off, tokens, refused):
    """250 tokens, of which 1 % may differ by more than 0.001, and none by more than 0.03."""
    old_BT = torch.full((50, 10), -2.0)
    mask_BT = (torch.arange(50) < 25)[:, None].expand(50, 10)
    behaviour_BT = old_BT.clone()
    behaviour_BT.view(-1)[:tokens] += off
    behaviour_BT[25:] += 1.0  # behind the end of a response
    batch = SimpleNamespace(behaviour_logprobs_BT=behaviour_BT, old_logprobs_BT=old_BT, mask_BT=mask_BT)
    found = disagreement(batch, 1e-3)
    assert found == (pytest.approx(off, rel=1e-3) if refused else 0)


def test_a_sampler_that_disagrees_with_the_learner_stops_the_run(monkeypatch):
    trainer = Trainer(TABLES)
    policy = trainer.policies["llm_1"]
    sample = policy.sample

    def skewed(*prompts, **options):
        sampled = sample(*prompts, **options)
        return SimpleNamespace(**{**vars(sampled), "logprobs_BT": sampled.logprobs_BT + 1})

    monkeypatch.setattr(policy, "sample", skewed)
    wanted = (
        "sampler and learner disagree by 1 nats .* architecture TablePolicy is not supported; .*families.md"
    )
    with pytest.raises(ArithmeticError, match=wanted):
        trainer.iterate(0)


def test_kl_that_stays_negative_stops_the_run():
    """Five consecutive updates; one sound batch in between starts the count anew."""
    trainer = Trainer(TABLES)
    learner, policy = trainer.learners["llm_1"], trainer.policies["llm_1"]
    batch = play_shared(
        trainer.game, dict.fromkeys(trainer.game.seats, policy), trainer.spec(0), clock=Clock()
    )
    sound = batch["pioneer_0"]
    # tables start uniform, so k1 is 0; a reference that likes every token better by 0.3 nats, times 3 tokens
    broken = replace(sound, ref_logprobs_BT=sound.ref_logprobs_BT + 0.3)
    for given in (*[broken] * 4, sound, *[broken] * 4):
        learner._check_kl(given)
    with pytest.raises(
        ArithmeticError, match=r"estimated below -0.5 nats per response in 5 consecutive updates"
    ):
        learner._check_kl(broken)


@pytest.mark.slow
@pytest.mark.parametrize("export", ["as_trained", "merged"])
def test_a_lora_team_exports_what_others_load_and_is_evaluated_and_played_again(
    tmp_path, tiny_folder, export, monkeypatch
):
    run = tmp_path / "run"
    config = tiny_reviews(
        tmp_path,
        tiny_folder,
        policy=PolicyConfig(model=str(tiny_folder), kind="lora_team"),
        learner=LearnerConfig(lr=0.01),
        evaluation=EvaluationConfig(queries=8, every=0),
        export=export,
    )
    without_report(monkeypatch)
    train(config, run)
    folder = run / "policies/llm_2"
    assert (folder / "adapter_config.json").exists() == (export == "as_trained")
    # transformers opens both; an adapter brings its base along
    loaded = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    ours = CausalLMPolicy.load("llm_2", folder)
    ids = torch.arange(6)[None]
    torch.testing.assert_close(loaded(ids).logits, ours.model(ids).logits, rtol=1e-4, atol=1e-5)
    plain = AutoModelForCausalLM.from_pretrained(tiny_folder, attn_implementation="eager")
    assert (loaded(ids).logits - plain(ids).logits).abs().max() > 1e-3
    assert main(["evaluate", str(run)]) == 0
    assert main(["play", str(run), "--games", "1"]) == 0


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_a_table_is_sampled_and_scored_at_the_temperature_of_the_run(temperature):
    trainer = Trainer(flagged("--policy.temperature", str(temperature)))
    policy = trainer.policies["llm_1"]
    assert (policy.temperature, policy.reference.temperature) == (temperature, temperature)
    assert Trainer(flagged("--policy.mismatch", "released")).policies["llm_1"].mismatch == "released"
    with torch.no_grad():
        policy.logits_SV[:, 0] += 4.0
    logits_V = policy.logits(torch.tensor([0]))[0]
    assert logits_V[0].item() == pytest.approx(4.0 / temperature)


def test_a_run_that_went_on_after_its_export_is_its_newest_checkpoint(tmp_path):
    """Cut after 4 of 6 iterations, the last two of which were asked for later."""
    config = replace(TABLES, batch=16, iterations=2, checkpoint_every=2)
    train(config, tmp_path / "run", report=False)

    class Cut:
        def on_save(self, trainer, iteration, folder):
            if iteration == 4:
                raise KeyboardInterrupt

    longer = replace(config, iterations=6)
    with pytest.raises(KeyboardInterrupt):
        train(longer, tmp_path / "run", resume="must", callbacks=[Cut()], report=False)
    assert Path(find(str(tmp_path / "run")).folders["llm_1"]).parent.name == "step-000004"
    train(longer, tmp_path / "run", resume="must", report=False)
    assert Path(find(str(tmp_path / "run")).folders["llm_1"]).parent.name == "policies"


def test_all_models_of_an_architecture_decode_without_a_cache_where_one_must(
    tmp_path, tiny_folder, monkeypatch
):
    checked = []

    def differs(policy, *, longest=0):
        policy.caches = not longest
        checked.append(longest)

    monkeypatch.setattr(factory.conformance, "check", differs)
    made = Trainer(tiny_reviews(tmp_path, tiny_folder))
    assert not any(model.caches for model in (*made.policies.values(), *made.references.values()))
    assert [length for length in checked if length] == [factory.longest_row(made.game)]


@pytest.mark.slow
def test_the_models_of_a_returned_lora_run_are_the_trained_ones(tmp_path, tiny_folder, monkeypatch):
    """In a team they are one, with the adapters off."""
    without_report(monkeypatch)
    config = tiny_reviews(tmp_path, tiny_folder, learner=LearnerConfig(lr=0.1))
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(flat(replace(config, policy=replace(config.policy, kind="lora_team")))))
    run = cory.train(config=path, run=tmp_path / "run", iterations=1, quiet=True)
    ids, start = torch.tensor([[1, 2, 3]]), AutoModelForCausalLM.from_pretrained(tiny_folder)
    with torch.no_grad():
        change = run.policies["llm_1"].model(ids).logits - start(ids).logits
    assert change.abs().max() > 1e-3


def test_references_of_one_name_are_one_model_or_refused():
    """Evaluations are kept by the name of the reference."""
    config, made = replace(TABLES, batch=4), Trainer(TABLES)
    policies = {name: copy.deepcopy(policy) for name, policy in made.policies.items()}
    references = {name: copy.deepcopy(made.references[name]) for name in policies}
    for name, policy in policies.items():
        policy.set_reference(references[name])
    Trainer(config, policies=policies)
    with torch.no_grad():
        references["llm_2"].logits_SV += torch.arange(references["llm_2"].vocab_size)
    with pytest.raises(ValueError, match="two references are called 'reference' and differ"):
        Trainer(config, policies=policies)
