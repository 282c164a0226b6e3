"""Pages that compare run directories: arms, what is refused, differences, samples side by side."""

import json
import re
from dataclasses import replace

import pytest
import yaml

from cory.cli.main import main
from cory.config import presets
from cory.config.parsing import as_json
from cory.study.comparison import pages, write_comparison, write_paper_figures
from cory.study.comparison.arms import arms_of
from cory.study.report import origin

pytestmark = pytest.mark.slow

SETTINGS = as_json(replace(presets.get("pocket"), iterations=4))
"""Reviews, two seats, KL coefficient 0.2."""


def write_run(folder, *, seed=0, reward=0.5, kl=1.0, trained=4, response="fine", commit="abc", **settings):
    """A run whose policies end at `reward` +- 0.1 and `kl`; llm_1 responds to `film` with `response`."""
    folder.mkdir(parents=True)
    values = {**SETTINGS, "seed": seed, **settings}
    folder.joinpath("config.yaml").write_text(yaml.safe_dump(values))
    folder.joinpath("environment.json").write_text(json.dumps({"commit": commit}))
    folder.joinpath("policies").mkdir()
    rows = [evaluation(0, {"llm_1": 0.0, "llm_2": 0.0}, kl=0.0)]
    for i in range(trained):
        of_seats = {"pioneer_0/llm_1": reward, "observer_1/llm_2": reward + 1.0}
        rows.append(
            {"iteration": i, "time/update/seconds": 1.0}
            | {f"{name}/task_reward": value for name, value in of_seats.items()}
            | {f"{name}/kl": kl for name in of_seats}
        )
    if trained == values["iterations"]:
        rows.append(evaluation(trained, {"llm_1": reward + 0.1, "llm_2": reward - 0.1}, kl=kl))
    folder.joinpath("metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    samples = [
        {"iteration": i, "query": "film", "eval": texts, "score": {}}
        for i, texts in (
            (0, {"reference": "dull", "llm_1": "early", "llm_2": "early"}),
            (4, {"reference": "dull", "llm_1": response, "llm_2": " "}),
        )
    ]
    folder.joinpath("samples.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in samples))
    return folder


def evaluation(iteration, rewards, *, kl) -> dict:
    row = {"iteration": iteration, "eval/reference/task_reward": 0.25, "eval/reference/kl": 0.0}
    for name, reward in rewards.items():
        row |= {f"eval/{name}/task_reward": reward, f"eval/{name}/kl": kl}
    return row


@pytest.fixture
def four(tmp_path):
    """Two arms, CORY and one that pays own scores, seeds 0 and 1."""
    return [
        write_run(tmp_path / "cory-seed-0", reward=0.5, kl=1.0, response="good <b>"),
        write_run(tmp_path / "cory-seed-1", reward=0.7, kl=2.0, seed=1),
        write_run(tmp_path / "own-seed-0", reward=1.0, kl=1.5, payoff="independent", response="great"),
        write_run(tmp_path / "own-seed-1", reward=1.0, kl=2.5, payoff="independent", seed=1),
    ]


def test_runs_with_equal_settings_but_for_the_seed_are_one_arm(four):
    found = {arm.name: list(arm.runs) for arm in arms_of([four[3], four[0], four[2], four[1]])}
    assert found == {"own": [0, 1], "cory": [0, 1]}


def test_arms_have_the_names_of_a_studys_folders(tmp_path):
    folders = [
        write_run(tmp_path / f"{name}/reviews/seed-{seed}", seed=seed, payoff=payoff)
        for name, payoff in (("lambda=1", "1"), ("lambda=0", "0"))
        for seed in (0, 1)
    ]
    assert [arm.name for arm in arms_of(folders)] == ["lambda=1", "lambda=0"]


def test_arms_are_named_by_what_differs_where_folders_do_not_tell_them_apart(tmp_path):
    folders = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", seed=1),
        write_run(tmp_path / "c", seats=1, **{"kl.coef": 0.1}),
    ]
    assert [arm.name for arm in arms_of(folders)] == ["seats=2, kl.coef=0.2", "seats=1, kl.coef=0.1"]


def test_a_setting_that_an_older_run_lacks_is_at_its_default(tmp_path):
    old, new = write_run(tmp_path / "old"), write_run(tmp_path / "new", seed=1)
    settings = yaml.safe_load((old / "config.yaml").read_text())
    del settings["keep_checkpoints"]
    (old / "config.yaml").write_text(yaml.safe_dump(settings))
    (arm,) = arms_of([old, new])
    assert arm.runs == {0: old, 1: new}


def test_runs_of_several_tasks_are_refused_before_a_page_is_drawn(tmp_path, capsys):
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b", task="echo")]
    message = "cannot be compared: task is 'reviews' and 'echo'; name runs of one task"
    with pytest.raises(ValueError, match=message):
        pages.write_comparison(folders)
    assert main(["report", *map(str, folders)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.html"))


@pytest.mark.parametrize(
    ("setting", "value"), [("evaluation.queries", 7), ("judge", "regex:a"), ("max_response", [1, 2])]
)
def test_runs_that_are_scored_differently_are_compared_with_a_warning_at_the_top(tmp_path, setting, value):
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b", **{setting: value})]
    (line,) = pages.check_runs(folders)
    assert re.search(rf"not evaluated alike.*: {setting} is .* and {re.escape(repr(value))}\.$", line)
    page = pages.write_comparison(folders).read_text(encoding="utf-8")
    assert page.index("not evaluated alike") < page.index("<table")


def test_runs_of_unequal_length_are_compared_with_a_warning_at_the_top(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("cory.report.plots.draw", lambda *_: [])
    folders = [write_run(tmp_path / "short", iterations=2), write_run(tmp_path / "long", iterations=4)]
    warning = "The runs are of unequal length (iterations: short 2, long 4)"
    assert main(["report", *map(str, folders)]) == 0
    assert f"warning: {warning}" in capsys.readouterr().err
    page = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert page.index(warning) < page.index("<table")


def test_a_comparison_says_by_which_kl_coefficient_it_has_combined_reward(tmp_path):
    strong = write_run(tmp_path / "strong", **{"kl.coef": 0.5})  # its own report: 0.5 - 0.5 * 1 = 0
    folders = [write_run(tmp_path / "weak", **{"kl.coef": 0.1}), strong]
    line = "Combined reward is task reward less 0.1 KL for all, the kl.coef of weak (others: strong 0.5)."
    assert pages.check_runs(folders) == [line]
    page = pages.write_comparison(folders).read_text(encoding="utf-8")
    assert page.index(line) < page.index("<table")


def test_runs_may_differ_in_how_often_they_are_evaluated(tmp_path):
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b", **{"evaluation.every": 2})]
    assert pages.check_runs(folders) == []


@pytest.mark.parametrize("out", [None, "notes.html"])
def test_a_comparison_does_not_replace_a_page_of_somebody_else(tmp_path, out):
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b", payoff="independent")]
    page = tmp_path / (out or "comparison.html")
    page.write_text("<html>my thesis</html>")
    with pytest.raises(ValueError, match="holds something else and is not replaced"):
        pages.write_comparison(folders, page if out else None)
    page.unlink()
    for _ in range(2):  # its own it replaces
        assert pages.write_comparison(folders, page if out else None) == page


def test_two_runs_with_the_same_settings_and_seed_are_refused(tmp_path):
    with pytest.raises(ValueError, match="the same settings and seed"):
        arms_of([write_run(tmp_path / "a"), write_run(tmp_path / "b")])


def test_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no config"):
        arms_of([write_run(tmp_path / "a"), tmp_path])


def test_differences_to_the_first_arm_are_paired_by_seed(four):
    """Combined reward: cory .5 - .2 = .3, .7 - .4 = .3; own 1 - .3 = .7, 1 - .5 = .5. KL lower is better."""
    results = pages.results_of(arms_of(four))
    rows = {row["metric"]: row for row in results["statistics"]}
    assert {(row["arm"], row["baseline"]) for row in rows.values()} == {("own", "cory")}
    assert rows["combined_reward"]["difference"] == pytest.approx((0.4 + 0.2) / 2)
    assert rows["task_reward"]["difference"] == pytest.approx((0.5 + 0.3) / 2)
    assert rows["kl"]["difference"] == pytest.approx(0.5)
    assert [rows[name]["direction"] for name in ("task_reward", "kl")] == ["higher", "lower"]
    assert results["arms"]["own"]["config"]["reviews"]["payoff"] == "independent"


def test_combined_reward_has_the_first_arms_coefficient_in_all(tmp_path):
    arms = arms_of([write_run(tmp_path / "a"), write_run(tmp_path / "b", kl=2.0, **{"kl.coef": 0.4})])
    results = pages.results_of(arms)
    assert results["statistics"][0]["difference"] == pytest.approx((0.5 - 0.2 * 2) - (0.5 - 0.2 * 1))
    assert origin(results)[-1].endswith("eta = 0.2 (reviews).")


def test_unfinished_run_is_compared_as_far_as_it_is_and_marked(tmp_path):
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b", trained=3, payoff="0")]
    results = pages.results_of(arms_of(folders))
    assert [(run["status"], run["iterations"]) for run in results["runs"]] == [
        ("finished", 4),
        ("unfinished", 3),
    ]
    for write in (write_comparison, write_paper_figures):
        assert "Not finished: b, seed 0." in write(folders).read_text("utf-8")


def test_a_run_that_was_copied_without_its_environment_is_compared(tmp_path):
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b", payoff="0")]
    (tmp_path / "a/environment.json").unlink()
    assert [run["commit"] for run in pages.results_of(arms_of(folders))["runs"]] == [None, "abc"]
    for write in (write_comparison, write_paper_figures):
        assert write(folders).exists()


def test_games_of_an_unfinished_run_end_where_its_training_does(tmp_path):
    (run,) = pages.results_of(arms_of([write_run(tmp_path / "a", trained=3, iterations=40)]))["runs"]
    ends = {end for of_seat in run["game"].values() for points in of_seat.values() for end, _ in points}
    assert ends == {3}


def test_runs_of_two_learning_versions_are_refused(tmp_path):
    folders = [write_run(tmp_path / f"{name}/reviews/seed-0", payoff=name) for name in ("0", "1")]
    (tmp_path / "1/reviews/seed-0/environment.json").write_text('{"learning_version": 0, "commit": "abc"}')
    for write in (write_comparison, write_paper_figures):
        with pytest.raises(ValueError, match="learning versions 0, 1"):
            write(folders)


def test_runs_of_edited_code_are_no_arm_without_a_warning(tmp_path):
    runs = [write_run(tmp_path / f"seed-{seed}", seed=seed) for seed in (0, 1)]
    assert pages.check_runs(runs) == []
    (runs[1] / "environment.json").write_text(json.dumps({"sources": {"mine.py": "b"}}))
    (line,) = pages.check_runs(runs)
    assert line == f"Not one arm: mine.py has changed between {runs[0]} and {runs[1]}."


def test_arms_of_an_edited_judge_are_compared_with_a_warning(tmp_path):
    runs = [write_run(tmp_path / f"{name}/reviews/seed-0", payoff=name) for name in ("0", "1")]
    sources = [{"r.py": "a", "one.py": "b"}, {"r.py": "c", "two.py": "d"}]
    for run, named in zip(runs, sources, strict=True):
        (run / "environment.json").write_text(json.dumps({"sources": named}))
    (line,) = pages.check_runs(runs)
    assert line == f"Do not compare their scores: r.py has changed between {runs[0]} and {runs[1]}."
    for run, at in zip(runs, "ab", strict=True):
        queries = {"train split": f"loaded {at}", "test split": "loaded c"}
        (run / "environment.json").write_text(json.dumps({"sources": queries}))
    assert pages.check_runs(runs) == []
    queries["test split"] = "loaded d"
    (runs[1] / "environment.json").write_text(json.dumps({"sources": queries}))
    (line,) = pages.check_runs(runs)
    assert line.startswith("Do not compare their scores: test split has changed")


def test_page_holds_tables_figures_and_samples_and_loads_nothing(four, tmp_path):
    page = write_comparison(four)
    assert page == tmp_path / "comparison.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([page.name, *(f.name for f in four)])
    text = page.read_text("utf-8")
    assert re.findall(r'(?:src|href)="(?!data:)', text) == []
    assert text.count("<figure>") == 3  # differences, curves, frontier
    for shown in ("Samples of cory", "Samples of own", "good &lt;b&gt;", "great", "(empty)"):
        assert shown in text
    assert "verdict" not in text


def test_one_arm_with_several_seeds_is_compared_without_differences(four):
    text = write_comparison(four[:2], four[0] / "page.html").read_text("utf-8")
    assert "differences to the first arm" not in text
    assert "Arms on reviews: 1," in text


def test_paper_figures_of_several_tasks_have_a_section_each(tmp_path):
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b", task="echo", payoff="0")]
    page = write_paper_figures(folders)
    assert page == tmp_path / "paper_figures.html"
    text = page.read_text("utf-8")
    assert re.findall("<h2>(Task .*)</h2>", text) == ["Task reviews", "Task echo"]
    assert text.count("<figure>") == 2  # training curves
    assert text.count("Left out: Figure 2c (frontier) needs") == 2


def test_command_draws_the_pages_of_the_runs_and_their_comparison(four, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("cory.report.plots.draw", lambda curves, folder: folder.mkdir(exist_ok=True) or [])
    assert main(["report", *map(str, four[:2]), "--out", str(tmp_path / "both.html")]) == 0
    printed = capsys.readouterr().out.split()
    assert printed == [*(str(run / "report.html") for run in four[:2]), str(tmp_path / "both.html")]
    assert main(["report", "--as-paper", str(four[0]), "--out", str(tmp_path / "paper.html")]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "paper.html")]
