"""Who may import whom (DESIGN section 3). This test is the only enforcer of the map."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GAME = {"numpy", "gymnasium", "pettingzoo", "cory_env"}
GAME_INSIDE_FUNCTIONS = {"tokenizers", "datasets", "pyarrow"}
MATHS = ("kl", "rewards", "advantage", "learner", "algorithms", "batch", "exchange")
NEVER = {
    **{f"agents.{name}": {"cory_env", "transformers", "peft"} for name in MATHS},
    "cory.rollout.role_exchange": {"cory_env", "transformers", "peft", "torch"},
    "cory.policies": {"cory_env"},
    "cory.generation.sampling": {"cory_env"},
    "cory.tracking.tracker": {"cory_env", "transformers"},
    "cory.report.page": {"cory_env", "transformers"},
}
"""What a module must not know, neither itself nor through a module of ours that it imports."""


def source_of(module: str) -> Path | None:
    """The file of one of our modules; None for a library or for a name inside a module."""
    path = ROOT.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def imported(tree: ast.AST) -> set[str]:
    """Dotted names a syntax tree imports; `from a import b` counts as `a` and as `a.b`."""
    nodes = list(ast.walk(tree))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    assert not [node.lineno for node in froms if node.level], "relative imports hide who knows whom"
    return plain.union(*({f.module, *(f"{f.module}.{alias.name}" for alias in f.names)} for f in froms))


def known_to(module: str) -> set[str]:
    """Everything `module` (a file, or all files of a folder) imports, followed through our own modules."""
    path = source_of(module)
    files = sorted(path.parent.rglob("*.py")) if path and path.name == "__init__.py" else [path]
    waiting, seen, names = [f for f in files if f], set(), set()
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            found = imported(ast.parse(path.read_text(encoding="utf-8")))
            names |= found
            waiting += [source for name in found if (source := source_of(name))]
    return names


def tops(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("module", NEVER)
def test_module_does_not_know_what_it_must_not(module):
    assert source_of(module), f"{module} is in the import table but not in the project"
    assert not tops(known_to(module)) & NEVER[module]


@pytest.mark.parametrize("path", sorted((ROOT / "cory_env").rglob("*.py")), ids=lambda p: p.stem)
def test_game_imports_numpy_gymnasium_pettingzoo_only(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    lazy = tops(set().union(*(imported(function) for function in inside)))
    everywhere = tops(imported(tree))
    assert everywhere <= set(sys.stdlib_module_names) | GAME | GAME_INSIDE_FUNCTIONS
    assert not (everywhere - lazy) & GAME_INSIDE_FUNCTIONS, "import it inside the function that needs it"


ALONE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "transformers", "tokenizers", "datasets", "pyarrow", "agents"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from cory_env import cory_v0
env = cory_v0.env("echo")
env.reset(seed=0)
for seat in env.agent_iter(100):
    done = env.terminations[seat]
    env.step(None if done else int(env.action_space(seat).sample()))
assert not env.agents
"""


def test_game_is_played_where_only_numpy_gymnasium_and_pettingzoo_are_installed():
    got = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert got.returncode == 0, got.stderr
