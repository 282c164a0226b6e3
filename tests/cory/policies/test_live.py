"""A first step on the very pass that valued its responses, beside one on a pass of its own."""

from dataclasses import replace

import pytest
import torch

from cory import algorithms
from cory.training import memory_estimate
from cory.functional import kl, token_rewards
from cory.batch import Batch, columns
from cory.config.schema import Config as RunConfig
from cory.config.schema import PolicyConfig
from cory.learner.central_critic import CriticConfig
from cory.learner.learner import Learner
from cory.learner.optimizer import LearnerConfig
from cory.policies import chunked_loss, precision
from cory.rollout.rollout import make_batch
from cory.training.trainer import Trainer
from tests.cory.conftest import gradients_used
from tests.cory.policies.test_lora import make_team, stir
from tests.cory.policies.test_policies import KINDS, B, advantage_of, make_policy, make_rows
from tests.cory.training.test_trainer import TABLES


def learner_of(policy, algorithm="ppo", *, kl_config=None, config=None, **options) -> Learner:
    return Learner(
        policy,
        algorithms.load(algorithm),
        algorithms.load(algorithm).Config(**options),
        config=config or LearnerConfig(lr=1e-3),
        kl_config=kl_config or kl.KLConfig(),
        payoff_config=token_rewards.PayoffScalingConfig(),
    )


def batch_of(policy, *, live: bool):
    rows, behaviour = make_rows(policy)
    score_B = torch.linspace(-1, 1, B)
    return make_batch(policy.evaluate(rows, live=live), rows, behaviour, score_B, score_B)


def learned(policy, *, live: bool, **options):
    """Two epochs, of which the first is in another order than the rows; numbers, first gradients, weights."""
    learner = learner_of(policy, epochs=2, **options)
    gradients = gradients_used(learner)
    batch = batch_of(policy, live=live)
    orders = [torch.arange(B).flip(0), torch.arange(B).roll(2)]
    seen = []
    told = learner.update(batch, advantage_of(learner, batch), orders, on_minibatch=seen.append)
    assert (batch.live is not None) == live
    return told, seen, gradients[0], dict(policy.named_parameters()), batch


def same(one, other) -> None:
    (told, seen, gradients, weights, _), (told_live, seen_live, live_gradients, live_weights, _) = one, other
    assert told_live == pytest.approx(told, rel=1e-3, abs=1e-4)
    assert seen_live[0] == pytest.approx(seen[0], rel=1e-4, abs=1e-5)
    assert gradients.keys() == live_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(live_gradients[name], gradient, atol=1e-5, rtol=1e-4)
    for name, weight in weights.items():
        # Adam makes a step of 1e-3 of a gradient that is nothing but rounding: that of a key's bias
        assert (live_weights[name] - weight).abs().median() < 1e-6, name


@pytest.mark.parametrize("entropy_coef", [0.0, 0.01])
@pytest.mark.parametrize("kind", KINDS)
def test_its_gradients_are_those_of_a_pass_of_its_own(kind, entropy_coef):
    found = []
    for live in (False, True):
        policy = make_policy(kind)
        policy.set_reference(make_policy(kind, "reference"))
        found.append(learned(policy, live=live, entropy_coef=entropy_coef))
    same(*found)


@pytest.mark.parametrize("recomputed", [False, True])
def test_so_are_those_of_adapters_that_take_turns_on_one_backbone(backbone, recomputed):
    """The other policy is read, and learns, before the kept pass is learned from."""
    found = []
    for live in (False, True):
        team = make_team(backbone, names=("llm_1", "llm_2"), gradient_checkpointing=recomputed)
        one, two = team.policies.values()
        for i, policy in enumerate((one, two)):
            stir(policy, seed=i)
        learner, batch = learner_of(one, epochs=1), batch_of(one, live=live)
        gradients, seen = gradients_used(learner), []
        learned(two, live=live)
        told = learner.update(
            batch, advantage_of(learner, batch), [torch.arange(B)], on_minibatch=seen.append
        )
        found.append((told, seen, gradients[0], dict(one.named_parameters()), batch))
    same(*found)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_recorded_is_the_same_to_the_last_bit(kind):
    policy = make_policy(kind)
    policy.set_reference(make_policy(kind, "reference"))
    plain, live = (batch_of(policy, live=live) for live in (False, True))
    for name in columns(Batch):
        assert torch.equal(getattr(live, name), getattr(plain, name)), name
        assert not getattr(live, name).requires_grad
    assert plain.live is None


def test_a_pass_is_learned_from_once_and_its_logits_are_let_go():
    policy = make_policy("gpt2")
    policy.set_reference(make_policy("gpt2", "reference"))
    *_, batch = learned(policy, live=True)
    assert batch.live.told.logprob_N.grad_fn.p_KV is None
    with pytest.raises(RuntimeError, match=r"second time|already been freed"):
        batch.live.told.logprob_N.sum().backward()
    assert batch.take(torch.arange(B)).live is None


@pytest.mark.parametrize(
    ("why", "options"),
    [
        ("minibatches", {"config": LearnerConfig(minibatch=3)}),
        ("micro-batches", {"config": LearnerConfig(microbatches=2)}),
        ("the gradient of the exact KL", {"kl_config": kl.KLConfig(place="loss", kind="full")}),
        ("an update of its own", {"algorithm": "trpo"}),
    ],
)
def test_steps_on_parts_of_the_rows_or_on_more_than_was_valued_are_not_taken_on_it(why, options):
    policy = make_policy("gpt2")
    rows, _ = make_rows(policy)
    assert learner_of(policy).keeps(rows, sharing=2)
    assert not learner_of(policy, **options).keeps(rows, sharing=2), why


def test_what_all_policies_keep_fits_one_pass_and_two_chunks(monkeypatch):
    policy = make_policy("gpt2")
    rows, _ = make_rows(policy)
    learner, tokens = learner_of(policy), int(rows.response_length_B.sum())
    longest = int((rows.prompt_length_B + rows.response_length_B).max())
    for most, sharing, want in ((tokens, 2, True), (tokens, 3, False), (tokens - 1, 1, False)):
        monkeypatch.setattr(chunked_loss, "CHUNK", most * policy.vocab_size)
        assert learner.keeps(rows, sharing=sharing) == want
    monkeypatch.setattr(chunked_loss, "CHUNK", 1 << 25)
    a_row = longest * policy.width_at(longest) * policy.model.config.num_hidden_layers
    for room, sharing, want in ((2 * B, 2, True), (2 * B - 1, 2, False), (B, 1, True)):
        monkeypatch.setitem(precision.ACTIVATIONS, "cpu", room * a_row)
        assert learner.keeps(rows, sharing=sharing) == want


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, True),
        ({"seats": 1}, True),
        ({"policy": PolicyConfig(kind="table", shared=True)}, False),
        ({"critic": CriticConfig(kind="central")}, False),
    ],
    ids=["one seat each", "one seat", "both seats", "critic"],
)
def test_a_run_keeps_what_a_policy_wrote_in_one_seat_and_valued_itself(settings, kept):
    trainer = Trainer(replace(TABLES, **settings))
    trainer.iterate(0)
    assert {batch.live is not None for batch in trainer.batches.values()} == {kept}


def test_the_estimate_counts_what_is_kept():
    policies = {name: make_policy("gpt2", name) for name in ("llm_1", "llm_2")}
    config = RunConfig(batch=8, max_response=(4, 4))
    told = memory_estimate.iteration_bytes(config, policies, longest=12)
    logits = 4 * 8 * 4 * policies["llm_1"].vocab_size
    assert told["kept passes"] == 2 * (told["activations"] * 18 // 34 + logits)
    for settings in (
        {"learner": replace(config.learner, microbatches=2)},
        {"critic": CriticConfig(kind="central")},
        {"policy": PolicyConfig(shared=True)},
    ):
        apart = replace(config, **settings)
        assert "kept passes" not in memory_estimate.iteration_bytes(apart, policies, longest=12)
