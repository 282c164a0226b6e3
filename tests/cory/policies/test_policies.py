"""Sampling, scoring and learning of one policy."""

from dataclasses import replace

import pytest
import torch

from cory.algorithms import ppo
from cory.generation.sampling import inverse_cdf, sample
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.gradient_checkpointing import layers_of
from cory.policies.scoring import evaluate
from cory.runtime.memory import BYTES_PER_LOGIT, MemoryBudget
from tests.helpers.batches import B, make_batch, make_rows, prompts, sample_responses
from tests.helpers.learners import advantage_of, make_learner
from tests.helpers.models import make_policy, pair

KINDS = ("gpt2", "llama", "table")


@pytest.mark.parametrize("kind", KINDS)
def test_sampler_and_learner_agree_before_the_first_step(kind):
    """The GPT-2 of these tests has dropout in its configuration."""
    policy = make_policy(kind)
    policy.set_reference(make_policy(kind, "reference"))
    batch = make_batch(policy)
    assert (batch.behaviour_logprobs_BT - batch.old_logprobs_BT).abs().max() < 1e-5
    assert batch.exact_kl_BT.abs().max() < 1e-6
    assert (batch.old_logprobs_BT == batch.ref_logprobs_BT).all()
    learner = make_learner(policy)
    metrics = learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
    assert metrics["first_ratio_deviation"] < 1e-5
    assert metrics["ratio"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_equals_its_reference_until_a_weight_of_its_distribution_moves(kind):
    policy = make_policy(kind)
    policy.set_reference(make_policy(kind, "reference"))
    with torch.no_grad():
        for weight in policy.value_parameters():
            weight += 1
    assert policy.equals_reference()
    values = {id(weight) for weight in policy.value_parameters()}
    for weight in (w for w in policy.parameters() if id(w) not in values):
        with torch.no_grad():
            weight.view(-1)[-1] += 0.5
        assert not policy.equals_reference()
        with torch.no_grad():
            weight.copy_(dict(policy.reference.named_parameters())[name_of(policy, weight)])
    policy.reference.temperature = 2.0
    assert not policy.equals_reference()


def name_of(policy, weight):
    return next(name for name, own in policy.named_parameters() if own is weight)


@pytest.mark.parametrize("kind", KINDS)
def test_a_rows_tokens_depend_neither_on_other_rows_nor_on_padding(kind):
    """Left padding inside the sampler, poison behind the prompts, other rows in the batch."""
    policy = make_policy(kind)
    whole = sample_responses(policy)
    poisoned = sample_responses(policy, poison=2)
    assert (whole.response_BT == poisoned.response_BT).all()
    for i in range(B):
        single = sample_responses(policy, rows=slice(i, i + 1))
        length = int(single.response_length_B)
        assert length == whole.response_length_B[i]
        assert single.response_BT[0, :length].tolist() == whole.response_BT[i, :length].tolist()
        torch.testing.assert_close(
            single.logprobs_BT[0, :length], whole.logprobs_BT[i, :length], atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@torch.no_grad()
def test_logprobs_and_kl_are_those_of_a_float64_loop(kind):
    policy = pair(kind)
    rows, _ = make_rows(policy)
    found = evaluate(policy, rows)
    for i in range(B):
        p, r = int(rows.prompt_length_B[i]), int(rows.response_length_B[i])
        ids = torch.cat([rows.prompt_BP[i, :p], rows.response_BT[i, :r]])[None]
        ours = policy.model(ids).logits[0, p - 1 : -1].double().log_softmax(-1)
        theirs = policy.reference.model(ids).logits[0, p - 1 : -1].double().log_softmax(-1)
        for t in range(r):
            token = int(rows.response_BT[i, t])
            exact = sum(float(a.exp() * (a - b)) for a, b in zip(ours[t], theirs[t], strict=True))
            assert found.logprobs_BT[i, t].item() == pytest.approx(float(ours[t, token]), abs=1e-5)
            assert found.ref_logprobs_BT[i, t].item() == pytest.approx(float(theirs[t, token]), abs=1e-5)
            assert found.exact_kl_BT[i, t].item() == pytest.approx(exact, abs=1e-5)
        assert (found.exact_kl_BT[i, r:] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_do_not_depend_on_chunks_or_microbatches(kind):
    """6x1 = 3x2 = 1x6 with unequal lengths, and one chunk = many."""
    found = []
    for microbatches, logits in [(1, 1 << 24), (2, 1 << 24), (6, 1 << 24), (1, 700)]:
        policy = pair(kind)
        policy.budget = MemoryBudget(activations=1 << 30, logits=BYTES_PER_LOGIT * logits)
        batch = make_batch(policy)
        learner = make_learner(policy, microbatches=microbatches)
        learner.optimizer = torch.optim.SGD(learner.trainable, lr=1.0)
        before = [p.detach().clone() for p in learner.trainable]
        learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
        found.append([a - b.detach() for a, b in zip(before, learner.trainable, strict=True)])
    for other in found[1:]:
        for want, got in zip(found[0], other, strict=True):
            torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


def test_rows_of_like_lengths_share_a_pass_where_a_batch_is_split(monkeypatch):
    policy = pair("llama")
    batch, learner, order_B = make_batch(policy), make_learner(policy), torch.tensor([3, 0, 5, 1, 4, 2])
    monkeypatch.setattr(policy, "max_rows", lambda length: 6)
    assert [part_B.tolist() for part_B in learner._microbatches(batch, order_B)] == [order_B.tolist()]
    monkeypatch.setattr(policy, "max_rows", lambda length: 2)
    parts = learner._microbatches(batch, order_B)
    length_B = batch.prompt_length_B + batch.response_length_B
    assert length_B[torch.cat(parts)].tolist() == sorted(length_B.tolist())
    assert [len(part_B) for part_B in parts] == [2, 2, 2]
    assert sorted(torch.cat(parts).tolist()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_pass_takes_as_many_rows_as_memory_allows_and_nothing_else_changes(kind, monkeypatch):
    """Memory for the activations of 2 rows of 12 tokens in both layers and for logits of 2 rows.

    Sampling, scoring and gradients run in parts of 2 rows.
    """
    found, batch_sizes = [], []
    plain = CausalLMPolicy.trunk
    monkeypatch.setattr(
        CausalLMPolicy,
        "trunk",
        lambda self, **inputs: batch_sizes.append(len(inputs["input_ids"])) or plain(self, **inputs),
    )
    for few in (False, True):
        policy = pair(kind)
        config = policy.model.config
        if few:
            assert (config.num_hidden_layers, config._attn_implementation) == (2, "eager")
            # float32: 34 numbers per token and channel, 3 attention scores per pair of tokens and head
            layer = 4 * 12 * (34 * config.hidden_size + 3 * config.num_attention_heads * 12)
            logits = 2 * BYTES_PER_LOGIT * policy.vocab_size
            budget = MemoryBudget(activations=2 * 2 * layer, logits=logits)
            policy.budget = policy.reference.budget = budget
        batch_sizes.clear()
        batch = make_batch(policy)
        learner = make_learner(policy)
        learner.optimizer = torch.optim.SGD(learner.trainable, lr=1.0)
        before = [p.detach().clone() for p in learner.trainable]
        learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
        assert set(batch_sizes) == ({2} if few else {6})
        found.append((batch, [a - b.detach() for a, b in zip(before, learner.trainable, strict=True)]))
    (whole, want), (parts, got) = found
    assert torch.equal(whole.response_BT, parts.response_BT)
    for name, tensor in vars(whole).items():
        torch.testing.assert_close(getattr(parts, name), tensor, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_chunked_loss_has_the_gradient_of_the_plain_one(kind):
    policy = pair(kind)
    batch = make_batch(policy)
    advantage = advantage_of(make_learner(policy), batch)
    sums = policy(
        batch, advantage._asdict(), lambda tokens: ppo.token_loss(tokens, ppo.Config(entropy_coef=0.1))
    )
    sums.loss.backward()
    got = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    policy.zero_grad()

    total = torch.zeros(())
    for i in range(B):
        p, r = int(batch.prompt_length_B[i]), int(batch.response_length_B[i])
        ids = torch.cat([batch.prompt_BP[i, :p], batch.response_BT[i, :r]])[None]
        out = policy.model(ids, output_hidden_states=True)
        logp = out.logits[0, p - 1 : -1].log_softmax(-1)
        new = logp.gather(1, batch.response_BT[i, :r, None])[:, 0]
        value = policy.value_head(out.hidden_states[-1][0, p - 1 : -1])[:, 0]
        ratio, A = (new - batch.old_logprobs_BT[i, :r]).exp(), advantage.advantage_BT[i, :r]
        clipped = torch.minimum(ratio * A, ratio.clamp(0.8, 1.2) * A)
        entropy = -(logp.exp() * logp).sum(-1)
        errors = (
            value - advantage.return_BT[i, :r]
        ).square() / 2  # values are at their old ones: no value clip
        total = total + (-clipped + 0.1 * errors - 0.1 * entropy).sum()
    assert sums.loss.item() == pytest.approx(total.item(), abs=1e-4)
    total.backward()
    for name, parameter in policy.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(got[name], parameter.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_at_masked_positions_changes_anything(kind):
    found = []
    for poison in (0.0, float("nan")):
        policy = pair(kind)
        batch = make_batch(policy)
        changed = {
            name: torch.where(batch.mask_BT, getattr(batch, name), poison)
            for name in (
                "behaviour_logprobs_BT",
                "old_logprobs_BT",
                "ref_logprobs_BT",
                "exact_kl_BT",
                "values_BT",
            )
        }
        batch = replace(batch, **changed)
        learner = make_learner(policy, epochs=2)
        learner.update(batch, advantage_of(learner, batch), [torch.arange(B)] * 2)
        found.append([p.detach().clone() for p in learner.trainable])
    for clean, poisoned in zip(*found, strict=True):
        assert torch.equal(clean, poisoned)


@pytest.mark.parametrize("kind", KINDS)
def test_every_trainable_tensor_moves_and_only_this_policys(kind):
    """The value head moves too, though it starts at zero and contributes no gradient to the trunk."""
    policy, other = pair(kind), make_policy(kind, "llm_2")
    batch = make_batch(policy)
    learner = make_learner(policy)
    before = {name: p.detach().clone() for name, p in policy.named_parameters()}
    reference = [p.detach().clone() for p in policy.reference.parameters()]
    learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
    still = [name for name, p in policy.named_parameters() if torch.equal(p, before[name])]
    assert not still
    assert all(p.grad is None for p in other.parameters())
    assert all(torch.equal(a, b) for a, b in zip(reference, policy.reference.parameters(), strict=True))


def test_a_reference_is_no_parameter_of_its_policy():
    policy = pair("gpt2")
    names = [name for name, _ in policy.named_parameters()]
    assert not [name for name in names if "reference" in name]
    assert len(names) == len(set(names))


def test_eos_ends_a_response_carries_loss_and_may_be_one_of_several():
    """Pad id 0 may be chosen like any other token, and there are two EOS ids."""
    policy = make_policy("table")
    drawn = sample_responses(policy)
    ends = [int(drawn.response_BT[i, n - 1]) for i, n in enumerate(drawn.response_length_B.tolist())]
    caps = [7, 4, 6, 5, 7, 3]
    assert all(
        end in policy.eos or n == cap for end, n, cap in zip(ends, drawn.response_length_B, caps, strict=True)
    )
    inside = [
        t
        for i, n in enumerate(drawn.response_length_B.tolist())
        for t in drawn.response_BT[i, : n - 1].tolist()
    ]
    assert not policy.eos & set(inside)
    assert (drawn.response_BT == 0).any()


def test_the_inverse_cdf_by_hand():
    logits = torch.tensor([[0.5, 0.25, 0.0, 0.25]]).log().repeat(4, 1)
    # cumulative .5 .75 .75 1: token 2 has probability 0 and is never drawn
    drawn = inverse_cdf(logits, torch.tensor([0.0, 0.5, 0.75, 0.9999999]))
    assert drawn.token_B.tolist() == [0, 1, 3, 3]
    torch.testing.assert_close(drawn.logprob_B.exp(), torch.tensor([0.5, 0.25, 0.25, 0.25]))


def test_broken_weights_are_named_at_once():
    policy = make_policy("gpt2")
    with torch.no_grad():
        policy.model.transformer.ln_f.weight[0] = float("nan")
    with pytest.raises(FloatingPointError, match="logits of row 0 are not finite at response token 0"):
        sample_responses(policy)


def test_too_few_uniforms_and_too_small_a_window_are_refused():
    policy = make_policy("gpt2")
    prompt_BP, length_B = prompts()
    draw = {"uniforms_BT": torch.zeros(B, 3), "caps_B": torch.full((B,), 4)}
    with pytest.raises(ValueError, match="needs 4 columns of uniforms; got 3"):
        sample(policy.decoder(), prompt_BP, length_B, **draw, eos=policy.eos)
    with pytest.raises(ValueError, match="may reach 105 tokens; policy 'llm_1' has a window of 64"):
        policy.sample(prompt_BP, length_B, uniforms_BT=torch.zeros(B, 100), caps_B=torch.full((B,), 100))


def test_a_layer_inside_of_another_is_recomputed_with_it():
    """As in zamba2: flagged by itself, it would be recomputed unlike it was computed."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    class Layer(GradientCheckpointingLayer):
        def __init__(self, inner=None):
            super().__init__()
            self.inner = inner

    outer, alone = Layer(Layer()), Layer()
    assert layers_of(torch.nn.ModuleList([outer, alone])) == [outer, alone]
