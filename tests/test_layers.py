"""Who may import whom: the contracts of pyproject.toml, and what imports need at run time."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GAME = {"numpy", "gymnasium", "pettingzoo", "cory_env"}
GAME_INSIDE_FUNCTIONS = {"datasets", "pyarrow", "jinja2"}
MATHEMATICS = (
    "cory.algorithms",
    "cory.algorithms.trpo",
    "cory.batch",
    "cory.functional.advantage",
    "cory.functional.kl",
    "cory.functional.token_rewards",
    "cory.learner.learner",
    "cory.rollout.role_exchange",
    "cory.token_loss",
)

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""
"""Python code after which some packages cannot be imported."""

PLAY = """
from cory_env import cory_v0
env = cory_v0.env("echo")
env.reset(seed=0)
for seat in env.agent_iter(100):
    done = env.terminations[seat]
    env.step(None if done else int(env.action_space(seat).sample()))
assert not env.agents
"""


def run_without(absent: set[str], code: str) -> subprocess.CompletedProcess:
    """Run code in a process of its own in which the packages `absent` are not installed."""
    command = [sys.executable, "-c", WITHOUT.format(absent=sorted(absent)) + code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def imported(tree: ast.AST) -> set[str]:
    """The top-level packages that a syntax tree imports."""
    nodes = list(ast.walk(tree))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


def test_contracts_of_import_linter_are_kept():
    pytest.importorskip("importlinter", reason="needs import-linter (extra `test`)")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()"]
    command += ["--no-logo", "--no-cache", "--config", "pyproject.toml"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "cory_env").rglob("*.py")), ids=lambda p: p.stem)
def test_game_imports_numpy_gymnasium_pettingzoo_only(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    lazy = set().union(*(imported(function) for function in inside))
    everywhere = imported(tree)
    assert everywhere <= set(sys.stdlib_module_names) | GAME | GAME_INSIDE_FUNCTIONS
    assert not (everywhere - lazy) & GAME_INSIDE_FUNCTIONS, "import it inside the function that needs it"


def test_game_is_played_where_only_numpy_gymnasium_and_pettingzoo_are_installed():
    absent = {"torch", "transformers", "tokenizers", "datasets", "pyarrow", "pandas", "scipy", "cory"}
    result = run_without(absent, PLAY)
    assert result.returncode == 0, result.stderr


def test_packages_named_absent_cannot_be_imported():
    result = run_without({"numpy"}, PLAY)
    assert "No module named 'numpy'" in result.stderr


@pytest.mark.slow
def test_mathematics_imports_where_transformers_peft_and_the_game_are_absent():
    result = run_without({"transformers", "peft", "cory_env"}, f"import {', '.join(MATHEMATICS)}")
    assert result.returncode == 0, result.stderr


def test_role_exchange_imports_where_torch_is_absent():
    result = run_without({"torch", "transformers", "peft", "cory_env"}, "import cory.rollout.role_exchange")
    assert result.returncode == 0, result.stderr
