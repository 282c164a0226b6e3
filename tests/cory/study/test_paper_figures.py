"""The paper's kinds of figures: what is drawn, from which runs, and what is left out."""

import json

import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cory.evaluation.records import differing
from cory.report.figures import add_legend
from cory.study.comparison import paper, paper_tables
from cory.study.comparison.arms import Arm, ablation, families_of
from cory.study.comparison.paper import NEEDS, competing, competition, draw, frontier, pass_at_k

CORY = {
    "task": "sums", "seats": 2, "sees": "all", "exchange.every": 5, "policy.model": "m", "kl.coef": 0.1,
    "payoff": "1",
}  # fmt: skip


@pytest.fixture
def make_run(tmp_path):
    """Write a run of two policies that change seats after the first iteration: `reward` and `reward` + 1."""
    made = []

    def make(reward=(0.0,), kl=None, *, evaluated=None):
        folder = tmp_path / f"run-{len(made)}"
        made.append(folder)
        folder.mkdir()
        rows = []
        for i, (score, of_kl) in enumerate(zip(reward, kl or [0.0] * len(reward), strict=True)):
            pioneer, observer = ("llm_1", "llm_2") if i == 0 else ("llm_2", "llm_1")
            rows.append({
                "iteration": i,
                f"pioneer_0/{pioneer}/task_reward": score, f"pioneer_0/{pioneer}/kl": of_kl,
                f"observer_1/{observer}/task_reward": score + 1.0, f"observer_1/{observer}/kl": of_kl,
            })  # fmt: skip
        if evaluated:
            values = {
                f"eval/{name}/pass_at_{k}": v for name, by_k in evaluated.items() for k, v in by_k.items()
            }
            rows += [{"iteration": 0} | dict.fromkeys(values, 0.0), {"iteration": len(reward)} | values]
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return folder

    return make


@pytest.fixture
def arm(make_run):
    def make(name="g", runs=None, **settings):
        return Arm(name=name, settings={**CORY, **settings}, runs=dict(enumerate(runs or [make_run()])))

    return make


def test_training_curves_are_those_of_each_policy_in_whichever_seat(arm, make_run):
    """llm_1 is pioneer, .5, then observer, .7 + 1, minus .1 x 2 of KL; llm_2 is the other."""
    figure = paper.training([arm(runs=[make_run(reward=(0.5, 0.7), kl=(0.0, 2.0))])])
    drawn = {
        axes.get_ylabel().partition("\n")[0]: {
            line.get_label(): line.get_xydata().tolist() for line in axes.lines
        }
        for axes in figure.axes
    }
    assert drawn["task reward"] == {
        "g, llm_1": [pytest.approx([0, 0.5]), pytest.approx([1, 1.7])],
        "g, llm_2": [pytest.approx([0, 1.5]), pytest.approx([1, 0.7])],
    }
    assert drawn["combined reward"]["g, llm_1"] == [pytest.approx([0, 0.5]), pytest.approx([1, 1.5])]


def test_curve_of_an_arm_with_one_policy_has_its_name_and_is_the_mean_over_the_seats(arm, tmp_path):
    row = {"iteration": 0} | {
        f"{seat}/llm_1/{quantity}": value
        for seat, value in (("pioneer_0", 0.5), ("observer_1", 1.5))
        for quantity in ("task_reward", "kl")
    }
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row))
    (line,) = paper.training([arm("shared", runs=[tmp_path])]).axes[1].lines
    assert (line.get_label(), line.get_ydata().tolist()) == ("shared", [1.0])


def test_seats_of_players_are_no_policy_that_learns(arm, tmp_path):
    row = {"iteration": 0, "pioneer_0/frozen/task_reward": 0.0, "observer_1/llm_1/task_reward": 1.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps({**row, "observer_1/llm_1/kl": 2.0}) + "\n")
    (metrics,) = arm(runs=[tmp_path]).metrics.values()
    assert paper.over_iterations(metrics)["all"] == {"task_reward": [[0, 1.0]], "kl": [[0, 2.0]]}


def test_legends_have_no_more_columns_than_their_names_leave_room_for(arm, make_run):
    long = "an arm with a name that is longer than most"
    runs = [make_run(evaluated={"llm_1": {1: 0.2, 2: 0.4}}) for _ in range(3)]
    arms = [arm(f"{long} {i}", [run]) for i, run in enumerate(runs)]
    narrow = Figure((4.6, 3), layout="constrained")
    assert (
        add_legend(narrow, {name: Line2D([], []) for name in ("average", "llm_1", "llm_2", "reference")}) == 3
    )
    for figure in (narrow, pass_at_k(arms), paper.training(arms)):
        figure.canvas.draw()
        legend = (figure.legends or [block.legends[0] for block in figure.subfigs])[0]
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1


def test_bands_of_two_runs_are_one_standard_deviation_wide(arm, make_run):
    """llm_1 has 1 and 3: mean 2, deviation sqrt(2)."""
    axes = paper.training([arm(runs=[make_run(reward=(1.0,)), make_run(reward=(3.0,))])]).axes[1]
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((2 - 2**0.5, 2 + 2**0.5))


def test_end_of_a_policy_follows_it_through_the_seats(arm, make_run):
    """llm_1 is pioneer, .5, then observer, .7 + 1."""
    of_run = arm(runs=[make_run(reward=(0.5, 0.7))]).metrics[0]
    assert paper.at_end(of_run, "llm_1")["all"]["task_reward"] == [[1, pytest.approx((0.5 + 1.7) / 2)]]


def test_differing_names_the_settings_that_are_not_equal_in_all():
    assert differing([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 2, "c": 0}]) == ["b", "c"]


def test_families_differ_in_one_setting_only(arm):
    arms = [arm("a"), arm("b", payoff="0"), arm("c", payoff="0", seats=4)]
    assert [[one.name for one in family] for family in families_of(arms, "payoff")] == [["a", "b"], ["c"]]


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


def test_ablations_are_drawn_beside_the_complete_method(arm):
    arms = [arm("x", sees="none"), arm("base"), arm("y", **{"exchange.every": 0})]
    axes = paper.ablations(arms).axes[0]
    arms_shown = ("CORY", "without knowledge transfer", "without role exchange")
    names = [f"{name}, {policy}" for name in arms_shown for policy in ("llm_1", "llm_2")]
    assert [line.get_label() for line in axes.lines] == names
    assert paper.ablations([arm(), arm(seats=1)]) is None


def test_frontier_joins_arms_that_differ_in_the_kl_coefficient_only(arm, make_run):
    """Means over the last five iterations and two seeds: KL .3 and .5, rewards (1 + 2) / 2 + .5."""
    at = {0.001: (2.0, 0.5), 0.01: (1.0, 0.3)}
    arms = [
        arm(
            f"{coef}",
            [make_run(reward=[9.0, *[reward + x] * 5], kl=[9.0, *[kl] * 5]) for x in (0, 1)],
            **{"kl.coef": coef},
        )
        for coef, (reward, kl) in at.items()
    ]
    (axes,) = frontier([arms[1], arms[0], arm("other", seats=1)]).axes
    line = next(line for line in axes.lines if line.get_linewidth() == 1)
    assert line.get_xdata() == pytest.approx([0.5, 0.3])  # in the order of the coefficient
    assert line.get_ydata() == pytest.approx([2.0 + 0.5 + 0.5, 1.0 + 0.5 + 0.5])
    assert [text.get_text() for text in axes.texts] == ["0.001", "0.01"]
    assert frontier([arm("a"), arm("b", seats=1)]) is None


def test_competition_is_drawn_over_lambda_for_each_policy(arm, make_run):
    arms = [
        arm(f"{weight}", [make_run(reward=(0.0, weight))], payoff=str(weight)) for weight in (1.0, -1.0, 0.0)
    ]
    figure = competition([*arms, arm("matrix", payoff="[[1, 0], [1, 1], [0, 0]]")])
    reward = next(axes for axes in figure.axes if axes.get_ylabel().startswith("task reward"))
    first, second = (line for line in reward.lines if line.get_marker() == "o")
    assert (first.get_label(), second.get_label()) == ("llm_1", "llm_2")
    (line, *_) = next(a for a in competing(arms).axes if a.get_ylabel().startswith("task reward")).lines
    assert (line.get_label(), line.get_ydata().tolist()) == ("-1.0, llm_1", [0.0, 0.0])  # 0, then -1 + 1
    assert competing(arms[:1]) is None
    assert list(first.get_xdata()) == [-1.0, 0.0, 1.0]
    assert list(first.get_ydata()) == pytest.approx([0.0, 0.5, 1.0])  # (0 + weight + 1) / 2
    assert list(second.get_ydata()) == pytest.approx([0.0, 0.5, 1.0])  # (1 + weight) / 2
    assert competition(arms[:1]) is None


def lines_of(figure):
    (axes,) = figure.axes
    return {line.get_label(): list(line.get_ydata()) for line in axes.lines}


def test_pass_at_k_is_the_mean_over_policies_and_runs_without_the_average_of_weights(arm, make_run):
    """Runs (.2 + .4) / 2 = .3 and .5: mean .4."""
    first = {"llm_1": {1: 0.2, 2: 0.4}, "llm_2": {1: 0.4, 2: 0.6}, "average": {1: 9.0, 2: 9.0}}
    runs = [
        make_run(evaluated={**first, "reference": {1: 0.1, 2: 0.2}}),
        make_run(evaluated={"llm_1": {1: 0.5, 2: 0.7}, "reference": {1: 0.1, 2: 0.2}}),
    ]
    drawn = lines_of(pass_at_k([arm("cory", runs)]))
    assert drawn["reference"] == pytest.approx([0.1, 0.2])
    assert drawn["cory"] == pytest.approx([0.4, 0.6])


def test_figures_without_data_are_left_out_with_what_they_need(arm, make_run, tmp_path):
    plots, missing = draw([arm()], tmp_path)
    assert [plot.path.name for plot in plots] == ["training.png"]
    assert missing == [NEEDS[name] for name in ("frontier", "pass_at_k", "ablations", "competition")]
    assert draw([arm(runs=[make_run(reward=())])], tmp_path) == ([], list(NEEDS.values()))


def test_settings_of_the_arms_stand_side_by_side(arm):
    table = paper_tables.settings([arm("cory"), arm("ppo", seats=1, **{"exchange.every": 0})])
    assert table.head == ["setting", "cory", "ppo"]
    assert ["exchange.every", "5", "0"] in table.rows
    assert ["sees", "all", "all"] in table.rows
    assert not any(row[0] == "learner.lr" for row in table.rows)  # no arm has it


def test_numbers_of_pass_at_k_have_the_deviation_over_runs(arm, make_run):
    """.3 and .5: mean .4, deviation sqrt(.02)."""
    of_reference = {"reference": {1: 0.1, 2: 0.2}}
    runs = [make_run(evaluated={"llm_1": {1: at, 2: 0.6}, **of_reference}) for at in (0.3, 0.5)]
    table = paper_tables.pass_at_k([arm("cory", runs)])
    assert table.head == ["arm", "pass@1", "pass@2"]
    assert table.rows == [["reference", "0.100", "0.200"], ["cory", "0.400 ± 0.141", "0.600"]]
    assert paper_tables.pass_at_k([arm()]).rows == []


def test_samples_are_the_last_responses_to_queries_that_all_arms_have(arm, make_run):
    def with_samples(*queries, **policies):
        run = make_run()
        rows = [
            {"iteration": at, "query": query, "score": {}, "eval": texts}
            for at in (0, 4)
            for query in queries
            for texts in [{name: f" {text} {query} at {at}" for name, text in policies.items()}]
        ]
        rows.append({"iteration": 9, "query": "of training", "score": {}})
        (run / "samples.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return run

    cory = arm("cory", [with_samples("a", "b", reference="r", llm_1="x", llm_2="y", average="z")])
    ppo = arm("ppo", [with_samples("b", "c", reference="r", llm_1="p")])
    table = paper_tables.samples([ppo, cory])
    assert table.head == ["query", "reference", "ppo, llm_1", "cory, llm_1", "cory, llm_2"]
    assert table.rows == [["b", "r b at 4", "p b at 4", "x b at 4", "y b at 4"]]
    assert paper_tables.samples([arm("none")]).rows == []
