"""The paper's kinds of figures: what is drawn, from which runs, and what is left out."""

import pytest

from cory.report import paper_figures
from cory.report.groups import Group, Run, ablation, differing, families_of, training_curve
from cory.report.paper_figures import NEEDS, competition, draw, frontier, pass_at_k
from cory.tracking.tracker import Curve, Key

CORY = {"seats": 2, "sees": "all", "exchange.every": 5, "policy.model": "m", "kl.coef": 0.1, "payoff": "1"}


def run(reward=(0.0,), kl=None) -> Run:
    """A run of two policies that change seats after the first iteration: `reward` and `reward` + 1."""
    curves, kl = {}, kl or [0.0] * len(reward)
    seatings = {("llm_1", "llm_2"): [0], ("llm_2", "llm_1"): list(range(1, len(reward)))}
    for (pioneer, observer), times in seatings.items():
        for seat, name, plus in (("pioneer_0", pioneer, 0.0), ("observer_1", observer, 1.0)):
            if times:
                curves[Key(seat, name, "task_reward")] = Curve(times, [reward[t] + plus for t in times])
                curves[Key(seat, name, "kl")] = Curve(times, [kl[t] for t in times])
    return Run(curves, [])


def group(name="g", runs=None, weight=None, **settings) -> Group:
    return Group(name, {**CORY, **settings}, runs or [run()], weight)


def test_training_curve_is_the_mean_over_the_seats_of_each_iteration():
    """Iteration 0: (.5 + 1.5) / 2 = 1; iteration 1: (.7 + 1.7) / 2 = 1.2, minus .1 x 2 of KL."""
    one = run(reward=(0.5, 0.7), kl=(0.0, 2.0)).curves
    assert training_curve(one, "task_reward", kl_coef=0.1).values == pytest.approx([1.0, 1.2])
    combined = training_curve(one, "combined_reward", kl_coef=0.1)
    assert combined.iterations == [0, 1]
    assert combined.values == pytest.approx([1.0, 1.0])


def test_training_curve_of_a_policy_follows_it_through_the_seats():
    """llm_1 is pioneer, .5, then observer, .7 + 1."""
    one = run(reward=(0.5, 0.7), kl=(0.0, 2.0)).curves
    assert training_curve(one, "task_reward", kl_coef=0.1, policy="llm_1").values == [0.5, 1.7]


def test_differing_names_the_settings_that_are_not_equal_in_all():
    assert differing([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 2, "c": 0}]) == ["b", "c"]


def test_families_differ_in_one_setting_only():
    groups = [group("a"), group("b", payoff="0"), group("c", payoff="0", seats=4)]
    assert [[one.name for one in family] for family in families_of(groups, "payoff")] == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"sees": "none"}, "without knowledge transfer"),
        ({"sees": "previous"}, None),
        ({"exchange.every": 0}, "without role exchange"),
        ({"exchange.every": 1}, None),
        ({"exchange.every": 0, "sees": "none"}, None),
        ({"seats": 1, "exchange.every": 0}, "single agent"),
        ({"seats": 1, "exchange.every": 0, "policy.model": "xl"}, "single agent, xl"),
        ({"seats": 1, "kl.coef": 0.3}, None),
        ({"seats": 4}, None),
    ],
)
def test_ablations_are_known_by_the_settings_in_which_they_differ(changes, words):
    assert ablation(CORY, {**CORY, **changes}) == words


def test_ablations_are_drawn_beside_the_complete_method():
    groups = [group("x", sees="none"), group("base"), group("y", **{"exchange.every": 0})]
    axes = paper_figures.ablations(groups).axes[0]
    names = ["CORY", "without knowledge transfer", "without role exchange"]
    assert [line.get_label() for line in axes.lines] == names
    assert paper_figures.ablations([group(), group(seats=1)]) is None


def test_frontier_joins_groups_that_differ_in_the_kl_coefficient_only():
    """Means over the last five iterations and two seeds: KL .3 and .5, rewards (1 + 2) / 2 + .5."""
    at = {0.001: (2.0, 0.5), 0.01: (1.0, 0.3)}
    groups = [
        group(
            f"{coef}",
            [run(reward=[9.0, *[reward + x] * 5], kl=[9.0, *[kl] * 5]) for x in (0, 1)],
            **{"kl.coef": coef},
        )
        for coef, (reward, kl) in at.items()
    ]
    (axes,) = frontier([groups[1], groups[0], group("other", seats=1)]).axes
    line, *_ = axes.lines
    assert line.get_xdata() == pytest.approx([0.5, 0.3])  # in the order of the coefficient
    assert line.get_ydata() == pytest.approx([2.0 + 0.5 + 0.5, 1.0 + 0.5 + 0.5])
    assert [text.get_text() for text in axes.texts] == ["0.001", "0.01", "0.1"]
    assert frontier([group("a"), group("b", seats=1)]) is None


def test_competition_is_drawn_over_lambda_for_each_policy():
    groups = [
        group(f"{weight}", [run(reward=(0.0, weight))], weight=weight, payoff=str(weight))
        for weight in (1.0, -1.0, 0.0)
    ]
    reward, _ = competition([*groups, group("matrix", payoff="[[1, 0]]")]).axes
    first, second = (container.lines[0] for container in reward.containers)
    assert list(first.get_xdata()) == [-1.0, 0.0, 1.0]
    assert list(first.get_ydata()) == pytest.approx([0.0, 0.5, 1.0])  # (0 + weight + 1) / 2
    assert list(second.get_ydata()) == pytest.approx([0.0, 0.5, 1.0])  # (1 + weight) / 2
    assert competition(groups[:1]) is None
    for one in groups:
        for name in ("average", "reference_llm_1", "reference"):
            one.runs[0].curves[Key("eval", name, "kl")] = Curve([0], [9.0])
    figure = competition(groups)
    assert [text.get_text() for text in figure.legends[0].texts] == ["llm_1", "llm_2"]


def pass_at(values) -> dict:
    """pass@1 and pass@2 of policies at the last evaluation in training."""
    return {
        Key("eval", name, f"pass_at_{k}"): Curve([0, 4], [0.0, value])
        for name, found in values.items()
        for k, value in found.items()
    }


def test_pass_at_k_is_the_mean_over_policies_and_runs_without_the_average_of_weights():
    """Runs (.2 + .4) / 2 = .3 and .5: mean .4."""
    first = {"llm_1": {1: 0.2, 2: 0.4}, "llm_2": {1: 0.4, 2: 0.6}, "average": {1: 9.0, 2: 9.0}}
    runs = [
        Run(pass_at({**first, "reference": {1: 0.1, 2: 0.2}}), []),
        Run(pass_at({"llm_1": {1: 0.5, 2: 0.7}, "reference": {1: 0.1, 2: 0.2}}), []),
    ]
    (axes,) = pass_at_k([group("cory", runs)]).axes
    found = {c.get_label(): list(c.lines[0].get_ydata()) for c in axes.containers}
    assert found["reference"] == pytest.approx([0.1, 0.2])
    assert found["cory"] == pytest.approx([0.4, 0.6])


def test_pass_at_k_is_that_of_cory_evaluate_where_all_runs_have_it():
    measured = {"task": "sums", "judge": None, "split": "test", "queries": 9, "samples": 2, "sampling": "own"}
    nothing = {"pass_at_1": [None, None], "pass_at_2": [None, None]}
    evaluated = {
        "measured": measured,
        "metrics": {"llm_1": {"pass_at_1": 0.6, "pass_at_2": 0.8}},
        "intervals": {"llm_1": nothing},
    }
    trained = pass_at({"llm_1": {1: 0.2, 2: 0.4}})
    (axes,) = pass_at_k([group(runs=[Run(trained, [evaluated])])]).axes
    assert list(axes.containers[0].lines[0].get_ydata()) == [0.6, 0.8]
    (axes,) = pass_at_k([group(runs=[Run(trained, [evaluated]), Run(trained, [])])]).axes
    assert list(axes.containers[0].lines[0].get_ydata()) == [0.2, 0.4]


def test_figures_without_data_are_left_out_with_what_they_need(tmp_path):
    plots, missing = draw([group()], tmp_path)
    assert [plot.path.name for plot in plots] == ["training.png"]
    assert missing == [NEEDS[name] for name in ("frontier", "pass_at_k", "ablations", "competition")]
    assert draw([group(runs=[Run({}, [])])], tmp_path) == ([], list(NEEDS.values()))
