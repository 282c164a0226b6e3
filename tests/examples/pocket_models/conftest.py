"""Fixtures of the tests of `examples.pocket_models`."""

from pathlib import Path

import pytest
import torch

from tests.helpers.models import make_model, make_tokenizer


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    """A tiny GPT-2 with tied weights and dropout in its configuration, as from_pretrained reads it."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    make_model("gpt2", len(tokenizer)).save_pretrained(folder)
    return folder


@pytest.fixture
def eager(monkeypatch):
    """Training without `torch.compile`, which would take longer than the test."""
    monkeypatch.setattr(torch, "compile", lambda function: function)
