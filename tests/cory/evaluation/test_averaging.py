"""The mean of policies' weights: its value, and that the policies are as before."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

import cory
from cory.evaluation.averaging import averaged, mean_weights, trained
from cory.evaluation.config import EvaluationConfig
from cory.policies.table import TablePolicy
from cory.training.held_out import HeldOut
from cory.training.trainer import Trainer
from tests.helpers.models import make_team, model_logits, policy_logits, stir, weights_of
from tests.helpers.tables import flagged


def table(name: str, fill: float, *, vocab_size: int = 5) -> TablePolicy:
    policy = TablePolicy(name, vocab_size=vocab_size, eos=frozenset({0}), pad=0, max_response=1)
    for weight in policy.parameters():
        torch.nn.init.constant_(weight, fill)
    return policy


def stirred_team(backbone) -> list:
    """Two policies of a LoRA team, each moved its own way."""
    policies = list(make_team(backbone).policies.values())
    for seed, policy in enumerate(policies):
        stir(policy, seed=seed)
    return policies


def test_mean_of_one_and_four_is_two_and_a_half_and_both_stay():
    one, four = table("one", 1.0), table("four", 4.0)
    with averaged([one, four]) as average:
        assert average.name == "average"
        assert all(bool((weight == 2.5).all()) for weight in average.parameters())
    assert one.name == "one"
    assert all(bool((weight == 1).all()) for weight in one.parameters())
    assert all(bool((weight == 4).all()) for weight in four.parameters())


def test_weighted_mean_of_one_and_four():
    found = mean_weights([table("one", 1.0), table("four", 4.0)], [1.0, 3.0])
    assert all(bool((weight == 3.25).all()) for weight in found)


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0]])
def test_weights_that_do_not_fit_are_refused(weights):
    with pytest.raises(ValueError, match="for 2 policies; give one each"):
        mean_weights([table("one", 1.0), table("four", 4.0)], weights)


def test_weights_are_back_after_an_error():
    one, four = table("one", 1.0), table("four", 4.0)
    with pytest.raises(RuntimeError, match="inside"), averaged([one, four]):
        raise RuntimeError("inside")
    assert all(bool((weight == 1).all()) for weight in one.parameters())


@pytest.mark.parametrize("weights", [None, [3.0, 1.0]])
def test_the_mean_of_two_adapters_acts_as_the_model_with_the_mean_of_both_changes(
    backbone, tmp_path, weights
):
    """The oracle is `cory.average` of the saved adapters, which merges each into a whole model first."""
    policies = stirred_team(backbone)
    before = [weights_of(policy) for policy in policies]
    for policy in policies:
        policy.save(tmp_path / policy.name)
    whole = cory.average([tmp_path / p.name for p in policies], tmp_path / "whole", weights=weights)
    want = model_logits(AutoModelForCausalLM.from_pretrained(whole))
    alone = policy_logits(policies[0])
    with averaged(policies, weights) as average:
        assert average.name == "average"
        torch.testing.assert_close(policy_logits(average), want, atol=2e-5, rtol=0)
        average.save_merged(tmp_path / "merged")
        heads = [one["value_head.weight"] for one in before]
        share = 0.5 if weights is None else 0.75
        torch.testing.assert_close(average.value_head.weight, share * heads[0] + (1 - share) * heads[1])
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(model_logits(merged), want, atol=2e-5, rtol=0)
    assert (want - alone).abs().max() > 1e-3
    assert torch.equal(policy_logits(policies[0]), alone)
    for policy, own in zip(policies, before, strict=True):
        assert all(torch.equal(weight, own[name]) for name, weight in weights_of(policy).items())


def test_moving_averages_take_the_place_of_adapters(backbone):
    policies = stirred_team(backbone)
    moving = [[weight.detach().clone() for weight in trained(policy)] for policy in policies]
    with averaged(policies) as average:
        want = policy_logits(average)
    for policy in policies:
        stir(policy, seed=9)
    with averaged(policies) as average:
        assert (policy_logits(average) - want).abs().max() > 1e-3
    with averaged(policies, columns=moving) as average:
        torch.testing.assert_close(policy_logits(average), want)


def test_an_average_is_the_reference_only_if_no_adapter_adds_anything(backbone):
    policies = list(make_team(backbone).policies.values())
    with averaged(policies) as average:
        assert average.equals_reference()
    stir(policies[1])
    with averaged(policies) as average:
        assert not average.equals_reference()
    assert policies[0].equals_reference()


def test_adapters_of_two_backbones_have_no_mean(backbone):
    one, other = (list(make_team(backbone).policies.values()) for _ in range(2))
    with pytest.raises(ValueError, match="policies of several teams cannot act together with 'llm_1'"):
        averaged([one[0], other[1]]).__enter__()


def test_policies_of_two_shapes_have_no_mean():
    with pytest.raises(ValueError, match="one, two differ in shape"):
        mean_weights([table("one", 1.0), table("two", 1.0, vocab_size=6)])


def test_a_trainer_evaluates_the_average_and_goes_on_as_without():
    found = {}
    for average in (False, True):
        config = replace(flagged(), evaluation=EvaluationConfig(queries=8, average=average))
        trainer = Trainer(config)
        trainer.iterate(0)
        evaluated = HeldOut(trainer).evaluate()
        assert ("average" in evaluated) == average
        trainer.iterate(1)
        found[average] = [weight.clone() for p in trainer.policies.values() for weight in p.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(found[False], found[True], strict=True))


def test_one_policy_has_no_average():
    config = flagged("--seats", "1", "--exchange.every", "0", "--evaluation.average")
    assert set(HeldOut(Trainer(config)).evaluate()) == {"reference", "llm_1"}
