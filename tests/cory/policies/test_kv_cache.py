"""Decoding with a KV cache, growing or fixed, against whole rows without one."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from benchmarks import families
from cory import rng
from cory.generation.sampling import sample
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.kv_cache import CachedDecoder
from cory.runtime.memory import ACTIVATIONS_PER_CHANNEL
from tests.helpers.batches import CAPS, B, T, prompts
from tests.helpers.models import CONFIGS, make_causal_lm, make_team, stir

WINDOWED = {"sliding_window": 4, "use_sliding_window": True}
SHAPES = {
    **{kind: (kind, {}) for kind in CONFIGS},
    "every layer slides": ("qwen2", WINDOWED | {"max_window_layers": 0}),
    "one layer slides": ("qwen2", WINDOWED | {"max_window_layers": 1}),
}
STEPS = 11
each_cache = pytest.mark.parametrize("fixed", [False, True], ids=["growing", "fixed"])
each_shape = pytest.mark.parametrize("shape", SHAPES)
each_attention = pytest.mark.parametrize("attention", ["eager", "sdpa"])


def make_shape(shape: str, **options):
    """A policy of one of `SHAPES`."""
    kind, configuration = SHAPES[shape]
    return make_causal_lm(kind, shape=configuration, **options)


def decoder_of(policy, *, fixed: bool) -> CachedDecoder:
    """A decoder with either cache on any device."""
    return CachedDecoder(
        policy.trunk, policy.logits, policy.model.base_model, window=policy.window, fixed=fixed
    )


@torch.no_grad()
def started(policy, *, fixed: bool) -> CachedDecoder:
    """A decoder that has read two prompts of different lengths, with room for `STEPS` more tokens."""
    decoder = decoder_of(policy, fixed=fixed)
    decoder.start(torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([3, 2]), tokens=STEPS + 1)
    return decoder


@each_cache
@each_shape
@each_attention
@pytest.mark.parametrize("lengths", [(8, 8, 8), (8, 3, 5)], ids=["no padding", "padding"])
def test_every_token_attends_to_exactly_those_before_it(shape, attention, lengths, fixed):
    """Rows without padding, and layers whose window slides, are where a mask could be forgotten."""
    policy = make_shape(shape, attention=attention)
    ids_BL = torch.randint(3, 40, (3, 8 + STEPS), generator=torch.Generator().manual_seed(0))
    decoder = decoder_of(policy, fixed=fixed)
    with torch.no_grad():
        got_TBV = [decoder.start(ids_BL[:, :8], torch.tensor(lengths), tokens=STEPS + 1)]
        got_TBV += [decoder.step(ids_BL[:, 8 + t]) for t in range(STEPS)]
        for i, length in enumerate(lengths):
            row = torch.cat([ids_BL[i, :length], ids_BL[i, 8:]])
            want_LV = policy.model(row[None]).logits[0]
            for t, got_BV in enumerate(got_TBV):
                torch.testing.assert_close(got_BV[i], want_LV[length - 1 + t], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [*CONFIGS, "adapter"])
def test_both_caches_give_the_same_tokens_and_log_probs(kind, tiny_folder):
    """Prompts of 1 to 5 tokens, padded on the left, and responses of up to 3 to 7."""
    policy = make_team(tiny_folder).policies["llm_1"] if kind == "adapter" else make_causal_lm(kind)
    stir(policy)  # adapters start as none
    uniforms_BT = torch.from_numpy(rng.uniforms(("test",), np.arange(B), T)).float()
    growing, fixed = (
        sample(
            decoder_of(policy, fixed=fixed),
            *prompts(lowest=3, highest=40),
            uniforms_BT=uniforms_BT,
            caps_B=torch.tensor(CAPS),
            eos=policy.eos,
        )
        for fixed in (False, True)
    )
    assert fixed.response_length_B.max() > 3
    assert torch.equal(fixed.response_BT, growing.response_BT)
    assert torch.equal(fixed.response_length_B, growing.response_length_B)
    torch.testing.assert_close(fixed.logprobs_BT, growing.logprobs_BT, atol=1e-5, rtol=0)


@each_cache
@each_shape
def test_equal_prompts_are_computed_once_and_their_rows_go_on_by_themselves(shape, fixed):
    """Rows 0, 2 and 4 have one prompt; row 3 begins with its ids, row 1 with the id of padding."""
    prompt_BP = torch.tensor([[5, 6, 7], [0, 5, 6], [5, 6, 7], [5, 6, 9], [5, 6, 7]])
    length_B, ids_BT = torch.tensor([3, 3, 3, 2, 3]), torch.arange(5 * STEPS).view(5, STEPS) % 37 + 3
    policy = make_shape(shape)
    rows = []
    trunk = policy.trunk
    policy.trunk = lambda **inputs: rows.append(len(inputs["input_ids"])) or trunk(**inputs)

    def logits(at) -> list[Tensor]:
        decoder = decoder_of(policy, fixed=fixed)
        found = [decoder.start(prompt_BP[at], length_B[at], tokens=STEPS + 1)]
        return found + [decoder.step(ids_BT[at, t]) for t in range(STEPS)]

    with torch.no_grad():
        together = logits(slice(None))
        assert rows == [3] + STEPS * [5]
        for i in range(5):
            for got_BV, want_1V in zip(together, logits(slice(i, i + 1)), strict=True):
                torch.testing.assert_close(got_BV[i], want_1V[0], atol=1e-5, rtol=1e-4)


def test_dropout_falls_on_equal_prompts_by_themselves():
    """As the released code samples, which knows of no equal rows."""
    policy = make_causal_lm("gpt2")
    policy.model.train()
    with torch.no_grad():
        first_V, second_V = decoder_of(policy, fixed=False).start(
            torch.tensor([[5, 6, 7], [5, 6, 7]]), torch.tensor([3, 3]), tokens=1
        )
    assert not torch.equal(first_V, second_V)


class Requests(TorchDispatchMode):
    """Notes every operation with all its arguments, of tensors type and shape."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[str, str]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        shapes = tree_map_only(Tensor, lambda x: (x.dtype, tuple(x.shape)), (args, kwargs or {}))
        self.noted.append((str(func), str(shapes)))
        return func(*args, **(kwargs or {}))


def requests_of_steps(decoder: CachedDecoder) -> list[list[tuple[str, str]]]:
    """What each of `STEPS` steps asks of the device."""
    found = []
    for t in range(STEPS):
        with torch.no_grad(), Requests() as requests:
            decoder.step(torch.tensor([11 + t, 12]))
        found.append(requests.noted)
    return found


@each_attention
@each_shape
def test_every_step_of_the_fixed_cache_asks_for_the_same_operations(shape, attention):
    """In the same shapes and with the same numbers of the host, also when the window is full.

    A CUDA graph repeats what it captured; whatever else changes between two tokens it would not see.
    """
    first, *others = requests_of_steps(started(make_shape(shape, attention=attention), fixed=True))
    assert len(first) > 50
    assert all(other == first for other in others)


def test_steps_of_the_growing_cache_ask_for_larger_and_larger_shapes():
    first, second, *_ = requests_of_steps(started(make_causal_lm("llama"), fixed=False))
    assert first != second


@each_shape
def test_the_fixed_cache_is_written_in_place(shape):
    decoder = started(make_shape(shape), fixed=True)

    def tensors() -> list[Tensor]:
        state = [decoder.mask_BL, decoder.position_B1, decoder.token_B1, decoder.column]
        return state + [x for layer in decoder.cache.layers for x in (layer.keys, layer.values)]

    before = [(x.data_ptr(), x.shape) for x in tensors()]
    assert len({address for address, _ in before}) == 4 + 2 * 2  # two layers
    for _ in range(STEPS):
        with torch.no_grad():
            decoder.step(torch.tensor([11, 12]))
        assert [(x.data_ptr(), x.shape) for x in tensors()] == before
    # 3 columns of prompt and 12 of response; the last token of a response is never read
    assert decoder.mask_BL.tolist() == [[True] * 14 + [False], [False] + [True] * 13 + [False]]
    assert decoder.position_B1.tolist() == [[14], [13]]
    assert int(decoder.column) == 14


@pytest.mark.parametrize(("precision", "size"), [("float32", 4), ("bfloat16", 2)])
@each_shape
def test_the_fixed_cache_takes_the_bytes_that_the_memory_estimate_counts(shape, precision, size):
    """Llama and Qwen2 here have 2 layers of 2 heads of 8 keys and 8 values: 64 numbers a token."""
    policy = make_shape(shape, attention="sdpa", precision=precision)
    cache = started(policy, fixed=True).cache
    found = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    columns = 3 + STEPS + 1
    activations = size * columns * ACTIVATIONS_PER_CHANNEL * 32
    assert found == 2 * (policy.row_bytes(columns, learning=False) - activations)  # two rows
    if shape in ("llama", "qwen2"):
        assert found == 2 * columns * 64 * size


class Syncs(TorchDispatchMode):
    """Counts reads of a number from the device, each of which waits for it."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ in ("_local_scalar_dense", "is_nonzero")
        return func(*args, **(kwargs or {}))


@each_cache
@each_attention
@each_shape
def test_no_token_waits_for_the_device(shape, attention, fixed):
    """With SDPA and its own cache transformers reads at every token whether any is padding."""
    decoder = started(make_shape(shape, attention=attention), fixed=fixed)
    with torch.no_grad(), Syncs() as syncs:
        for _ in range(STEPS):
            decoder.step(torch.tensor([11, 12]))
    assert syncs.count == 0


@each_cache
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_decoder_that_starts_again_forgets_what_it_read_before(kind, fixed):
    decoder = decoder_of(make_causal_lm(kind), fixed=fixed)
    prompt_BP, length_B = torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([3, 2])
    with torch.no_grad():
        first_BV = decoder.start(prompt_BP, length_B, tokens=2)
        decoder.step(torch.tensor([11, 12]))
        torch.testing.assert_close(decoder.start(prompt_BP, length_B, tokens=2), first_BV)


def test_policies_decode_with_the_fixed_cache_off_the_cpu():
    policy = make_causal_lm("gpt2")
    assert not policy.decoder().fixed
    assert policy.to("meta").decoder().fixed


@pytest.mark.parametrize("fixed", [False, True])
def test_a_row_that_has_ended_stays_in_the_window_while_others_go_on(fixed):
    """Prompts of 60 and 1 tokens with caps of 2 and 20, in a window of 64."""
    policy = make_causal_lm("gpt2")
    lengths_B, caps_B = torch.tensor([60, 1]), torch.tensor([2, 20])
    prompt_BP = torch.ones(2, 60, dtype=torch.long)
    uniforms_BT = torch.from_numpy(rng.uniforms(("window",), np.arange(2), 20)).float()

    def sampled(rows):
        decoder = decoder_of(policy, fixed=fixed)
        return sample(
            decoder, prompt_BP[rows], lengths_B[rows], uniforms_BT=uniforms_BT[rows], caps_B=caps_B[rows],
            eos=frozenset(),
        )  # fmt: skip

    both, second = sampled(slice(0, 2)), sampled(slice(1, 2))
    assert both.response_length_B.tolist() == [2, 20]
    assert both.response_BT[1].tolist() == second.response_BT[0].tolist()


def test_a_row_that_has_ended_does_not_walk_out_of_the_window_of_the_others():
    """phi3's rotary factors change for all rows once one is beyond 40 of its 64 positions."""
    policy = CausalLMPolicy("llm_1", families.make_model("phi3"), families.make_tokenizer(families.V))
    policy.eos = frozenset({families.V + 1})
    drawn = torch.Generator().manual_seed(0)
    prompt_BP = torch.randint(1, families.V, (2, 36), generator=drawn)
    length_B, caps_B = torch.tensor([36, 3]), torch.tensor([4, 30])
    uniforms_BT = torch.rand(2, 30, generator=drawn)
    both = policy.sample(prompt_BP, length_B, uniforms_BT=uniforms_BT, caps_B=caps_B)
    alone = policy.sample(prompt_BP[1:, :3], length_B[1:], uniforms_BT=uniforms_BT[1:], caps_B=caps_B[1:])
    assert torch.equal(both.response_BT[1], alone.response_BT[0])
