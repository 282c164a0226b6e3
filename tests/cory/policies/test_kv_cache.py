"""A cache with room behind its tokens, beside whole rows read without any: INVARIANTS 1, 4."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cory.policies import kv_cache
from cory.policies.kv_cache import CachedDecoder, RoomyLayer, roomy_cache
from tests.cory.policies.test_architectures import CONFIGS, make_policy

WINDOWED = {"sliding_window": 4, "use_sliding_window": True}
SHAPES = {
    "gpt2": ("gpt2", {}, 2),
    "llama": ("llama", {}, 2),
    "every layer slides": ("qwen2", WINDOWED | {"max_window_layers": 0}, 0),
    "one layer slides": ("qwen2", WINDOWED | {"max_window_layers": 1}, 1),
}


@pytest.fixture(params=SHAPES)
def shape(request):
    kind, shape, roomy = SHAPES[request.param]
    return kind, shape, roomy


@pytest.mark.parametrize("room", [1, 3, 8])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("lengths", [(8, 8, 8), (8, 3, 5)], ids=["no padding", "padding"])
def test_every_token_sees_those_before_it_and_no_room(shape, attention, room, lengths, monkeypatch):
    """Rows without padding and a length that fills the room are where a mask could be forgotten."""
    monkeypatch.setattr(kv_cache, "ROOM", room)
    policy = make_policy(shape[0], attention=attention, shape=shape[1])
    said_BL = torch.randint(3, 40, (3, 8 + 11), generator=torch.Generator().manual_seed(0))
    decoder = policy.decoder()
    with torch.no_grad():
        got_TBV = [decoder.start(said_BL[:, :8], torch.tensor(lengths))]
        got_TBV += [decoder.step(said_BL[:, 8 + t]) for t in range(11)]
        for i, length in enumerate(lengths):
            read = torch.cat([said_BL[i, :length], said_BL[i, 8:]])
            want_LV = policy.model(read[None]).logits[0]
            for t, got_BV in enumerate(got_TBV):
                torch.testing.assert_close(got_BV[i], want_LV[length - 1 + t], atol=1e-5, rtol=1e-4)


class Asked(TorchDispatchMode):
    """How often the device was asked for a number, which is to wait for it."""

    times = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.times += func.overloadpacket.__name__ in ("_local_scalar_dense", "is_nonzero")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_no_token_waits_for_the_device(kind, attention):
    decoder = make_policy(kind, attention=attention).decoder()
    with torch.no_grad():
        decoder.start(torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([3, 2]))
        with Asked() as asked:
            for _ in range(7):
                decoder.step(torch.tensor([11, 12]))
    assert asked.times == 0


def test_layers_that_remember_all_have_room_and_those_that_slide_are_left(shape):
    kind, told, roomy = shape
    policy = make_policy(kind, shape=told)
    layers = roomy_cache(policy.model.config).layers
    assert len(layers) == 2
    assert sum(isinstance(layer, RoomyLayer) for layer in layers) == roomy


def test_a_token_is_written_behind_the_others_and_memory_is_taken_for_eight_at_once():
    layer, places, lengths = RoomyLayer(), [], []
    chance = torch.Generator().manual_seed(0)
    said = [torch.randn(2, 3, n, 4, generator=chance) for n in (5, *[1] * 12)]
    for i, given in enumerate(said):
        assert layer.get_seq_length() == sum(one.shape[2] for one in said[:i])
        promised, _ = layer.get_mask_sizes(given.shape[2])
        keys, values = layer.update(given, -given)
        assert keys.shape == values.shape == (2, 3, promised, 4)
        places.append(keys.data_ptr())
        lengths.append(promised)
    assert lengths == [8] * 4 + [16] * 8 + [24]
    assert len(set(places[:4])) == len(set(places[4:12])) == 1
    whole = torch.cat(said, dim=2)
    assert torch.equal(keys[:, :, :17], whole)
    assert torch.equal(values[:, :, :17], -whole)
    assert not keys[:, :, 17:].any()


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_decoder_starts_anew_without_what_it_read_before(kind):
    policy = make_policy(kind)
    decoder = CachedDecoder(policy.trunk, policy.logits, policy.model.config)
    prompt_BP, length_B = torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([3, 2])
    with torch.no_grad():
        first_BV = decoder.start(prompt_BP, length_B)
        decoder.step(torch.tensor([11, 12]))
        torch.testing.assert_close(decoder.start(prompt_BP, length_B), first_BV)
