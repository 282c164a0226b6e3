"""A tiny study of lookup tables, and made-up runs."""

import copy
import shutil
from pathlib import Path

import pytest
import yaml

from cory.study.engines import Outcome, worker
from cory.study.engines.local import LocalEngine
from cory.study.study import Study
from tests.helpers.once import made_once

ROOT = Path(__file__).parents[3]
SMOKE = ROOT / "benchmarks/studies/relay_smoke.yaml"


@pytest.fixture
def values() -> dict:
    """The keys of the example study."""
    return copy.deepcopy(yaml.safe_load(SMOKE.read_text("utf-8")))


def run_once(folders, name, values) -> tuple:
    """A study run by one worker process, for all processes of pytest: its values, its lines, what it left."""

    def make(folder):
        whole = values | {"out": str(folder / "study")}
        lines: list[str] = []
        return whole, lines, Study(**whole).run(jobs=1, say=lines.append)

    return made_once(folders, name, make)


@pytest.fixture
def copied(made, tmp_path):
    """A copy of the folder of the study that the module has `made`; its values name it."""
    values, _, finished = made
    shutil.copytree(finished.page.parent, tmp_path / "study")
    return values | {"out": str(tmp_path / "study")}, tmp_path / "study"


@pytest.fixture
def in_this_process(monkeypatch):
    """An engine without worker processes."""

    def train(engine, runs):
        return [Outcome(run=run, error=worker.train(engine.out / run.name, run)) for run in runs]

    monkeypatch.setattr(LocalEngine, "train", train)


def made_up_run(arm: str, seed: int, reward: float, *, kl: float = 1.0, commit: str = "abc", **more) -> dict:
    """A finished run on relay: two policies `reward` +- .1, whose mean is the run's value."""
    policies = {"llm_1": reward + 0.1, "llm_2": reward - 0.1}
    curves = {
        name: {"task_reward": [[0, 0.0], [20, value]], "kl": [[0, 0.0], [20, kl]]}
        for name, value in policies.items()
    }
    curves["reference"] = {"task_reward": [[0, 0.0]], "kl": [[0, 0.0]]}
    return {
        "arm": arm,
        "task": "relay",
        "seed": seed,
        "learning_version": 1,
        "status": "finished",
        "seconds": 1.0,
        "commit": commit,
        "processor": "a processor",
        "iterations": 20,
        "collapsed_at": {"llm_1": None, "llm_2": None},
        "budget": {"games": 640, "judge_calls": 1280},
        "eval": curves,
        "game": {
            "pioneer_0": {"task_reward": [[20, reward]]},
            "observer_1": {"task_reward": [[20, reward / 2]]},
        },
        **more,
    }
