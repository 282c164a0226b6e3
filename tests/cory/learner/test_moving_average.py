"""The moving average of a policy's weights: by hand, in evaluations, and over a resume."""

import pytest
import torch
from torch import nn

from cory.config import presets
from cory.learner.moving_average import MovingAverage
from cory.policies.base import Policy
from cory.training import held_out
from cory.training.held_out import HeldOut
from cory.training.trainer import Trainer
from tests.helpers.tables import flagged

SINGLE = ("--seats", "1", "--exchange.every", "0", "--batch", "16")
TWO = ("--batch", "16", "--exchange.every", "1")


def learned(metrics):
    return {key: value for key, value in metrics.items() if not key.startswith(("time/", "speed/"))}


def trained(policy: Policy) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in policy.parameters()]


def test_average_by_hand():
    """From 2: weights 4, then 12; averages 2.5 (3/4 of 2 + 1/4 of 4) and 4.875 (3/4 of 2.5 + 1/4 of 12)."""
    weight = nn.Parameter(torch.full((2,), 2.0))
    moving = MovingAverage([weight], decay=0.75)
    for value, average in ((4.0, 2.5), (12.0, 4.875)):
        weight.data.fill_(value)
        moving.update()
        assert moving.average[0].tolist() == [average, average]
        assert weight.tolist() == [value, value]


@pytest.fixture
def seen(monkeypatch):
    """The weights of each policy while it is evaluated, by its name at that time."""
    found = {}
    whole = held_out.evaluate_standalone

    def noted(policy, *arguments, **options):
        found[policy.name] = trained(policy)
        return whole(policy, *arguments, **options)

    monkeypatch.setattr(held_out, "evaluate_standalone", noted)
    return found


def test_one_policy_is_evaluated_with_the_average_of_its_weights_over_the_iterations(seen):
    """From w0, decay 1/2: w0/4 + w1/4 + w2/2 after two iterations."""
    trainer = Trainer(flagged("--learner.ema", "0.5", *SINGLE))
    policy = trainer.policies["llm_1"]
    weights = [trained(policy)]
    for i in range(2):
        trainer.iterate(i)
        weights.append(trained(policy))
    HeldOut(trainer).evaluate()
    assert set(seen) == {"reference", "llm_1", "average"}
    for found, w0, w1, w2 in zip(seen["average"], *weights, strict=True):
        torch.testing.assert_close(found, w0 / 4 + w1 / 4 + w2 / 2)
        assert not torch.equal(found, w2)
    assert all(map(torch.equal, trained(policy), weights[-1]))


def test_several_policies_are_evaluated_with_the_mean_of_their_averages(seen):
    trainer = Trainer(flagged("--learner.ema", "0.5", *TWO))
    trainer.iterate(0)
    HeldOut(trainer).evaluate()
    for found, w1, w2 in zip(seen["average"], seen["llm_1"], seen["llm_2"], strict=True):
        torch.testing.assert_close(found, (w1 + w2) / 4)  # tables start at 0


@pytest.mark.parametrize("flags", [SINGLE, TWO])
def test_games_and_updates_are_those_without_an_average(flags):
    with_it, without = (Trainer(flagged("--learner.ema", ema, *flags)) for ema in ("0.9", "0"))
    for i in range(3):
        assert learned(with_it.iterate(i)) == learned(without.iterate(i))
        HeldOut(with_it).evaluate()
    for name, policy in with_it.policies.items():
        assert all(map(torch.equal, trained(policy), trained(without.policies[name])))


def test_a_resumed_run_has_the_averages_of_the_run_in_one(tmp_path):
    config = flagged("--learner.ema", "0.9", "--learner.elastic-reset", "2", *TWO)
    whole, first = Trainer(config), Trainer(config)
    for i in range(5):
        whole.iterate(i)
        if i < 3:
            first.iterate(i)
    second = Trainer(config)
    second.load(first.save(tmp_path, 3))
    for i in range(3, 5):
        second.iterate(i)
    for name, learner in whole.learners.items():
        assert all(map(torch.equal, learner.ema.average, second.learners[name].ema.average))
    one, other = (HeldOut(trainer).evaluate()["average"] for trainer in (whole, second))
    assert one.metrics(kl_coef=0.1) == other.metrics(kl_coef=0.1)


@pytest.mark.slow
def test_adapters_of_a_team_have_averages_and_are_back_afterwards(seen):
    flags = ("--policy.kind", "lora_team", "--learner.ema", "0.5", "--seats", "1", "--exchange.every", "0")
    small = ("--batch", "4", "--evaluation.queries", "2", "--max-response", "4", "4")
    config = flagged(*flags, *small, default=presets.get("pocket"))
    trainer = Trainer(config)
    policy = trainer.policies["llm_1"]
    before = trained(policy)
    trainer.iterate(0)
    after = trained(policy)
    HeldOut(trainer).evaluate()
    for found, w0, w1 in zip(seen["average"], before, after, strict=True):
        torch.testing.assert_close(found, (w0 + w1) / 2)
    assert all(map(torch.equal, trained(policy), after))
    trainer.iterate(1)  # no alarm about weights that changed outside an update


@pytest.mark.parametrize("ema", ["-0.1", "1"])
def test_moving_average_outside_0_to_1_is_refused(ema):
    with pytest.raises(ValueError, match=r"learner\.ema is"):
        flagged("--learner.ema", ema)
