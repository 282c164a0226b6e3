"""Negative controls of exact resume for what only some runs have: a running baseline, a central critic.

The other parts are in `tests/cory/training/test_resume.py`.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from cory.training import checkpoint
from cory.training.trainer import Trainer
from tests.helpers.runs import cut_run, same, traces, train, without_report, write_manifest
from tests.helpers.tables import TABLES

REINFORCE = ("--algorithm", "reinforce")
CENTRAL = ("--critic.kind", "central")


@pytest.fixture(scope="module", autouse=True)
def no_report():
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Callable[[tuple[str, ...]], Path]:
    """Runs of four iterations by their flags, each made once."""

    @cache
    def made(flags: tuple[str, ...]) -> Path:
        run = tmp_path_factory.mktemp("whole") / "run"
        assert train(run, 4, *flags) == 0
        return run

    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "lost"),
    [
        (REINFORCE, None),
        (REINFORCE, "algorithm.json"),
        (CENTRAL, None),
        (CENTRAL, "optimizer_critic.safetensors"),
        (CENTRAL, "critic/heads.safetensors"),
    ],
)
def test_a_run_in_two_halves_is_the_run_in_one_and_without_a_part_it_is_not(tmp_path, whole, flags, lost):
    """`lost` is reset to its state at iteration 0."""
    run = cut_run(whole(flags), tmp_path / "run", 2)
    folder, first = checkpoint.folder_of(run, 2), checkpoint.folder_of(run, 0)
    if lost:
        assert (folder / lost).read_bytes() != (first / lost).read_bytes()
        (folder / lost).write_bytes((first / lost).read_bytes())
    write_manifest(folder)
    assert train(run, 4, *flags, "--resume", "must") == 0
    assert same(traces(run, 4), traces(whole(flags), 4)) == (lost is None)


def test_the_streak_of_negative_kl_is_saved(tmp_path):
    """Four suspicious updates, a resume, and the fifth stops the run."""
    trainer, fresh = Trainer(TABLES), Trainer(TABLES)
    trainer.learners["llm_2"].negative_kl_streak = 4
    folder = trainer.save(tmp_path, 0)
    fresh.load(folder)
    streaks = {name: learner.negative_kl_streak for name, learner in fresh.learners.items()}
    assert streaks == {"llm_1": 0, "llm_2": 4}
