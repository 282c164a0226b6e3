"""Per-token KL of sample games, as samples.jsonl holds it."""

import dataclasses

import torch

from cory.batch import Batch
from cory.training import metrics

EOS = 9
BYTES = [b"a", "é".encode()[:1], "é".encode()[1:], b" b"]


class Bytes:
    """Four tokens; the second and the third are the halves of one character."""

    vocab_size, eos, pad = 10, frozenset([EOS]), EOS

    def encode(self, text):
        """Not needed."""
        raise NotImplementedError

    def decode(self, ids):
        """Text of the ids, with a replacement character for a half."""
        return b"".join(BYTES[i] for i in ids if i != EOS).decode(errors="replace")


def batch_of(response_BT, length_B, kl_BT):
    B, T = len(response_BT), len(response_BT[0])
    zeros = {field.name: torch.zeros(B, T) for field in dataclasses.fields(Batch) if "_BT" in field.name}
    rows = {
        "prompt_BP": torch.ones(B, 1, dtype=torch.long),
        "prompt_length_B": torch.ones(B, dtype=torch.long),
        "response_BT": torch.tensor(response_BT),
        "response_length_B": torch.tensor(length_B),
        "exact_kl_BT": torch.tensor(kl_BT),
    }
    return Batch(**zeros | rows, score_B=torch.zeros(B), payoff_B=torch.zeros(B))


def test_halves_of_a_character_are_joined_eos_has_no_text_and_padding_is_left_out():
    batch = batch_of(
        [[0, 1, 2, EOS], [3, 0, 7, 7]], [4, 2], [[0.125, 0.5, 0.25, 3.0], [1.0, 0.004, 5.0, 5.0]]
    )
    assert metrics.token_kl({"pioneer_0": batch}, Bytes()) == [
        {"pioneer_0": [("a", 0.125), ("é", 0.75), ("", 3.0)]},
        {"pioneer_0": [(" b", 1.0), ("a", 0.004)]},
    ]


def test_a_response_that_ends_inside_a_character_and_long_ones_are_cut(monkeypatch):
    monkeypatch.setattr(metrics, "KL_TOKENS", 2)
    monkeypatch.setattr(metrics, "KL_GAMES", 1)
    batch = batch_of([[0, 1, 2], [0, 0, 0]], [3, 3], [[0.5, 0.25, 1.0]] * 2)
    assert metrics.token_kl({"pioneer_0": batch}, Bytes()) == [{"pioneer_0": [("a", 0.5), ("\ufffd", 0.25)]}]


def test_no_game_has_no_tokens():
    assert metrics.token_kl({}, Bytes()) == []
