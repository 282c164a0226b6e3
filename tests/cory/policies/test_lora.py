"""Several policies on one frozen backbone."""

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM

from cory.policies.lora_adapters import factors
from cory.policies.lora_config import LoRAConfig
from cory.policies.scoring import evaluate
from cory.rollout.role_exchange import seating_at
from tests.helpers.batches import B, make_batch, make_rows
from tests.helpers.learners import advantage_of, make_learner
from tests.helpers.models import (
    CLASSES,
    GPU,
    IDS,
    frozen_weights,
    make_team,
    model_logits,
    policy_logits,
    stir,
    weights_of,
)


def test_a_team_starts_as_its_reference_and_sampler_and_learner_agree(backbone):
    team = make_team(backbone)
    assert type(team.model) is type(AutoModelForCausalLM.from_pretrained(backbone))
    for policy in team.policies.values():
        batch = make_batch(policy)
        assert (batch.exact_kl_BT == 0).all()
        assert torch.equal(batch.old_logprobs_BT, batch.ref_logprobs_BT)
        assert (batch.behaviour_logprobs_BT - batch.old_logprobs_BT).abs().max() < 1e-5
        assert policy.equals_reference()
        learner = make_learner(policy)
        metrics = learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
        assert metrics["first_ratio_deviation"] < 1e-5
        assert not policy.equals_reference()
        after = make_batch(policy)
        assert after.exact_kl_BT.sum() > 0
        assert (after.behaviour_logprobs_BT - after.old_logprobs_BT).abs().max() < 1e-5


def test_a_teams_logprobs_are_those_peft_computes_from_the_saved_folder(backbone, tmp_path):
    """The oracle computes each row by itself, through PeftModel: no padding, no cache, no switch of ours."""
    team = make_team(backbone)
    for i, policy in enumerate(team.policies.values()):
        stir(policy, seed=i)
        policy.save(tmp_path / policy.name)
    for policy in team.policies.values():
        oracle = peft.PeftModel.from_pretrained(
            AutoModelForCausalLM.from_pretrained(backbone), str(tmp_path / policy.name)
        ).eval()
        rows, _ = make_rows(policy)
        found = evaluate(policy, rows)
        for i in range(B):
            p, r = int(rows.prompt_length_B[i]), int(rows.response_length_B[i])
            response = rows.response_BT[i, :r]
            ids = torch.cat([rows.prompt_BP[i, :p], response])[None]
            with torch.no_grad():
                want = oracle(ids).logits[0, p - 1 : -1].log_softmax(-1).gather(1, response[:, None])[:, 0]
                with oracle.disable_adapter():
                    ref = oracle(ids).logits[0, p - 1 : -1].log_softmax(-1).gather(1, response[:, None])[:, 0]
            torch.testing.assert_close(found.logprobs_BT[i, :r], want, atol=1e-5, rtol=0)
            torch.testing.assert_close(found.ref_logprobs_BT[i, :r], ref, atol=1e-5, rtol=0)


def test_only_adapters_need_a_gradient_and_that_never_changes(backbone):
    """Outside of a policy's passes the backbone is the model it was, whichever policy ran last."""
    team = make_team(backbone)
    own = [{id(p) for p in policy.adapter.parameters()} for policy in team.policies.values()]
    plain = model_logits(AutoModelForCausalLM.from_pretrained(backbone))
    for policy in team.policies.values():
        stir(policy)
        assert (policy_logits(policy) - plain).abs().max() > 0.01
        torch.testing.assert_close(model_logits(team.model), plain, atol=1e-5, rtol=0)
        assert {id(p) for p in team.model.parameters() if p.requires_grad} == set().union(*own)
    assert not set.intersection(*own)


def test_every_trainable_tensor_moves_within_two_steps_and_nothing_else_ever(backbone):
    """An adapter's second factor is 0, so its first has no gradient in the first step."""
    team = make_team(backbone)
    policy, other = team.policies["llm_1"], team.policies["llm_2"]
    before, rest, fixed = weights_of(policy), weights_of(other), frozen_weights(team)
    learner = make_learner(policy, value_lr=0.1)
    for _ in range(2):
        batch = make_batch(policy)
        learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
        assert all(parameter.grad is None for parameter in other.parameters())
        assert all(p.grad is None for p in team.model.parameters() if not p.requires_grad)
    after = weights_of(policy)
    assert not [name for name in before if torch.equal(before[name], after[name])]
    assert len(learner.trainable) == len(before)
    assert all(torch.equal(weights_of(other)[name], tensor) for name, tensor in rest.items())
    assert all(torch.equal(frozen_weights(team)[name], tensor) for name, tensor in fixed.items())


def test_backward_for_one_policy_leaves_the_others_gradients_none(backbone):
    """Also with passes of another policy and of the reference between forward and backward."""
    team = make_team(backbone)
    for i, policy in enumerate(team.policies.values()):
        stir(policy, seed=i)
    policy, other = team.policies["llm_1"], team.policies["llm_2"]
    found = []
    for passes_between in (lambda: None, lambda: (policy_logits(other), policy_logits(team.reference))):
        policy.zero_grad()
        state = policy.trunk(input_ids=IDS, use_cache=False).last_hidden_state[0]
        passes_between()
        (policy.logits(state).logsumexp(-1).sum() + policy.values(state).sum()).backward()
        found.append([parameter.grad.clone() for parameter in policy.parameters()])
        assert all(
            parameter.grad is None for parameter in (*other.parameters(), *team.reference.parameters())
        )
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_layers_are_recomputed_with_the_adapter_of_their_forward_pass(backbone):
    team, recomputing = make_team(backbone), make_team(backbone, gradient_checkpointing=True)
    found = []
    for policies in (team.policies, recomputing.policies):
        for i, policy in enumerate(policies.values()):
            stir(policy, seed=i)
        policy = policies["llm_1"]
        state = policy.trunk(input_ids=IDS, use_cache=False).last_hidden_state[0]
        policy_logits(policies["llm_2"])
        policy.logits(state).logsumexp(-1).sum().backward()
        found.append([p.grad for p in policy.adapter.parameters()])
    for kept, recomputed in zip(*found, strict=True):
        torch.testing.assert_close(kept, recomputed, atol=1e-6, rtol=1e-5)


def test_adapters_of_every_policy_still_move_after_every_exchange(backbone):
    """The released code freezes what it reloads after the first exchange."""
    team = make_team(backbone)
    learners = {name: make_learner(policy, value_lr=0.1) for name, policy in team.policies.items()}
    trainable = {name: [id(p) for p in learner.trainable] for name, learner in learners.items()}
    seatings = set()
    for iteration in range(5):
        seating = seating_at(iteration, every=1, seats=("pioneer_0", "observer_1"), first=("llm_1", "llm_2"))
        seatings.add(tuple(seating.items()))
        for name in seating.values():
            policy, learner, before = team.policies[name], learners[name], weights_of(team.policies[name])
            batch = make_batch(policy)
            learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
            if iteration:
                assert not [n for n, tensor in weights_of(policy).items() if torch.equal(tensor, before[n])]
            assert [id(p) for p in policy.parameters() if p.requires_grad] == trainable[name]
    assert len(seatings) == 2


def test_adapters_start_as_functions_of_seed_and_name_not_of_the_order_of_policies(backbone):
    torch.manual_seed(0)
    one = weights_of(make_team(backbone).policies["llm_2"])
    torch.manual_seed(1)
    same = weights_of(make_team(backbone, ("llm_2", "llm_1")).policies["llm_2"])
    assert all(torch.equal(one[name], tensor) for name, tensor in same.items())
    for other in (
        make_team(backbone).policies["llm_1"],
        make_team(backbone, seed=1).policies["llm_2"],
    ):
        assert any(not torch.equal(one[name], tensor) for name, tensor in weights_of(other).items())


def test_parameters_are_the_adapters_and_the_value_head_only(backbone):
    """By hand: rank 4 on two layers of width 32."""
    per_layer = {
        "gpt2": [(32, 96), (32, 32), (32, 128), (128, 32)],
        "llama": [(32, 32), (32, 16), (32, 16), (32, 32), (32, 64), (32, 64), (64, 32)],
    }
    per_layer["qwen2"] = per_layer["llama"]
    kind = next(name for name in CLASSES if backbone.name.startswith(name))
    want = 2 * sum(4 * (inputs + outputs) for inputs, outputs in per_layer[kind]) + 33
    policy = make_team(backbone).policies["llm_1"]
    assert sum(parameter.numel() for parameter in policy.parameters()) == want
    assert list(policy.head_parameters()) == list(policy.value_head.parameters())
    assert not [name for name, module in policy.named_modules() if module is policy.model]
    names = [name for name, _ in policy.adapter.named_parameters()]
    assert names == sorted(names)


@pytest.mark.gpu
def test_a_backbone_in_four_bits_learns_through_float32_adapters(backbone):
    pytest.importorskip("bitsandbytes")
    team = make_team(backbone, device=GPU, config=LoRAConfig(rank=4, alpha=8, four_bit="yes"))
    policy = team.policies["llm_1"]
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}
    assert (
        team.model.get_memory_footprint()
        < AutoModelForCausalLM.from_pretrained(backbone, dtype=torch.float32).get_memory_footprint()
    )
    before, fixed = weights_of(policy), frozen_weights(team)
    learner = make_learner(policy, value_lr=0.1)
    for step in range(2):
        batch = make_batch(policy)
        assert step or (batch.exact_kl_BT == 0).all()
        learner.update(batch, advantage_of(learner, batch), [torch.arange(B, device=GPU)])
    assert not [name for name, tensor in weights_of(policy).items() if torch.equal(tensor, before[name])]
    assert all(torch.equal(frozen_weights(team)[name], tensor) for name, tensor in fixed.items())


@torch.no_grad()
def test_what_a_small_adapter_adds_is_not_rounded_away_in_bfloat16(backbone):
    """A bfloat16 step is 0.008 at 1, so that 1 + 0.001 is 1: of what SmolLM2's adapters do 0.4 stayed."""
    team = make_team(backbone, precision="bfloat16")
    policy = team.policies["llm_1"]
    generator = torch.Generator().manual_seed(0)
    for layer, pair in factors(team.model, "llm_1").items():
        first, second = pair["lora_A"].weight, pair["lora_B"].weight
        second.copy_(1e-3 * torch.randn(second.shape, generator=generator))
        x_KD = torch.randn(64, first.shape[1], generator=generator)
        with policy.forward_context():
            adapted = team.model.get_submodule(layer)(x_KD)
        with team.reference.forward_context():
            plain = team.model.get_submodule(layer)(x_KD)
        alpha_by_rank = 8 / 4
        added = alpha_by_rank * x_KD @ first.T @ second.T
        torch.testing.assert_close(adapted - plain, added, rtol=0, atol=0.03 * float(added.abs().max()))
