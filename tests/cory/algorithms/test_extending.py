"""The algorithms that docs/extending.md walks through, and the table of docs/algorithms.md."""

import re
import shlex
from pathlib import Path

import pytest
import torch

from cory import algorithms
from cory.algorithms import vdac
from cory.training.trainer import Trainer
from tests.helpers.games import made_up_games, relay_sums
from tests.helpers.tables import flagged

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/extending.md"
TABLE = (ROOT / "docs/algorithms.md").read_text("utf-8")


def block_of(name: str) -> str:
    """The Python block of the page whose docstring begins with `name`."""
    (found,) = re.findall(rf'^```python\n("""{name} .*?)^```$', PAGE.read_text("utf-8"), re.M | re.S)
    return found


@pytest.fixture
def written(tmp_path) -> dict[str, str]:
    """Paths of the files that a reader would write, by algorithm."""
    paths = {}
    for name in ("VDAC-sum", "HAPPO"):
        path = tmp_path / f"my_{name.lower().replace('-', '_')}.py"
        path.write_text(block_of(name), "utf-8")
        paths[name] = str(path)
    return paths


def test_algorithms_of_the_page_are_as_short_as_it_claims():
    assert len(block_of("VDAC-sum").splitlines()) <= 40
    assert len(block_of("HAPPO").splitlines()) <= 60


def test_the_example_plug_in_is_the_block(plugins):
    assert block_of("VDAC-sum") == (plugins / "cory_vdac_sum/cory_vdac_sum.py").read_text("utf-8")


def test_vdac_of_the_page_has_the_built_in_ones_advantages_without_gae_and_whitening(written):
    batches = made_up_games([[1.0, 0], [0, 4]], [[[0.5], [2, 3]], [[0.25], [-1, 1.5]]])
    rewards = {
        "pioneer_0": torch.tensor([[1.0, 0], [-0.5, 4]]),
        "observer_1": torch.tensor([[0.75, 0], [0, 4]]),
    }
    own = algorithms.load(written["VDAC-sum"])
    found = own.advantage(batches, rewards, own.Config(), {})
    want = vdac.advantage(batches, rewards, vdac.Config(whiten=False, lam=1.0), {})
    for seat in batches:
        for one, other in zip(found[seat], want[seat], strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.slow
def test_vdac_of_the_page_learns_to_cooperate_on_relay(written):
    sums = relay_sums("--algorithm", written["VDAC-sum"], "--learner.lr", "0.3", iterations=60)
    assert sums[0] < 1.1
    assert sum(sums[-5:]) / 5 > 1.6


def test_happo_of_the_page_takes_the_same_steps_as_the_built_in_one(written):
    trainers = [
        Trainer(flagged("--algorithm", written["HAPPO"])),
        Trainer(flagged("--algorithm", "happo", "--algorithm.order", "play")),
    ]
    for trainer in trainers:
        found = [trainer.iterate(i) for i in range(3)]
    assert found[-1]["observer_1/llm_2/correction"] != 1
    for name in trainers[0].policies:
        assert torch.equal(*(trainer.policies[name].logits_SV for trainer in trainers))


def test_the_table_lists_every_algorithm():
    assert set(re.findall(r"^\| `(\w+)`", TABLE, re.M)) == set(algorithms.names())


@pytest.mark.parametrize("command", re.findall(r"^cory train (.*)$", TABLE, re.M))
def test_commands_of_the_table_are_accepted(command):
    flags = shlex.split(command)
    assert flagged(*flags).algorithm == flags[1]
