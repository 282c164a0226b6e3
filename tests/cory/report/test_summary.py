"""Whether a run learned, as its report says it, and the alerts in it."""

import numpy as np
import pytest

from cory.evaluation.evaluator import Responses
from cory.report import summary
from cory.tracking.tracker import curves
from cory.training.metrics import evaluation_metrics


def rows(*values: float, error: float = 0.05) -> list[dict[str, float]]:
    """Evaluations of one policy with these combined rewards."""
    return [
        {"iteration": i, "eval/llm_1/combined_reward": value, "eval/llm_1/gain_error": error * (i > 0)}
        for i, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("values", "queries", "beginning"),
    [
        ((0.2, 0.9, 0.31), 128, "Learned: held-out combined reward, mean of the policies, 0.200 → 0.310"),
        ((0.2, 0.29), 128, "Undecided: "),
        ((0.5, 0.1), 128, "Worse than at the start: "),
        ((0.0, 1.0), 29, "Too few to tell: 29 held-out queries"),
        ((0.0, 1.0), 30, "Learned: "),
    ],
)
def test_the_verdict_is_about_combined_reward_and_two_standard_errors(values, queries, beginning):
    assert summary.learned(curves(rows(*values)), queries).startswith(beginning)


def renamed(of: list[dict[str, float]], name: str) -> list[dict[str, float]]:
    return [{key.replace("llm_1", name): value for key, value in row.items()} for row in of]


def test_a_second_policy_that_answers_the_same_queries_makes_no_change_surer():
    """Each rises by 0.08, within 0.1: their errors may be the same."""
    both = [a | b for a, b in zip(rows(0.2, 0.28), renamed(rows(0.2, 0.28), "llm_2"), strict=True)]
    assert summary.learned(curves(both), 128).startswith("Undecided: ")


def test_the_mean_of_the_weights_is_no_policy_of_the_objective():
    both = [a | b for a, b in zip(rows(0.2, 0.4), renamed(rows(0.2, 0.9), "average"), strict=True)]
    assert summary.outcome(curves(both), 128).after == 0.4


@pytest.mark.parametrize(("policies", "samples"), [(1, 1), (2, 8)])
def test_policies_that_are_as_good_as_the_reference_are_seldom_called_otherwise(policies, samples):
    """5 % of the time at most: training changes which of 128 queries are solved, not how many."""
    drawn = np.random.default_rng(0)

    def responses() -> Responses:
        shape = (128, samples)
        scores_QS = (drawn.random(shape) < drawn.beta(0.2, 0.2, shape[0])[:, None]).astype(float)
        arrays = {"task_reward": scores_QS, "kl": np.zeros(shape), "length": np.ones(shape)}
        arrays |= {"reference_nats": np.zeros(shape)}
        texts, ids = [[""] * samples] * 128, [[()] * samples] * 128
        return Responses(queries=[""] * 128, texts=texts, ids=ids, arrays=arrays)

    decided = 0
    for _ in range(100):
        reference, logged = responses(), []
        for i in range(2):
            of = {f"llm_{k}": responses() if i else reference for k in range(policies)}
            logged.append({"iteration": i} | evaluation_metrics({"reference": reference} | of, kl_coef=0.0))
        decided += summary.outcome(curves(logged), 128).verdict != "Undecided"
    assert decided <= 10


def test_a_run_with_one_evaluation_has_no_verdict():
    assert summary.learned(curves(rows(0.2)), 128) is None


def test_a_run_without_errors_of_its_gains_is_undecided_and_says_so():
    of = [{key: value for key, value in row.items() if "error" not in key} for row in rows(0.2, 0.9)]
    assert summary.learned(curves(of), 128).endswith(
        "0.200 → 0.900  (+0.700); two standard errors are not recorded."
    )
    assert summary.outcome(curves(of), 128).verdict == "Undecided"


def test_what_is_not_finite_is_no_verdict():
    assert summary.learned(curves(rows(0.2, float("nan"))), 128) is None
    assert summary.learned(curves(rows(0.2, 0.4, error=float("nan"))), 128) is None


def test_alerts_stand_in_the_report_once_with_the_iteration_that_raised_them():
    constant = {"pioneer_0/llm_1/payoff_std": 0.0, "pioneer_0/llm_1/score_std": 0.0}
    constant |= {"pioneer_0/llm_1/task_reward": 0.0, "time/update/seconds": 1.0}
    training = [constant | {"iteration": i} for i in range(12)]
    (text,) = summary.raised_alerts(training, {"max_response": [4, 16]}, 0)
    assert text.startswith(
        "Iteration 0: every response has the same score, 0: unless it is the best one there is"
    )


def test_a_kl_after_lost_iterations_is_not_that_of_the_first():
    row = {"pioneer_0/llm_1/kl": 4.6, "time/update/seconds": 1.0}
    first, later = ([row | {"iteration": i} for i in pair] for pair in ((0, 1), (10, 11)))
    assert "after one iteration" in summary.raised_alerts(first, {}, 0)[0]
    assert not summary.raised_alerts(later, {}, 0)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((0.2, 0.9, 0.31), '<span class="badge good"><b>objective</b> up, 0.200 → 0.310</span>'),
        ((0.5, 0.1), '<span class="badge bad"><b>objective</b> down, 0.500 → 0.100</span>'),
        ((0.2, 0.29), '<span class="badge open"><b>objective</b> undecided, 0.200 → 0.290</span>'),
        ((0.2,), '<span class="badge open"><b>objective</b> not evaluated yet</span>'),
    ],
)
def test_badges_begin_with_what_became_of_the_objective(values, shown, tmp_path):
    page = "".join(summary.badges(curves(rows(*values)), {}, {"data": {"evaluated": 128}}, tmp_path))
    assert page.startswith(f'<p class="badges">{shown}')
    assert "cooperation" not in page


def test_badges_of_two_seats_have_collapse_and_what_measures_cooperation(tmp_path):
    logged = [
        {"iteration": i, f"eval/llm_{n}/task_reward": 1.0, f"eval/llm_{n}/distinct_2": value}
        for n, values in ((1, (0.8, 0.7)), (2, (0.8, 0.3)))
        for i, value in enumerate(values)
    ]
    logged.append({"iteration": 0, "eval/reference/distinct_2": 0.8})
    badges, command = summary.badges(curves(logged), {"seats": 2}, {}, tmp_path / "run")
    assert '<span class="badge bad"><b>collapse</b> signs in llm_2</span>' in badges
    few, _ = summary.badges(curves(logged), {"seats": 2}, {"data": {"evaluated": 6}}, tmp_path / "run")
    assert '<span class="badge open"><b>collapse</b> too few responses to tell</span>' in few
    assert '<span class="badge open"><b>cooperation</b> not measured</span>' in badges
    assert f"--seats 1 --payoff independent --exchange.every 0 --run {tmp_path / 'run'}-alone" in command
    _, command = summary.badges(curves(logged), {"seats": 2}, {}, tmp_path / "my run")
    assert f"--config &#39;{tmp_path / 'my run'}/config.yaml&#39;" in command
    by_hand = (
        {"turns": ["llm_1", "llm_1"]}, {"players.observer_1": "frozen"}, {"payoff.to": "0"},
        {"policy.models": ["a", "b"]}, {"sharing.same_view": True},
    )  # fmt: skip
    for setting in by_hand:
        assert len(summary.badges(curves(logged), {"seats": 2, **setting}, {}, tmp_path / "run")) == 1
