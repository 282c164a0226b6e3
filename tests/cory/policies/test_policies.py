"""Sampling, scoring and learning of one policy: INVARIANTS 1 to 6, 15."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cory.functional import kl, token_rewards
from cory import rng
from cory.functional.advantage import Advantage
from cory.algorithms import load, ppo
from cory.batch import Batch, Rows
from cory.learner.learner import Learner
from cory.learner.optimizer import LearnerConfig
from cory.policies import chunked_loss, precision
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.table import TablePolicy
from cory.rollout.rollout import make_batch
from cory.generation.sampling import inverse_cdf, sample
from tests.cory.conftest import make_model, make_tokenizer

B, P, T = 6, 5, 7
KINDS = ("gpt2", "llama", "table")


def make_policy(kind: str, name: str = "llm_1", seed: int = 0):
    if kind == "table":
        policy = TablePolicy(name, vocab_size=20, eos=frozenset({3, 5}), pad=0, max_response=T)
        torch.manual_seed(seed)
        torch.nn.init.normal_(policy.logits_SV)
        return policy
    tokenizer = make_tokenizer()
    return CausalLMPolicy(name, make_model(kind, len(tokenizer), seed=seed), tokenizer)


def pair(kind: str):
    """A policy that has left its reference."""
    policy, reference = make_policy(kind), make_policy(kind, "reference").requires_grad_(False)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    policy.set_reference(reference)
    return policy


def prompts(poison: int = 9):
    generator = np.random.default_rng(0)
    length_B = torch.tensor([5, 2, 3, 5, 1, 4])
    prompt_BP = torch.tensor(generator.integers(1, 20, (B, P)))
    return torch.where(torch.arange(P) < length_B[:, None], prompt_BP, poison), length_B


def write(policy, *, rows=slice(None), poison: int = 9, key: int = 0):
    """Sample from each prompt, as rollout does."""
    prompt_BP, length_B = prompts(poison)
    games_B = np.arange(B)[rows]
    return policy.sample(
        prompt_BP[rows],
        length_B[rows],
        uniforms_BT=torch.from_numpy(rng.uniforms((key, "test"), games_B, T)),
        caps_B=torch.tensor([7, 4, 6, 5, 7, 3])[rows],
    )


def make_rows(policy, **options) -> tuple[Rows, torch.Tensor]:
    told = write(policy, **options)
    prompt_BP, length_B = prompts(options.get("poison", 9))
    rows = Rows(
        prompt_BP=prompt_BP,
        prompt_length_B=length_B,
        response_BT=told.response_BT,
        response_length_B=told.response_length_B,
    )
    return rows, told.logprobs_BT


def make_batch(policy) -> Batch:
    rows, behaviour = make_rows(policy)
    score_B = torch.linspace(-1, 1, B)
    return make_batch(policy.evaluate(rows), rows, behaviour, score_B, score_B)


def make_learner(policy, **options) -> Learner:
    algorithm = ppo.Config(epochs=options.pop("epochs", 1))
    return Learner(
        policy,
        load("ppo"),
        algorithm,
        config=LearnerConfig(**options),
        kl_config=kl.KLConfig(),
        payoff_config=token_rewards.PayoffScalingConfig(),
    )


def advantage_of(learner: Learner, batch: Batch) -> Advantage:
    (rewards_BT,) = learner.rewards([batch])
    return ppo.advantage({"pioneer_0": batch}, {"pioneer_0": rewards_BT}, ppo.Config(), {})["pioneer_0"]


@pytest.mark.parametrize("kind", KINDS)
def test_sampler_and_learner_agree_before_the_first_step(kind):
    """INVARIANTS 1. The GPT-2 of these tests has dropout in its configuration."""
    policy = make_policy(kind)
    policy.set_reference(make_policy(kind, "reference"))
    batch = make_batch(policy)
    assert (batch.behaviour_logprobs_BT - batch.old_logprobs_BT).abs().max() < 1e-5
    assert batch.exact_kl_BT.abs().max() < 1e-6
    assert (batch.old_logprobs_BT == batch.ref_logprobs_BT).all()
    learner = make_learner(policy)
    numbers = learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
    assert numbers["first_ratio_deviation"] < 1e-5
    assert numbers["ratio"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_gets_its_tokens_whatever_stands_beside_it_or_in_the_padding(kind):
    """INVARIANTS 3, 4: left padding inside the sampler, poison behind the prompts, other rows in the
    batch."""
    policy = make_policy(kind)
    together = write(policy)
    poisoned = write(policy, poison=2)
    assert (together.response_BT == poisoned.response_BT).all()
    for i in range(B):
        single = write(policy, rows=slice(i, i + 1))
        length = int(single.response_length_B)
        assert length == together.response_length_B[i]
        assert single.response_BT[0, :length].tolist() == together.response_BT[i, :length].tolist()
        torch.testing.assert_close(
            single.logprobs_BT[0, :length], together.logprobs_BT[i, :length], atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_logprobs_entropy_and_kl_are_those_of_a_float64_loop(kind):
    policy = pair(kind)
    rows, _ = make_rows(policy)
    told = policy.evaluate(rows)
    for i in range(B):
        p, r = int(rows.prompt_length_B[i]), int(rows.response_length_B[i])
        ids = torch.cat([rows.prompt_BP[i, :p], rows.response_BT[i, :r]])[None]
        ours = policy.model(ids).logits[0, p - 1 : -1].double().log_softmax(-1)
        theirs = policy.reference.model(ids).logits[0, p - 1 : -1].double().log_softmax(-1)
        for t in range(r):
            token = int(rows.response_BT[i, t])
            exact = sum(float(a.exp() * (a - b)) for a, b in zip(ours[t], theirs[t], strict=True))
            entropy = -sum(float(a.exp() * a) for a in ours[t])
            assert told.logprobs_BT[i, t].item() == pytest.approx(float(ours[t, token]), abs=1e-5)
            assert told.ref_logprobs_BT[i, t].item() == pytest.approx(float(theirs[t, token]), abs=1e-5)
            assert told.exact_kl_BT[i, t].item() == pytest.approx(exact, abs=1e-5)
            assert told.entropy_BT[i, t].item() == pytest.approx(entropy, abs=1e-4)
        assert (told.exact_kl_BT[i, r:] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_do_not_depend_on_chunks_or_microbatches(kind, monkeypatch):
    """INVARIANTS 6: 6x1 = 3x2 = 1x6 with unequal lengths, and one chunk = many."""
    found = []
    for microbatches, chunk in [(1, 1 << 24), (2, 1 << 24), (6, 1 << 24), (1, 700)]:
        monkeypatch.setattr(chunked_loss, "CHUNK", chunk)
        policy = pair(kind)
        batch = make_batch(policy)
        learner = make_learner(policy, microbatches=microbatches)
        learner.optimizer = torch.optim.SGD(learner.trainable, lr=1.0)
        before = [p.detach().clone() for p in learner.trainable]
        learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
        found.append([a - b.detach() for a, b in zip(before, learner.trainable, strict=True)])
    for other in found[1:]:
        for want, got in zip(found[0], other, strict=True):
            torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_pass_takes_as_many_rows_as_memory_allows_and_nothing_else_changes(kind, monkeypatch):
    """Activations for 2 rows of 12 tokens in both layers, logits for 2 rows: sampling in parts of 2, scoring,
    which needs one layer's, of 4, gradients of 2."""
    found, read = [], []
    plain = CausalLMPolicy.trunk
    monkeypatch.setattr(
        CausalLMPolicy,
        "trunk",
        lambda self, **inputs: read.append(len(inputs["input_ids"])) or plain(self, **inputs),
    )
    for few in (False, True):
        policy = pair(kind)
        config = policy.model.config
        if few:
            assert (config.num_hidden_layers, config._attn_implementation) == (2, "eager")
            numbers = 2 * 12 * (config.hidden_size + config.num_attention_heads) * 2
            monkeypatch.setitem(precision.ACTIVATIONS, "cpu", numbers)
            monkeypatch.setattr(chunked_loss, "CHUNK", 2 * policy.vocab_size)
        read.clear()
        batch = make_batch(policy)
        learner = make_learner(policy)
        learner.optimizer = torch.optim.SGD(learner.trainable, lr=1.0)
        before = [p.detach().clone() for p in learner.trainable]
        learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
        assert set(read) == ({2, 4} if few else {6})
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
    """INVARIANTS 5."""
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
    """INVARIANTS 15, 16. The value head starts at zero and so teaches the precision nothing in the first step."""
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


def test_a_reference_is_nobodys_parameter():
    policy = pair("gpt2")
    names = [name for name, _ in policy.named_parameters()]
    assert not [name for name in names if "reference" in name]
    assert len(names) == len(set(names))


def test_eos_ends_a_response_carries_loss_and_may_be_one_of_several():
    """INVARIANTS 3: with pad = 0 chosen freely, and two EOS ids."""
    policy = make_policy("table")
    told = write(policy)
    ends = [int(told.response_BT[i, n - 1]) for i, n in enumerate(told.response_length_B.tolist())]
    caps = [7, 4, 6, 5, 7, 3]
    assert all(
        end in policy.eos or n == cap for end, n, cap in zip(ends, told.response_length_B, caps, strict=True)
    )
    inside = [
        t
        for i, n in enumerate(told.response_length_B.tolist())
        for t in told.response_BT[i, : n - 1].tolist()
    ]
    assert not policy.eos & set(inside)
    assert (told.response_BT == 0).any()


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
        write(policy)


def test_too_little_chance_and_too_small_a_window_are_refused():
    policy = make_policy("gpt2")
    prompt_BP, length_B = prompts()
    chance = {"uniforms_BT": torch.zeros(B, 3), "caps_B": torch.full((B,), 4)}
    with pytest.raises(ValueError, match="needs 4 columns of uniforms; got 3"):
        sample(policy.decoder(), prompt_BP, length_B, **chance, eos=policy.eos)
    with pytest.raises(ValueError, match="may reach 105 tokens; policy 'llm_1' has a window of 64"):
        policy.sample(prompt_BP, length_B, uniforms_BT=torch.zeros(B, 100), caps_B=torch.full((B,), 100))
