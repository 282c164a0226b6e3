"""Plug-ins from files, modules and entry points: each kind is used in a run, and faults are named."""

import sys
from types import ModuleType

import pytest
import torch

from cory import algorithms
from cory.functional import kl
from cory.learner.central_critic import CentralCritic
from cory.learner.critic_config import CriticConfig
from cory.rollout.role_exchange import ExchangeConfig, seating_at
from cory.training.trainer import Trainer
from cory_env.registry import Registry, module_of
from tests.helpers.tables import flagged

GROUP = "cory.nothing"


def load(name: str):
    return Registry("x.kind", GROUP, {}, form="module:NAME or file.py:NAME").load(name)


@pytest.fixture
def file(tmp_path):
    """Write a file of Python code and return its path."""

    def write(code: str, name: str = "mine.py") -> str:
        (tmp_path / name).write_text(code, "utf-8")
        return str(tmp_path / name)

    return write


def test_a_file_is_a_module_that_is_run_once(file):
    path = file("numbers = []\nnumbers.append(1)\n")
    assert load(f"{path}:numbers") == [1]
    assert module_of(path) is module_of(path)
    assert load(f"{path}:numbers") == [1]


def test_files_of_one_name_in_two_folders_are_two_modules(file, tmp_path):
    (tmp_path / "other").mkdir()
    first, second = file("x = 1"), file("x = 2", "other/mine.py")
    assert [load(f"{path}:x") for path in (first, second)] == [1, 2]


def test_a_file_is_found_from_the_working_directory(file, tmp_path, monkeypatch):
    file("x = 3")
    monkeypatch.chdir(tmp_path)
    assert load("mine.py:x") == 3


def test_modules_and_entry_points_are_loaded(tmp_path, monkeypatch):
    info = tmp_path / "cory_thing-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cory-thing\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\npi = math:pi\ngone = no_such_module:x\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load("math:pi") == load("pi") == pytest.approx(3.14159265)
    with pytest.raises(ValueError, match=r"x\.kind is 'unknown'; there are gone, pi, module:NAME or file"):
        load("unknown")
    with pytest.raises(ValueError, match=r"x\.kind 'gone' cannot be imported"):
        load("gone")


def test_a_module_that_fails_is_named_as_a_file_is(file, tmp_path, monkeypatch):
    file("x = undefined", "fails_in_tests.py")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"fails_in_tests:x' cannot be imported \(NameError"):
        load("fails_in_tests:x")


@pytest.mark.parametrize(
    ("code", "name", "fault"),
    [
        ("x = 1", "mine.py:y", "mine.py has no 'y'"),
        ("x = 1", "absent.py:x", "there is no file .*absent.py"),
        ("def", "mine.py:x", "SyntaxError"),
        ("import no_such_module", "mine.py:x", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = 1 / 0", "mine.py:x", "ZeroDivisionError: division by zero"),
    ],
)
def test_plugin_that_cannot_be_loaded_is_named_with_the_setting(file, tmp_path, code, name, fault):
    file(code)
    with pytest.raises(ValueError, match=rf"(?s)x\.kind '.*{name}' cannot be imported.*{fault}"):
        load(str(tmp_path / name))
    files = [getattr(module, "__file__", "") for module in sys.modules.values()]
    assert files.count(f"{tmp_path}/mine.py") == (code == "x = 1" and name.startswith("mine"))


def test_an_algorithm_in_a_file_is_ppo_if_it_says_so(file):
    path = file("from cory.algorithms.ppo import Config, advantage, token_loss, verdict\n")
    trainers = [Trainer(flagged("--algorithm", name)) for name in (path, "ppo")]
    for trainer in trainers:
        trainer.iterate(0)
    one, two = (trainer.policies["llm_1"].logits_SV for trainer in trainers)
    assert torch.equal(one, two)
    assert one.any()


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("x = 1", "has no Config, advantage, token_loss; see docs/extending.md"),
        ("import no_such_module", "cannot be imported .*no_such_module"),
    ],
)
def test_a_file_that_is_no_algorithm_is_refused(file, code, fault):
    with pytest.raises(ValueError, match=fault):
        algorithms.load(file(code))


def test_an_algorithm_in_no_file_is_refused():
    with pytest.raises(ValueError, match=r"algorithm 'absent\.py' cannot be imported \(there is no file"):
        algorithms.load("absent.py")


HALF = """
def half(logprobs, ref_logprobs, exact_kl):
    return (logprobs - ref_logprobs) / 2

def wide(logprobs, ref_logprobs, exact_kl):
    return logprobs.sum()

def broken(logprobs, ref_logprobs, exact_kl):
    return logprobs / 0

NUMBER = 1
"""


def test_a_kl_estimator_in_a_file_estimates(file):
    path = file(HALF)
    logprobs, ref_logprobs = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-2.0, -2.5]])
    found = kl.estimate(f"{path}:half", logprobs, ref_logprobs, torch.zeros(1, 2))
    assert found.tolist() == [[0.5, 0.25]]
    config = flagged("--kl.kind", f"{path}:half", "--exchange.every", "0")
    assert Trainer(config).iterate(0)["pioneer_0/llm_1/steps"] == 4


def test_a_kl_estimator_with_wrong_results_is_named(file):
    path = file(HALF)
    at = (torch.tensor([-1.0, -2.0]), torch.tensor([-2.0, -2.5]), torch.zeros(2))
    with pytest.raises(ValueError, match=r"wide' returned \(\); return estimates \(2,\)"):
        kl.estimate(f"{path}:wide", *at)
    with pytest.raises(FloatingPointError, match="broken' returned an estimate that is not finite"):
        kl.estimate(f"{path}:broken", *at)
    with pytest.raises(ValueError, match="NUMBER' is a int, not a function"):
        kl.KLConfig(kind=f"{path}:NUMBER")


CRITIC = """
from dataclasses import replace
from cory.learner.central_critic import CentralCritic

class Doubling(CentralCritic):
    def value(self, batches):
        valued = super().value(batches)
        return {s: replace(b, values_BT=b.values_BT + 2 * b.mask_BT) for s, b in valued.items()}

class Unkept(CentralCritic):
    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        del self.optimizer

class Empty:
    def value(self, batches):
        return batches
"""


def test_a_critic_in_a_file_gives_the_values(file):
    path = file(CRITIC)
    trainer = Trainer(flagged("--critic.kind", f"{path}:Doubling"))
    metrics = trainer.iterate(0)
    assert isinstance(trainer.critic, CentralCritic)
    assert metrics["pioneer_0/llm_1/value_first"] == 2  # the heads of a new critic say 0
    with pytest.raises(ValueError, match="Unkept' has no optimizer, which checkpoints hold"):
        Trainer(flagged("--critic.kind", f"{path}:Unkept"))
    with pytest.raises(ValueError, match="Empty' has no update, reset, save, restore; see CentralCritic"):
        CriticConfig(kind=f"{path}:Empty")
    with pytest.raises(ValueError, match=r"there are own, central, .*module:Class or file\.py:Class"):
        CriticConfig(kind="shared")


ORDER = """
def reverse_at_ten(iteration, seats, policies):
    return dict(zip(seats, policies if iteration < 10 else policies[::-1]))

def crowded(iteration, seats, policies):
    return dict.fromkeys(seats, policies[0])
"""


def test_an_exchange_order_in_a_file_is_called_at_the_exchanges(file):
    order = f"{file(ORDER)}:reverse_at_ten"
    assert ExchangeConfig(order=order).order == order
    seats, first = ("pioneer_0", "observer_1"), ("a", "b")
    pioneers = [
        seating_at(i, every=4, seats=seats, first=first, order=order)["pioneer_0"] for i in (0, 8, 11, 12, 40)
    ]
    assert pioneers == ["a", "a", "a", "b", "b"]  # iterations 8 to 11 are seated as iteration 8
    again = seating_at(12, every=4, seats=seats, first=first, order=order)
    assert again == {"pioneer_0": "b", "observer_1": "a"}


def test_an_exchange_order_in_a_file_seats_the_policies_of_a_run(file):
    flags = ("--exchange.every", "5", "--exchange.order", f"{file(ORDER)}:reverse_at_ten")
    trainer = Trainer(flagged(*flags))
    assert [trainer.seating(i)["pioneer_0"] for i in (0, 9, 10)] == ["llm_1", "llm_1", "llm_2"]


def test_a_seating_of_the_wrong_policies_is_refused(file):
    order = f"{file(ORDER)}:crowded"
    with pytest.raises(ValueError, match=r"crowded' returned .*; seat a, b in pioneer_0, observer_1"):
        seating_at(0, every=1, seats=("pioneer_0", "observer_1"), first=("a", "b"), order=order)
    with pytest.raises(ValueError, match=r"exchange\.order is 'shuffle'; there are rotate, random, module:f"):
        ExchangeConfig(order="shuffle")


def test_a_registered_module_still_wins(monkeypatch):
    monkeypatch.setattr(algorithms.registry(), "items", dict(algorithms.registry().items))
    module = ModuleType("mine")
    ppo = algorithms.load("ppo")
    module.Config, module.advantage, module.token_loss = ppo.Config, ppo.advantage, ppo.token_loss
    algorithms.register("mine", module)
    assert algorithms.load("mine").name == "mine"
