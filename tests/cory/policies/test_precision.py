"""Less memory, same learning: bfloat16 products on float32 weights, gradient checkpointing."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, OPTConfig

from cory.algorithms import ppo
from cory.config.schema import Config, PolicyConfig
from cory.functional.advantage import Advantage
from cory.policies import precision
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.scoring import evaluate, make_batch
from cory.training import factory
from tests.helpers.batches import B, sampled
from tests.helpers.models import CONFIGS, make_causal_lm, make_tokenizer


def gradients(policy: CausalLMPolicy) -> dict[str, torch.Tensor]:
    """Gradients of the PPO loss of one batch; the policy is its own reference and its values are not zero."""
    torch.manual_seed(1)
    torch.nn.init.normal_(policy.value_head.weight)
    policy.set_reference(policy)
    rows, behaviour_BT = sampled(policy)
    score_B = torch.linspace(-1, 1, B)
    batch = make_batch(policy, rows, behaviour_BT, score_B, score_B)
    targets = Advantage(
        advantage_BT=score_B[:, None] * batch.mask_BT, return_BT=score_B[:, None] * batch.mask_BT
    )
    sums = policy(batch, targets._asdict(), lambda tokens: ppo.token_loss(tokens, ppo.Config()))
    (sums.loss / sums.tokens).backward()
    return {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}


@pytest.fixture
def forwards(monkeypatch):
    """Number of MLP calls: recomputation seen from outside."""
    count = [0]
    plain = torch.nn.Module.__call__

    def counting(module, *args, **kwargs):
        count[0] += type(module).__name__.endswith("MLP")
        return plain(module, *args, **kwargs)

    monkeypatch.setattr(torch.nn.Module, "__call__", counting)
    return count


@pytest.mark.parametrize("kind", CONFIGS)
def test_recomputed_activations_give_the_same_gradients(kind):
    """GPT-2 and Pythia have dropout in their configurations here: it stays off."""
    options = {"attention_dropout": 0.1, "hidden_dropout": 0.1} if kind == "pythia" else {}
    want = gradients(make_causal_lm(kind, shape=options))
    got = gradients(make_causal_lm(kind, shape=options, gradient_checkpointing=True))
    assert want.keys() == got.keys()
    for name in want:
        torch.testing.assert_close(got[name], want[name], atol=1e-6, rtol=0)


def test_layers_are_recomputed_only_while_gradients_are_taken(forwards):
    """Two layers: 2 MLPs forward, 2 more backward. Sampling and scoring run each once per pass."""
    policy, plain = make_causal_lm("gpt2", gradient_checkpointing=True), make_causal_lm("gpt2")
    forwards[0] = 0  # without the passes of the check when a policy is made
    rows, logprobs_BT = sampled(policy)
    sampling, forwards[0] = forwards[0], 0
    want_rows, want_BT = sampled(plain)
    assert sampling == forwards[0] == 2 * int(rows.response_length_B.max())
    assert torch.equal(rows.response_BT, want_rows.response_BT)
    assert torch.equal(logprobs_BT, want_BT)
    with torch.no_grad():
        forwards[0] = 0
        policy.hidden_states(rows)
        assert forwards[0] == 2
    states_KD, forwards[0] = policy.hidden_states(rows), 0
    states_KD.sum().backward()
    assert forwards[0] == 2
    assert not any(module.training for module in policy.model.modules())


def test_a_model_whose_layers_would_drop_out_is_not_recomputed():
    """OPT's layers read their own `training` flag, by which transformers decides whether to recompute."""
    shape = OPTConfig(
        vocab_size=300, hidden_size=32, ffn_dim=64, num_hidden_layers=1, num_attention_heads=4,
        word_embed_proj_dim=32, eos_token_id=0,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(shape)
    with pytest.raises(ValueError, match=r"OPTDecoderLayer\.dropout is 0\.1, .* set it to 0 in the model's"):
        CausalLMPolicy("llm_1", model, make_tokenizer(), gradient_checkpointing=True)


def test_a_wrapper_that_calls_train_does_not_switch_dropout_on():
    """Accelerate and DDP users call `train()`; sampling and scoring must keep one distribution."""
    policy = make_causal_lm("gpt2")
    assert policy.model.config.resid_pdrop == 0.1
    policy.train()
    assert policy.training
    assert not policy.model.training


@pytest.mark.parametrize("kind", CONFIGS)
def test_under_bfloat16_every_tensor_moves_in_one_step_and_stays_float32(kind):
    """At Adam's 1e-6 a bfloat16 weight near 1 would not: its neighbours are 0.004 away."""
    policy = make_causal_lm(kind, precision="bfloat16", gradient_checkpointing=True)
    assert policy.precision == "bfloat16"
    before = {name: p.detach().clone() for name, p in policy.named_parameters()}
    found = gradients(policy)
    assert {g.dtype for g in found.values()} == {torch.float32}
    before["value_head.weight"] = policy.value_head.weight.detach().clone()
    torch.optim.Adam(policy.parameters(), lr=1e-6).step()
    assert not [name for name, p in policy.named_parameters() if torch.equal(p, before[name])]
    assert {p.dtype for p in policy.parameters()} == {torch.float32}


@pytest.mark.parametrize("kind", ["gpt2", "llama", "stories260K"])
def test_bfloat16_logprobs_are_near_those_of_float32(kind):
    """Products keep 8 bits: within 0.4 nats on any token and 0.05 on average."""
    exact, policy = make_causal_lm(kind), make_causal_lm(kind, precision="bfloat16")
    for one in (exact, policy):
        one.set_reference(one)
    rows, behaviour_BT = sampled(policy)
    scored, want = evaluate(policy, rows), evaluate(exact, rows)
    assert scored.logprobs_BT.dtype == torch.float32
    error_K = (scored.logprobs_BT - want.logprobs_BT)[rows.mask_BT].abs()
    assert 0 < error_K.max() < 0.4
    assert error_K.mean() < 0.05
    assert (scored.logprobs_BT - behaviour_BT).abs().max() < policy.tolerance
    assert policy.logits(policy.hidden_states(rows)).dtype == torch.bfloat16
    assert {tensor_BT.dtype for tensor_BT in (behaviour_BT, *scored[:5])} == {torch.float32}


def test_auto_precision_resolves_by_device(monkeypatch):
    assert make_causal_lm("gpt2").precision == "float32"
    cuda = torch.device("cuda:0")
    for supported, want in [(True, "bfloat16"), (False, "float32")]:
        precision.resolved.cache_clear()
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation, found=supported: found
        )
        assert precision.resolved("auto", cuda) == want
        assert precision.resolved("float32", cuda) == "float32"
    with pytest.raises(
        ValueError, match="'bfloat16', which cuda:0 does not compute in; take float32 or auto"
    ):
        precision.resolved("bfloat16", cuda)
    precision.resolved.cache_clear()
    with pytest.raises(ValueError, match="precision is 'fp16'; there are auto, float32, bfloat16"):
        make_causal_lm("gpt2", precision="fp16")


class Casts(TorchDispatchMode):
    """Counts casts to bfloat16 by the shape of the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[int, ...]] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ == "_to_copy" and (kwargs or {}).get("dtype") == torch.bfloat16:
            self.counts[tuple(args[0].shape)] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_are_cast_once_for_all_tokens_of_a_response_frozen_ones_too(frozen):
    policy = make_causal_lm("llama", precision="bfloat16").requires_grad_(not frozen)
    before = [p.requires_grad for p in policy.parameters()]
    with Casts() as casts:
        rows, _ = sampled(policy)
    assert int(rows.response_length_B.max()) > 2
    head = tuple(policy.model.get_output_embeddings().weight.shape)
    assert casts.counts[head] == 1
    assert [p.requires_grad for p in policy.parameters()] == before


def rounded(weight: torch.Tensor) -> torch.Tensor:
    return weight.bfloat16().float()


def of_bfloat16(kind: str, precision: str = "bfloat16") -> CausalLMPolicy:
    """A policy whose weights are those of a checkpoint in bfloat16."""
    policy = make_causal_lm(kind, precision=precision)
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.copy_(rounded(weight))
    return policy


@pytest.mark.parametrize("kind", CONFIGS)
def test_weights_of_a_bfloat16_checkpoint_move_within_their_roundings(kind):
    policy = of_bfloat16(kind)
    before = {name: weight.clone() for name, weight in policy.model.named_parameters()}
    rows, _ = sampled(policy)
    logits = policy.logits(policy.hidden_states(rows))
    policy.begin_training()
    moved = {name for name, weight in policy.model.named_parameters() if not weight.equal(before[name])}
    assert moved
    for name, weight in policy.model.named_parameters():
        assert rounded(weight).equal(before[name])
    embeddings = {"wte", "embed_tokens", "embed_in", "norm", "ln_"}
    assert not [name for name in moved if any(part in name for part in embeddings)]
    assert policy.logits(policy.hidden_states(rows)).equal(logits)


def test_small_updates_of_a_bfloat16_checkpoint_arrive_in_its_products():
    """An update of a fifth of a step: none of it arrives from the checkpoint's numbers themselves."""

    def arrived() -> float:
        layer = policy.model.model.layers[0].mlp.down_proj.weight.detach()
        update = layer.abs() * 2**-8 / 5
        before = rounded(layer)
        return float((rounded(layer + update) - before).mean() / update.mean())

    policy = of_bfloat16("llama")
    assert arrived() == 0
    policy.begin_training()
    assert arrived() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_weights_that_products_do_not_round_to_themselves_stay_as_they_are(precision):
    """Those of a float32 checkpoint, and of any if products are in float32."""
    make = make_causal_lm if precision == "bfloat16" else of_bfloat16
    policy = make("llama", precision=precision)
    before = {name: weight.clone() for name, weight in policy.model.named_parameters()}
    policy.begin_training()
    assert all(weight.equal(before[name]) for name, weight in policy.model.named_parameters())


def test_policies_that_train_start_within_the_roundings_of_their_reference(tmp_path):
    of_bfloat16("llama").save(tmp_path / "lm")
    config = Config.from_flat(
        {
            "task": "echo",
            "policy": PolicyConfig(model=str(tmp_path / "lm"), precision="bfloat16", device="cpu"),
            "max_response": (4, 4),
        }
    )
    _, references, policies = factory.make_players(config)
    reference = references["llm_1"].model.lm_head.weight.float()
    weights = [policy.model.lm_head.weight for policy in policies.values()]
    assert len(weights) == 2
    for weight in weights:
        assert not weight.equal(reference)
        assert rounded(weight).equal(reference)
        assert weight.equal(weights[0])
    read = factory.make_players(config, folders={"llm_1": str(tmp_path / "lm")})
    assert read.policies["llm_1"].model.lm_head.weight.equal(reference)
