"""What every algorithm must satisfy, by name: those of this package and those of installed plug-ins."""

from dataclasses import dataclass, fields, replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from cory import algorithms
from cory.algorithms import ppo
from cory.algorithms.base import Algorithm, Requirements
from cory.batch import Batch
from cory.config.schema import Config
from cory.functional.kl import KLConfig
from cory.functional.token_rewards import PayoffScalingConfig
from cory.learner.learner import Learner
from cory.learner.optimizer import LearnerConfig
from cory.token_loss import TokenLoss, Tokens, check_loss
from cory.training.held_out import HeldOut
from cory.training.trainer import Trainer
from tests.helpers.batches import TABLE_B as B
from tests.helpers.batches import TABLE_LENGTHS, T, make_table_batch
from tests.helpers.learners import advantage_of, gradients_used, make_learner_of
from tests.helpers.models import make_table_policy
from tests.helpers.tables import TABLES

NAMES = algorithms.names()
TOKENWISE = [name for name in NAMES if algorithms.load(name).update is None]
ECHO = {"trpo": {"max_kl": 0.1, "damping": 0.01}}
"""Options for tables on echo, where defaults are meant for language models."""


def update(learner: Learner, batch: Batch) -> dict[str, float]:
    return learner.update(batch, advantage_of(learner, batch), [torch.arange(B)] * learner.epochs)


@pytest.mark.slow
@pytest.mark.parametrize("seats", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_tables_learn_to_echo_by_every_algorithm(name, seats):
    """Random responders echo few of 3 letters; the best score is 1: half the gap or more is closed."""
    learning = {"algorithm": name} | {f"algorithm.{k}": v for k, v in ECHO.get(name, {}).items()}
    settings = {"seats": seats, "iterations": 20, "learner.lr": 0.3}
    trainer = Trainer(Config.from_flat(learning | settings, TABLES))
    before = HeldOut(trainer).evaluate()["llm_1"].metrics(kl_coef=0)["task_reward"]
    history = [trainer.iterate(i) for i in range(20)]
    after = {
        name: found.metrics(kl_coef=0)["task_reward"] for name, found in HeldOut(trainer).evaluate().items()
    }
    assert before < 0.2
    assert all(after[name] > before + 0.5 * (1 - before) for name in trainer.policies)
    assert history[0]["pioneer_0/llm_1/first_ratio_deviation"] < 1e-5
    assert all(np.isfinite(list(metrics.values())).all() for metrics in history)


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_reports_the_same_metrics(name):
    policy = make_table_policy()
    metrics = update(make_learner_of(name, policy), make_table_batch(policy))
    assert {"policy_loss", "entropy", "ratio", "approx_kl", "ratio_deviation", "steps"} <= metrics.keys()
    assert {"first_ratio_deviation", "gradient_norm", "kl_coef"} <= metrics.keys()
    assert ("value_loss" in metrics) == algorithms.load(name).needs(algorithms.load(name).Config()).values
    assert policy.version == metrics["steps"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_nothing_at_masked_positions_reaches_advantages_or_weights(name):
    found = []
    for poison in (0.0, float("nan")):
        policy = make_table_policy()
        batch = make_table_batch(policy)
        poisoned = {
            field.name: torch.where(batch.mask_BT, getattr(batch, field.name), poison)
            for field in fields(batch)
            if field.name.endswith("_BT") and getattr(batch, field.name).is_floating_point()
        }
        batch = replace(batch, **poisoned)
        learner = make_learner_of(name, policy)
        advantage = advantage_of(learner, batch)
        for tensor_BT in advantage:
            assert torch.equal(tensor_BT[~batch.mask_BT], torch.zeros(B * T - sum(TABLE_LENGTHS)))
        update(learner, batch)
        found.append([advantage.advantage_BT, *(p.detach() for p in learner.trainable)])
    for clean, poisoned in zip(*found, strict=True):
        assert torch.equal(clean, poisoned)


@pytest.mark.parametrize("name", NAMES)
def test_rewards_past_a_response_count_for_nothing(name):
    policy = make_table_policy()
    batch, learner = make_table_batch(policy), make_learner_of(name, policy)
    found = []
    for poison in (0.0, float("nan")):
        rewards_BT = torch.where(batch.mask_BT, torch.linspace(-1, 1, B * T).view(B, T), poison)
        advantages = learner.algorithm.advantage(
            {"pioneer_0": batch}, {"pioneer_0": rewards_BT}, learner.algorithm_config, {"pioneer_0": {}}
        )
        found.append(advantages["pioneer_0"].advantage_BT)
    assert found[0].abs().sum() > 0
    assert torch.equal(*found)


@pytest.mark.parametrize("name", TOKENWISE)
def test_gradients_do_not_depend_on_microbatches(name):
    """8x1 = 4x2 = 2x4 with unequal lengths."""
    found = []
    for microbatches in (1, 2, 4):
        policy = make_table_policy()
        batch, learner = make_table_batch(policy), make_learner_of(name, policy, microbatches=microbatches)
        used = gradients_used(learner)
        learner.step(batch, advantage_of(learner, batch), torch.arange(B))
        found.append(used[0])
    assert any(grad.abs().max() > 1e-3 for grad in found[0].values())
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for name, want in found[0].items():
            torch.testing.assert_close(other[name], want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", TOKENWISE)
def test_metrics_do_not_depend_on_microbatches(name):
    """Means are over tokens and maxima over all of them; responses have unequal lengths."""
    found = []
    for microbatches in (1, 2, 8):
        policy = make_table_policy()
        learner = make_learner_of(name, policy, microbatches=microbatches, lr=0.1)
        found.append(update(learner, make_table_batch(policy)))
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-4, abs=1e-6)


def make_tokens(count: int = 6) -> Tokens:
    generator = torch.Generator().manual_seed(0)
    return Tokens(*(torch.randn(count, generator=generator).requires_grad_(i < 4) for i in range(9)))


@pytest.mark.parametrize("name", NAMES)
def test_token_losses_are_pure_and_look_at_one_token_at_a_time(name):
    algorithm = algorithms.load(name)
    tokens, config = make_tokens(), algorithm.Config()
    kept = [tensor.detach().clone() for tensor in tokens]
    first, again = (algorithm.token_loss(tokens, config) for _ in range(2))
    assert torch.equal(first.loss_K, again.loss_K)
    assert all(torch.equal(a, b) for a, b in zip(tokens, kept, strict=True))
    for at in range(6):
        single = algorithm.token_loss(Tokens(*(tensor[at : at + 1] for tensor in tokens)), config)
        torch.testing.assert_close(single.loss_K[0], first.loss_K[at])
    reported = [*first.metrics.values(), *first.maxima.values()]
    assert not any(metric_K.requires_grad for metric_K in reported)
    assert all(metric_K.shape == (6,) for metric_K in reported)


def test_a_token_loss_of_another_kind_or_shape_names_its_algorithm():
    tokens = make_tokens()
    good = TokenLoss(-tokens.logprob_K, {}, {})
    check_loss(good, tokens, ppo.token_loss)
    for wrong, message in (
        (good.loss_K.mean(), r"returned Tensor; return TokenLoss\(.*of shape \(6,\)"),
        (good._replace(loss_K=good.loss_K[:1]), r"returned a loss of shape \(1,\); return"),
        (good._replace(metrics={"mine": good.loss_K.mean()}), r"reports 'mine' as tensor.*of shape \(6,\)"),
        (good._replace(maxima={"mine": 0.5}), r"reports 'mine' as 0.5; give one number a token"),
    ):
        with pytest.raises(ValueError, match=rf"^token_loss of cory.algorithms.ppo {message}"):
            check_loss(wrong, tokens, partial(ppo.token_loss, config=ppo.Config()))


@pytest.mark.parametrize(
    ("hook", "given", "message"),
    [
        ("verdict", lambda metrics, config: None, "verdict of algorithm 'ppo' is None; return step, skip or"),
        ("update", lambda *given: None, "update of algorithm 'ppo' returned None; return its metrics by"),
        ("update", lambda *given: {"kl": 0.0}, "algorithm 'ppo' reports 'kl', which is a quantity of every"),
    ],
)
def test_what_a_hook_returns_is_checked(hook, given, message):
    trainer = Trainer(TABLES)
    for learner in trainer.learners.values():
        learner.algorithm = replace(learner.algorithm, **{hook: given})
    with pytest.raises(ValueError, match=message):
        trainer.iterate(0)


def test_a_token_loss_without_a_gradient_is_named():
    tokens = make_tokens()
    tokens = tokens._replace(logprob_K=tokens.logprob_K.detach().requires_grad_())
    loss = TokenLoss(-tokens.old_logprob_K.detach(), {}, {})
    with pytest.raises(
        ValueError, match=r"^token_loss of cory\.algorithms\.ppo returned a loss without a grad"
    ):
        check_loss(loss, tokens, ppo.token_loss)


def module_with(config):
    module = ModuleType("mine")
    module.Config, module.advantage, module.token_loss = config, ppo.advantage, ppo.token_loss
    return module


def test_a_setting_of_an_algorithm_needs_a_default():
    @dataclass(frozen=True, kw_only=True)
    class Config:
        scale: float

    with pytest.raises(ValueError, match=r"'mine' .*scale of its Config has no default; give it one"):
        Algorithm.from_module("mine", module_with(Config))


@pytest.mark.parametrize(
    ("hook", "function"),
    [
        ("advantage", lambda batches, rewards, config: {}),
        ("token_loss", lambda tokens: None),
        ("verdict", lambda metrics: "step"),
    ],
)
def test_a_hook_of_another_signature_is_refused_before_anything_is_played(hook, function):
    module = module_with(ppo.Config)
    setattr(module, hook, function)
    with pytest.raises(ValueError, match=rf"^{hook} of algorithm 'mine' cannot be called with \(.*config"):
        Algorithm.from_module("mine", module)


@pytest.mark.parametrize("epochs", [0, 2.0])
def test_epochs_of_ones_own_config_are_a_whole_number_from_1(epochs):
    @dataclass(frozen=True, kw_only=True)
    class Config:
        epochs: Any = 1

    algorithm = Algorithm.from_module("mine", module_with(Config))
    parts = {"config": LearnerConfig(), "kl_config": KLConfig(), "payoff_config": PayoffScalingConfig()}
    with pytest.raises(ValueError, match=rf"algorithm\.epochs is {epochs}; give a whole number from 1"):
        Learner(make_table_policy(), algorithm, Config(epochs=epochs), **parts)


def test_a_group_of_no_games_is_refused():
    with pytest.raises(ValueError, match=r"needs\.group is 0; give 1 or more"):
        Requirements(group=0)


def test_a_need_that_is_no_choice_is_refused():
    with pytest.raises(ValueError, match=r"needs\.payoff is 'sums'; there are any, sum, common"):
        Requirements(payoff="sums")


def test_an_algorithm_whose_config_can_be_changed_is_refused():
    @dataclass(kw_only=True)
    class Config:
        epochs: int = 4

    with pytest.raises(ValueError, match=r"'mine' .*no frozen dataclass; write @dataclass\(frozen=True"):
        Algorithm.from_module("mine", module_with(Config))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_the_log_prob_or_the_value_and_nothing_recorded(name):
    algorithm, tokens = algorithms.load(name), make_tokens()
    algorithm.token_loss(tokens, algorithm.Config()).loss_K.sum().backward()
    assert tokens.logprob_K.grad is not None or tokens.value_K.grad is not None
    assert all(tensor.grad is None for tensor in tokens[4:])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((name, {"epochs": 0}) for name in ("ppo", "a2c", "grpo")),
        *((name, {"entropy_coef": -0.1}) for name in ("a2c", "reinforce", "rloo", "grpo")),
        *((name, {"gamma": 1.1}) for name in ("ppo", "a2c", "trpo")),
        *((name, {"lam": -0.1}) for name in ("ppo", "a2c", "trpo")),
        *((name, {"clip": clip}) for name in ("ppo", "grpo") for clip in (0.0, 1.0)),
        *((name, {"target_kl": 0.0}) for name in ("ppo", "grpo")),
        *((name, {"ratio_guard": 1.0}) for name in ("ppo", "grpo")),
        *((name, {"group": 1}) for name in ("rloo", "grpo")),
        ("ppo", {"value_clip": 0.0}),
        ("a2c", {"value_coef": -1.0}),
        ("reinforce", {"decay": 1.0}),
        *(
            ("trpo", wrong)
            for wrong in (
                {"max_kl": 0.0},
                {"damping": 0.0},
                {"shrink": 1.0},
                {"tries": 0},
                {"cg_steps": 0},
                {"fisher_every": 0},
                {"value_steps": -1},
            )
        ),
    ],
)
def test_algorithm_settings_out_of_range_are_refused_with_the_value(name, wrong):
    ((field, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"algorithm\.{field} is {value};"):
        algorithms.load(name).Config(**wrong)


def test_a_group_of_one_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match="give 2 or more, or take reinforce or ppo"):
        algorithms.load("rloo").Config(group=1)


@pytest.mark.parametrize("name", ["rloo", "grpo"])
def test_the_games_of_a_group_are_neighbours_of_one_query(name):
    options = algorithms.load(name).Config(group=4)
    queries = Trainer(replace(TABLES, algorithm=name, algorithm_options=options)).spec(0).queries
    ids_XG = [[query.ids for query in queries[i : i + 4]] for i in range(0, 64, 4)]
    assert all(len(set(map(tuple, ids_G))) == 1 for ids_G in ids_XG)
    assert len({tuple(ids_G[0]) for ids_G in ids_XG}) > 1
