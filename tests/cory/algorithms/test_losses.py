"""Losses against Stable-Baselines3, group baselines by hand, what stops or skips a step."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.logger import Logger

from cory import algorithms
from cory.algorithms import a2c, grpo, ppo, reinforce, rloo
from cory.batch import Batch
from cory.policies.table import TablePolicy
from cory.token_loss import Tokens
from tests.helpers.batches import make_table_batch
from tests.helpers.learners import advantage_of, make_learner_of
from tests.helpers.models import make_table_policy

N = 16


def sb3_update(kind, **options) -> tuple[dict[str, float], Tokens]:
    """One update of a small SB3 policy on random rows: its log, and the same rows as tokens."""
    model = kind("MlpPolicy", "CartPole-v1", n_steps=N, seed=0, device="cpu", **options)
    model.set_logger(Logger(None, []))
    generator = np.random.default_rng(0)
    observations, actions = generator.normal(size=(N, 4)).astype(np.float32), generator.integers(0, 2, N)
    with torch.no_grad():
        value_N, logprob_N, entropy_N = model.policy.evaluate_actions(
            torch.tensor(observations), torch.tensor(actions)
        )
    old_logprob_N = logprob_N + torch.tensor(generator.normal(scale=0.4, size=N)).float()
    old_value_N = value_N.flatten() + torch.tensor(generator.normal(size=N)).float()
    advantages, returns = generator.normal(size=(2, N, 1)).astype(np.float32)
    for t in range(N):
        row = observations[t : t + 1], actions[t : t + 1], np.zeros(1), np.zeros(1)
        model.rollout_buffer.add(*row, old_value_N[t], old_logprob_N[t])
    model.rollout_buffer.advantages, model.rollout_buffer.returns = advantages, returns
    model.train()
    return model.logger.name_to_value, Tokens(
        logprob_K=logprob_N,
        value_K=value_N.flatten(),
        entropy_K=entropy_N,
        exact_kl_K=None,
        old_logprob_K=old_logprob_N,
        ref_logprob_K=torch.zeros(N),
        old_value_K=old_value_N,
        advantage_K=torch.tensor(advantages[:, 0]),
        return_K=torch.tensor(returns[:, 0]),
    )


def test_ppo_loss_is_that_of_stable_baselines3():
    """Its value loss is not halved and, unclipped, twice ours; `value_clip` has no effect here."""
    theirs, tokens = sb3_update(
        PPO, batch_size=N, n_epochs=1, clip_range=0.2, normalize_advantage=False, vf_coef=0.25, ent_coef=0.01
    )
    ours = ppo.token_loss(tokens, ppo.Config(clip=0.2, value_clip=1e6, value_coef=0.5, entropy_coef=0.01))
    assert ours.metrics["clip_share"].mean() > 0.1
    for name, want in {
        "policy_loss": theirs["train/policy_gradient_loss"],
        "value_loss": theirs["train/value_loss"] / 2,
        "entropy": -theirs["train/entropy_loss"],
    }.items():
        assert ours.metrics[name].mean().item() == pytest.approx(want, abs=1e-6), name
    assert ours.loss_K.mean().item() == pytest.approx(theirs["train/loss"], abs=1e-6)


def test_a2c_loss_is_that_of_stable_baselines3():
    theirs, tokens = sb3_update(A2C, normalize_advantage=False)
    ours = a2c.token_loss(tokens, a2c.Config())
    assert ours.metrics["policy_loss"].mean().item() == pytest.approx(theirs["train/policy_loss"], abs=1e-6)
    assert ours.metrics["value_loss"].mean().item() == pytest.approx(theirs["train/value_loss"] / 2)
    assert ours.metrics["entropy"].mean().item() == pytest.approx(-theirs["train/entropy_loss"])


def test_the_clipped_surrogate_by_hand():
    # ratios 2, 2, .5, .5 with A = 1, -1, 1, -1: min(2, 1.2), min(-2, -1.2), min(.5, .8), min(-.5, -.8)
    ratio_K, advantage_K = torch.tensor([2.0, 2.0, 0.5, 0.5]), torch.tensor([1.0, -1.0, 1.0, -1.0])
    got = ppo.policy_loss(ratio_K.log(), torch.zeros(4), advantage_K, clip=0.2)
    assert got.tolist() == pytest.approx([-1.2, 2.0, -0.5, 0.8])


def test_the_clipped_value_loss_by_hand():
    # V = 1, old 0, held to .2: R = 1: max(0, .64) / 2; R = 0: max(1, .04) / 2; V = .1: (.1 - 1)^2 / 2
    value_K, return_K = torch.tensor([1.0, 1.0, 0.1]), torch.tensor([1.0, 0.0, 1.0])
    got = ppo.value_loss(value_K, torch.zeros(3), return_K, clip=0.2)
    assert got.tolist() == pytest.approx([0.32, 0.5, 0.405])


def four_games() -> tuple[Batch, torch.Tensor]:
    """Token rewards that sum to 1, 2, 3 and 6; poison behind the responses of 1, 2, 1 and 3 tokens."""
    batch = make_table_batch(make_table_policy()).take(torch.tensor([6, 7, 6, 5]))
    bad = float("nan")
    return batch, torch.tensor([[1.0, bad, bad], [-1.0, 3.0, bad], [3.0, bad, bad], [1.0, 2.0, 3.0]])


def advantage_per_response(module, config) -> list[float]:
    """The advantages of `four_games`, one number per response: they are equal at all its tokens."""
    batch, rewards_BT = four_games()
    advantages = module.advantage({"pioneer_0": batch}, {"pioneer_0": rewards_BT}, config, {"pioneer_0": {}})
    advantage_BT = advantages["pioneer_0"].advantage_BT
    assert torch.equal(advantage_BT, torch.where(batch.mask_BT, advantage_BT[:, :1], 0.0))
    return advantage_BT[:, 0].tolist()


def test_rloo_advantages_by_hand():
    # R less the mean of the others: 1 - 11/3, 2 - 10/3, 3 - 9/3, 6 - 6/3
    assert advantage_per_response(rloo, rloo.Config(group=4)) == pytest.approx([-8 / 3, -4 / 3, 0, 4])
    assert advantage_per_response(rloo, rloo.Config(group=2)) == pytest.approx([-1, 1, -3, 3])


def test_grpo_advantages_by_hand():
    # mean 3, squared differences 4, 1, 0, 9: sample variance 14/3
    spread = (14 / 3) ** 0.5 + 1e-4
    want = [-2 / spread, -1 / spread, 0, 3 / spread]
    assert advantage_per_response(grpo, grpo.Config(group=4)) == pytest.approx(want, abs=1e-6)
    assert advantage_per_response(grpo, grpo.Config(group=4, scale=False)) == pytest.approx([-2, -1, 0, 3])


def test_the_baseline_of_reinforce_never_holds_the_batch_it_is_used_on():
    batch, rewards_BT = four_games()
    states, config = {"pioneer_0": {}}, reinforce.Config(decay=0.75)
    seats = {"pioneer_0": batch}, {"pioneer_0": rewards_BT}
    first = reinforce.advantage(*seats, config, states)["pioneer_0"]
    # what follows each token, itself included: 1 | 2 3 | 3 | 6 5 3; the mean total is 3
    assert first.advantage_BT[batch.mask_BT].tolist() == [1, 2, 3, 3, 6, 5, 3]
    assert states == {"pioneer_0": {"baseline": 3.0}}
    second = reinforce.advantage(seats[0], {"pioneer_0": rewards_BT * 2}, config, states)["pioneer_0"]
    assert second.advantage_BT[batch.mask_BT].tolist() == [-1, 1, 3, 3, 9, 7, 3]
    assert states["pioneer_0"]["baseline"] == 0.75 * 3 + 0.25 * 6


def test_one_policy_in_two_seats_has_one_baseline_and_two_policies_two():
    batch, rewards_BT = four_games()
    seats = {"pioneer_0": batch, "observer_1": batch}
    rewards = {"pioneer_0": rewards_BT, "observer_1": 3 * rewards_BT}
    shared: dict[str, float] = {}
    states = {"pioneer_0": shared, "observer_1": shared}
    found = reinforce.advantage(seats, rewards, reinforce.Config(), states)
    assert shared == {"baseline": 6.0}  # (3 + 9) / 2, and neither seat has seen it yet:
    assert [found[seat].advantage_BT[0, 0].item() for seat in seats] == [1, 3]
    own: dict[str, dict[str, float]] = {"pioneer_0": {}, "observer_1": {}}
    reinforce.advantage(seats, rewards, reinforce.Config(), own)
    assert own == {"pioneer_0": {"baseline": 3.0}, "observer_1": {"baseline": 9.0}}


def moved_away(nats: float) -> tuple[TablePolicy, Batch]:
    """A policy, and a batch in which each chosen token was less probable by `nats`."""
    policy = make_table_policy()
    batch = make_table_batch(policy)
    return policy, replace(batch, old_logprobs_BT=batch.old_logprobs_BT - nats * batch.mask_BT)


@pytest.mark.parametrize("name", ["ppo", "grpo"])
@pytest.mark.parametrize(
    ("options", "steps"),
    [
        # ratio e^3 = 20.1 on every token, approx_kl = 3^2 / 2 = 4.5
        ({}, 4),
        ({"ratio_guard": 21.0}, 4),
        ({"ratio_guard": 20.0}, 0),
        ({"target_kl": 2.9}, 0),
        ({"target_kl": 3.1}, 4),
        ({"target_kl": 2.9, "ratio_guard": 20.0}, 0),
    ],
)
def test_a_minibatch_that_has_moved_too_far_is_left_out(name, options, steps):
    policy, batch = moved_away(3.0)
    before = [p.detach().clone() for p in policy.parameters()]
    learner = make_learner_of(name, policy, epochs=2, minibatch=4, lr=1e-6, **options)
    metrics = learner.update(batch, advantage_of(learner, batch), [torch.arange(8)] * 2)
    assert metrics["steps"] == policy.version == steps
    still = [torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True)]
    assert all(still) == (steps == 0)


@pytest.mark.parametrize("name", ["ppo", "grpo"])
def test_an_update_ends_at_its_target_kl_after_the_steps_that_led_there(name):
    """The first pass starts at the old policy (approx_kl 0) and takes a long step; the second stops."""
    policy = make_table_policy()
    batch = make_table_batch(policy)
    learner = make_learner_of(name, policy, epochs=4, lr=1.0, target_kl=0.01)
    metrics = learner.update(batch, advantage_of(learner, batch), [torch.arange(8)] * 4)
    assert metrics["steps"] == 1
    assert metrics["approx_kl"] > 0.015
    assert (
        algorithms.load(name).verdict({"ratio": 1.0, "approx_kl": 0.014}, learner.algorithm_config) == "step"
    )
