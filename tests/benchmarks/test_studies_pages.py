"""Pages of docs/studies from made-up results."""

import json

import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure
from PIL import Image

from benchmarks import studies_pages
from cory.report.figures import PALETTE
from cory.study import results as study_results
from cory.study.analysis import analyse
from cory.study.plan import make_plan
from cory.study.reading import make_spec, read_spec
from cory.study.results import assemble
from tests.cory.study.conftest import SMOKE, made_up_run


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with the results of two studies: relay-smoke, where 0.3 is gained, and one without runs."""
    folder = tmp_path_factory.mktemp("results")
    values = yaml.safe_load(SMOKE.read_text("utf-8"))
    values["primary"][0] |= {"source": "paper 4.1", "claim": "a | b"}
    runs = [
        made_up_run(arm, seed, 0.5 + 0.01 * seed + gain)
        for seed in range(5)
        for arm, gain in (("cooperative", 0.3), ("independent", 0.0))
    ]
    for run in runs:
        run["seconds"] = 90.0
    for stem, name, kept in (("relay_smoke", "relay-smoke", runs), ("other", "other", [])):
        spec = make_spec(values | {"name": name, "notes": "One comparison\nis late." if kept else ""})
        study_results.save(folder / f"{stem}.json", analyse(assemble(spec, make_plan(spec), kept)))
    return folder


@pytest.fixture(scope="module")
def pages(stored, tmp_path_factory):
    folder, studies = tmp_path_factory.mktemp("pages"), tmp_path_factory.mktemp("studies")
    values = yaml.safe_load(SMOKE.read_text("utf-8")) | {"name": "waiting", "results": "no/such.json"}
    values["primary"] = [
        values["primary"][0] | {"source": "paper 4.2", "claim": "c", "direction": "equal", "metric": "kl"}
    ]
    (studies / "waiting.yaml").write_text(yaml.safe_dump(values))
    studies_pages.write_pages(stored, folder, studies)
    return folder


def test_index_has_a_row_for_every_claim_of_the_paper_with_runs_and_names_where_others_wait(pages):
    text = (pages / "index.md").read_text("utf-8")
    claims = text.partition("## Claims of the paper\n")[2].partition("## ")[0]
    table = [line.replace("\N{NO-BREAK SPACE}", " ") for line in claims.splitlines() if line.startswith("|")]
    assert table[0] == "| claim | verdict | paper | model | test | difference | margin | study |"
    assert table[2] == (
        "| a / b | **supported**, n = 5 | 4.1 | table | game/collective_reward on relay, cooperative against "
        "independent | +0.450 (+0.450 to +0.450) | higher by 0.05 | [relay-smoke](relay-smoke.md) |"
    )
    assert len(table) == 3
    assert "\nDeclared, without runs yet: 2 claims of [other](other.md), waiting.\n" in claims


def test_index_counts_the_runs_and_verdicts_of_every_study(pages):
    overview = (pages / "index.md").read_text("utf-8").partition("## Studies\n")[2]
    table = [line for line in overview.splitlines() if line.startswith("|")]
    assert table[0] == "| study | question | runs | claims |"
    assert [line.split(" | ")[0] for line in table[2:]] == [
        "| [other](other.md)",
        "| [relay-smoke](relay-smoke.md)",
        "| waiting",
    ]
    assert [line.split(" | ", 2)[2] for line in table[2:]] == [
        "0 | 2 without runs |",
        "10 | 1 supported, 1 refuted |",
        "0 | 1 without runs |",
    ]


def test_page_has_the_note_of_its_study(pages):
    text = (pages / "relay-smoke.md").read_text("utf-8")
    assert text.count("\n\n**Note:** One comparison is late.\n\n") == 1
    assert "Note" not in (pages / "other.md").read_text("utf-8")


def test_a_comparison_that_two_studies_make_is_in_the_index_once(stored):
    one = studies_pages.load_all(stored)[1]
    assert len(studies_pages.claims_of_the_paper([one, one])) == 1
    assert studies_pages.by_chance([one, one]) == studies_pages.by_chance([one])
    row = one.results["statistics"][0] | {"margin": 0.25}  # another claim with the same test
    other = one._replace(results=one.results | {"statistics": [row, *one.results["statistics"][1:]]})
    assert len(studies_pages.claims_of_the_paper([one, other])) == 2


def test_model_of_a_claim_is_that_of_its_arm():
    models = {"ppo": "smollm2", "pocket-ppo": "folder/pocket"}
    arms = {
        arm: {"config": {"reviews": {"policy.kind": "full", "policy.model": model}}}
        for arm, model in models.items()
    }
    names = [
        studies_pages.model_of({"arms": arms}, {"arm": arm, "task": "reviews"}) for arm in (*models, "sweep")
    ]
    assert names == ["smollm2", "pocket", "smollm2"]


def test_page_of_a_study_has_question_arms_figures_minutes_and_command(pages):
    text = (pages / "relay-smoke.md").read_text("utf-8")
    for shown in (
        "Does the summed payoff raise the collective reward",
        "| arm | runs | combined_reward |",
        "| cooperative | 5 | 0.820\N{NO-BREAK SPACE}\N{PLUS-MINUS SIGN}",
        "| a / b | supported | cooperative - independent | game/collective_reward, relay | 5 | ",
        "![Learning curves](relay-smoke/curves.png)",
        "10 runs, 0.2 hours in all.",
    ):
        assert shown in text
    assert (pages / "relay-smoke/curves.png").stat().st_size > 1000
    assert all((pages / "relay-smoke" / name).exists() for name in ("differences.png", "frontier.png"))


def test_percentages_of_cory_stand_in_the_page_on_the_paper_at_each_horizon():
    """At 10: rewards of 0.9 against 1, variances of 0.01 and 0.04; of 4 policies 1 collapsed, of 2 both.

    Runs end at 20.
    """
    points = {"cory": {0: (0.8, 1.0), 20: (-2.0, 1.0)}, "ppo": {0: (0.8, 1.2), 20: (1.0, 1.0)}}
    runs = []
    for arm, by_time in points.items():
        for seed in (0, 1):
            run = made_up_run(arm, seed, 0.0, kl=0.0)
            reward = [[at + 10 * (at == 0), values[seed]] for at, values in by_time.items()]
            quantities = {"task_reward": reward, "kl": [[at, 0.0] for at, _ in reward]}
            names = ("llm_1", "llm_2") if arm == "cory" else ("llm_1",)
            run["eval"] = dict.fromkeys(names, quantities)
            run["collapsed_at"] = {name: 10 if (arm, name) != ("cory", "llm_2") else 20 for name in names}
            runs.append(run)
    runs[1]["collapsed_at"]["llm_1"] = None
    results = {"kl_coef": {"relay": 0.1}, "runs": runs}
    stored = [studies_pages.Stored(None, results | {"study": name}) for name in ("collapse", "equal", "plus")]
    text = studies_pages.with_percentages("a\n<!-- percentages -->\nold\n<!-- end -->\nb\n", stored)
    lines = text.replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert (lines[0], lines[-1], "old" in text) == ("a", "b", False)
    assert [line.partition(" | relay, η 0.1 | 2 and 2 | ")[2] for line in lines[5:9]] == [
        "-10 % | - | - | - | [equal](studies/equal.md) |",
        "-75 % | -25 % | - | - | [collapse](studies/collapse.md) |",
        "-75 % | - | - | - | [equal](studies/equal.md) |",
        "-75 % | - | - | - | [plus](studies/plus.md) |",
    ]


@pytest.mark.slow
def test_pages_are_written_again_unchanged_and_without_old_figures(pages, stored):
    def content():
        return {path: path.read_bytes() for path in sorted(pages.rglob("*")) if path.is_file()}

    before = content()
    (pages / "relay-smoke/sweeps.png").write_bytes(b"of earlier results")
    studies_pages.write_pages(stored, pages, pages / "no-studies")
    after = content()
    assert b"waiting" in before.pop(pages / "index.md")
    assert b"waiting" not in after.pop(pages / "index.md")
    assert after == before


@pytest.mark.slow
def test_reduced_figures_keep_the_colours_of_their_areas(tmp_path):
    figure = Figure(figsize=(6, 4), dpi=160)
    axes = figure.subplots()
    x = np.arange(4)
    for place, colour in enumerate(PALETTE):
        axes.plot(x, x * (1 + 0.2 * place), "o-", color=colour)
        axes.fill_between(x, x * (0.9 + 0.2 * place), x * (1.1 + 0.25 * place), color=colour, alpha=0.15)
    figure.savefig(path := tmp_path / "figure.png")
    before, size = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3).astype(int), path.stat().st_size
    studies_pages.reduce_colours(path)
    after = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3).astype(int)
    assert path.stat().st_size < size / 2
    _, colour_of, counts = np.unique(before, axis=0, return_inverse=True, return_counts=True)
    distances = np.linalg.norm(after - before, axis=1)
    assert distances[counts[colour_of.ravel()] > 200].max() < 8


def test_two_results_of_one_study_are_refused(stored, tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text((stored / "relay_smoke.json").read_text("utf-8"))
    with pytest.raises(ValueError, match="both of the study 'relay-smoke'"):
        studies_pages.load_all(tmp_path)


@pytest.mark.slow
def test_statistics_of_results_files_are_counted_again_from_their_runs(stored, pages, tmp_path):
    """As after a change of the statistics: 0.45 was stored as 0.4, and is counted from the runs."""
    results = study_results.load(stored / "relay_smoke.json")
    old = [row | {"difference": 0.4} for row in results["statistics"]]
    study_results.save(tmp_path / "relay_smoke.json", results | {"statistics": old})
    studies_pages.write_pages(tmp_path, tmp_path / "pages", tmp_path / "none")
    again = (tmp_path / "pages/relay-smoke.md").read_text("utf-8")
    assert again == (pages / "relay-smoke.md").read_text("utf-8")
    assert study_results.load(tmp_path / "relay_smoke.json") == results


def test_index_says_how_many_intervals_miss_by_chance(pages):
    text = (pages / "index.md").read_text("utf-8")
    assert "of these 2 intervals about 0 do, by chance alone." in text


@pytest.mark.slow
def test_committed_pages_are_those_of_the_committed_results():
    measured = studies_pages.load_all(studies_pages.RESULTS)
    if not measured:
        pytest.skip("no results of studies are committed")
    files = [*studies_pages.STUDIES.glob("*.yaml"), *studies_pages.STUDIES.parent.glob("suites/*.yaml")]
    specs = {spec.name: spec for spec in map(read_spec, files)}
    for one in measured:
        assert study_results.load(one.file) == one.results, f"{one.file} was counted by other statistics"
        commits = [run["commit"] for run in one.results["runs"]]
        assert not any(commit.endswith("-dirty") for commit in commits), f"{one.file} is of uncommitted code"
        declared = specs[one.name]
        stored = {name: one.results[name] for name in ("question", "notes")}
        assert stored == {"question": declared.question, "notes": declared.notes}, (
            "run `cory study FILE --report`"
        )
        claims = [
            (row["arm"], row["baseline"], row["metric"], row["claim"]) for row in one.results["primary"]
        ]
        assert claims == [(row.arm, row.baseline, row.metric, row.claim) for row in declared.primary], (
            one.file
        )
        text = (studies_pages.PAGES / f"{one.name}.md").read_text("utf-8")
        lines = text.splitlines()
        images = [i for i, line in enumerate(lines) if line.startswith("![")]
        figures = lines[images[0] - 2 : images[-1] + 2] if images else []
        assert text == studies_pages.page(one, figures), "run python -m benchmarks.studies_pages"
    committed = [*measured, *studies_pages.without_results(measured, studies_pages.STUDIES)]
    text = (studies_pages.PAGES / "index.md").read_text("utf-8")
    assert text == studies_pages.index(committed), "run python -m benchmarks.studies_pages"
    paper = (studies_pages.PAGES.parent / studies_pages.PAPER).read_text("utf-8")
    assert paper == studies_pages.with_percentages(paper, measured), "run python -m benchmarks.studies_pages"


def test_worth_of_the_others_score_is_in_margins_over_the_pioneers_share(stored, tmp_path, monkeypatch):
    """The sum gains 0.45 with margin 0.05, nine margins, where the pioneer's share is 0.3."""
    results = study_results.load(stored / "relay_smoke.json")
    (row,) = [row for row in results["statistics"] if row["claim"] == "a | b"]
    results["statistics"] = [row | {"baseline": "shuffled"}, row | {"baseline": "other"}]
    study_results.save(tmp_path / "noise.json", results)
    shares = {"noise": {"relay": {"value": 0.3, "low": 0.1, "high": 0.4}}, "unmeasured": {"relay": {}}}
    (tmp_path / "influence.json").write_text(json.dumps(shares))
    monkeypatch.setattr(studies_pages, "INFLUENCE", tmp_path / "influence.json")
    one = studies_pages.Stored(tmp_path / "noise.json", results)
    (point,) = studies_pages.draw_worth(one).axes[0].containers
    assert point.lines[0].get_xydata().tolist() == [[0.3, pytest.approx(9.0)]]
    (tmp_path / "influence.json").write_text("{}")
    assert studies_pages.draw_worth(one) is None
