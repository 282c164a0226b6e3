"""What all tests of `cory` share: folders with tiny models, and plug-ins looked up once."""

from pathlib import Path

import pytest

from tests.helpers.models import CLASSES, make_model, make_tokenizer, save_backbone
from tests.helpers.runs import with_cached_entry_points


@pytest.fixture(scope="module", autouse=True)
def cached_entry_points():
    with pytest.MonkeyPatch.context() as patch:
        with_cached_entry_points(patch)
        yield


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    """A GPT-2 with tied weights and dropout in its configuration, as from_pretrained finds it."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    make_model("gpt2", len(tokenizer)).save_pretrained(folder)
    return folder


QUICK = ("gpt2", "llama")
"""The architectures of the quick tests; the slow ones have all."""


@pytest.fixture(scope="session")
def backbones(tmp_path_factory) -> dict[str, Path]:
    """A model folder per architecture of `tests.helpers.models.CLASSES`."""
    return {kind: save_backbone(kind, tmp_path_factory.mktemp(kind)) for kind in CLASSES}


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in CLASSES],
)
def backbone(request, backbones) -> Path:
    """A folder with a tiny GPT-2, Llama or Qwen2."""
    return backbones[request.param]
