"""The report page and its plots."""

import base64
import json
import math
import re

import pytest
from matplotlib.figure import Figure

from cory.cli.main import main
from cory.report import plots, samples
from cory.report.figures import COLLAPSE
from cory.report.page import write_report
from cory.tracking import curves
from cory.tracking.labels import DEFINITIONS, LABELS
from cory.tracking.tracker import Curve, Key, Tracker
from tests.helpers.runs import contents
from tests.helpers.synthetic_run import write_run

# Two policies change seats at iteration 2 and back at 4; llm_1 earns 1, 2, 3, ... and llm_2 ten times that.
SWAPPED = {
    Key("pioneer_0", "llm_1", "kl"): Curve([0, 1, 4], [1.0, 2.0, 5.0]),
    Key("observer_1", "llm_1", "kl"): Curve([2, 3], [3.0, 4.0]),
    Key("pioneer_0", "llm_2", "kl"): Curve([2, 3], [30.0, 40.0]),
    Key("observer_1", "llm_2", "kl"): Curve([0, 1, 4], [10.0, 20.0, 50.0]),
    Key("eval", "reference", "kl"): Curve([0], [0.0]),
    Key("time", "sample", "seconds"): Curve([0], [1.0]),
}


def page_of(run):
    return write_report(run).read_text(encoding="utf-8")


def test_exchanges_and_segments_follow_the_seating():
    assert curves.seats(SWAPPED) == ["pioneer_0", "observer_1"]
    assert curves.policies(SWAPPED) == ["llm_1", "llm_2"]
    assert curves.exchanges(SWAPPED) == [2, 4]
    assert curves.seatings(SWAPPED)[3] == {"pioneer_0": "llm_2", "observer_1": "llm_1"}
    pioneer = SWAPPED[Key("pioneer_0", "llm_1", "kl")]
    assert curves.split_at_exchanges(pioneer, [2, 4]) == [Curve([0, 1], [1.0, 2.0]), Curve([4], [5.0])]


def test_a_gap_without_an_exchange_does_not_split_a_curve():
    evaluated = Curve([0, 10, 20], [1.0, 2.0, 3.0])
    assert curves.split_at_exchanges(evaluated, [11]) == [Curve([0, 10], [1.0, 2.0]), Curve([20], [3.0])]


def test_names_are_ordered_by_number():
    found = {Key(f"observer_{n}", f"llm_{n}", "kl"): Curve([0], [0.0]) for n in (10, 2)}
    assert curves.seats(found) == ["observer_2", "observer_10"]
    assert curves.policies(found) == ["llm_2", "llm_10"]


def test_the_colour_shows_the_policy_and_the_line_style_the_seat():
    axes = Figure().subplots()
    plots.draw_by_seat(axes, SWAPPED, "kl")
    lines = {tuple(line.get_ydata()): line for line in axes.lines if line.get_linewidth() > 1}
    one_pioneer, one_observer, two_pioneer = lines[1.0, 2.0], lines[3.0, 4.0], lines[30.0, 40.0]
    assert one_pioneer.get_color() == one_observer.get_color() != two_pioneer.get_color()
    assert one_pioneer.get_linestyle() == two_pioneer.get_linestyle() == "-"
    assert one_observer.get_linestyle() == "--"
    assert lines[(5.0,)].get_marker() == "o"  # one iteration: no line to see


@pytest.mark.usefixtures("no_plots")
def test_the_page_names_the_number_of_queries_and_what_was_left_out(tmp_path):
    write_run(tmp_path, iterations=3)
    data = {"train": 7473, "test": 1319, "evaluated": 512, "left_out": ["4 test openings are in train too"]}
    (tmp_path / "environment.json").write_text(json.dumps({"data": data}))
    page = page_of(tmp_path)
    assert "Queries: 7,473 to train on, 1,319 held out, of which this run evaluates on the first 512." in page
    assert "4 test openings are in train too." in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "figures"),
    [
        ({"iterations": 7}, {"objective", "training", "held_out", "updates"}),
        (
            {"iterations": 3, "seats": 1, "every": 0},
            {"objective", "training", "held_out", "updates"},
        ),
        ({"iterations": 4, "seats": 4, "every": 1}, {"objective", "training", "held_out", "updates"}),
        ({"iterations": 6, "evaluate": None}, {"training", "updates"}),
        ({"iterations": 1}, {"objective", "training", "held_out", "updates"}),
        ({"iterations": 0}, set()),
    ],
)
def test_every_kind_of_run_has_a_report_that_loads_nothing(tmp_path, options, figures):
    page = page_of(write_run(tmp_path, **options))
    ids = set(re.findall(r' id="([^"]*)"', page))
    assert {link[1:] for link in re.findall(r'href="(#[^"]*)"', page)} <= ids
    assert set(re.findall(r'(?:src|href)="(?!data:|#)', page)) == set()
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert {path.stem for path in (tmp_path / "plots").glob("*.png")} == figures
    assert page.count("<figure>") == len(figures)
    assert f"Iterations: {options['iterations']} of 60 (not finished)" in page


@pytest.mark.usefixtures("no_plots")
def test_before_and_after_are_the_first_and_the_last_evaluation(tmp_path):
    with Tracker(tmp_path) as tracker:
        tracker.log(0, {"eval/reference/probability": 0.5, "eval/llm_1/probability": 0.5})
        tracker.log(5, {"eval/reference/probability": 0.5, "eval/llm_1/probability": 0.625})
        tracker.log(9, {"eval/reference/probability": 0.5, "eval/llm_1/probability": 0.75})
    row = "<tr><td>P(positive)</td><td>0.500</td><td>0.500 → 0.750  (+0.250)</td></tr>"
    assert row in page_of(tmp_path)


def test_numbers_that_are_not_finite_leave_a_dash_and_no_panel(tmp_path):
    with Tracker(tmp_path) as tracker:
        tracker.log(0, {"pioneer_0/llm_1/kl": math.nan, "eval/llm_1/kl": math.inf, "eval/llm_1/length": 4.0})
        tracker.log(1, {"pioneer_0/llm_1/kl": math.nan, "eval/llm_1/length": math.nan})
    page = page_of(tmp_path)
    assert "KL to the reference" not in page
    assert "<td>4.000 → -</td>" in page
    assert sorted(path.stem for path in (tmp_path / "plots").glob("*.png")) == ["held_out"]


@pytest.mark.usefixtures("no_plots")
def test_text_of_models_and_users_is_shown_as_text(tmp_path):
    evil = '<script>alert(1)</script> & <img src="http://example.org/x.png" onerror=alert(2)>'
    with Tracker(tmp_path) as tracker:
        tracker.log(0, {"pioneer_0/llm_1/kl": 0.5})
        row = {
            "query": evil,
            "pioneer_0": evil,
            "score": {"pioneer_0": None},
            "eval": {"reference": evil, "llm_1": ""},
        }
        tracker.samples(0, [row])
    (tmp_path / "config.yaml").write_text(evil)
    (tmp_path / "environment.json").write_text(json.dumps({"note": evil}))
    page = page_of(tmp_path)
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;img") == 7
    assert "<script" not in page
    assert "(empty)" in page


@pytest.mark.usefixtures("no_plots")
def test_samples_show_the_last_evaluation_open_and_name_the_policy_of_each_seat(tmp_path):
    page = page_of(
        write_run(tmp_path, iterations=12, evaluate=5)
    )  # evaluations at 0, 5, 10, 11; exchanges at 5, 10
    assert re.findall(r"<details( open)?><summary>Iteration (\d+)", page) == [
        *((" open", "11"), ("", "10"), ("", "5"), ("", "0")),
    ]
    first, *_, last = page.split("<summary>Iteration ")[1:]
    names = ["pioneer_0 (llm_1)", "observer_1 (llm_2)", "reference", "llm_1 standalone", "llm_2 standalone"]
    assert re.findall(r"<h4>(.*?)</h4>", first)[:5] == names
    assert re.findall(r"<h4>(.*?)</h4>", last)[:2] == ["pioneer_0 (llm_1)", "observer_1 (llm_2)"]
    assert "<h4>pioneer_0 (llm_2)</h4>" in page.split("<summary>Iteration 5<")[1].split("</details>")[0]


@pytest.mark.usefixtures("no_plots")
def test_report_begins_with_gains_and_three_samples(tmp_path):
    page = page_of(write_run(tmp_path, iterations=12, evaluate=5))
    sections = re.findall(r'<h2 id="([^"]*)">', page)
    assert sections == ["summary", "samples", "held-out", "sample-games", "settings"]
    assert re.findall(r'<a href="#([^"]*)">', page) == sections
    samples = page[page.index('id="samples"') : page.index('id="held-out"')]
    assert samples.count(">This movie was<") == 3
    assert "pioneer_0" not in samples


@pytest.mark.usefixtures("no_plots")
def test_the_summary_has_the_change_its_kl_and_signs_of_collapse(tmp_path):
    """0.375 is below half of 0.875."""
    with Tracker(tmp_path) as tracker:
        for iteration, reward, kl, distinct in ((0, 1.0, 0.0, 0.875), (9, 3.0, 5.0, 0.375)):
            ours = {"task_reward": reward, "kl": kl, "distinct_2": distinct}
            tracker.log(iteration, {f"eval/llm_1/{name}": value for name, value in ours.items()})
        tracker.log(0, {"eval/reference/distinct_2": 0.875})
    page = page_of(tmp_path)
    assert "after 9 iterations: llm_1 1.000 → 3.000  (+2.000) at a KL of 5.000." in page
    sign = "llm_1: distinct-2 (share of bigrams) is below half of the reference&#39;s: 0.375, 0.875."
    assert f'<p class="bad">Sign of collapse, {sign}</p>' in page
    with Tracker(tmp_path) as tracker:
        tracker.log(10, {"eval/llm_1/distinct_2": 0.5})
    assert "No sign of collapse against the reference." in page_of(tmp_path)


@pytest.mark.usefixtures("no_plots")
def test_tokens_are_coloured_by_their_kl_and_the_rest_is_plain(tmp_path):
    tokens = [[" a", 0.09], [" <b>", 0.5], ["", 3.0], ["", None]]
    with Tracker(tmp_path) as tracker:
        tracker.log(0, {"pioneer_0/llm_1/kl": 0.5})
        row = {"query": "Q", "pioneer_0": " a <b> rest", "score": {"pioneer_0": 1.0}, "seating": {}}
        tracker.samples(0, [{**row, "kl": {"pioneer_0": 3.591}, "token_kl": {"pioneer_0": tokens}}])
    page = page_of(tmp_path)
    assert (
        '<span title="0.09 nats"> a</span><span class="heat-2" title="0.50 nats"> &lt;b&gt;</span>'
        '<span class="heat-4" title="end of the response, 3.00 nats">∎</span>'
        '<span title="end of the response, not finite">∎</span> rest'
    ) in page
    assert "score 1.000, KL 3.591 nats" in page


def test_quantities_that_never_change_have_no_panel(tmp_path):
    with Tracker(tmp_path) as tracker:
        for iteration in range(3):
            seat = {"kl": iteration, "entropy": iteration, "kl_coef": 0.25}
            tracker.log(iteration, {f"pioneer_0/llm_1/{name}": value for name, value in seat.items()})
    page = page_of(tmp_path)
    drawings = [base64.b64decode(text).decode() for text in re.findall(r"svg\+xml;base64,([^\"]*)", page)]
    assert ["KL to the reference" in svg for svg in drawings] == [True, False]
    assert ["entropy" in svg for svg in drawings] == [False, True]
    assert not any("KL coefficient" in svg for svg in drawings)
    assert page == page_of(tmp_path)


@pytest.mark.slow
def test_a_report_replaces_the_previous_one(tmp_path):
    write_run(tmp_path, iterations=3)
    page_of(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("")
    assert "no held-out evaluation" in page_of(tmp_path)
    assert not list((tmp_path / "plots").iterdir())


def test_a_folder_that_is_not_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no metrics\.jsonl; name the folder of a run"):
        write_report(tmp_path)


@pytest.mark.slow
def test_the_headline_of_a_run_that_cannot_be_written_to_is_printed_and_its_page_goes_elsewhere(
    tmp_path, capsys
):
    """As on a disk that is read-only: a file is where the folder of the figures would be."""
    run = write_run(tmp_path / "run", iterations=3)
    (run / "plots").write_text("no folder")
    before = contents(run)
    assert main(["report", str(run)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("Held out, ")
    assert f"{run / 'report.html'} cannot be written" in printed.err
    assert "--out FILE writes elsewhere" in printed.err
    out = tmp_path / "page.html"
    assert main(["report", str(run), "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out)
    assert "Held out, " in out.read_text(encoding="utf-8")
    assert contents(run) == before
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0


def test_a_report_does_not_replace_a_file_of_somebody_else(tmp_path, capsys):
    run = write_run(tmp_path / "run", iterations=3)
    (tmp_path / "thesis.tex").write_text("mine")
    for name in ("thesis.tex", "run"):
        assert main(["report", str(run), "--out", str(tmp_path / name)]) == 2
    assert "thesis.tex holds something else and is not replaced" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_figures_that_a_user_has_put_beside_those_of_a_report_stay(tmp_path):
    run = write_run(tmp_path / "run", iterations=0)
    (run / "plots").mkdir()
    mine = [run / "plots" / name for name in ("pass_at_k_mine.png", "mine.png")]
    for path in mine:
        path.write_text("mine")
    (run / "plots/pass_at_k.png").write_text("of an earlier report")
    write_report(run)
    assert [path.read_text() for path in mine] == ["mine"] * 2
    assert not (run / "plots/pass_at_k.png").exists()


def test_a_report_replaces_a_link_and_not_what_it_leads_to(tmp_path, no_plots):
    run = write_run(tmp_path / "run", iterations=3)
    theirs = tmp_path / "theirs.html"
    theirs.write_text("mine")
    (run / "report.html").symlink_to(theirs)
    assert "Held out, " in page_of(run)
    assert theirs.read_text() == "mine"


def test_first_samples_are_those_of_the_best_the_median_and_the_worst_gain():
    """Gains 0, 3, -2, 1, 2: the best is `b`, the worst `c`, the median `d`."""
    rows = [
        {
            "iteration": 5,
            "query": query,
            "score": {},
            "eval": {"reference": "before", "llm_1": "after"},
            "eval_score": {"reference": 1.0, "llm_1": 1.0 + gain},
        }
        for query, gain in zip("abcde", (0, 3, -2, 1, 2), strict=True)
    ]
    page = "".join(samples.first(rows, continues=False))
    assert re.findall(r'<span class="query">(.)</span>', page) == ["b", "d", "c"]
    assert re.findall(r"score (-?[\d.]+)", page) == ["1.000", "4.000", "1.000", "2.000", "1.000", "-1.000"]


def test_limit_of_a_sign_of_collapse_is_drawn_and_in_sight():
    """Half of the reference's 10 tokens; the curve alone would show 9.75 to 10 as a fall."""
    drawn = {
        Key("eval", "reference", "length"): Curve([0], [10.0]),
        Key("eval", "llm_1", "length"): Curve([0, 1], [10.0, 9.75]),
    }
    axes = Figure().subplots()
    plots._draw_standalone(axes, drawn, "length")
    (limit,) = [line for line in axes.lines if line.get_color() == COLLAPSE]
    assert list(limit.get_ydata()) == [5.0, 5.0]
    assert axes.get_ylim()[0] < 5.0


def test_page_says_what_its_quantities_are_and_no_others(tmp_path):
    page = page_of(write_run(tmp_path / "run"))
    table = page.partition("What the quantities are")[2].partition("</table>")[0]
    shown = dict(re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td></tr>", table))
    assert (
        shown["combined reward (task reward \N{MINUS SIGN} η KL)"]
        == "What training raises: task reward less η times KL."
    )
    assert "iterations without a sign of collapse" not in shown
    assert set(DEFINITIONS) <= set(LABELS)
