"""Decoding with a KV cache against whole rows without one."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cory.policies.kv_cache import CachedDecoder
from tests.helpers.models import CONFIGS, make_causal_lm

WINDOWED = {"sliding_window": 4, "use_sliding_window": True}
SHAPES = {
    "gpt2": ("gpt2", {}),
    "llama": ("llama", {}),
    "every layer slides": ("qwen2", WINDOWED | {"max_window_layers": 0}),
    "one layer slides": ("qwen2", WINDOWED | {"max_window_layers": 1}),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("lengths", [(8, 8, 8), (8, 3, 5)], ids=["no padding", "padding"])
def test_every_token_attends_to_exactly_those_before_it(shape, attention, lengths):
    """Rows without padding, and layers whose window slides, are where a mask could be forgotten."""
    kind, options = SHAPES[shape]
    policy = make_causal_lm(kind, attention=attention, shape=options)
    ids_BL = torch.randint(3, 40, (3, 8 + 11), generator=torch.Generator().manual_seed(0))
    decoder = policy.decoder()
    with torch.no_grad():
        got_TBV = [decoder.start(ids_BL[:, :8], torch.tensor(lengths))]
        got_TBV += [decoder.step(ids_BL[:, 8 + t]) for t in range(11)]
        for i, length in enumerate(lengths):
            row = torch.cat([ids_BL[i, :length], ids_BL[i, 8:]])
            want_LV = policy.model(row[None]).logits[0]
            for t, got_BV in enumerate(got_TBV):
                torch.testing.assert_close(got_BV[i], want_LV[length - 1 + t], atol=1e-5, rtol=1e-4)


class Syncs(TorchDispatchMode):
    """Counts reads of a number from the device, each of which waits for it."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ in ("_local_scalar_dense", "is_nonzero")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_no_token_waits_for_the_device(kind, attention):
    """With SDPA and its own cache transformers reads at every token whether any is padding."""
    decoder = make_causal_lm(kind, attention=attention).decoder()
    with torch.no_grad():
        decoder.start(torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([3, 2]))
        with Syncs() as syncs:
            for _ in range(7):
                decoder.step(torch.tensor([11, 12]))
    assert syncs.count == 0


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_decoder_that_starts_again_forgets_what_it_read_before(kind):
    policy = make_causal_lm(kind)
    decoder = CachedDecoder(policy.trunk, policy.logits, policy.model.config)
    prompt_BP, length_B = torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([3, 2])
    with torch.no_grad():
        first_BV = decoder.start(prompt_BP, length_B)
        decoder.step(torch.tensor([11, 12]))
        torch.testing.assert_close(decoder.start(prompt_BP, length_B), first_BV)
