"""Negative controls of exact resume for what only some runs have: a baseline that is remembered, a central
critic. The other parts are in `tests/cory/training/test_resume.py`."""

import json
from pathlib import Path

import pytest

from cory.training import checkpoint
from cory.cli.main import main
from cory.training.trainer import Trainer
from tests.cory.training.test_resume import FLAGS, manifest, same, traces
from tests.cory.training.test_trainer import TABLES

REINFORCE = ("--algorithm", "reinforce")
CENTRAL = ("--critic.kind", "central")


@pytest.fixture(scope="module", autouse=True)
def plain():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cory.training.run.write_report", lambda run: run / "report.html")
        yield


def train(run: Path, iterations: int, *more: str) -> dict:
    """Iterations until there are so many; what they left."""
    assert main(["train", *FLAGS, *more, "--iterations", str(iterations), "--run", str(run)]) == 0
    return traces(run, iterations)


@pytest.mark.parametrize(
    ("flags", "lost"),
    [
        (REINFORCE, None),
        (REINFORCE, "memory"),
        (CENTRAL, None),
        (CENTRAL, "optimizer_critic.safetensors"),
        (CENTRAL, "critic/heads.safetensors"),
    ],
)
def test_a_run_in_two_halves_is_the_run_in_one_and_without_a_part_it_is_not(tmp_path, flags, lost):
    """`lost` is put back to what it was at iteration 0."""
    run, resume = tmp_path / "run", ("--resume", "must")
    want = train(tmp_path / "whole", 4, *flags)
    train(run, 2, *flags)
    folder, first = checkpoint.folder_of(run, 2), checkpoint.folder_of(run, 0)
    if lost == "memory":
        told, before = (json.loads((at / "trainer_state.json").read_text()) for at in (folder, first))
        for name in told["learners"]:
            assert told["learners"][name]["memory"] != before["learners"][name]["memory"]
            told["learners"][name]["memory"] = before["learners"][name]["memory"]
        (folder / "trainer_state.json").write_text(json.dumps(told))
    elif lost:
        assert (folder / lost).read_bytes() != (first / lost).read_bytes()
        (folder / lost).write_bytes((first / lost).read_bytes())
    manifest(folder)
    assert same(train(run, 4, *flags, *resume), want) == (lost is None)


def test_how_often_kl_was_below_zero_is_taken_along(tmp_path):
    """Four suspicious updates, a resume, and the fifth is the one that counts (agents/cory/learner/learner.py)."""
    trainer, fresh = Trainer(TABLES), Trainer(TABLES)
    trainer.learners["llm_2"].below_zero = 4
    folder = checkpoint.save(tmp_path, 0, trainer.learners, trainer.state())
    fresh.restore(checkpoint.load(folder, fresh.learners))
    assert {name: learner.below_zero for name, learner in fresh.learners.items()} == {"llm_1": 0, "llm_2": 4}
