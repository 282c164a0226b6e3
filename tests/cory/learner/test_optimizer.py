"""Learning rates as functions of the iteration, the value head's own, and their use by a learner."""

import re
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from cory.learner.optimizer import LearnerConfig, learning_rates, make_optimizer
from cory.policies.table import TablePolicy
from cory.training.checkpoint import optimizer_tensors, restore_optimizer
from tests.helpers.batches import make_table_batch
from tests.helpers.learners import advantage_of, gradients_used, make_learner_of
from tests.helpers.models import make_table_policy


def rates(iterations: int, **options) -> list[float]:
    return [learning_rates(LearnerConfig(lr=1.0, **options), k, iterations)[0] for k in range(iterations)]


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, [1, 1, 1, 1, 1, 1]),
        ({"warmup": 4}, [0.25, 0.5, 0.75, 1, 1, 1]),
        # u = 0, 1/6, ..., 5/6
        ({"decay": "linear"}, [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        # u = 0, 1/4, 1/2, 3/4 from the end of the warm-up on
        ({"warmup": 2, "decay": "linear"}, [0.5, 1, 1, 0.75, 0.5, 0.25]),
        # (1 + cos pi u) / 2 at u = 0, 1/4, 1/2, 3/4
        ({"warmup": 2, "decay": "cosine"}, [0.5, 1, 1, 0.853553, 0.5, 0.146447]),
        ({"warmup": 9}, [1 / 9, 2 / 9, 3 / 9, 4 / 9, 5 / 9, 6 / 9]),
    ],
)
def test_rates_by_hand(options, want):
    assert rates(6, **options) == pytest.approx(want, abs=1e-6)


def test_the_value_head_has_a_rate_of_its_own_on_the_same_schedule():
    config = LearnerConfig(lr=0.1, value_lr=0.02, warmup=2)
    assert learning_rates(config, 0, 4) == pytest.approx((0.05, 0.01))
    assert learning_rates(LearnerConfig(lr=0.1, warmup=2), 0, 4) == pytest.approx((0.05, 0.05))
    policy = make_table_policy()
    policies, values = make_optimizer(policy, config).param_groups
    assert policies["params"] == [policy.logits_SV]
    assert values["params"] == [policy.values_S]
    assert (policies["lr"], values["lr"]) == (0.1, 0.02)


def test_a_first_step_of_adam_is_as_long_as_the_scheduled_rate():
    """Adam's first step is lr * sign(gradient), where the gradient is not tiny."""
    policy = make_table_policy()
    batch = make_table_batch(policy)
    learner = make_learner_of("a2c", policy, lr=0.1, value_lr=0.02, warmup=2)
    learner.begin_iteration(0, 10)
    before = {name: p.detach().clone() for name, p in policy.named_parameters()}
    learner.update(batch, advantage_of(learner, batch), [torch.arange(len(batch))])
    for name, rate in {"logits_SV": 0.05, "values_S": 0.01}.items():
        moved = (getattr(policy, name) - before[name]).abs().max().item()
        assert moved == pytest.approx(rate, rel=1e-3)


def test_gradients_are_scaled_down_to_the_norm_and_reported_as_they_were():
    policy = make_table_policy()
    batch = make_table_batch(policy)
    learner = make_learner_of("a2c", policy, max_grad_norm=1e-3)
    used = gradients_used(learner)
    metrics = learner.update(batch, advantage_of(learner, batch), [torch.arange(len(batch))])
    norm = torch.nn.utils.get_total_norm(list(used[0].values()))
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)
    assert metrics["gradient_norm"] > 1e-2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lr": 0.0}, "learner.lr is 0.0"),
        ({"value_lr": -1.0}, "learner.value_lr is -1.0"),
        ({"max_grad_norm": float("nan")}, "learner.max_grad_norm is nan"),
        ({"warmup": -1}, "learner.warmup is -1"),
        ({"decay": "sudden"}, "learner.decay is 'sudden'; there are constant, linear, cosine"),
        ({"optimizer": "sgd"}, "learner.optimizer is 'sgd'; there are adam, adam8bit"),
    ],
)
def test_optimizer_settings_out_of_range_are_refused(wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        LearnerConfig(**wrong)


def test_a_batch_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match=r"a batch of 10 rows is not divisible by learner.minibatch 4"):
        LearnerConfig(minibatch=4).check_batch(10)
    with pytest.raises(
        ValueError, match=r"a minibatch of 10 rows is not divisible by learner.microbatches 4"
    ):
        LearnerConfig(microbatches=4).check_batch(10)
    with pytest.raises(ValueError, match=r"a minibatch of 6 rows is not divisible by learner.microbatches 4"):
        LearnerConfig(minibatch=6, microbatches=4).check_batch(12)


def test_eight_bit_adam_without_its_library_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(ImportError, match=r"pip install 'cory\[quant\]'"):
        make_optimizer(make_table_policy(), LearnerConfig(optimizer="adam8bit"))


def test_eight_bit_adam_moves_weights_and_its_state_survives_a_checkpoint(tmp_path):
    pytest.importorskip("bitsandbytes", reason="needs bitsandbytes (pip install 'cory[quant]')")
    # 2 x 64 x 64 logits: enough for moments of 8 bits
    policy = TablePolicy("llm_1", vocab_size=64, eos=frozenset({0}), pad=0, max_response=2)
    optimizer = make_optimizer(policy, LearnerConfig(optimizer="adam8bit", lr=0.1))

    def step():
        policy.logits_SV.square().sub(policy.logits_SV).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    assert policy.logits_SV.abs().min() > 0.05
    save_file(optimizer_tensors(optimizer), tmp_path / "optimizer.safetensors")
    before = policy.logits_SV.detach().clone()
    step()
    after = policy.logits_SV.detach().clone()
    with torch.no_grad():
        policy.logits_SV.copy_(before)
    restore_optimizer(optimizer, load_file(tmp_path / "optimizer.safetensors"))
    step()
    assert torch.equal(policy.logits_SV, after)
