"""The README and CONTRIBUTING must not promise what is not there."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from cory.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def blocks(kind: str) -> list[tuple[str, int, str]]:
    """(page, line, code) of every fenced block opened with exactly this word."""
    return [
        (page.name, page.read_text("utf-8")[: found.start()].count("\n") + 1, found[1])
        for page in PAGES
        for found in re.finditer(rf"^```{kind}\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    ]


def commands() -> list[list[str]]:
    lines = [line for _, _, code in blocks("bash") for line in code.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize(("page", "line", "code"), blocks("python"), ids=lambda value: str(value)[:12])
def test_python_block_runs(page, line, code):
    exec(compile("\n" * line + code, page, "exec"), {})  # the padding makes an error name the page's line


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {words[1] for words in commands() if words[0] == "make"}
    assert named
    assert named <= targets


def test_every_command_shown_is_one_we_install_or_a_common_tool():
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {words[0] for words in commands()} <= {
        "make",
        "git",
        ".venv/bin/python",
        ".venv/bin/pre-commit",
        *ours,
    }


@pytest.mark.parametrize(
    "words", [w for w in commands() if w[:2] == ["cory", "train"] and "--help" not in w], ids=" ".join
)
def test_train_options_are_accepted(words, monkeypatch):
    asked = []
    monkeypatch.setattr("cory.training.run.train", lambda config, run: asked.append(config))
    assert main.main(words[1:]) == 0
    assert len(asked) == 1


def test_other_commands_are_known():
    known = set(re.findall(r"^  ([a-z]+) ", main.USAGE, re.M))
    assert {words[1] for words in commands() if words[0] == "cory"} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_paths_in_the_text_lead_somewhere(page):
    text = page.read_text("utf-8")
    links = [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]
    quoted = re.findall(r"`((?:agents|cory_env|tests|benchmarks)/[\w./]*)`", text)
    missing = [name for name in links + quoted if not (ROOT / name).exists()]
    assert not missing, f"{page.name} names {missing}"
