"""Sharing: whose rows a policy learns from, their weights by hand, and that nothing else changes."""

import math
from dataclasses import replace

import pytest
import torch

from cory.learner import sharing
from cory.learner.sharing import SharingConfig
from cory.rollout.rollout import play
from cory.runtime.clock import Clock
from cory.training.trainer import Trainer
from tests.helpers.tables import flagged


def played(*flags: str):
    """A trainer after three iterations, the team of the next one and its batches."""
    trainer = Trainer(flagged("--exchange.every", "0", *flags))
    for i in range(3):
        trainer.iterate(i)
    seating = trainer.seating(3)
    policies = {seat: trainer.policies[name] for seat, name in seating.items()}
    batches = play(trainer.game, policies, trainer.spec(3), clock=Clock())
    return trainer, trainer.team(3, seating), batches


def test_every_policy_also_gets_the_rows_of_the_other_one_with_its_own_statistics():
    trainer, team, batches = played("--sharing.same-view")
    shared = trainer.shared(team, batches)
    ((rows, _),) = shared["llm_2"]
    assert torch.equal(rows.response_BT, batches["pioneer_0"].response_BT)
    assert torch.equal(rows.behaviour_logprobs_BT, batches["pioneer_0"].behaviour_logprobs_BT)
    policy = trainer.policies["llm_2"]
    at_T = torch.arange(rows.response_BT.shape[1])
    cells_BT = policy.cell(rows.prompt_BP, rows.prompt_length_B, at_T)
    logp_BTV = policy.logits(cells_BT).log_softmax(-1)
    want_BT = logp_BTV.gather(2, rows.response_BT[..., None]).squeeze(2)
    torch.testing.assert_close(rows.old_logprobs_BT[rows.mask_BT], want_BT[rows.mask_BT].detach())
    data = replace(team, shared=shared).data("llm_2", batches, trainer.advantages(team, batches))
    assert len(data.batch) == 2 * len(batches["observer_1"])
    assert all(sorted(order.tolist()) == list(range(len(data.batch))) for order in data.orders)
    assert data.sampler_difference < 1e-4  # of its own rows only


def test_weights_are_truncated_ratios():
    _, _, batches = played()
    batch = batches["pioneer_0"]
    shift_BT = torch.where(batch.mask_BT, torch.tensor(math.log(0.25)), 0.0)
    less = replace(batch, old_logprobs_BT=batch.behaviour_logprobs_BT + shift_BT)
    more = replace(batch, old_logprobs_BT=batch.behaviour_logprobs_BT - shift_BT)
    ones = sharing.Advantage(batch.mask_BT.float(), torch.zeros_like(batch.values_BT))
    quarter, two = (sharing.weighted(one, ones, 2.0).advantage_BT[batch.mask_BT] for one in (less, more))
    torch.testing.assert_close(quarter, torch.full_like(quarter, 0.25))
    torch.testing.assert_close(two, torch.full_like(two, 2.0))


def test_responses_that_beat_the_pioneers_are_learned_from_under_its_prompt():
    _, team, batches = played("--sharing.both-views")
    first, second = batches["pioneer_0"], batches["observer_1"]
    score_B = torch.zeros_like(first.score_B)
    better_B = score_B.clone()
    better_B[[1, 4]] = torch.tensor([1.0, 3.0])
    found = sharing.in_first_view(
        team.policy("observer_1"), replace(second, score_B=better_B), replace(first, score_B=score_B), 1e9
    )
    assert found is not None
    rows, advantage = found
    assert len(rows) == 2
    assert torch.equal(rows.prompt_BP, first.prompt_BP[[1, 4]][:, : rows.prompt_BP.shape[1]])
    assert torch.equal(rows.response_BT, second.response_BT[[1, 4]][:, : rows.response_BT.shape[1]])
    ratio_BT = torch.exp(rows.old_logprobs_BT - rows.behaviour_logprobs_BT)
    gain_BT = torch.tensor([[1.0], [3.0]]) / (better_B.std() + 1e-4) * ratio_BT
    torch.testing.assert_close(advantage.advantage_BT[rows.mask_BT], gain_BT[rows.mask_BT])
    assert torch.equal(advantage.return_BT, rows.values_BT)  # nothing for the critic
    assert (
        sharing.in_first_view(team.policy("observer_1"), replace(second, score_B=score_B), first, 1) is None
    )


@pytest.mark.parametrize(
    ("kind", "algorithm"), [("same-view", "ppo"), ("same-view", "rloo"), ("both-views", "happo")]
)
def test_runs_learn_with_sharing(kind, algorithm):
    trainer = Trainer(flagged("--algorithm", algorithm, f"--sharing.{kind}", "--batch", "32"))
    rewards = []
    for i in range(15):
        metrics = trainer.iterate(i)
        rewards.append(sum(v for k, v in metrics.items() if k.endswith("/task_reward")))
    assert sum(rewards[-5:]) > 1.3 * sum(rewards[:5])


def test_without_sharing_nothing_is_added():
    trainer, team, batches = played()
    assert trainer.shared(team, batches) == {"llm_1": [], "llm_2": []}
    assert SharingConfig() == trainer.config.sharing


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (("--seats", "1", "--exchange.every", "0"), "sharing needs two policies"),
        (("--policy.shared",), "sharing needs two policies"),
        (("--critic.kind", "central"), "each policy's own critic"),
        (("--payoff-scaling.scaling", "scale"), "each policy's own critic and unscaled payoffs"),
        (("--sharing.truncate", "0"), r"sharing\.truncate is 0"),
    ],
)
def test_what_cannot_be_shared_is_refused(flags, fault):
    with pytest.raises(ValueError, match=fault):
        flagged("--sharing.same-view", *flags)
