"""What holds for all tests: the library of matrix products, and which of them run training."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNS_TRAINING = (
    "benchmarks",
    "cory/cli",
    "cory/report",
    "cory/training",
    "cory/study",
    "cory/test_api.py",
    "cory/test_safety.py",
    "cory/learner/test_central_critic.py",
    "cory/learner/test_sharing.py",
    "cory/learner/test_elastic_reset.py",
    "cory/learner/test_moving_average.py",
    "cory/algorithms/test_algorithms.py",
    "cory/algorithms/test_bandit.py",
    "cory/algorithms/test_coma.py",
    "cory/algorithms/test_extending.py",
    "cory/algorithms/test_happo.py",
    "cory/algorithms/test_mappo.py",
    "cory/algorithms/test_plugins.py",
    "cory/algorithms/test_seq.py",
    "cory/algorithms/test_trpo.py",
    "cory/algorithms/test_vdac.py",
    "cory/config/test_presets.py",
    "cory/evaluation/test_probe.py",
    "cory/policies/test_architectures.py",
    "cory/policies/test_frozen.py",
    "cory/runtime/test_cpu.py",
    "cory/runtime/test_hub.py",
    "cory/runtime/test_plugins.py",
    "cory/test_average.py",
    "cory/judges/test_user_function.py",
    "cory_env/tasks/test_relay_learned.py",
    "cory_env/envs/test_contract.py",
    "examples",
    "faults",
    "test_packaging.py",
)
"""Folders and files whose tests train, start processes or play many games; `make test-fast` leaves them
out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `RUNS_TRAINING`."""
    for item in items:
        path = item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else ""
        if path.startswith(RUNS_TRAINING):
            item.add_marker(pytest.mark.runs_training)


@pytest.fixture(autouse=True)
def matmul_library():
    """Give each test torch's own library for matrix products: a run sets one for its process."""
    torch = sys.modules.get("torch")
    if torch is not None:  # the game's tests do without it
        torch.backends.mkldnn.matmul.fp32_precision = "none"
