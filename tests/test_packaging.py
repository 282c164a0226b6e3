"""The wheel: its files, the licenses it names, and that it shares an environment with a package `agents`."""

import email
import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("hatchling", reason="needs hatchling (extra `test`)")

ROOT = Path(__file__).parents[1]
LICENSES = {"apache-2.0": "Apache-2.0", "imdb-research-use": "LicenseRef-imdb-research-use"}
"""License of a model card -> what the metadata of the wheel call it."""

POCKET_MODELS = {"lm", "judge", "second_judge", "smollm2_judge", "arithmetic_lm", "arithmetic_llama"}
OTHER_AGENTS = {
    "agents/__init__.py": "from agents.agent import Agent\n",
    "agents/agent.py": "class Agent:\n    pass\n",
    "agents/run.py": "class Runner:\n    pass\n",
    "other_agents-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: other-agents\nVersion: 1.0\n",
    "other_agents-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
"""A distribution whose import package is `agents`, as that of OpenAI's Agents SDK is."""

IMPORT_BOTH = """
import sys
from pathlib import Path

import agents
import cory
import cory_env
import cory.pocket
from agents import Agent
from agents.run import Runner

site = Path(sys.argv[1])
for module in (agents, cory, cory_env, cory.pocket):
    assert Path(module.__file__).is_relative_to(site), module.__file__
assert not hasattr(agents, "cory")
assert (cory.pocket.LM / "model.safetensors").is_file()
env = cory_env.env("echo")
env.reset(seed=0)
print(cory.__version__)
"""


def run(*command: str | Path, site: Path | None = None) -> str:
    """Run Python in a process of its own; what it printed. `site` comes before every installed package."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    env |= {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"} if site else {}
    result = subprocess.run(
        [sys.executable, *command], cwd=site or ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ours")
    run("-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def other_wheel(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("theirs") / "other_agents-1.0-py3-none-any.whl"
    record = "other_agents-1.0.dist-info/RECORD"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in OTHER_AGENTS.items():
            archive.writestr(name, text)
        archive.writestr(record, "".join(f"{name},,\n" for name in [*OTHER_AGENTS, record]))
    return path


@pytest.fixture(scope="module")
def names(wheel) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def metadata(wheel, names):
    [path] = [name for name in names if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(zipfile.ZipFile(wheel).read(path))


def test_wheel_holds_cory_and_cory_env_and_no_agents(names):
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"cory", "cory_env"}
    assert {"cory/py.typed", "cory_env/py.typed"} <= names


@pytest.mark.parametrize("model", sorted(POCKET_MODELS))
def test_wheel_holds_weights_and_card_of_pocket_model(names, model):
    assert {
        f"cory/pocket/{model}/{file}" for file in ("model.safetensors", "config.json", "README.md")
    } <= names
    assert any(name.endswith(f".dist-info/licenses/agents/cory/pocket/{model}/README.md") for name in names)


def test_wheel_holds_no_training_scripts_and_no_tests(names):
    scripts = {name for name in names if name.startswith("cory/pocket/") and name.endswith(".py")}
    assert scripts == {"cory/pocket/__init__.py"}
    assert not {name for name in names if {"tests", "examples", "benchmarks"} & set(name.split("/"))}


def test_metadata_name_the_license_of_the_code_and_of_every_pocket_model(metadata):
    cards = {path.parent.name: path for path in (ROOT / "agents/cory/pocket").glob("*/README.md")}
    assert set(cards) == POCKET_MODELS
    named = set(metadata["License-Expression"].split(" AND "))
    for path in cards.values():
        fields = dict(
            line.split(": ", 1) for line in path.read_text("utf-8").splitlines()[1:10] if ": " in line
        )
        license_name = fields.get("license_name", fields["license"])
        assert LICENSES[license_name] in named, f"{path} is under {license_name}"
    assert named == set(LICENSES.values())
    files = {"LICENSE", *(f"agents/cory/pocket/{model}/README.md" for model in POCKET_MODELS)}
    assert set(metadata.get_all("License-File")) == files


def test_metadata_ask_for_what_the_code_imports_and_for_no_unused_package(metadata):
    required = {re.match(r"[\w.-]+", line)[0] for line in metadata.get_all("Requires-Dist")}
    assert {"torch", "transformers", "pettingzoo", "stable-baselines3", "pandas", "psutil"} <= required
    always = {
        re.match(r"[\w.-]+", line)[0] for line in metadata.get_all("Requires-Dist") if "extra" not in line
    }
    assert not {"accelerate", "wandb", "trackio", "mlflow-skinny"} & always


@pytest.mark.parametrize("order", ["ours first", "theirs first"])
def test_wheel_and_another_package_agents_work_in_one_environment(wheel, other_wheel, order, tmp_path):
    pytest.importorskip("pip", reason="needs pip")
    site = tmp_path / "site"
    wheels = [wheel, other_wheel] if order == "ours first" else [other_wheel, wheel]
    for path in wheels:
        run("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile", "--target", site, path)
    version = run("-c", IMPORT_BOTH, site, site=site).strip()
    found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions(path=[str(site)])}
    assert found == {"cory": version, "other-agents": "1.0"}
