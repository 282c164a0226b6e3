"""Leaner modules beside those they stand for."""

import copy

import pytest
import torch
from torch import nn
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

from cory.policies.kernels import fused_modules


def projection(kind: str) -> nn.Module:
    torch.manual_seed(0)
    module = Conv1D(7, 5) if kind == "conv1d" else nn.Linear(5, 7)
    nn.init.normal_(module.bias)  # Conv1D's is zeros
    return module


@pytest.mark.parametrize("kind", ["conv1d", "linear"])
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 5)])
def test_a_bias_added_after_the_product_gives_the_same_numbers_and_gradients(kind, shape):
    plain = projection(kind)
    model = nn.ModuleDict({"part": copy.deepcopy(plain)})
    fused_modules.add_biases_after(model)
    x = torch.randn(shape)
    outs, gradients = [], []
    for module in (plain, model["part"]):
        read = x.clone().requires_grad_()
        out = module(read)
        outs.append(out)
        gradients.append(torch.autograd.grad(out.square().sum(), [read, module.weight, module.bias]))
    torch.testing.assert_close(outs[1], outs[0])
    torch.testing.assert_close(gradients[1], gradients[0])
    assert "AddBackward" in type(outs[1].grad_fn).__name__  # it was not addmm


@pytest.mark.parametrize("kind", ["conv1d", "linear"])
def test_other_precisions_are_left_to_the_class_itself(kind):
    plain = projection(kind)
    model = nn.ModuleDict({"part": copy.deepcopy(plain)})
    fused_modules.add_biases_after(model)
    x = torch.randn(3, 5)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model["part"](x), plain(x))
    assert torch.equal(model.double()["part"](x.double()), plain.double()(x.double()))


def test_names_weights_and_kinds_stay():
    model = nn.ModuleDict({"a": projection("conv1d"), "b": projection("linear")})
    model["c"] = nn.Linear(5, 7, bias=False)
    before = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    fused_modules.add_biases_after(model)
    assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == before
    assert isinstance(model["a"], Conv1D)
    assert isinstance(model["b"], nn.Linear)
    assert type(model["c"]) is nn.Linear


def test_one_kernel_computes_gpt2s_gelu():
    model = nn.ModuleDict({"act": NewGELUActivation()})
    x = torch.linspace(-6, 6, 101)
    want = model["act"](x)
    fused_modules.fuse_activations(model)
    assert isinstance(model["act"], nn.GELU)
    torch.testing.assert_close(model["act"](x), want)
