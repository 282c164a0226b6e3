"""A policy leaves the model that was handed in as it is: no module is replaced, none gets a hook."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from transformers import AutoModelForCausalLM

from cory.batch import Rows
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.scoring import evaluate
from tests.helpers.batches import B, make_batch, sampled
from tests.helpers.learners import advantage_of, make_learner
from tests.helpers.models import CLASSES, make_causal_lm, make_tokenizer

pytestmark = pytest.mark.slow

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def classes(model) -> dict[str, type]:
    return {name: type(module) for name, module in model.named_modules()}


def hooks(model) -> int:
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in HOOKS)


@pytest.mark.parametrize(
    "options", [{}, {"precision": "bfloat16"}, {"gradient_checkpointing": True}], ids=str
)
@pytest.mark.parametrize("kind", CLASSES)
def test_a_policy_leaves_every_module_as_it_was_handed_in(kind, options):
    model = make_causal_lm(kind).model
    before, modules = classes(model), list(model.modules())
    weights = {name: id(parameter) for name, parameter in model.named_parameters()}

    def check() -> None:
        assert classes(model) == before
        assert all(one is other for one, other in zip(model.modules(), modules, strict=True))
        assert {name: id(parameter) for name, parameter in model.named_parameters()} == weights
        assert hooks(model) == 0

    policy = CausalLMPolicy("llm_1", model, make_tokenizer(), **options)
    policy.set_reference(make_causal_lm(kind))
    assert policy.model is model
    check()
    rows, _ = sampled(policy)
    check()
    evaluate(policy, rows)
    check()
    batch, learner = make_batch(policy), make_learner(policy)
    metrics = learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
    assert metrics["steps"] == 1
    check()


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
    policy, counter = make_causal_lm(kind), CompileCounter()
    want = [policy.hidden_states(rows_of_equal_shape(seed)) for seed in range(6)]
    policy.model.base_model.compile(backend=counter)
    for seed in range(6):
        got_KD = policy.hidden_states(rows_of_equal_shape(seed))
        torch.testing.assert_close(got_KD, want[seed], atol=1e-6, rtol=0)
        got_KD.sum().backward()
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_the_model_classes_are_those_of_transformers(backbone):
    """The oracle: a model from the same folder that no policy has touched."""
    policy = CausalLMPolicy.load("llm_1", backbone)
    assert classes(policy.model) == classes(AutoModelForCausalLM.from_pretrained(backbone))
