"""`kernels="plain"` leaves the model that was handed in as it is; `auto` computes the same, faster, on a CPU.

Shapes: B rows, T response tokens.
"""

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from transformers import AutoModelForCausalLM

from cory.algorithms import ppo
from cory.batch import Rows
from cory.policies.base import KLLoss
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.kernels import CpuKernels
from cory.policies.scoring import evaluate
from tests.helpers.batches import B, make_batch, sampled
from tests.helpers.learners import advantage_of, make_learner
from tests.helpers.models import CLASSES, make_causal_lm, make_team, make_tokenizer, stir

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def classes(model) -> dict[str, type]:
    return {name: type(module) for name, module in model.named_modules()}


def hooks(model) -> int:
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in HOOKS)


def with_reference(policy: CausalLMPolicy, reference: CausalLMPolicy) -> CausalLMPolicy:
    """The policy moved away from `reference`, with a value head that is not zero."""
    policy.set_reference(reference.requires_grad_(False))
    stir(policy)
    return policy


def two_policies(kind: str) -> list[CausalLMPolicy]:
    """The same weights with CPU kernels and without."""
    return [
        with_reference(make_causal_lm(kind, kernels=kernels), make_causal_lm(kind, kernels=kernels))
        for kernels in ("auto", "plain")
    ]


@pytest.mark.parametrize(
    "options", [{}, {"precision": "bfloat16"}, {"gradient_checkpointing": True}], ids=str
)
@pytest.mark.parametrize("kind", CLASSES)
def test_plain_leaves_every_module_as_it_was_handed_in(kind, options):
    model = make_causal_lm(kind, kernels="plain").model
    before, modules = classes(model), list(model.modules())
    weights = {name: id(parameter) for name, parameter in model.named_parameters()}

    def check() -> None:
        assert classes(model) == before
        assert all(one is other for one, other in zip(model.modules(), modules, strict=True))
        assert {name: id(parameter) for name, parameter in model.named_parameters()} == weights
        assert hooks(model) == 0

    policy = CausalLMPolicy("llm_1", model, make_tokenizer(), kernels="plain", **options)
    policy.set_reference(make_causal_lm(kind, kernels="plain"))
    assert policy.model is model
    assert policy.cpu_kernels is None
    check()
    rows, _ = sampled(policy)
    check()
    evaluate(policy, rows)
    check()
    batch, learner = make_batch(policy), make_learner(policy)
    metrics = learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
    assert metrics["steps"] == 1
    check()


def test_auto_installs_its_kernels_once_and_a_team_shares_them(tiny_folder):
    policy = make_causal_lm("gpt2")
    assert isinstance(policy.cpu_kernels, CpuKernels)
    assert policy.uses_cpu_kernels
    assert hooks(policy.model) > 0
    team = make_team(tiny_folder)
    assert len({id(policy.cpu_kernels) for policy in (*team.policies.values(), team.reference)}) == 1
    plain = make_team(tiny_folder, kernels="plain")
    assert hooks(plain.model) == 0
    assert not plain.reference.uses_cpu_kernels


def rows_of_equal_shape(seed: int) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    return Rows(
        prompt_BP=torch.randint(3, 40, (3, 5), generator=generator),
        prompt_length_B=torch.tensor([5, 3, 4]),
        response_BT=torch.randint(3, 40, (3, 6), generator=generator),
        response_length_B=torch.tensor([6, 2, 4]),
    )


@pytest.mark.parametrize("kind", CLASSES)
def test_six_passes_of_equal_shape_compile_one_graph(kind):
    torch._dynamo.reset()
    policy, counter = make_causal_lm(kind, kernels="plain"), CompileCounter()
    want = [policy.hidden_states(rows_of_equal_shape(seed)) for seed in range(6)]
    policy.model.base_model.compile(backend=counter)
    for seed in range(6):
        got_KD = policy.hidden_states(rows_of_equal_shape(seed))
        torch.testing.assert_close(got_KD, want[seed], atol=1e-6, rtol=0)
        got_KD.sum().backward()
    assert counter.frame_count == 1
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", CLASSES)
def test_auto_and_plain_sample_and_score_the_same(kind):
    (rows, behaviour_BT), (plain_rows, plain_BT) = (sampled(policy) for policy in two_policies(kind))
    assert len(set(rows.response_length_B.tolist())) > 2
    assert torch.equal(rows.response_BT, plain_rows.response_BT)
    assert torch.equal(rows.response_length_B, plain_rows.response_length_B)
    torch.testing.assert_close(behaviour_BT, plain_BT, atol=1e-5, rtol=0)
    found, want = (evaluate(policy, rows) for policy in two_policies(kind))
    for name, tensor_BT in want._asdict().items():
        assert tensor_BT.any(), name
        torch.testing.assert_close(getattr(found, name), tensor_BT, atol=1e-5, rtol=0, msg=name)


def gradients(policy: CausalLMPolicy, batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss per token, with an entropy bonus and the exact KL, and its gradients by name."""
    advantage = advantage_of(make_learner(policy), batch)
    config = ppo.Config(entropy_coef=0.1)
    sums = policy(
        batch,
        advantage._asdict(),
        lambda tokens: ppo.token_loss(tokens, config),
        kl_loss=KLLoss(kind="full", coef=0.5),
    )
    (sums.loss / sums.tokens).backward()
    return sums.loss.detach() / sums.tokens, {
        name: p.grad for name, p in policy.named_parameters() if p.grad is not None
    }


@pytest.mark.parametrize("kind", CLASSES)
def test_auto_and_plain_have_the_same_loss_and_gradients(kind):
    policies = two_policies(kind)
    batch = make_batch(policies[1])
    (loss, got), (plain_loss, want) = (gradients(policy, batch) for policy in policies)
    torch.testing.assert_close(loss, plain_loss, atol=1e-5, rtol=0)
    assert got.keys() == want.keys() == dict(policies[0].named_parameters()).keys()
    for name, grad in want.items():
        torch.testing.assert_close(got[name], grad, atol=1e-5, rtol=0, msg=name)


def test_auto_and_plain_have_the_same_gradients_through_adapters(backbone):
    found = []
    for kernels in ("auto", "plain"):
        policy = make_team(backbone, kernels=kernels).policies["llm_1"]
        stir(policy)
        found.append((policy, make_batch(policy)))
    (auto, batch), (plain, plain_batch) = found
    assert torch.equal(batch.response_BT, plain_batch.response_BT)
    torch.testing.assert_close(batch.exact_kl_BT, plain_batch.exact_kl_BT, atol=1e-5, rtol=0)
    (_, got), (_, want) = gradients(auto, batch), gradients(plain, batch)
    assert got.keys() == want.keys() == dict(auto.named_parameters()).keys()
    for name, grad in want.items():
        torch.testing.assert_close(got[name], grad, atol=1e-5, rtol=0, msg=name)


def test_the_model_classes_are_those_of_transformers(backbone):
    """The oracle: a model from the same folder that no policy has touched."""
    policy = CausalLMPolicy.load("llm_1", backbone, kernels="plain")
    assert classes(policy.model) == classes(AutoModelForCausalLM.from_pretrained(backbone))
