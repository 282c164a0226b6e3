"""Whether a run learned, as its report says it, and the alerts in it."""

import pytest

from cory.report import summary
from cory.tracking.tracker import curves


def rows(*values: float, std: float = 0.4) -> list[dict[str, float]]:
    """Evaluations of one policy with these combined rewards."""
    return [
        {"iteration": i, "eval/llm_1/combined_reward": value, "eval/llm_1/score_std": std}
        for i, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("values", "responses", "beginning"),
    [
        ((0.2, 0.9, 0.31), 128, "Learned: held-out combined reward, mean of the policies, 0.200 → 0.310"),
        ((0.2, 0.29), 128, "Undecided: "),
        ((0.5, 0.1), 128, "Worse than at the start: "),
        ((0.0, 1.0), 29, "Too few to tell: 29 held-out responses of each policy"),
        ((0.0, 1.0), 30, "Learned: "),
    ],
)
def test_the_verdict_is_about_combined_reward_and_two_standard_errors(values, responses, beginning):
    """sqrt(0.4^2 + 0.4^2) / sqrt(128) is 0.05, twice that 0.1."""
    assert summary.learned(curves(rows(*values)), responses).startswith(beginning)


def test_the_error_of_a_mean_of_two_policies_is_smaller():
    """Each rises by 0.08: beyond 0.1 / sqrt(2) = 0.071, though not beyond 0.1."""
    both = [
        row | {name.replace("llm_1", "llm_2"): value for name, value in row.items() if "/" in name}
        for row in rows(0.2, 0.28)
    ]
    assert summary.learned(curves(both), 128).startswith("Learned: ")


def test_a_run_with_one_evaluation_has_no_verdict():
    assert summary.learned(curves(rows(0.2)), 128) is None


def test_alerts_stand_in_the_report_once_with_the_iteration_that_raised_them():
    constant = {"pioneer_0/llm_1/payoff_std": 0.0, "pioneer_0/llm_1/score_std": 0.0}
    constant |= {"pioneer_0/llm_1/task_reward": 0.0, "time/update/seconds": 1.0}
    training = [constant | {"iteration": i} for i in range(12)]
    (text,) = summary.alerts(training, {"max_response": [4, 16]}, 0)
    assert text.startswith("Iteration 0: every response has the same score, 0: there is nothing to learn")
