"""What the released code does at an exchange, and seeds that reach every part."""

import math
from dataclasses import replace

import pytest
import torch

from cory.config import presets
from cory.functional.advantage import Advantage
from cory.learner.critic_config import CriticConfig
from cory.policies.lora import LoraTeam
from cory.rollout.role_exchange import ExchangeConfig
from cory.training.factory import load_team
from cory.training.metrics import value_metrics
from cory.training.trainer import Trainer
from tests.helpers.batches import make_batch
from tests.helpers.models import pair
from tests.helpers.tables import TABLES, flagged


def test_a_reset_at_an_exchange_reaches_the_central_critic():
    config = replace(
        TABLES, exchange=ExchangeConfig(every=1, reset=True), critic=CriticConfig(kind="central", epochs=2)
    )
    trainer = Trainer(config)
    trainer.iterate(0)
    assert trainer.critic.optimizer.state
    heads = [p.clone() for p in trainer.critic.heads.parameters()]
    trainer.begin_iteration(1)
    assert not trainer.critic.optimizer.state
    assert all(torch.equal(a, b) for a, b in zip(trainer.critic.heads.parameters(), heads, strict=True))


def test_a_reset_at_an_exchange_reaches_the_teams_mixer():
    trainer = Trainer(flagged("--algorithm", "vdac_mix", "--exchange.every", "1", "--exchange.reset"))
    trainer.iterate(0)
    team = trainer.state.of_team
    assert team.optimizer.state
    weights = [p.clone() for p in team.mixer.parameters()]
    trainer.begin_iteration(1)
    assert not team.optimizer.state
    assert all(torch.equal(a, b) for a, b in zip(team.mixer.parameters(), weights, strict=True))
    assert team.optimizer.param_groups[0]["lr"] == trainer.config.algorithm_options.mixer_lr


def test_the_released_presets_follow_the_scripts():
    cory, ppo = presets.get("imdb-released"), presets.get("imdb-released-ppo")
    assert cory.exchange.reset
    assert (cory.seed, cory.task_options.min_chars) == (0, 101)
    assert (ppo.seed, ppo.task_options.min_chars) == (123, 201)


def test_the_seed_of_a_run_reaches_its_adapters(monkeypatch):
    seeds = []
    monkeypatch.setattr(
        LoraTeam, "load", classmethod(lambda cls, *args, seed, **options: seeds.append(seed) or FakeTeam())
    )
    for seed in (0, 7):
        load_team(replace(TABLES, seed=seed), ["llm_1"])
    assert seeds == [0, 7]


class FakeTeam:
    policies: dict = {}  # noqa: RUF012


def test_explained_variance_is_one_for_perfect_values_and_zero_for_a_constant():
    batch = make_batch(pair("gpt2"))
    returns_BT = torch.where(
        batch.mask_BT, torch.arange(batch.mask_BT.numel()).float().view_as(batch.values_BT), 0.0
    )
    nothing_BT = torch.zeros_like(returns_BT)
    perfect = replace(batch, values_BT=returns_BT + 5 * batch.mask_BT)
    assert value_metrics(perfect, Advantage(nothing_BT, returns_BT))["explained_variance"] == pytest.approx(
        1.0
    )
    constant = replace(batch, values_BT=torch.where(batch.mask_BT, 3.0, 0.0))
    found = value_metrics(constant, Advantage(nothing_BT, returns_BT))
    assert found["explained_variance"] == pytest.approx(0.0, abs=1e-6)
    assert found["value_first"] == 3.0
    equal = Advantage(nothing_BT, torch.where(batch.mask_BT, 1.0, 0.0) / 3 * 3)
    assert math.isnan(value_metrics(constant, equal)["explained_variance"])
    untrained = replace(batch, values_BT=nothing_BT)
    assert value_metrics(untrained, Advantage(nothing_BT, returns_BT)) == {}
