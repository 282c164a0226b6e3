"""Rows of several adapters in one pass of their backbone: what separate scoring find, and no more."""

from pathlib import Path

import pytest
import torch

from cory.functional import kl, token_rewards
from cory.policies import scoring
from cory.algorithms import load, ppo
from cory.batch import Rows
from cory.config.schema import Config as RunConfig
from cory.config.schema import PolicyConfig
from cory.learner.learner import Learner
from cory.learner.optimizer import LearnerConfig
from cory.policies import precision
from cory.policies.lora_config import LoRAConfig as LoraConfig
from cory.training.trainer import Trainer
from tests.cory.conftest import gradients_used
from tests.cory.policies.test_lora import make_team, stir
from tests.cory.policies.test_policies import B, advantage_of, make_batch, make_rows

ONE = LoraConfig(rank=4, alpha=8, one_pass="yes")
CLOSE = {"atol": 2e-5, "rtol": 1e-4}


def stirred(folder: Path, **options):
    team = make_team(folder, names=("llm_1", "llm_2", "llm_3"), config=ONE, **options)
    for i, policy in enumerate(team.policies.values()):
        stir(policy, seed=i)
    return team


def some(rows: Rows, *, at: slice) -> Rows:
    return Rows(**{name: tensor[at] for name, tensor in vars(rows).items()})


def test_each_row_is_read_with_its_own_adapter(backbone):
    """Rows of other lengths beside them; one policy twice, one with a single row, the reference too."""
    team = stirred(backbone)
    one, two, three = team.policies.values()
    rows, _ = make_rows(one)
    asked = [
        (three, some(rows, at=slice(3, 4))),
        (one, rows),
        (team.reference, rows),
        (two, some(rows, at=slice(0, 3))),
        (one, some(rows, at=slice(4, 6))),
    ]
    found = team.states(asked)
    for (policy, part), state_KD in zip(asked, found, strict=True):
        torch.testing.assert_close(state_KD, policy.hidden_states(part), **CLOSE)
    assert not torch.allclose(found[1], found[2], atol=1e-2)  # adapters that did nothing would pass too


def test_everything_recorded_before_learning_is_the_same_in_one_pass(backbone, monkeypatch):
    """Also in several scoring of a few rows each, where memory asks for them."""
    team = stirred(backbone)
    one, two, _ = team.policies.values()
    whole, _ = make_rows(one)
    rows = [whole, some(whole, at=slice(1, 5))]
    alone = [policy.evaluate(part) for policy, part in zip((one, two), rows, strict=True)]
    for most in (precision.ACTIVATIONS["cpu"], 1500):
        monkeypatch.setitem(precision.ACTIVATIONS, "cpu", most)
        for found, expected in zip(scoring.evaluations([one, two], rows), alone, strict=True):
            for tensor, other in zip(found, expected, strict=True):
                torch.testing.assert_close(tensor, other, **CLOSE)


def learner_of(policy, place: str = "reward", **options) -> Learner:
    config = LearnerConfig(lr=1e-3, minibatch=options.pop("minibatch", None))
    kinds = {"place": place, "kind": "full"}
    return Learner(
        policy,
        load("ppo"),
        ppo.Config(**options),
        config=config,
        kl_config=kl.KLConfig(**kinds),
        payoff_config=token_rewards.PayoffScalingConfig(),
    )


@pytest.mark.parametrize("place", ["reward", "loss"])
@pytest.mark.parametrize("recomputed", [False, True])
def test_learning_in_lockstep_is_learning_alone(backbone, place, recomputed):
    """Also where one policy takes more steps than another, and a third ends early."""
    found = []
    for in_one in (False, True):
        team = stirred(backbone, gradient_checkpointing=recomputed)
        learning, gradients = {}, {}
        options = ({"epochs": 2}, {"epochs": 1, "minibatch": 2}, {"epochs": 3, "target_kl": 1e-9})
        for policy, given in zip(team.policies.values(), options, strict=True):
            learner, batch = learner_of(policy, place, **given), make_batch(policy)
            gradients[policy.name] = gradients_used(learner)
            orders = [torch.arange(B).roll(epoch) for epoch in range(learner.epochs)]
            learning[policy.name] = learner.learning(batch, advantage_of(learner, batch), orders)
        if in_one:
            told = scoring.together(learning, team.states)
        else:
            told = {name: scoring.alone(one) for name, one in learning.items()}
        found.append((told, gradients, team.policies))
    (told, gradients, policies), (told_in_one, gradients_in_one, policies_in_one) = found
    assert list(told) == list(told_in_one)
    for name, numbers in told.items():
        assert numbers == pytest.approx(told_in_one[name], rel=1e-3, abs=1e-4)
        for key, gradient in gradients[name][0].items():
            torch.testing.assert_close(gradient, gradients_in_one[name][0][key], **CLOSE)
        for one, other in zip(policies[name].parameters(), policies_in_one[name].parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=3e-4, rtol=0)  # a step of Adam is 1e-3
    assert [told[name]["steps"] for name in told] == [2, 3, 1]


def test_a_run_in_one_pass_reads_the_backbone_less_often_and_learns_the_same(tiny_folder):
    found, read = [], []
    for one_pass in ("no", "yes"):
        trainer = Trainer(
            RunConfig(
                task="echo",
                batch=8,
                max_response=(3, 6),
                seats=2,
                policy=PolicyConfig(model=str(tiny_folder), kind="lora_team"),
                lora=LoraConfig(rank=4, alpha=8, one_pass=one_pass),
            )
        )
        count = [0]
        first = trainer.policies["llm_1"].model.base_model.h[0]
        first.register_forward_hook(lambda *_, count=count: count.__setitem__(0, count[0] + 1))
        trainer.iterate(0)
        before = count[0]
        found.append(trainer.iterate(1))
        read.append(count[0] - before)
    apart, together = found
    # alone: two policies and their references, and three epochs of each policy, its first pass being kept
    assert read[0] - read[1] == (2 + 2 + 2 * 3) - (1 + 4)
    assert apart.keys() == together.keys()
    for key, number in apart.items():
        if not key.startswith(("time/", "speed/")) and "difference" not in key and "deviation" not in key:
            assert together[key] == pytest.approx(number, rel=1e-3, abs=1e-3), key


def test_a_policy_of_another_team_is_refused(backbone):
    team, other = stirred(backbone), stirred(backbone)
    rows, _ = make_rows(team.policies["llm_1"])
    with pytest.raises(ValueError, match="none of this team; there are llm_1, llm_2, llm_3"):
        team.states([(other.policies["llm_1"], rows)])


def test_policies_are_read_in_one_pass_only_where_it_is_asked_for(backbone):
    apart, one = make_team(backbone), make_team(backbone, config=ONE)
    assert scoring.joint_of(list(apart.policies.values())) is None
    assert scoring.joint_of(list(one.policies.values())) == one.states
    assert (
        scoring.joint_of([*one.policies.values(), *make_team(backbone, config=ONE).policies.values()]) is None
    )
