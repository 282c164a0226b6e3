"""The table of the paper's models: weights by hand, cards by the sizes that a run would choose."""

from dataclasses import replace

import pytest
from transformers import LlamaConfig

from benchmarks.speed import memory_table
from benchmarks.speed.memory_table import EXPERIMENTS, Counts, count, markdown, plan

LAYER = 4 * 4096**2 + 3 * 4096 * 11008  # query, key, value, output; gate, up, down
SEVEN_B = Counts(
    all=32 * (LAYER + 2 * 4096) + 2 * 32_000 * 4096 + 4096,
    linear=32 * LAYER,
    cast=32 * LAYER + 32_000 * 4096,
    stored=32 * LAYER + 32_000 * 4096,
    trained=32 * 16 * (4 * 2 * 4096 + 3 * (4096 + 11008)) + 4097,
)
"""Of Llama-2-7b with adapters of rank 16 on all seven matrices of a layer, worked by hand."""


def test_a_small_llama_is_counted_as_by_hand():
    config = LlamaConfig(
        vocab_size=50, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2
    )
    layer = 4 * 8 * 8 + 3 * 8 * 12
    whole = 2 * (layer + 16) + 2 * 50 * 8 + 8
    assert count(config, lora=False) == Counts(
        all=whole, linear=2 * layer, cast=2 * layer + 400, stored=2 * layer + 400, trained=whole + 9
    )
    assert count(config, lora=True).trained == 2 * 16 * (4 * 16 + 3 * 20) + 9
    config.tie_word_embeddings = True
    tied = count(config, lora=False)
    assert (tied.all, tied.cast, tied.stored) == (whole - 400, 2 * layer + 400, 2 * layer)


def test_weights_of_llama_2_7b():
    assert (SEVEN_B.all, SEVEN_B.trained) == (6_738_415_616, 39_981_057)


FULL_SEVEN_B = replace(SEVEN_B, trained=SEVEN_B.all + 4097)


@pytest.fixture
def seven_b(monkeypatch):
    """The experiment with Llama-2-7b, its weights counted beforehand."""
    monkeypatch.setattr(memory_table, "count", lambda config, *, lora: SEVEN_B if lora else FULL_SEVEN_B)
    return EXPERIMENTS[1]


def test_a_lora_team_of_7b_fits_a_card_of_40_gb_with_frozen_weights_in_bfloat16(seven_b):
    """14.1 GB of weights and 1 for CUDA leave 24.9 on 40 GB: passes of 2^33 bytes, 10 rows of 0.84 GB."""
    line = plan(seven_b, "lora", checkpointing=False)
    in_float32 = 32_000 * 4096 + 65 * 4096  # embedding and norms
    assert line["weights"] == 2 * SEVEN_B.stored + 4 * (in_float32 + 2 * SEVEN_B.trained)
    assert round(line["weights"] / 1e9, 1) == 14.1
    assert (line["card"], line["sampling_rows"], line["learning_rows"]) == (40, 10, 1)
    assert max(line["sampling"], line["learning"]) <= 40e9


def test_the_reference_of_two_full_copies_is_frozen(seven_b):
    line = plan(seven_b, "full", checkpointing=False)
    in_float32 = SEVEN_B.all - SEVEN_B.stored
    assert line["weights"] == 4 * 2 * FULL_SEVEN_B.trained + 4 * in_float32 + 2 * SEVEN_B.stored


def test_four_bits_take_a_smaller_card(seven_b):
    whole, packed = (plan(seven_b, method, checkpointing=False) for method in ("lora", "lora4"))
    assert packed["card"] < whole["card"]


def test_four_cards_share_the_layers_of_a_lora_team(seven_b):
    """Of 2 bytes a weight in linear layers of the trunk each card holds a quarter, and gathers the others."""
    alone, shared = (plan(seven_b, "lora", checkpointing=True, cards=cards) for cards in (1, 4))
    assert alone["weights"] - shared["weights"] == 2 * SEVEN_B.linear * 3 // 4
    assert shared["learning"] < alone["learning"] / 2
    assert shared["sampling"] > 2 * SEVEN_B.linear


def test_eight_cards_share_two_full_copies_of_7b(seven_b):
    line = plan(seven_b, "full", checkpointing=True, cards=8)
    assert line["card"] == 80
    elsewhere = (4 + 4 + 2) * SEVEN_B.linear * 7 // 8
    assert line["weights"] == plan(seven_b, "full", checkpointing=True)["weights"] - elsewhere


def test_two_full_copies_of_7b_fit_no_card_and_the_table_says_so(seven_b):
    line = plan(seven_b._replace(minibatch=1), "full", checkpointing=True)
    assert line["card"] is None
    assert "| none | 1, 1 |" in markdown([line])
