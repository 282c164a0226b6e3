"""Elastic Reset: averages and resets by hand, in a run, and over a resume."""

import pytest
import torch
from torch import nn

from cory.learner.moving_average import ElasticReset
from cory.training.trainer import Trainer
from tests.helpers.tables import flagged


def test_average_and_reset_by_hand():
    """Weights 4, then 8: averages 1 (3/4 of 0 + 1/4 of 4) and 2.75, to which the second iteration resets."""
    weight = nn.Parameter(torch.zeros(1))
    elastic = ElasticReset([weight], every=2, decay=0.75)
    weight.data.fill_(4.0)
    elastic.end_iteration(0)
    assert (weight.item(), elastic.average[0].item()) == (4.0, 1.0)
    weight.data.fill_(8.0)
    elastic.end_iteration(1)
    assert weight.item() == 2.75
    assert elastic.average[0].item() == 0.0  # the initial model again


def test_a_reset_brings_a_policy_back_towards_its_start_and_leaves_the_value_head():
    """The runs are equal until the first reset, at the end of iteration 3; value heads are after it too."""
    reset, plain = (
        Trainer(flagged("--learner.elastic-reset", every, "--batch", "32")) for every in ("4", "0")
    )
    for i in range(4):
        reset.iterate(i)
        plain.iterate(i)
    policies = [trainer.policies["llm_1"] for trainer in (reset, plain)]
    assert policies[0].logits_SV.norm() < 0.9 * policies[1].logits_SV.norm()
    assert torch.equal(policies[0].values_S, policies[1].values_S)
    reset.iterate(4)  # no alarm about weights that moved outside an update


def test_a_resumed_run_is_the_run_in_one(tmp_path):
    config = flagged("--learner.elastic-reset", "3", "--batch", "16")

    def learned(metrics):
        return {key: value for key, value in metrics.items() if not key.startswith(("time/", "speed/"))}

    whole, first = Trainer(config), Trainer(config)
    want = [learned(whole.iterate(i)) for i in range(7)]
    for i in range(4):
        first.iterate(i)
    second = Trainer(config)
    second.load(first.save(tmp_path, 4))
    assert [learned(second.iterate(i)) for i in range(4, 7)] == want[4:]


def test_resets_every_so_many_iterations_below_0_are_refused():
    with pytest.raises(ValueError, match=r"learner\.elastic_reset is -1"):
        flagged("--learner.elastic-reset", "-1")
