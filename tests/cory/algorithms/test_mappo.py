"""MAPPO: its critic comes with it, advantages by hand, and the optimum of relay."""

import math
from dataclasses import replace

import pytest
import torch

from cory.config.schema import Config
from cory.learner import central_critic
from cory.learner.central_critic import CentralCritic
from cory.learner.critic_config import CriticConfig
from cory.training.trainer import Trainer
from tests.helpers.games import relay_sums
from tests.helpers.tables import TABLES, flagged


def test_the_central_critic_comes_with_it():
    assert flagged("--algorithm", "mappo").critic.kind == "central"
    config = Config.from_flat(
        {
            "task": "echo",
            "algorithm": "mappo",
            "critic": CriticConfig(lr=0.5),
        }
    )
    assert config.critic == CriticConfig(kind="central", lr=0.5)
    assert flagged("--algorithm", "ppo").critic.kind == "own"


def test_another_critic_is_refused(monkeypatch):
    monkeypatch.setitem(central_critic.REGISTRY.items, "mine", CentralCritic)
    with pytest.raises(ValueError, match="'mappo' has a critic of its own, the kind central; leave out"):
        flagged("--algorithm", "mappo", "--critic.kind", "mine")


def test_mappo_is_ppo_with_the_central_critic():
    """The same weights as with the setting, and value heads that are not trained."""
    other = replace(TABLES, critic=CriticConfig(kind="central"))
    trainers = [Trainer(flagged("--algorithm", "mappo")), Trainer(other)]
    for trainer in trainers:
        trainer.iterate(0)
        trainer.iterate(1)
    one, two = (trainer.policies["llm_2"] for trainer in trainers)
    assert torch.equal(one.logits_SV, two.logits_SV)
    assert one.logits_SV.any()
    assert not one.values_S.any()


def test_advantages_are_payoffs_less_what_the_critic_expected_by_hand():
    """Relay, one token a seat, no KL penalty: A = r_pioneer + r_observer - V of the seat, not whitened.

    The heads are set to 0.5 for the pioneer and to -0.25 for the observer in every state.
    """
    flags = ("--task", "relay", "--max-response", "1", "1", "--algorithm", "mappo", "--kl.coef", "0")
    trainer = Trainer(flagged(*flags, "--algorithm.no-whiten"))
    expected = {"pioneer_0": 0.5, "observer_1": -0.25}
    for seat, value in expected.items():
        torch.nn.init.constant_(trainer.critic.heads[seat].outer.bias, value)
    seen = {}
    plain = trainer.algorithm.advantage

    def advantage(batches, *others):
        seen["batches"], seen["found"] = batches, plain(batches, *others)
        return seen["found"]

    trainer.algorithm = replace(trainer.algorithm, advantage=advantage)
    trainer.iterate(0)
    sum_B = seen["batches"]["pioneer_0"].score_B + seen["batches"]["observer_1"].score_B
    for seat, value in expected.items():
        torch.testing.assert_close(seen["found"][seat].advantage_BT[:, 0], sum_B - value)
        torch.testing.assert_close(seen["found"][seat].return_BT[:, 0], sum_B)


@pytest.mark.slow
def test_cooperation_is_learned_on_relay():
    """A pioneer that maximises its own score leaves the sum at 1.5 or below; the best is 1.9."""
    sums = relay_sums("--algorithm", "mappo", "--critic.lr", "0.01", "--critic.epochs", "20")
    assert sums[0] < 1.1
    assert math.fsum(sums[-5:]) / 5 > 1.75
