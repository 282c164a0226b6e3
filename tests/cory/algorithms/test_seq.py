"""Credit by sequence: literals by hand, equal expectation, and the optimum of relay."""

import math
from dataclasses import replace

import pytest
import torch

from cory import algorithms
from cory.algorithms import seq
from cory.batch import Batch
from cory.learner.critic_config import CriticConfig
from cory.rollout.role_exchange import ExchangeConfig
from cory.training.trainer import Trainer
from tests.helpers.tables import flagged


def played(scores: list[list[float]], values: list[list[float]], *, others: float = 1.0) -> dict[str, Batch]:
    """One batch per seat from scores and first values, both by seat; responses of one token."""
    scores_NB, values_NB = torch.tensor(scores), torch.tensor(values)
    ones_B = torch.ones(scores_NB.shape[1], dtype=torch.long)
    batches = {}
    for i in range(len(scores)):
        values_BT = values_NB[i][:, None]
        same = dict.fromkeys(
            ("behaviour_logprobs_BT", "old_logprobs_BT", "ref_logprobs_BT", "exact_kl_BT"),
            torch.zeros_like(values_BT),
        )
        batches["pioneer_0" if i == 0 else f"observer_{i}"] = Batch(
            prompt_BP=ones_B[:, None],
            prompt_length_B=ones_B,
            response_BT=ones_B[:, None],
            response_length_B=ones_B,
            values_BT=values_BT,
            score_B=scores_NB[i],
            payoff_B=scores_NB[i] + others * (scores_NB.sum(0) - scores_NB[i]),
            **same,
        )
    return batches


def paid(batches: dict[str, Batch], **penalties: list[float]) -> dict[str, torch.Tensor]:
    """Token rewards: payoffs less the KL penalties of seats."""
    none = [0.0] * len(next(iter(batches.values())))
    return {
        seat: (batch.payoff_B - torch.tensor(penalties.get(seat, none)))[:, None]
        for seat, batch in batches.items()
    }


@pytest.mark.parametrize(
    ("others", "seat_lam", "pioneer"),
    [
        (1.0, 0.0, [1 + 0.25, 0 + 0.75]),  # own score + the observer's first value
        (1.0, 1.0, [1 + 2.0, 0 + 4.0]),  # own score + the observer's score
        (0.5, 0.5, [1 + 0.5 * (0.25 + 0.5 * 1.75), 0 + 0.5 * (0.75 + 0.5 * 3.25)]),
        (0.0, 0.0, [1.0, 0.0]),
    ],
)
def test_credits_of_two_seats(others, seat_lam, pioneer):
    batches = played([[1.0, 0.0], [2.0, 4.0]], [[9.0, 9.0], [0.25, 0.75]])
    found = seq.credits(batches, paid(batches), seq.Config(others=others, seat_lam=seat_lam))
    assert found["pioneer_0"].tolist() == pioneer
    assert found["observer_1"].tolist() == [2.0, 4.0]  # whatever the pioneer scored


def test_the_pioneer_does_not_owe_the_observers_kl_penalty():
    """After a the observer expects 1 and pays 0, after b it expects 1 and pays 1.5: values 1, -0.5."""
    batches = played([[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, -0.5]])
    rewards = paid(batches, observer_1=[0.0, 1.5], pioneer_0=[0.25, 0.0])
    assert seq.credits(batches, rewards, seq.Config())["pioneer_0"].tolist() == [1.0, 1.0]
    found = seq.advantage(batches, rewards, seq.Config(whiten=False), {seat: {} for seat in batches})
    assert found["pioneer_0"].advantage_BT[:, 0].tolist() == [0.75, 1.0]


def test_of_three_seats_only_the_last_has_a_value_for_its_score():
    batches = played([[1.0], [10.0], [100.0]], [[7.0], [7.0], [50.0]])
    found = seq.credits(batches, paid(batches), seq.Config())
    assert {seat: credit_B.tolist() for seat, credit_B in found.items()} == {
        "pioneer_0": [1.0 + 10.0 + 50.0],
        "observer_1": [10.0 + 50.0],
        "observer_2": [100.0],
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 1.0, 2.0, 3.0], [-0.3, -0.1, 0.1, 0.3]),  # the slope of the scores on them is 1/5
        ([3.0, 2.0, 1.0, 0.0], [0.0] * 4),  # they predict the reverse
        ([0.4, 0.6, 0.4, 0.6], [-0.1, 0.1, -0.1, 0.1]),  # the slope is 5, and counts as 1
        ([7.0, 7.0, 7.0, 7.0], [0.0] * 4),
    ],
)
def test_calibrated_credit_is_what_the_values_predict_of_the_scores(values, expected):
    pioneer, observer = [1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0]
    batches = played([pioneer, observer], [[9.0] * 4, values])
    found = seq.credits(batches, paid(batches), seq.Config(calibrate=True))
    credit = [own + later for own, later in zip(pioneer, expected, strict=True)]
    torch.testing.assert_close(found["pioneer_0"], torch.tensor(credit))
    assert found["observer_1"].tolist() == observer
    drawn = seq.credits(batches, paid(batches), seq.Config(calibrate=True, seat_lam=1.0))
    assert drawn["pioneer_0"].tolist() == [0.5, 0.5, 0.5, 1.5]  # scores less their mean


def test_calibrated_scores_of_seats_between_count_less_their_mean():
    batches = played([[1.0, 1.0], [10.0, 20.0], [0.0, 2.0]], [[7.0, 7.0], [7.0, 7.0], [0.0, 1.0]])
    found = seq.credits(batches, paid(batches), seq.Config(calibrate=True))
    assert found["pioneer_0"].tolist() == [1 - 5 - 0.5, 1 + 5 + 0.5]
    assert found["observer_1"].tolist() == [10 - 0.5, 20 + 0.5]


def test_advantages_are_those_of_ppo_with_the_credits_as_payoffs():
    """KL penalties stay in the rewards: of the last token only the payoff is replaced."""
    batches = played([[1.0, 0.0], [2.0, 4.0]], [[0.5, 0.5], [0.25, 0.75]])
    rewards = paid(batches, pioneer_0=[0.125, 0.25], observer_1=[0.125, 0.25])
    found = seq.advantage(batches, rewards, seq.Config(whiten=False), {seat: {} for seat in batches})
    assert found["pioneer_0"].advantage_BT[:, 0].tolist() == [1.375 - 0.125 - 0.5, 1 - 0.25 - 0.5]
    assert found["observer_1"].advantage_BT[:, 0].tolist() == [2 - 0.125 - 0.25, 4 - 0.25 - 0.75]


def test_another_payoff_than_the_credited_one_is_refused():
    batches = played([[1.0, 0.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]], others=-1.0)
    with pytest.raises(ValueError, match="seq credits pioneer_0 for its own score and 1 times"):
        seq.advantage(batches, paid(batches), seq.Config(), {seat: {} for seat in batches})


def test_a_lambda_outside_zero_to_one_is_refused():
    with pytest.raises(ValueError, match=r"algorithm\.seat_lam is 1\.5"):
        algorithms.load("seq").Config(seat_lam=1.5)


@pytest.mark.parametrize(
    ("algorithm", "payoff", "take"),
    [
        *(("seq", "independent", "cooperative"), ("coma", "best", "cooperative")),
        *(("vdac", "0.5", "cooperative or best"), ("vdac_mix", "competitive", "cooperative or best")),
    ],
)
def test_a_payoff_that_an_algorithm_does_not_share_out_is_refused_before_a_run(algorithm, payoff, take):
    with pytest.raises(ValueError, match=f"{algorithm!r} shares out another payoff .* take --payoff {take}"):
        flagged("--algorithm", algorithm, "--payoff", payoff)
    flagged("--algorithm", algorithm, "--payoff", take.split()[-1])


@pytest.mark.parametrize("algorithm", ["seq", "coma"])
def test_players_whose_scores_an_algorithm_would_share_out_are_refused_before_a_run(algorithm):
    with pytest.raises(ValueError, match=f"{algorithm!r} shares out scores of seats that all learn"):
        flagged("--algorithm", algorithm, "--players.pioneer_0", "frozen")


@pytest.mark.parametrize("algorithm", ["seq", "coma"])
def test_a_task_in_which_an_observer_changes_the_pioneers_score_is_refused_before_a_run(algorithm):
    table = ("--policy.kind", "table", "--task", "verify", "--max-response", "4", "4")
    with pytest.raises(ValueError, match=f"{algorithm!r} credits no seat with the scores of earlier ones"):
        Trainer(flagged(*table, "--algorithm", algorithm))
    Trainer(flagged(*table, "--algorithm", "ppo"))


@pytest.mark.parametrize("algorithm", ["seq", "coma"])
def test_a_discount_that_would_weight_later_seats_by_their_length_is_refused(algorithm):
    with pytest.raises(ValueError, match=r"undiscounted; leave out --algorithm.gamma 0\.9"):
        flagged("--algorithm", algorithm, "--algorithm.gamma", "0.9")


def test_seq_of_own_scores_learns_beside_players():
    others = ("--algorithm", "seq", "--algorithm.others", "0", "--payoff", "0")
    assert flagged(*others, "--players.pioneer_0", "frozen").learning_seats == ("observer_1",)


def test_seq_shares_out_the_payoff_of_its_weight():
    flagged("--algorithm", "seq", "--algorithm.others", "0.5", "--payoff", "0.5")
    with pytest.raises(ValueError, match=r"take --payoff 0\.5"):
        flagged("--algorithm", "seq", "--algorithm.others", "0.5")


@pytest.mark.parametrize("algorithm", ["seq", "coma", "vdac", "vdac_mix"])
@pytest.mark.parametrize("setting", ["payoff-scaling.scaling normalise", "algorithm.whiten-rewards tokens"])
def test_values_of_seats_are_not_added_on_other_scales(algorithm, setting):
    with pytest.raises(ValueError, match=f"{algorithm!r} needs payoffs as .* leave out --{setting}"):
        flagged("--algorithm", algorithm, *f"--{setting}".split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("critic", "calibrate", "least"), [("central", False, 1.75), ("central", True, 1.6), ("own", False, 1.75)]
)
def test_cooperation_is_learned_on_relay(critic, calibrate, least):
    """A pioneer that maximises its own score leaves the sum at 1.5 or below; the best is 1.9.

    The observer does not see the secret, so its own critic cannot tell which message deserves credit: the
    score as it was drawn can (`seat_lam` 1), and the central critic. Calibrated credit waits for the critic.
    """
    config = replace(
        flagged("--task", "relay", "--algorithm", "seq", "--max-response", "1", "1", "--batch", "96"),
        exchange=ExchangeConfig(every=0),
        critic=CriticConfig(kind=critic, lr=1e-2, epochs=20) if critic == "central" else CriticConfig(),
        algorithm_options=seq.Config(seat_lam=0.0 if critic == "central" else 1.0, calibrate=calibrate),
    )
    config = replace(config, learner=replace(config.learner, value_lr=0.1), kl=replace(config.kl, coef=0.0))
    trainer = Trainer(config)
    sums = []
    for iteration in range(40):
        metrics = trainer.iterate(iteration)
        sums.append(sum(score for key, score in metrics.items() if key.endswith("/task_reward")))
    assert sums[0] < 1.1
    assert math.fsum(sums[-5:]) / 5 > least
