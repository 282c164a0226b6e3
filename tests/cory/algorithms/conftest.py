"""Fixtures that install distributions with algorithms of their own."""

import shutil
import tomllib
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[3] / "examples/plugins"


def install(folder: Path, site: Path) -> None:
    """Copy the modules of the project in `folder` and write its metadata, as pip does."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    for module in folder.glob("*.py"):
        shutil.copy(module, site)
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = [
        line
        for group, entries in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {where}" for name, where in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture(scope="session")
def plugins() -> Path:
    """The folder of the example plug-ins."""
    return PLUGINS


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """Both packages of examples/plugins, installed."""
    for folder in (PLUGINS / "cory_vdac_sum", PLUGINS / "cory_ppo_again"):
        install(folder, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
