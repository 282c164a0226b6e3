"""TRPO's step against a dense computation, its bound, what it does not change and what it refuses.

On a table everything has a closed form. Token k was chosen in cell s(k) with probabilities p_s; K tokens:

    gradient of mean ratio A at the old policy      g_s = sum over k in s of A_k (onehot_k - p_s) / K
    Fisher matrix, block by block                   F_s = n_s (diag p_s - p_s p_s^T) / K
"""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from cory import algorithms
from cory.algorithms import trpo
from cory.batch import Batch, Rows
from cory.functional import kl, token_rewards
from cory.learner.learner import Learner
from cory.learner.optimizer import LearnerConfig
from cory.policies.scoring import evaluate, make_batch
from cory.policies.table import TablePolicy
from tests.helpers.batches import make_batch as make_lm_batch
from tests.helpers.models import make_policy, make_team, pair, stir

V, T, B = 4, 2, 6


def table() -> TablePolicy:
    torch.manual_seed(0)
    policy = TablePolicy("llm_1", vocab_size=V, eos=frozenset(), pad=0, max_response=T).double()
    torch.nn.init.normal_(policy.logits_SV)
    policy.set_reference(policy)
    return policy


def batch_of(policy: TablePolicy) -> Batch:
    rows = Rows(
        prompt_BP=torch.tensor([[1], [1], [2], [3], [3], [3]]),
        prompt_length_B=torch.ones(B, dtype=torch.long),
        response_BT=torch.tensor([[0, 1], [2, 9], [3, 3], [1, 0], [1, 9], [2, 2]]).clamp(max=3),
        response_length_B=torch.tensor([2, 1, 2, 2, 1, 2]),
    )
    score_B = torch.tensor([1.0, -2.0, 0.5, 3.0, 0.0, -1.0]).double()
    return make_batch(policy, rows, torch.zeros(B, T).double(), score_B, score_B)


def learner_of(
    policy, *, place: str = "reward", kind: str = "k1", coef: float = 0.2, lr: float = 0.1, **options
) -> Learner:
    return Learner(
        policy,
        algorithms.load("trpo"),
        trpo.Config(**options),
        config=LearnerConfig(lr=lr),
        kl_config=kl.KLConfig(place=place, kind=kind, coef=coef),
        payoff_config=token_rewards.PayoffScalingConfig(),
    )


def update(learner: Learner, batch: Batch) -> dict[str, float]:
    (rewards_BT,) = learner.rewards([batch])
    advantages = trpo.advantage(
        {"pioneer_0": batch}, {"pioneer_0": rewards_BT}, learner.algorithm_config, {"pioneer_0": {}}
    )
    return learner.update(batch, advantages["pioneer_0"], [])


def dense(policy: TablePolicy, batch: Batch, learner: Learner) -> tuple[torch.Tensor, torch.Tensor]:
    """g and F by the formulas above, flat."""
    (rewards_BT,) = learner.rewards([batch])
    A_BT = trpo.advantage(
        {"pioneer_0": batch}, {"pioneer_0": rewards_BT}, learner.algorithm_config, {"pioneer_0": {}}
    )["pioneer_0"].advantage_BT
    p_SV = policy.logits_SV.detach().softmax(-1)
    g_SV, F = torch.zeros_like(p_SV), torch.zeros(p_SV.numel(), p_SV.numel(), dtype=torch.float64)
    chosen = [(i, t) for i in range(B) for t in range(int(batch.response_length_B[i]))]
    for i, t in chosen:
        s = t * V + int(batch.prompt_BP[i, 0])
        p_V = p_SV[s]
        onehot_V = torch.eye(V).double()[batch.response_BT[i, t]]
        g_SV[s] += A_BT[i, t] * (onehot_V - p_V) / len(chosen)
        F[s * V : s * V + V, s * V : s * V + V] += (p_V.diag() - p_V[:, None] * p_V) / len(chosen)
    return g_SV.flatten(), F


def test_the_step_is_the_natural_gradient_as_long_as_the_bound_allows():
    policy = table()
    batch, before_SV = batch_of(policy), policy.logits_SV.detach().clone()
    learner = learner_of(policy, max_kl=1e-3, damping=0.05, cg_steps=40, value_steps=0)
    g, F = dense(policy, batch, learner)
    damped = F + 0.05 * torch.eye(len(g)).double()
    x = torch.linalg.solve(damped, g)
    metrics = update(learner, batch)
    want = metrics["line_search"] * (2 * 1e-3 / (x @ damped @ x)).sqrt() * x
    got = (policy.logits_SV.detach() - before_SV).flatten()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-8)
    assert metrics["line_search"] == 1
    assert metrics["gradient_norm"] == pytest.approx(g.norm().item())
    old, new = before_SV.log_softmax(-1), policy.logits_SV.detach().log_softmax(-1)
    cells = [0 * V + 1, 0 * V + 1, 0 * V + 2, *[0 * V + 3] * 3, V + 1, V + 2, V + 3, V + 3]
    moved = sum(float((old[s].exp() * (old[s] - new[s])).sum()) for s in cells) / len(cells)
    assert metrics["step_kl"] == pytest.approx(moved)
    assert 0 < moved <= 1e-3
    assert metrics["improvement"] > 0


def test_fisher_products_may_use_a_part_of_the_batch():
    policy = table()
    learner = learner_of(policy)
    whole, part = (
        trpo.fisher_product(policy, rows, [policy.logits_SV], damping=0.0)(torch.arange(32.0).double())
        for rows in (batch_of(policy), batch_of(policy).take(torch.tensor([0, 3])))
    )
    _, F = dense(policy, batch_of(policy), learner)
    torch.testing.assert_close(whole, F @ torch.arange(32.0).double())
    # only rows 0 and 3: cells 1 and 3 of both positions
    assert part.view(-1, V).abs().sum(1).nonzero().flatten().tolist() == [1, 3, 5, 7]
    assert update(learner_of(policy, fisher_every=3, value_steps=0), batch_of(policy))["step_kl"] <= 0.01


@pytest.mark.parametrize("max_kl", [0.001, 0.05, 0.5])
def test_no_step_leaves_the_bound(max_kl):
    policy = table()
    for _ in range(5):
        metrics = update(learner_of(policy, max_kl=max_kl, damping=0.01), batch_of(policy))
        assert 0 < metrics["step_kl"] <= max_kl


def test_where_no_try_is_good_enough_the_policy_stays_bit_for_bit():
    """A step far past where the quadratic holds, and a single try."""
    policy = table()
    batch, before_SV = batch_of(policy), policy.logits_SV.detach().clone()
    metrics = update(learner_of(policy, max_kl=0.3, damping=1e-6, cg_steps=40, tries=1, value_steps=0), batch)
    assert metrics["line_search"] == metrics["step_kl"] == metrics["improvement"] == metrics["steps"] == 0
    assert torch.equal(policy.logits_SV, before_SV)
    assert policy.version == 0


def test_nothing_to_learn_is_no_step():
    policy = table()
    batch = replace(batch_of(policy), payoff_B=torch.zeros(B).double())
    metrics = update(learner_of(policy, coef=0.0, value_steps=0), batch)
    assert metrics["gradient_norm"] == metrics["line_search"] == 0


def test_a_kl_term_in_the_loss_pulls_the_step_back():
    """Payoffs are 0, so full KL is all of the loss: the policy moves towards its reference."""
    policy, reference = table(), table()
    with torch.no_grad():
        reference.logits_SV.zero_()
    policy.set_reference(reference)
    batch = replace(batch_of(policy), payoff_B=torch.zeros(B).double())
    before = batch.exact_kl_BT.sum().item()
    metrics = update(learner_of(policy, place="loss", kind="full", coef=1.0), batch)
    assert metrics["improvement"] > 0
    assert evaluate(policy, batch).exact_kl_BT.sum().item() < before


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_language_model_takes_the_step_and_its_values_are_fitted_separately(attention):
    """Fused attention kernels have no second derivative; the value head's steps leave the trunk as it is."""
    found = {}
    for value_steps in (0, 5):
        policy = pair("gpt2")
        policy.model.set_attn_implementation(attention)
        batch = make_lm_batch(policy)
        metrics = update(learner_of(policy, lr=0.005, value_steps=value_steps), batch)
        assert 0 < metrics["step_kl"] <= 0.01
        assert metrics["first_ratio_deviation"] < 1e-5
        assert metrics["steps"] == policy.version == 1 + value_steps
        found[value_steps] = {name: p.detach().clone() for name, p in policy.named_parameters()}, metrics
    (before, first), (after, fitted) = found[0], found[5]
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert moved
    assert all(name.startswith("value_head") for name in moved)
    assert fitted["value_loss"] < first["value_loss"]
    start = dict(pair("gpt2").named_parameters())
    assert all(not torch.equal(start[n], p) for n, p in after.items())


def test_adapters_take_the_step_and_no_other_weights_move(tiny_folder):
    team = make_team(tiny_folder)
    policy = team.policies["llm_1"]
    own = {id(p) for p in policy.parameters()}
    stir(policy)
    before = {name: p.detach().clone() for name, p in team.model.named_parameters()}
    metrics = update(learner_of(policy), make_lm_batch(policy))
    assert 0 < metrics["step_kl"] <= 0.01
    for name, parameter in team.model.named_parameters():
        assert torch.equal(parameter, before[name]) == (id(parameter) not in own), name


def test_recomputed_layers_give_the_same_step(tiny_folder):
    weights = []
    for recomputes in (False, True):
        team = make_team(tiny_folder, gradient_checkpointing=recomputes)
        policy = team.policies["llm_1"]
        assert update(learner_of(policy), make_lm_batch(policy))["line_search"] > 0
        weights.append([parameter.detach() for parameter in policy.adapter.parameters()])
    torch.testing.assert_close(*weights, atol=1e-5, rtol=1e-4)


def test_a_policy_that_cannot_be_differentiated_twice_is_named(monkeypatch):
    monkeypatch.setattr(trpo, "sdpa_kernel", lambda kernel: nullcontext())
    policy = pair("gpt2")
    policy.model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match=r"differentiates policy 'llm_1' twice.*attn_implementation"):
        update(learner_of(policy), make_lm_batch(policy))


def test_broken_numbers_stop_the_update():
    policy = make_policy("table")
    policy.set_reference(make_policy("table", "reference"))
    batch = make_lm_batch(policy)
    payoff_B = torch.full_like(batch.payoff_B, float("nan"))
    with pytest.raises(FloatingPointError, match=r"gradient_norm.* of policy 'llm_1' is not finite"):
        update(learner_of(policy), replace(batch, payoff_B=payoff_B))


def test_conjugate_gradients_solve_a_small_system():
    # [[4, 1], [1, 3]] x = [1, 2] is solved by [1/11, 7/11], in two steps
    matrix = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
    got = trpo.conjugate_gradient(lambda v: matrix @ v, torch.tensor([1.0, 2.0]), steps=2)
    assert got.tolist() == pytest.approx([1 / 11, 7 / 11])
