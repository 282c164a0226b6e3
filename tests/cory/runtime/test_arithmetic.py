"""Deterministic operations are chosen for the process, recorded, and taken back."""

import os

import pytest
import torch

from cory.config.schema import Config
from cory.runtime import arithmetic, provenance
from cory.runtime.arithmetic import configure_arithmetic, running_sums
from cory.training.factory import configure_runtime
from tests.helpers.tables import TABLES


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """The process as it was."""
    monkeypatch.setenv(arithmetic.CUBLAS_WORKSPACE, "")
    monkeypatch.delenv(arithmetic.CUBLAS_WORKSPACE)
    yield
    configure_arithmetic()


def test_settings_of_a_run_choose_them_and_those_of_the_next_take_them_back():
    settings = {"deterministic": True, "threads": torch.get_num_threads()}
    configure_runtime(Config.from_flat(settings, TABLES))
    assert provenance.environment()["deterministic"]
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.utils.deterministic.fill_uninitialized_memory
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    configure_runtime(TABLES)
    assert not provenance.environment()["deterministic"]
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_a_workspace_of_the_user_is_left_as_it_is(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    configure_arithmetic(deterministic=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


@pytest.mark.parametrize("rows", [1, 3])
def test_running_sums_are_taken_where_cuda_would_refuse_them(monkeypatch, rows):
    """As CUDA does: `cumsum` of floats raises in deterministic mode."""

    class OnCuda(torch.Tensor):
        device = torch.device("cuda")

        def cumsum(self, dim):
            assert not torch.are_deterministic_algorithms_enabled()
            assert len(self) > 1  # a single row would be summed in any order
            return self.as_subclass(torch.Tensor).cumsum(dim)

    configure_arithmetic(deterministic=True)
    sums_NX = running_sums(torch.tensor([[1.0, 2.0, 4.0]] * rows).as_subclass(OnCuda))
    assert sums_NX.tolist() == [[1.0, 3.0, 7.0]] * rows
    assert torch.are_deterministic_algorithms_enabled()
