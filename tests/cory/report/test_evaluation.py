"""The results of `cory evaluate` in the report: tables, pass@k, and nothing without an evaluation."""

import json
import re

import pytest
import yaml

from cory.evaluation import records
from cory.evaluation.records import read_all
from cory.report.evaluation import make_tables, pass_at_k, remarks, unlike_run
from cory.report.page import write_report
from cory.report.plots import pass_at_k_of
from cory.report.tables import cell, print_tables
from cory.tracking.curves import policies
from cory.tracking.labels import in_order, label
from cory.tracking.tracker import Curve, Key, Tracker
from tests.helpers.synthetic_run import write_run

REWARD = {"gain": 0.5, "low": 0.25, "high": 0.75}
MEASURED = {
    "task": "reviews", "judge": "pocket", "split": "test", "queries": 64, "samples": 2, "sampling": "paper",
    "threshold": 0.5, "kl_coef": 0.2, "game": True, "queries_sha256": "1" * 64,
    "settings": {"task": "reviews", "judge": "pocket", "evaluation.samples": 2, "kl.coef": 0.2},
    "weights": {"llm_1": {"folder": "policies/llm_1", "sha256": "abcdef0123456789"}},
}  # fmt: skip
SUMMARY = {
    "measured": MEASURED,
    "data": {"train": 9, "test": 99, "left_out": ["3 of the test openings (3.0%) are in train too"]},
    "queries": 64, "samples": 2, "sampling": "paper", "kl_coef": 0.2, "threshold": 0.5,
    "metrics": {
        "reference": {"task_reward": 0.0, "pass_at_1": 0.125, "pass_at_2": 0.25},
        "llm_1": {"task_reward": 0.5, "pass_at_1": 0.375, "pass_at_2": 0.5, "reference_perplexity": None},
    },
    "intervals": {
        "reference": {"task_reward": [-0.25, 0.25], "pass_at_1": [0.0, 0.25], "pass_at_2": [0.125, 0.375]},
        "llm_1": {
            "task_reward": [0.25, 0.75], "pass_at_1": [0.25, 0.5], "pass_at_2": [0.375, 0.625],
            "reference_perplexity": [None, None],
        },
    },
    "gain_over_reference": {"llm_1": {"task_reward": REWARD}},
    "in_game": {
        "observer_1/llm_1": {"seating": {}, "metrics": {"payoff": 1.0}, "intervals": {"payoff": [0.5, 1.5]}}
    },
    "comparison": {},
    "collapse_signs": ["length below half of the reference's"],
    "collapse": {"llm_1": ["length is below half of the reference's: 2.000, 5.000"], "llm_2": []},
    "failures": [{"judge": "mine", "failure": "[red]1 / 0[/red]"}],
}  # fmt: skip


def run_with(tmp_path, *summaries):
    write_run(tmp_path, iterations=3)
    (tmp_path / "evaluations").mkdir()
    for number, summary in enumerate(summaries):
        text = summary if isinstance(summary, str) else json.dumps(summary)
        (tmp_path / f"evaluations/reviews-{number:08x}.json").write_text(text)
    return tmp_path


def measured_as(samples, **changed):
    """The summary of another measurement; `changed` are parts of `MEASURED`."""
    settings = {**MEASURED["settings"], "evaluation.samples": samples, **changed.pop("settings", {})}
    return {**SUMMARY, "measured": {**MEASURED, "samples": samples, "settings": settings, **changed}}


@pytest.mark.usefixtures("no_plots")
def test_an_evaluation_is_in_the_report_with_intervals_and_signs(tmp_path):
    page = write_report(run_with(tmp_path, SUMMARY)).read_text(encoding="utf-8")
    assert "3 of the test openings (3.0%) are in train too." in page
    assert (
        "64 of 99 held-out queries x 2 samples, paper sampling, KL coefficient 0.2, correct from a reward of"
        in page
    )
    row = "<td>pass@1</td><td>0.125 [0.000, 0.250]</td><td>0.375 [0.250, 0.500]</td>"
    assert row in page
    assert "<td>+0.500 [+0.250, +0.750]</td>" in page
    assert "1.000 [0.500, 1.500]" in page
    assert "llm_1: length is below half of the reference&#39;s: 2.000, 5.000" in page
    assert "judge mine failed: [red]1 / 0[/red]" in page
    assert 'alt="pass@k"' in page


@pytest.mark.usefixtures("no_plots")
@pytest.mark.parametrize("content", ['{"metrics": {}}', "{broken", "{}"])
def test_a_file_that_is_no_evaluation_is_left_out(tmp_path, content):
    run = run_with(tmp_path, content)
    assert read_all(run) == []
    assert "Held-out evaluation with intervals" not in write_report(run).read_text(encoding="utf-8")


def test_pass_at_k_of_the_last_evaluation_during_training_is_drawn_too(tmp_path):
    with Tracker(tmp_path) as tracker:
        for iteration, share in ((0, 0.25), (5, 0.5)):
            tracker.log(iteration, {"eval/llm_1/pass_at_1": share, "eval/llm_1/pass_at_2": share + 0.25})
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert (tmp_path / "plots/pass_at_k.png").exists()
    assert "<td>pass@2</td>" in page
    curves = {Key("eval", "llm_1", f"pass_at_{k}"): Curve([0, 5], [0.0, k / 16]) for k in (10, 2)}
    assert {k: value for k, (value, *_) in pass_at_k_of(curves)["llm_1"].items()} == {2: 0.125, 10: 0.625}
    assert list(pass_at_k_of(curves)["llm_1"]) == [2, 10]
    assert policies({Key("all", "policies", "quantity"): Curve([0], [1.0])}) == []


def test_pass_at_k_of_an_evaluation_has_its_intervals():
    assert pass_at_k(SUMMARY)["llm_1"] == {1: (0.375, 0.25, 0.5), 2: (0.5, 0.375, 0.625)}


def test_pass_at_k_without_an_interval_is_a_point():
    intervals = {name: {**of, "pass_at_1": [None, None]} for name, of in SUMMARY["intervals"].items()}
    points = pass_at_k({**SUMMARY, "intervals": intervals})["llm_1"]
    assert points[1] == pytest.approx((0.375, float("nan"), float("nan")), nan_ok=True)


def test_every_evaluation_has_a_section_of_its_own_that_names_what_was_measured(tmp_path, no_plots):
    """The run has 2 samples and judge pocket: its own measurement comes first, though last by file name."""
    other_task = {
        "task": "echo",
        "judge": None,
        "sampling": "own",
        "settings": {"task": "echo", "kl.coef": 2.0},
    }
    run = run_with(tmp_path, measured_as(1, **other_task), measured_as(8), SUMMARY)
    (run / "config.yaml").write_text(yaml.safe_dump(MEASURED["settings"] | {"iterations": 3}))
    page = write_report(run).read_text(encoding="utf-8")
    heads = re.findall(r"<h3>Held-out evaluation with intervals: (.*?)</h3>\n<p>(.*?)</p>", page)
    weights = "Weights: llm_1 policies/llm_1 (sha256 abcdef01)."
    assert heads == [
        ("task reviews, judge pocket, 64 test queries, 2 samples each, paper sampling",
         f"Measured with the run&#39;s own settings. {weights}"),
        ("task reviews, judge pocket, 64 test queries, 8 samples each, paper sampling",
         f"Measured unlike the run: evaluation.samples 8 (run: 2). {weights}"),
        ("task echo, its own score, 64 test queries, 1 sample each, own sampling",
         "Measured unlike the run: task echo (run: reviews); evaluation.samples 1 (run: 2); kl.coef 2.0 "
         f"(run: 0.2). {weights}"),
    ]  # fmt: skip
    assert page.count('alt="pass@k"') == 3


def test_fewer_queries_than_the_run_evaluates_are_a_difference(tmp_path):
    """The run asks for 512 of 99 test queries and gets 99; 64 were measured here."""
    config = {**MEASURED["settings"], "evaluation.queries": 512}
    assert unlike_run(SUMMARY, config, records.exported(tmp_path)) == ["queries 64 (run: 99)"]
    assert unlike_run(SUMMARY, {**config, "evaluation.queries": 64}, records.exported(tmp_path)) == []
    without_games = {**SUMMARY, "measured": {**MEASURED, "game": False}}
    assert unlike_run(without_games, MEASURED["settings"], records.exported(tmp_path)) == ["no games"]


def test_policies_that_have_other_weights_now_are_a_difference(tmp_path):
    folder = tmp_path / "policies/llm_1"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_text("later weights")
    settings = MEASURED["settings"]
    assert unlike_run(SUMMARY, settings, records.exported(tmp_path)) == [
        "other weights than policies/ of llm_1"
    ]
    now = {"llm_1": {"folder": "policies/llm_1", "sha256": records.files_sha256(folder)}}
    same = {**SUMMARY, "measured": {**MEASURED, "weights": now}}
    assert unlike_run(same, settings, records.exported(tmp_path)) == []


def test_the_terminal_shows_the_same_tables(capsys):
    print_tables(make_tables(SUMMARY), remarks(SUMMARY))
    shown = capsys.readouterr().out
    assert "0.375 [0.250, 0.500]" in shown
    assert "judge mine failed: [red]1 / 0[/red]" in shown
    assert "differences, query by query" not in shown
    rows = {row[0]: row[1:] for row in make_tables(SUMMARY)[0].rows}
    assert rows["task_reward"] == ["0.000 [-0.250, 0.250]", "0.500 [0.250, 0.750]"]
    assert "reference_perplexity" not in rows
    assert cell(None, 0.0, 1.0) == "-"


def test_quantities_have_labels_and_an_order():
    assert label("pass_at_8") == "pass@8"
    assert in_order({"pass_at_10", "pass_at_2", "kl"}) == ["kl", "pass_at_2", "pass_at_10"]
