"""README, CONTRIBUTING and docs: their code runs, their commands parse, and the paths they name exist."""

import json
import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cory import algorithms
from cory.cli.main import USAGE, main
from cory.config import presets
from cory.evaluation.config import EvaluationConfig
from cory.functional import kl
from cory.judges import parsing
from cory.rollout.role_exchange import ExchangeConfig
from cory_env import tasks

ROOT = Path(__file__).parents[1]
README, PYTHON = ROOT / "README.md", ROOT / "docs/python.md"
CODE_PAGES = [README, *sorted(ROOT.glob("docs/*.md"))]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "tests/golden/README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("agents/cory/pocket/*/README.md")),
]
FOLDERS = ("agents", "benchmarks", "cory_env", "docs", "examples", "tests")


def blocks(kind: str, pages: list[Path] = CODE_PAGES) -> list[tuple[Path, int, str]]:
    """(page, line, code) of every fenced block opened with exactly this word."""
    return [
        (page, text[: found.start()].count("\n") + 1, found[1])
        for page in pages
        for text in [page.read_text("utf-8")]
        for found in re.finditer(rf"^```{kind}\n(.*?)^```$", text, re.M | re.S)
    ]


def commands(pages: list[Path] = CODE_PAGES) -> list[list[str]]:
    lines = [line for _, _, code in blocks("bash", pages) for line in code.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_block(page: Path, line: int, code: str, namespace: dict[str, object]) -> None:
    exec(compile("\n" * line + code, page.name, "exec"), namespace)  # an error names the page's line


@pytest.fixture
def empty_folder(tmp_path, monkeypatch) -> Path:
    """A working directory with the settings files of the pages: ```yaml blocks that begin with their name."""
    for _, _, text in blocks("yaml"):
        (tmp_path / text.split()[1]).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def process(monkeypatch):
    """Undo what a run and registered plug-ins change in this process; draw no plots."""
    before = torch.backends.mkldnn.matmul.fp32_precision
    for registry in (algorithms.registry(), tasks.REGISTRY, parsing.REGISTRY, kl.registry()):
        monkeypatch.setattr(registry, "items", dict(registry.items))
    monkeypatch.setattr("cory.training.run.write_report", write_stub)
    yield
    torch.backends.mkldnn.matmul.fp32_precision = before


def write_stub(run: Path) -> Path:
    """A report without plots."""
    path = run / "report.html"
    path.write_text("", "utf-8")
    return path


@pytest.fixture
def tiny_preset(monkeypatch):
    """The presets `pocket` and `own` with two iterations of four games, an exchange between, few queries."""
    few = EvaluationConfig(queries=2, every=0)
    tiny = {"iterations": 2, "batch": 4, "max_response": (2, 2), "checkpoint_every": 0}
    for name in ("pocket", "own"):
        preset = presets.find(name)
        config = replace(preset.config, evaluation=few, exchange=ExchangeConfig(every=1), **tiny)
        monkeypatch.setitem(presets.PRESETS, name, replace(preset, config=config))
    monkeypatch.setattr("cory.config.own_model.by_shape", lambda config, shape, kind: config)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in CODE_PAGES if blocks("python", [page])], ids=lambda page: page.stem
)
def test_python_blocks_of_a_page_run_one_after_the_other(page, empty_folder, process, tiny_preset):
    found = blocks("python", [page])
    assert found
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in found:
        run_block(*block, namespace)


@pytest.mark.long
def test_the_readmes_training_run_learns_and_its_report_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page, line, code = blocks("python", [README])[0]
    namespace: dict[str, object] = {"__name__": "__main__"}
    run_block(page, line, code, namespace)
    assert namespace["praises"](["Part 1 of the comedy is"], [""]) == [0.0]  # silence is not rewarded
    report = namespace["run"].report.read_text("utf-8")
    assert "Learned: held-out combined reward" in report
    assert 'class="bad"' not in report


@pytest.mark.slow
def test_flags_yaml_and_python_give_the_same_run(empty_folder, process):
    by_flags, by_yaml = [words for words in commands([PYTHON]) if words[:2] == ["cory", "train"]]
    assert main(by_flags[1:]) == 0
    assert main(by_yaml[1:]) == 0
    run_block(*blocks("python", [PYTHON])[0], {})
    rows = {name: metrics_of(empty_folder / "runs" / name) for name in ("flags", "yaml", "python")}
    assert rows["flags"] == rows["yaml"] == rows["python"]
    rewards = [row["eval/llm_1/task_reward"] for row in rows["flags"] if "eval/llm_1/task_reward" in row]
    assert rewards[0] == pytest.approx(0.14, abs=0.02)  # as the page says
    assert rewards[-1] == pytest.approx(0.98, abs=0.02)


def metrics_of(run: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "speed/"))} for row in rows]


def test_readme_is_read_in_a_minute():
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 120
    assert len(text.split()) <= 1000


def test_every_command_shown_is_one_we_install_or_a_common_tool():
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    common = {"make", "git", "pip", "torchrun"}
    assert {words[0] for words in commands()} <= {*common, *ours}


@pytest.mark.parametrize(
    "words",
    [w for w in commands() if w[:2] == ["cory", "train"] and not {"--help", "--help-all"} & set(w)],
    ids=" ".join,
)
def test_train_options_are_accepted(words, monkeypatch, empty_folder):
    configs = []

    def reached(config, run, **options):
        configs.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr("cory.training.run.train", reached)
    assert main(words[1:]) == 130
    assert len(configs) == 1


def test_other_commands_are_known():
    known = set(re.findall(r"^  ([a-z]+) ", USAGE, re.M))
    assert {words[1] for words in commands() if words[0] == "cory"} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_in_the_text_lead_somewhere(page):
    text = page.read_text("utf-8")
    links = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    paths = re.findall(rf"(?<![\w/])((?:{'|'.join(FOLDERS)})/[\w./-]*\w/?)", text)
    modules = [
        name.replace(".", "/") for name in re.findall(r"python -m ((?:benchmarks|examples)[.\w]+)", text)
    ]
    missing = [name for name in links if not (page.parent / name).exists()]
    missing += [name for name in paths if not (ROOT / name).exists()]
    missing += [name for name in modules if not (ROOT / f"{name}.py").exists()]
    assert not missing, f"{page.name} names {missing}"
    anchors = [(page.parent / name if name else page, anchor) for name, anchor in ANCHOR.findall(text)]
    lost = [f"{target.name}#{anchor}" for target, anchor in anchors if anchor not in headings(target)]
    assert not lost, f"{page.name} links to {lost}"


ANCHOR = re.compile(r"\]\(([^)#:]*\.md|)#([^)]+)\)")


def headings(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
