"""Write the pages of docs/studies from the committed results, and the table of verdicts.

    python -m benchmarks.studies_pages

One page per study, with all of its claims; in docs/studies/index.md all studies and the paper's claims; in
docs/paper.md the table between `PERCENTAGES`.

It trains nothing and needs no network. Statistics and verdicts of the results files are counted again from
their runs; unchanged statistics give unchanged files.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from benchmarks import ROOT
from cory.report.figures import draw_kinds
from cory.report.tables import markdown_rows
from cory.runtime.files import read_json, write_text
from cory.study import results as study_results
from cory.study.analysis import analyse, curve, result_words
from cory.study.plan import PlannedRun, make_plan
from cory.study.plots import draw
from cory.study.reading import read_spec
from cory.study.report import RESULT_WORDS, difference, margin, markdown
from cory.study.results import Results

RESULTS = ROOT / "benchmarks/results/studies"
STUDIES = ROOT / "benchmarks/studies"
PAGES = ROOT / "docs/studies"
INDEX = "index.md"
PAPER = "paper.md"
PERCENTAGES = re.compile(r"(<!-- percentages -->\n).*?(\n<!-- end -->)", re.DOTALL)
"""Where the page on the paper has the percentages that are quoted of CORY."""
HORIZONS = (10, 20, 25, 30)
"""Iterations at which they are measured, where a study has evaluations."""
QUOTED = (
    ("12.3 % better optimality", "combined reward", "equal"),
    ("12.3 % better optimality", "combined reward", "smollm2-batch"),
    ("67 % fewer collapses", "collapsed policies", "collapse"),
    ("67 % fewer collapses", "collapsed policies", "smollm2-batch"),
    ("41 % less variance", "variance of combined reward", "equal"),
    ("41 % less variance", "variance of combined reward", "plus"),
    ("41 % less variance", "variance of combined reward", "smollm2-batch"),
)
"""What is quoted, the quantity and the study that measure it."""
INFLUENCE = ROOT / "benchmarks/results/learning/influence.json"
"""By results file and task: the pioneer's share of the observer's variance before training (`cory probe`)."""
NOISE, SHUFFLED = "noise", "shuffled"
"""The study of what the other's score is worth, and the arm that has that of another game in its place."""
WORTH = (
    "The sum against own score plus the other's score of another game, in margins of the claim, over the "
    "pioneer's share of the observer's variance before training. Bars: 95 % intervals."
)
KEY = tuple(f"- **{name}**: {text}" for name, text in RESULT_WORDS.items())
HEAD = ("claim", "verdict", "paper", "model", "test", "difference", "margin", "study")


class Stored(NamedTuple):
    """A committed results file."""

    file: Path
    results: Results

    @property
    def name(self) -> str:
        """The study's name, which its page and the folder of its figures have."""
        return str(self.results["study"])

    @property
    def link(self) -> str:
        """The study's name, which leads to its page if it has results."""
        return f"[{self.name}]({self.name}.md)" if self.file.exists() else self.name


def write_pages(results: Path, pages: Path, studies: Path) -> list[Path]:
    """Write all pages; their paths. Studies without results have claims in the table and no page.

    ValueError for a file that holds no results.
    """
    measured = load_all(results)
    for one in measured:
        if study_results.load(one.file) != one.results:
            study_results.save(one.file, one.results)
    pages.mkdir(parents=True, exist_ok=True)
    written = [_write_page(one, pages) for one in measured]
    write_text(pages / INDEX, index([*measured, *without_results(measured, studies)]))
    if (paper := pages.parent / PAPER).is_file():
        write_text(paper, with_percentages(paper.read_text("utf-8"), measured))
    return [pages / INDEX, *written]


def load_all(folder: Path) -> list[Stored]:
    """The results files of a folder, by name, counted again; ValueError if two are of the same study."""
    stored = []
    for file in sorted(folder.glob("*.json")):
        found = study_results.load(file)
        assert found is not None
        stored.append(Stored(file, analyse(found)))
    files: dict[str, Path] = {}
    for one in stored:
        if one.name in files:
            raise ValueError(f"{files[one.name]} and {one.file} are both of the study {one.name!r}; keep one")
        files[one.name] = one.file
    return stored


def without_results(stored: Sequence[Stored], studies: Path) -> list[Stored]:
    """The studies of a folder that have no committed results yet and will have, as results without runs."""
    names = {one.name for one in stored}
    return [
        Stored(spec.results, analyse(study_results.assemble(spec, make_plan(spec), ())))
        for spec in map(read_spec, sorted(studies.glob("*.yaml")))
        if spec.results is not None and spec.name not in names
    ]


def index(stored: Sequence[Stored]) -> str:
    """The page with all studies and the verdicts on the paper's claims."""
    lines = [
        "# Verdicts",
        "",
        "Every claim, its margin and its test are written in a study file before the runs of its arms; "
        "exceptions are in the notes of the pages. `python -m benchmarks.studies_pages` makes the pages from "
        "`benchmarks/studies/` and `benchmarks/results/studies/`; [README.md](README.md) describes the "
        "statistics.",
        "",
        *KEY,
        "",
        by_chance(stored),
        "",
        "## Claims of the paper",
        "",
        *markdown_rows(HEAD, claims_of_the_paper(stored)),
        "",
        *claims_without_runs(stored),
        "## Studies",
        "",
        *overview(stored),
    ]
    return "\n".join(lines) + "\n"


def claims_of_the_paper(stored: Sequence[Stored]) -> list[list[str]]:
    """The cells of the paper's claims that have runs; a comparison of several studies once."""
    measured: dict[tuple[str, ...], list[str]] = {}
    for one in stored:
        for verdict, row in zip(one.results["verdicts"], one.results["statistics"], strict=True):
            if row["n"] and row["source"].startswith("paper"):
                source = row["source"].removeprefix("paper").strip(" ,")
                found = f"**{result_words(row)}**, n = {row['n']}"
                cells = [model_of(one.results, row), verdict["test"], difference(row), margin(row)]
                measured.setdefault((found, *cells), [row["claim"], found, source, *cells, one.link])
    return [*measured.values()]


def claims_without_runs(stored: Sequence[Stored]) -> list[str]:
    """A sentence on the paper's claims that are declared and not measured yet; nothing if all are."""
    waiting = [
        one.link
        for one in stored
        for row in one.results["statistics"]
        if not row["n"] and row["source"].startswith("paper")
    ]
    studies = ", ".join(dict.fromkeys(waiting))
    return [f"Declared, without runs yet: {len(waiting)} claims of {studies}.", ""] if waiting else []


def with_percentages(text: str, stored: Sequence[Stored]) -> str:
    """The page on the paper with the percentages of today's results."""
    head = ("quoted", "measured", "task", "seeds", *(f"at {at}" for at in HORIZONS), "study")
    rows = [
        [quoted, quantity, *cells, f"[{name}](studies/{name}.md)"]
        for quoted, quantity, name in QUOTED
        for one in stored
        if one.name == name
        for cells in percentages(one.results, quantity)
    ]
    table = "\n".join(markdown_rows(head, rows))
    return PERCENTAGES.sub(lambda match: f"{match[1]}\n{table}\n{match[2]}", text)


def percentages(results: Results, quantity: str) -> list[list[str]]:
    """By task: the seeds of CORY and PPO, and CORY's change from PPO at each horizon.

    `-` where there is no evaluation, or nothing to take a percentage of.
    """
    rows = []
    for task, kl_coef in results["kl_coef"].items():
        runs = [
            [run for run in results["runs"] if (run["arm"], run["task"]) == (arm, task)]
            for arm in ("cory", "ppo")
        ]
        curves = [[curve(run, "combined_reward", kl_coef=kl_coef) for run in side] for side in runs]
        cells = []
        longest = max((run["iterations"] for side in runs for run in side), default=0)
        for at in HORIZONS:
            if at > longest:
                cells.append("-")
                continue
            if quantity == "collapsed policies":
                cory, ppo = (
                    np.mean(
                        [
                            end is not None and end <= at
                            for run in side
                            for end in run["collapsed_at"].values()
                        ]
                    )
                    for side in runs
                )
            else:
                count = np.mean if quantity == "combined reward" else partial(np.var, ddof=1)
                cory, ppo = (count([values.get(at, math.nan) for values in side]) for side in curves)
            cells.append(f"{100 * (cory / ppo - 1):+.0f} %" if ppo > 0 and cory >= 0 else "-")
        rows.append([f"{task}, η {kl_coef:g}", f"{len(runs[0])} and {len(runs[1])}", *cells])
    return rows


def model_of(results: Results, row: Mapping[str, Any]) -> str:
    """The model that a claim is tested on: that of its arm, of a sweep or a pool the first; or `table`."""
    arms = results["arms"]
    settings = arms.get(row["arm"], next(iter(arms.values())))["config"][row["task"]]
    return "table" if settings["policy.kind"] == "table" else Path(settings["policy.model"]).name


def overview(stored: Sequence[Stored]) -> list[str]:
    """Every study with its question, its runs and how many of its claims have which verdict."""
    rows = []
    for one in stored:
        measured = [row["result"] for row in one.results["statistics"] if row["n"]]
        counts = {result: measured.count(result) for result in RESULT_WORDS}
        counts["without runs"] = len(one.results["statistics"]) - len(measured)
        claims = ", ".join(f"{count} {result}" for result, count in counts.items() if count)
        rows.append([one.link, one.results["question"], str(len(one.results["runs"])), claims])
    return markdown_rows(("study", "question", "runs", "claims"), rows)


def by_chance(stored: Sequence[Stored]) -> str:
    """How many of the intervals are expected to miss the true difference."""
    rows = [row for one in stored for row in one.results["statistics"] if row["low"] is not None]
    claims = len({(row["difference"], row["low"], row["high"]) for row in rows})
    return (
        f"A 95 % interval misses the true difference once in twenty: of these {claims} intervals about "
        f"{round(0.05 * claims)} do, by chance alone. No verdict is corrected for that."
    )


def page(one: Stored, figures: Sequence[str]) -> str:
    """The page of a study: claims, tables, figures, minutes and command.

    Args:
        one: The results.
        figures: Lines with the figures, a heading of the second level before each.
    """
    runs = one.results["runs"]
    hours = sum(run["seconds"] for run in runs) / 3600
    file = STUDIES / f"{one.file.stem}.yaml"
    command = f"cory study {file.relative_to(ROOT)}" if file.exists() else one.results["command"]
    missing = missing_runs(one, file) if file.exists() else []
    rest = f" `{command}` trains {len(missing)} more: {runs_in_words(missing)}." if missing else ""
    return markdown(one.results, figures=figures) + f"\n{len(runs)} runs, {hours:.1f} hours in all.{rest}\n"


def missing_runs(one: Stored, file: Path) -> list[PlannedRun]:
    """The runs of a study file that are not in the results."""
    stored = {(run["arm"], run["task"], run["seed"]) for run in one.results["runs"]}
    return [run for run in make_plan(read_spec(file)).runs if (run.arm, run.task, run.seed) not in stored]


def runs_in_words(runs: Sequence[PlannedRun]) -> str:
    """Arms by task, with their number of seeds."""
    seeds: dict[str, dict[str, int]] = {}
    for run in runs:
        by_arm = seeds.setdefault(run.task, {})
        by_arm[run.arm] = by_arm.get(run.arm, 0) + 1
    return "; ".join(
        f"on {task} {', '.join(f'{arm} ({n})' for arm, n in by_arm.items())}"
        for task, by_arm in seeds.items()
    )


def _write_page(one: Stored, pages: Path) -> Path:
    """Write a study's page and its figures; figures it no longer has are removed."""
    plots = draw(one.results, pages / one.name)
    if one.name == NOISE:
        worth = ("influence", "What the other's score is worth", WORTH, draw_worth)
        plots = [*draw_kinds([worth], one, pages / one.name), *plots]
    for plot in plots:
        reduce_colours(plot.path)
    figures = [
        line
        for plot in plots
        for line in (
            f"## {plot.title}",
            "",
            f"![{plot.title}]({one.name}/{plot.path.name})",
            "",
        )
    ]
    path = pages / f"{one.name}.md"
    write_text(path, page(one, figures))
    return path


def draw_worth(one: Stored) -> Figure | None:
    """What the sum gains over its noise, over the pioneer's influence: a point for each task and model."""
    figure = Figure(figsize=(5.4, 3.4), layout="constrained")
    axes = figure.subplots()
    for stem, shares in read_json(INFLUENCE).items():
        results = study_results.load(one.file.with_name(f"{stem}.json")) or {"statistics": ()}
        for row in results["statistics"]:
            if row["baseline"] == SHUFFLED and row["low"] is not None and row["task"] in shares:
                share, left, right = (shares[row["task"]][key] for key in ("value", "low", "high"))
                gain, low, high = (row[key] / row["margin"] for key in ("difference", "low", "high"))
                across, up = [[share - left], [right - share]], [[gain - low], [high - gain]]
                name = f"{row['task']}, {model_of(results, row)}"
                axes.errorbar(share, gain, up, across, fmt="o", capsize=2, label=name)
    axes.axhline(0, color="0.3", linewidth=0.8)
    axes.axhline(1, color="0.3", linestyle=":")
    axes.set_xlabel("pioneer's share of the observer's variance")
    axes.set_ylabel("sum - shuffled, in margins")
    if not axes.containers:
        return None
    axes.legend(loc="center")
    return figure


def reduce_colours(path: Path) -> None:
    """Write a PNG of lines and areas again with 128 colours, a third of its size.

    The colours are those of most pixels (median cut, then k-means), so that light areas keep their hue.
    """
    with Image.open(path) as drawn:
        whole = drawn.convert("RGB")
    reduced = whole.quantize(128, Image.Quantize.MEDIANCUT, kmeans=1, dither=Image.Dither.NONE)
    reduced.save(path, optimize=True)


if __name__ == "__main__":
    for written in write_pages(RESULTS, PAGES, STUDIES):
        print(written)
