"""Sharing: whose rows a policy learns from, their weights by hand, and that nothing else changes."""

import math
from dataclasses import replace

import pytest
import torch

from cory.functional.advantage import Advantage
from cory.learner import sharing
from cory.rollout.rollout import play_shared
from cory.runtime.clock import Clock
from cory.training.trainer import Trainer
from tests.helpers.tables import flagged


def played(*flags: str):
    """A trainer after three iterations, the team of the next one and its batches."""
    trainer = Trainer(flagged("--exchange.every", "0", *flags))
    for i in range(3):
        trainer.iterate(i)
    team = trainer.team(3)
    return trainer, team, play_shared(trainer.game, team.policies, trainer.spec(3), clock=Clock())


def test_every_policy_also_gets_the_rows_of_the_other_one_with_its_own_statistics():
    trainer, team, batches = played("--sharing.same-view")
    shared = sharing.shared_rows(team, batches)
    ((rows, _),) = shared["llm_2"]
    assert torch.equal(rows.response_BT, batches["pioneer_0"].response_BT)
    assert torch.equal(rows.behaviour_logprobs_BT, batches["pioneer_0"].behaviour_logprobs_BT)
    policy = trainer.policies["llm_2"]
    at_T = torch.arange(rows.response_BT.shape[1])
    cells_BT = policy.cell(rows.prompt_BP, rows.prompt_length_B, at_T)
    logp_BTV = policy.logits(cells_BT).log_softmax(-1)
    want_BT = logp_BTV.gather(2, rows.response_BT[..., None]).squeeze(2)
    torch.testing.assert_close(rows.old_logprobs_BT[rows.mask_BT], want_BT[rows.mask_BT].detach())
    data = replace(team, shared=shared).data("llm_2", batches, team.advantages(batches))
    assert len(data.batch) == 2 * len(batches["observer_1"]) == 2 * data.own_rows
    assert torch.equal(
        data.batch.take(torch.arange(data.own_rows)).response_BT, batches["observer_1"].response_BT
    )
    assert all(sorted(order.tolist()) == list(range(len(data.batch))) for order in data.orders)


def test_weights_are_truncated_ratios():
    _, _, batches = played()
    batch = batches["pioneer_0"]
    shift_BT = torch.where(batch.mask_BT, torch.tensor(math.log(0.25)), 0.0)
    less = replace(batch, old_logprobs_BT=batch.behaviour_logprobs_BT + shift_BT)
    more = replace(batch, old_logprobs_BT=batch.behaviour_logprobs_BT - shift_BT)
    ones = Advantage(batch.mask_BT.float(), torch.zeros_like(batch.values_BT))
    quarter, one = (sharing.weighted(rows, ones).advantage_BT[batch.mask_BT] for rows in (less, more))
    torch.testing.assert_close(quarter, torch.full_like(quarter, 0.25))
    torch.testing.assert_close(one, torch.ones_like(one))


def apart(logit: float, *flags: str) -> Trainer:
    """Two policies that hardly learn and have moved apart: each prefers a letter of its own."""
    trainer = Trainer(flagged("--exchange.every", "0", "--learner.lr", "1e-9", "--kl.coef", "0.2", *flags))
    with torch.no_grad():
        for letter, policy in enumerate(trainer.policies.values()):
            policy.logits_SV[:, letter] += logit
    trainer.note_fingerprints()
    return trainer


def test_kl_is_measured_on_the_rows_that_a_policy_sampled_itself():
    """On the other's rows log pi - log pi_ref is below 0: eta would fall, and the guard end the run."""
    trainer = apart(6.0, "--sharing.same-view", "--kl.target", "1")
    alone = apart(6.0, "--kl.target", "1")
    for i in range(7):
        assert trainer.iterate(i)["pioneer_0/llm_1/kl"] > 3
        alone.iterate(i)
    found, want = ([one.kl_coef for one in of.learners.values()] for of in (trainer, alone))
    assert found == pytest.approx(want, rel=1e-6)
    assert min(found) > 0.2


def test_what_an_algorithm_keeps_counts_own_rows_only():
    trainers = [
        Trainer(flagged("--algorithm", "reinforce", "--exchange.every", "0", "--learner.lr", "1e-9", *flags))
        for flags in ((), ("--sharing.same-view",))
    ]
    for i in range(2):
        for trainer in trainers:
            trainer.iterate(i)
    alone, sharing_ = (trainer.learners["llm_1"].algorithm_state for trainer in trainers)
    assert sharing_ == pytest.approx(alone)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "rloo", "happo"])
def test_runs_learn_with_sharing(algorithm):
    trainer = Trainer(flagged("--algorithm", algorithm, "--sharing.same-view", "--batch", "32"))
    rewards = []
    for i in range(15):
        metrics = trainer.iterate(i)
        rewards.append(sum(v for k, v in metrics.items() if k.endswith("/task_reward")))
    assert sum(rewards[-5:]) > 1.3 * sum(rewards[:5])


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (("--seats", "1", "--exchange.every", "0"), "sharing needs two policies"),
        (("--turns", "llm_1,llm_1"), "sharing needs two policies"),
        (("--critic.kind", "central"), "each policy's own critic"),
        (("--payoff-scaling.scaling", "scale"), "each policy's own critic and unscaled payoffs"),
        (("--kl.place", "loss", "--kl.kind", "k3"), "k3 in the loss needs tokens that the policy sampled"),
    ],
)
def test_sharing_of_responses_that_do_not_fit_is_refused(flags, fault):
    with pytest.raises(ValueError, match=fault):
        flagged("--sharing.same-view", *flags)
