"""Training on a pretended accelerator: nothing of the CPU meets it, and gradients are the CPU's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.once import once
from tests.helpers.pretended_device import FREE, NAME
from tests.helpers.pretended_runs import CASES, DECODED, DEVICE, LANGUAGE_MODELS, ROUNDED

pytestmark = pytest.mark.slow

LAUNCHES = {"gpt2": 230, "llama": 312, "qwen2": 312, "lora": 312, "lora in bfloat16": 354}
"""Operations that a decoded token of a model of two layers may take: some 3 % more than it takes now."""
EXACT = [case for case in CASES if not any(word in case for word in ROUNDED)]


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, Any]:
    """What `tests.helpers.pretended_runs` found."""
    return json.loads(once(tmp_path_factory, "pretended-device.json", run_all).read_text())


def run_all(results: Path) -> None:
    """Run every case, in a process of its own: torch cannot forget a device."""
    subprocess.run(
        [sys.executable, "-m", "tests.helpers.pretended_runs", str(results)],
        check=True,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        timeout=300,
    )


def test_the_pretended_device_answers_careless_code_as_a_gpu_does(found):
    answers = found["faults"]
    for name in ("meets a tensor of the CPU", "is indexed into by a tensor of the CPU"):
        assert answers[name].startswith("RuntimeError: Expected all tensors to be on the same device")
    assert answers["becomes an array"].startswith("TypeError: can't convert")
    assert answers["is read"] == answers["selects by a mask"] == "; 1 waits, 0 copies"
    assert answers["is copied"] == "; 1 waits, 1 copies"


@pytest.mark.parametrize("case", CASES)
def test_every_case_trains_and_evaluates_on_the_device(found, case):
    result = found["cases"][case]
    assert "error" not in result, result["error"]
    assert result["device"] == DEVICE
    assert result["finite"]
    assert result["synchronised"] >= 10  # before and after each of five phases


@pytest.mark.parametrize("case", EXACT)
def test_tokens_metrics_and_gradients_are_those_of_the_cpu(found, case):
    result = found["cases"][case]
    assert result["same_tokens"]
    assert result["gradient"] < 1e-5
    assert result["metrics"] == {}


@pytest.mark.parametrize("case", [case for case in LANGUAGE_MODELS if "bfloat16" in case])
def test_bfloat16_rounds_log_probs_as_8_bits_do(found, case):
    """Logits of some 10 nats are rounded by up to 10 x 2^-8; float32 would give 1e-6."""
    assert 1e-3 < found["cases"][case]["rounding"] < 0.2


@pytest.mark.parametrize("case", DECODED)
def test_decoding_waits_once_in_eight_tokens_copies_nothing_and_launches_few_operations(found, case):
    asked = found["decoding"][case]
    assert "error" not in asked, asked["error"]
    assert asked["waits"] <= 1 / 8, asked["where"]
    assert asked["copies"] == 0, asked["where"]
    assert 0 < asked["launches"] <= LAUNCHES[case]


def test_a_classifier_scores_there_as_on_the_cpu(found):
    assert found["judged"]["there"] == pytest.approx(found["judged"]["cpu"], abs=1e-5)


def test_a_policy_plays_the_same_tokens_in_an_environment(found):
    assert found["acted"]["there"] == found["acted"]["cpu"]


def test_auto_takes_the_accelerator_with_its_precision_and_half_of_its_free_memory(found):
    assert found["described"] == {"there": [NAME, True, FREE, FREE // 2], "gone": ["cpu", None]}
