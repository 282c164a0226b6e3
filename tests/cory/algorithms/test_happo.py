"""HAPPO: the correction by hand, the order of updates, and the optimum of relay."""

import math
from dataclasses import replace

import pytest
import torch

from cory.algorithms import happo
from cory.functional.advantage import Advantage
from cory.learner.team import Team
from cory.rollout.role_exchange import ExchangeConfig
from cory.training.trainer import Trainer
from tests.helpers.tables import flagged


def trained(*flags: str, iterations: int = 2) -> tuple[Trainer, list[dict[str, float]]]:
    trainer = Trainer(flagged("--algorithm", "happo", *flags))
    return trainer, [trainer.iterate(i) for i in range(iterations)]


def test_corrections_multiply_advantages_and_leave_value_targets():
    advantage = Advantage(torch.tensor([[1.0, -2.0], [3.0, 0.0]]), torch.tensor([[5.0, 5.0], [5.0, 0.0]]))
    found = happo.corrected(advantage, torch.tensor([0.5, 2.0]))
    assert found.advantage_BT.tolist() == [[0.5, -1.0], [6.0, 0.0]]
    assert found.return_BT.tolist() == advantage.return_BT.tolist()


def test_of_three_policies_the_product_is_clipped_and_not_its_factors(monkeypatch):
    """Ratios 4 and 1/2 make 2, though 4 alone counts as 3."""
    trainer = Trainer(flagged("--algorithm", "happo", "--seats", "3", "--algorithm.order", "play",
                              "--algorithm.max-correction", "3"))  # fmt: skip
    ratios = {"pioneer_0": 4.0, "observer_1": 0.5, "observer_2": 1.0}

    def logprobs(team, seat, batch):
        first_BT = torch.zeros_like(batch.old_logprobs_BT)
        first_BT[:, 0] = math.log(ratios[seat])
        return batch.old_logprobs_BT + first_BT

    monkeypatch.setattr(Team, "logprobs", logprobs)
    row = trainer.iterate(0)
    found = [row[f"{seat}/llm_{i + 1}/correction"] for i, seat in enumerate(ratios)]
    assert found == pytest.approx([1.0, 3.0, 2.0])


@pytest.mark.parametrize(("order", "first"), [("play", 0), ("reverse", 1)])
def test_the_first_policy_has_no_correction_and_the_second_that_of_the_first(order, first):
    """The correction is computed here again from the first policy's weights before and after."""
    config = flagged("--algorithm", "happo", "--algorithm.order", order, "--exchange.every", "0")
    trainer = Trainer(config)
    seen = {}

    def watched(team: Team, batches, advantages, options):
        name = list(team.learners)[first]
        seat = team.seats_of(name)[0]
        before = team.logprobs(seat, batches[seat])
        found = happo.update_all(team, batches, advantages, options)
        seen["ratio_B"] = (team.logprobs(seat, batches[seat]) - before).sum(1).exp()
        return found

    trainer.algorithm = replace(trainer.algorithm, update_all=watched)
    metrics = trainer.iterate(0)
    corrections = {key.split("/")[1]: value for key, value in metrics.items() if key.endswith("/correction")}
    names = list(trainer.policies)
    assert corrections[names[first]] == 1.0
    bound = config.algorithm_options.max_correction
    want = seen["ratio_B"].clamp(1 / bound, bound).mean().item()
    assert corrections[names[1 - first]] == pytest.approx(want, rel=1e-5)
    assert want != pytest.approx(1.0, abs=1e-4)


def test_random_orders_differ_between_iterations_and_are_the_same_on_resume(tmp_path):
    trainer, _ = trained(iterations=3)
    folder = trainer.save(tmp_path, 3)
    want = [trainer.iterate(i) for i in range(3, 8)]
    resumed = Trainer(trainer.config)
    resumed.load(folder)
    got = [resumed.iterate(i) for i in range(3, 8)]
    timeless = [{k: v for k, v in m.items() if "time" not in k and "speed" not in k} for m in want]
    assert timeless == [{k: v for k, v in m.items() if "time" not in k and "speed" not in k} for m in got]
    first = [
        next(key.split("/")[1] for key, value in m.items() if key.endswith("/correction") and value == 1.0)
        for m in want
    ]
    assert len(set(first)) == 2


def test_happo_with_one_seat_is_ppo():
    runs = {}
    for name in ("happo", "ppo"):
        trainer = Trainer(flagged("--algorithm", name, "--seats", "1", "--exchange.every", "0"))
        trainer.iterate(0)
        runs[name] = [weight.clone() for weight in trainer.policies["llm_1"].parameters()]
    assert all(torch.equal(a, b) for a, b in zip(runs["happo"], runs["ppo"], strict=True))


@pytest.mark.slow
def test_cooperation_is_learned_on_relay():
    """A pioneer that maximises its own score leaves the sum at 1.5 or below; the best is 1.9."""
    config = flagged("--task", "relay", "--algorithm", "happo", "--max-response", "1", "1", "--batch", "96")
    config = replace(config, exchange=ExchangeConfig(every=0), kl=replace(config.kl, coef=0.0))
    trainer = Trainer(config)
    sums = []
    for iteration in range(40):
        metrics = trainer.iterate(iteration)
        sums.append(sum(score for key, score in metrics.items() if key.endswith("/task_reward")))
    assert sum(sums[-5:]) / 5 > 1.75


@pytest.mark.parametrize("wrong", [{"order": "up"}, {"max_correction": 0.5}])
def test_happo_settings_out_of_range_are_refused(wrong):
    ((field, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"algorithm\.{field} is '?{value}"):
        happo.Config(**wrong)
