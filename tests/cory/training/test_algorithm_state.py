"""What an algorithm keeps: numbers, tensors, modules and optimizers survive a checkpoint bit for bit."""

from dataclasses import dataclass, replace
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from cory.algorithms import ppo
from cory.algorithms.base import Algorithm, State, check_state
from cory.training.checkpoint import decode, encode
from cory.training.trainer import Trainer
from tests.helpers.tables import flagged


class Mixer:
    """A layer with its optimiser: what a value-mixing critic keeps for the team."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)
        self.optimizer = torch.optim.Adam(self.layer.parameters(), lr=0.1)

    def state_dict(self) -> dict:
        return {"layer": self.layer.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, content: dict) -> None:
        self.layer.load_state_dict(content["layer"])
        self.optimizer.load_state_dict(content["optimizer"])


def mixing() -> Algorithm:
    """PPO that trains the team's mixer on the scores, and tracks a moving mean [2] for each policy."""
    module = ModuleType("mixing")
    module.Config, module.token_loss = ppo.Config, ppo.token_loss

    def advantage(batches, rewards, config, states):
        for seat, batch in batches.items():
            mean = torch.stack([batch.score_B.mean(), batch.payoff_B.mean()])
            states[seat]["mean"] = 0.9 * states[seat].get("mean", torch.zeros(2)) + 0.1 * mean
        return ppo.advantage(batches, rewards, config, states)

    def update_all(team, batches, advantages, config):
        scores_BN = torch.stack([batch.score_B for batch in batches.values()], dim=1)
        loss = (team.state.layer(scores_BN).squeeze(1) - scores_BN.sum(1)).square().mean()
        team.state.optimizer.zero_grad()
        loss.backward()
        team.state.optimizer.step()
        found = {}
        for name, learner in team.learners.items():
            found[name] = learner.update(*team.data(name, batches, advantages))
            found[name]["mixer_loss"] = loss.item()
        return found

    module.advantage, module.update_all = advantage, update_all
    module.team_state = lambda learners, config: Mixer()
    return Algorithm.from_module("mixing", module)


@pytest.fixture
def with_mixer(monkeypatch):
    monkeypatch.setattr("cory.algorithms.load", lambda name: mixing())
    return flagged("--exchange.every", "2")


def learned(metrics: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if not key.startswith(("time/", "speed/"))}


def test_a_resumed_run_is_the_run_in_one_across_an_exchange(with_mixer, tmp_path):
    whole = Trainer(with_mixer)
    want = [learned(whole.iterate(i)) for i in range(5)]
    first = Trainer(with_mixer)
    for i in range(3):
        first.iterate(i)
    second = Trainer(with_mixer)
    second.load(first.save(tmp_path, 3))
    assert [learned(second.iterate(i)) for i in (3, 4)] == want[3:]
    assert want[4]["pioneer_0/llm_1/mixer_loss"] < want[0]["pioneer_0/llm_1/mixer_loss"]
    for one, other in zip(
        whole.state.of_team.layer.parameters(), second.state.of_team.layer.parameters(), strict=True
    ):
        assert torch.equal(one, other)
    means = [trainer.learners["llm_2"].algorithm_state["mean"] for trainer in (whole, second)]
    assert torch.equal(*means)
    assert bool(means[0].any())


def test_metrics_of_a_joint_update_are_those_of_every_policy(with_mixer):
    trainer = Trainer(with_mixer)
    for wrong, fault in (({"llm_1": {}}, "llm_1"), (None, "NoneType"), ({}, "no policy")):
        trainer.algorithm = replace(trainer.algorithm, update_all=lambda *_, result=wrong: result)
        with pytest.raises(ValueError, match=f"update_all returned metrics of {fault}; return a dict"):
            trainer.iterate(0)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda found: list(found.values()), "seats in a list; the seats are pioneer_0, obs"),
        (
            lambda found: found | {"observer_1": tuple(found["observer_1"])},
            "a tuple for observer_1; return Adv",
        ),
        (lambda found: {"pioneer_0": found["pioneer_0"]}, "seats pioneer_0; the seats are pioneer_0, obs"),
        (
            lambda found: found | {"observer_1": found["observer_1"]._replace(advantage_BT=torch.zeros(2))},
            r"advantage_BT of observer_1 with shape \(2,\)",
        ),
        (
            lambda found: (
                found | {"observer_1": found["observer_1"]._replace(return_BT=found["observer_1"][1] / 0)}
            ),
            r"return_BT of observer_1 with numbers that are not finite, in rows \[",
        ),
    ],
)
@pytest.mark.parametrize("hook", ["advantage", "update_all"])
def test_a_wrong_advantage_is_refused_before_any_weight_moves(hook, spoil, fault):
    trainer = Trainer(flagged())
    before = [weight.clone() for p in trainer.policies.values() for weight in p.parameters()]
    good = trainer.algorithm.advantage

    def update_all(team, batches, advantages, _config):
        spoilt = spoil(dict(advantages))
        return {
            name: learner.update(*team.data(name, batches, spoilt)[:3])
            for name, learner in team.learners.items()
        }

    if hook == "advantage":
        changes, where = {"advantage": lambda *args: spoil(good(*args))}, "the advantage hook returned"
    else:
        changes, where = {"update_all": update_all}, r"team\.data was given"
    trainer.algorithm = replace(trainer.algorithm, **changes)
    with pytest.raises((ValueError, FloatingPointError), match=f"algorithm 'ppo': {where} {fault}"):
        trainer.iterate(0)
    after = [weight for p in trainer.policies.values() for weight in p.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize("name", ["payoff_B", "values_BT", "old_logprobs_BT"])
def test_an_advantage_hook_that_writes_into_a_batch_is_refused(name):
    trainer = Trainer(flagged())
    good = trainer.algorithm.advantage

    def writes(batches, *others):
        getattr(batches["observer_1"], name).add_(1)
        return good(batches, *others)

    trainer.algorithm = replace(trainer.algorithm, advantage=writes)
    with pytest.raises(ValueError, match="'ppo': the advantage hook wrote into the batch of observer_1"):
        trainer.iterate(0)


@dataclass
class Stateless:
    number: float


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        (State(mean=float("nan")), r"state\['llm_1'\]\['mean'\] is nan; checkpoints hold finite"),
        (State(mean=torch.tensor([0.0, float("inf")])), r"\['mean'\] is tensor\(\[0\., inf\]\)"),
        (State(rows=[1, {"x": object()}]), r"\['rows'\]\[1\]\['x'\] is <object"),
        (State({(1, 2): 3}), r"is \{\(1, 2\): 3\}; .* with texts or whole numbers as keys"),
    ],
)
def test_a_state_that_a_checkpoint_cannot_hold_is_refused(state, fault):
    with pytest.raises(ValueError, match=fault):
        encode({"llm_1": state.state_dict()}, {})


def test_a_state_without_its_two_methods_is_refused():
    with pytest.raises(ValueError, match="is Stateless; it needs state_dict and load_state_dict"):
        check_state(Stateless(1.0), "llm_1", "mine")


def test_encoding_is_exact():
    content = {
        "numbers": [1, 0.1, True, None, "text"],
        "tuples": [(1, (2, "a")), ()],
        3: {"tensor": torch.arange(3, dtype=torch.bfloat16), "empty": {}},
    }
    tensors: dict[str, Tensor] = {}
    found = decode(encode(content, tensors), tensors)
    assert found["numbers"] == content["numbers"]
    assert found["tuples"] == content["tuples"]
    assert torch.equal(found[3]["tensor"], content[3]["tensor"])
    assert found[3]["empty"] == {}
