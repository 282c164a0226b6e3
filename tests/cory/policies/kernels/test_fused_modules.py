"""Fused modules against those they replace."""

import torch
from torch import nn
from transformers.activations import NewGELUActivation

from cory.policies.kernels.fused_modules import fuse_gelu
from tests.helpers.models import make_model


def test_one_kernel_computes_gpt2s_gelu():
    model = nn.ModuleDict({"act": NewGELUActivation()})
    x = torch.linspace(-6, 6, 101)
    want = model["act"](x)
    assert fuse_gelu(model) == 1
    assert isinstance(model["act"], nn.GELU)
    torch.testing.assert_close(model["act"](x), want)
    assert fuse_gelu(model) == 0


def test_names_weights_and_all_other_classes_stay():
    model, plain = make_model("gpt2", 50), make_model("gpt2", 50)
    before = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    assert fuse_gelu(model) == 2  # one per layer
    assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == before
    for (name, module), (other, original) in zip(model.named_modules(), plain.named_modules(), strict=True):
        assert name == other
        assert type(module) is (nn.GELU if name.endswith(".act") else type(original))
