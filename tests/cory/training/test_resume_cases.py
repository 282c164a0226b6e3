"""N iterations equal k iterations, another process, and N - k iterations, bit for bit.

For every kind of policy and two algorithms, with k in an epoch and after an exchange; for PPO also at an
epoch's end and before an exchange.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.utils.tensorboard  # imported once, not by every child
import yaml
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from cory.cli.main import main
from cory.config.command_line import parse_settings
from cory.config.schema import Config
from cory.training import checkpoint
from cory_env.tasks.echo import Task as Echo
from tests.helpers.faults import end, fork
from tests.helpers.runs import same, traces, without_report, write_manifest

pytestmark = pytest.mark.slow

N = 6
CUTS = {
    "in the middle of an epoch": 1,
    "at the end of an epoch": 3,
    "right before an exchange": 4,
    "right after an exchange": 5,
}
"""Four queries an iteration of twelve: an epoch is three. Seats are exchanged as iteration 4 begins."""

COMMON = (
    *("--exchange.every", "4", "--checkpoint-every", "1", "--keep-checkpoints", "9"),
    *("--evaluation.queries", "4", "--evaluation.every", "2", "--kl.target", "1"),
    *("--payoff-scaling.scaling", "normalise", "--learner.warmup", "3", "--learner.decay", "cosine"),
    *("--policy.device", "cpu", "--policy.precision", "float32", "--threads", "1", "--iterations", str(N)),
)
POLICIES = {
    "table": (
        *("--task", f"{__name__}:Twelve", "--max-response", "1", "3"),
        *("--learner.lr", "0.1", "--payoff", "0.5"),
    ),
    "causal_lm": ("--policy.model", "{tiny}", "--task.data", "{data}", "--max-response", "2", "4"),
    "lora_team": ("--policy.model", "{tiny}", "--task.data", "{data}", "--max-response", "2", "4"),
}
ALGORITHMS = {
    "ppo": ("--batch", "4", "--algorithm.epochs", "2", "--learner.minibatch", "2"),
    "grpo": ("--batch", "8", "--algorithm.group", "2"),
}
RUNS = [(kind, algorithm) for kind in POLICIES for algorithm in ALGORITHMS]


class Twelve(Echo):
    """echo with twelve train queries."""

    def queries(self, split):
        """The first twelve of them."""
        return super().queries(split)[:12]


@pytest.fixture(scope="module", autouse=True)
def quick_starts():
    """Runs without report; the parser's types are looked up once, here, and not by every child."""
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        parse_settings(COMMON, default=Config(), command="")
        yield


def train_in_new_process(folder: Path, *argv: str) -> None:
    """Run `cory train` in a forked process."""
    code, _ = end(fork(lambda: main(["train", *argv]), folder / "log"))
    assert code == 0, (folder / "log").read_text()


@dataclass(frozen=True)
class Whole:
    """A run that was not interrupted, with a checkpoint of every iteration."""

    run: Path
    traces: dict

    def cut(self, at: int, run: Path, harm: "Harm" = lambda folder, first: None) -> dict:
        """The traces of a run stopped after `at` iterations, harmed, and resumed by another process.

        Rows that the first process logged from there on are marked, which shows if they stay.
        """
        folder, first = checkpoint.folder_of(run, at), checkpoint.folder_of(self.run, 1)
        shutil.copytree(checkpoint.folder_of(self.run, at), folder)
        shutil.copy(self.run / "config.yaml", run)
        for name in ("metrics.jsonl", "samples.jsonl"):
            rows = [json.loads(line) for line in (self.run / name).read_text().splitlines()]
            marked = [row | {"a/b/spoiled": 1.0} if row["iteration"] >= at else row for row in rows]
            (run / name).write_text("".join(json.dumps(row) + "\n" for row in marked))
        harm(folder, first)
        write_manifest(folder)
        train_in_new_process(run.parent, "--run", str(run), "--resume", "must", "--checkpoint-every", str(N))
        left = traces(run, N)
        shutil.rmtree(run)
        return left


Harm = Callable[[Path, Path], object]
"""Changes a checkpoint, given its folder and that of iteration 1."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory, tiny_folder) -> Callable[[str, str], Whole]:
    """Runs by kind of policy and algorithm, each made once."""
    data, tiny = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("one-layer")
    AutoTokenizer.from_pretrained(tiny_folder).save_pretrained(tiny)
    torch.manual_seed(0)
    GPT2LMHeadModel(GPT2Config.from_pretrained(tiny_folder, n_layer=1)).save_pretrained(tiny)
    for split, count in (("train", 12), ("test", 4)):
        rows = [{"text": f"{n} out of ten in the {split} set, I thought"} for n in range(count)]
        (data / f"{split}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))

    @cache
    def made(kind: str, algorithm: str) -> Whole:
        folder = tmp_path_factory.mktemp("whole")
        run = folder / "run"
        own = (word.replace("{data}", str(data)).replace("{tiny}", str(tiny)) for word in POLICIES[kind])
        argv = (*COMMON, *own, "--policy.kind", kind, "--algorithm", algorithm, *ALGORITHMS[algorithm])
        train_in_new_process(folder, *argv, "--run", str(run))
        return Whole(run, traces(run, N))

    return made


@pytest.mark.parametrize(
    ("kind", "algorithm", "cut"),
    [
        (kind, algorithm, cut)
        for kind, algorithm in RUNS
        for cut in CUTS
        if algorithm == "ppo" or cut in ("in the middle of an epoch", "right after an exchange")
    ],
)
def test_a_run_that_was_cut_is_the_run_that_was_not(whole, tmp_path, kind, algorithm, cut):
    one = whole(kind, algorithm)
    assert same(one.cut(CUTS[cut], tmp_path / "run"), one.traces)


@pytest.mark.parametrize(("kind", "algorithm"), RUNS)
def test_the_runs_that_are_compared_learn(whole, kind, algorithm):
    """Every tensor file has changed between iteration 1 and the end; a frozen backbone is in none of them."""
    one = whole(kind, algorithm)
    first, last = (one.run / "checkpoints" / f"step-{n:06d}" for n in (1, N))
    names = [name for name in one.traces["tensors"] if "critic" not in name]
    assert len(names) >= 4
    for name in names:
        unused = algorithm == "grpo" and name.endswith("value_head.safetensors")
        assert ((first / name).read_bytes() == (last / name).read_bytes()) == unused, name


def older(name: str) -> Harm:
    """Replace one file by that of iteration 1."""
    return lambda folder, first: shutil.copy(first / name, folder / name)


def setting(name: str, value: object) -> Harm:
    """Change one setting, in the run's config.yaml and in the checkpoint's."""

    def harm(folder: Path, first: Path) -> None:
        for path in (folder.parents[1] / "config.yaml", folder / "config.yaml"):
            settings = yaml.safe_load(path.read_text())
            assert settings[name] != value
            path.write_text(yaml.safe_dump(settings | {name: value}, sort_keys=False))

    return harm


def state(change: Callable[[dict, dict], object]) -> Harm:
    """Change the state beside the tensors; `change` gets it and that of iteration 1."""

    def harm(folder: Path, first: Path) -> None:
        path = folder / "trainer_state.json"
        now, before = (json.loads((at / "trainer_state.json").read_text()) for at in (folder, first))
        unchanged = json.dumps(now)
        change(now, before)
        assert json.dumps(now) != unchanged
        path.write_text(json.dumps(now))

    return harm


def swap_policies(now: dict, before: dict) -> None:
    """Exchange the states of two policies."""
    learners = now["learners"]
    learners["llm_1"], learners["llm_2"] = learners["llm_2"], learners["llm_1"]


LOST = {
    "adapter": ("lora_team", older("llm_1/adapter_model.safetensors")),
    "value head of an adapter": ("lora_team", older("llm_2/value_head.safetensors")),
    "optimizer of an adapter": ("lora_team", older("optimizer_llm_1.safetensors")),
    "weights": ("causal_lm", older("llm_2/model.safetensors")),
    "value head": ("causal_lm", older("llm_1/value_head.safetensors")),
    "optimizer": ("causal_lm", older("optimizer_llm_2.safetensors")),
    "data position": ("table", state(lambda now, before: now.update(iteration=2))),
    "KL coefficients": (
        "table",
        state(lambda now, before: now["learners"]["llm_2"].update(kl_coef=0.2)),
    ),
    "payoff statistics": (
        "table",
        state(
            lambda now, before: now["learners"]["llm_2"].update(
                moments=before["learners"]["llm_2"]["moments"]
            )
        ),
    ),
    "names of policies": ("table", state(swap_policies)),
    "keys of the randomness": ("table", setting("seed", 1)),
    "seating": ("table", setting("exchange.every", 5)),
    "schedule": ("table", setting("learner.decay", "linear")),
    "configuration": ("table", setting("kl.coef", 0.3)),
}
"""Parts of the state that are left out at iteration 3, one at a time.

A running baseline and a central critic: `tests/faults/test_parts.py`.
"""


@pytest.mark.parametrize("lost", LOST)
def test_without_one_part_it_is_not_the_run_that_was_not_cut(whole, tmp_path, lost):
    kind, harm = LOST[lost]
    one = whole(kind, "ppo")
    assert not same(one.cut(3, tmp_path / "run", harm), one.traces)
