"""The site: pages and contents agree, links out of docs/ lead somewhere, nothing is loaded from elsewhere."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def load(path: Path) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def extensions():
    pytest.importorskip("sphinx", reason="needs the `docs` extra")
    return lambda name: load(DOCS / f"_extensions/{name}.py")


def test_every_page_is_in_the_table_of_contents():
    text = (DOCS / "index.md").read_text("utf-8")
    listed = set()
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.M | re.S):
        for line in (line for line in block.splitlines() if line and not line.startswith(":")):
            name = line.rpartition("<")[2].rstrip(">")
            found = {path for end in (".md", ".ipynb") for path in DOCS.glob(name + end)}
            assert found, f"index.md lists {name}"
            listed |= found
    pages = {path for end in ("md", "ipynb") for path in DOCS.rglob(f"*.{end}")} - {DOCS / "index.md"}
    assert pages - listed == set()


@pytest.mark.parametrize(
    ("html", "address"),
    [
        ('<script src="https://cdn.example/a.js"></script>', "https://cdn.example/a.js"),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', "//fonts.example/a.css"),
        ('<link rel="preconnect" href="https://fonts.example">', "https://fonts.example"),
        ('<img src="http://example/a.png">', "http://example/a.png"),
        ("<style>@import 'https://fonts.example/b.css';</style>", "https://fonts.example/b.css"),
        ('<p style="background: url(https://example/c.png)">', "https://example/c.png"),
        ('<script>import("https://cdn.example/d.js")</script>', "https://cdn.example/d.js"),
        ('<iframe src="https://example/"></iframe>', "https://example/"),
    ],
)
def test_site_check_finds_what_a_page_loads_from_elsewhere(html, address, tmp_path):
    check_site = load(DOCS / "check_site.py")
    (tmp_path / "index.html").write_text(f"<html>{html}</html>", "utf-8")
    assert check_site.remote(tmp_path) == [f"index.html loads {address}"]
    assert check_site.main(tmp_path) == 1


def test_links_and_files_of_the_site_itself_are_no_problem(tmp_path):
    check_site = load(DOCS / "check_site.py")
    page = '<a href="https://arxiv.org">paper</a><link rel="canonical" href="https://x/"><img src="a.png">'
    (tmp_path / "index.html").write_text(page, "utf-8")
    (tmp_path / "a.css").write_text("p { background: url(b.png) }", "utf-8")
    assert check_site.main(tmp_path) == 0
    (tmp_path / "a.css").write_text("@import url(https://fonts.example/b.css);", "utf-8")
    assert check_site.remote(tmp_path) == ["a.css loads https://fonts.example/b.css"]


def test_links_out_of_docs_lead_to_the_repository_or_to_the_page_that_includes_the_file(extensions):
    resolved = extensions("repository_links").resolved
    page = DOCS / "studies/page.md"
    assert resolved("[x](../../CONTRIBUTING.md#a)", page) == "[x](../contributing.md#a)"
    code = "https://github.com/cory-rl/cory/blob/main/agents/cory/rng.py"
    assert resolved("[x](../../agents/cory/rng.py)", page) == f"[x]({code})"
    kept = "![x](../../agents/x.png) [y](../runs.md) [z](https://example.com/a.md)"
    assert resolved(kept, page) == kept
    assert resolved("[docs/runs.md](../runs.md)", page) == "[](../runs.md)"


def test_public_names_without_a_page_or_a_docstring_are_reported(extensions, monkeypatch):
    public_names = extensions("public_names")
    package = ModuleType("package_of_the_test")

    class Thing:
        """Documented."""

        def method(self) -> None: ...

    package.Thing, package.__all__ = Thing, ["Thing"]
    monkeypatch.setitem(sys.modules, "package_of_the_test", package)
    monkeypatch.setattr(public_names, "PACKAGES", ("package_of_the_test",))
    undocumented = "package_of_the_test.Thing.method has no docstring"
    assert list(public_names.missing({"package_of_the_test.Thing"})) == [undocumented]
    assert list(public_names.missing(set())) == ["package_of_the_test.Thing is on no page", undocumented]


def test_docstrings_become_restructured_text(extensions):
    converted = extensions("docstrings").converted
    text = "A `name` and |x|.\n\n    x = 1\n\n| a | b |\nEnd of score_:\n\nArgs:\n    x: A `y`."
    assert converted(text.split("\n")) == [
        *("A ``name`` and \\|x\\|.", "", "", "::", "", "    x = 1", ""),
        *("    | a | b |", "", "End of score\\_:", "", "Args:", "    x: A `y`."),
    ]
