"""Two processes train as one does: tokens, gradients, metrics, runs and their ends."""

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cory.config.schema import Config
from cory.distributed import ranks
from cory.evaluation.records import best_of
from cory.runtime import signals
from cory.runtime.memory import BYTES_PER_LOGIT
from cory.tracking.tracker import read, read_lines
from cory.training import checkpoint
from cory.training.run import train
from cory.training.trainer import Trainer
from tests.helpers.models import save_backbone
from tests.helpers.once import once
from tests.helpers.ranked_runs import CASES, MODEL_RUN, RUN, config_of, played
from tests.helpers.runs import same, traces, without_report
from tests.helpers.sockets import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
RANKS = 2
SHARDED = [case for case, settings in CASES.items() if settings.get("shard")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What the two ranks left, beside what one process does."""
    return once(tmp_path_factory, "ranks", run_all)


@pytest.fixture(scope="module")
def found(folder) -> SimpleNamespace:
    """Results of one process and of the two ranks."""
    names = {"one": "one.pt", "first": "rank-0.pt", "second": "rank-1.pt"}
    return SimpleNamespace(
        **{name: torch.load(folder / file, weights_only=False) for name, file in names.items()}
    )


def run_all(folder: Path) -> None:
    """Start the ranks; meanwhile do the same in this process."""
    folder.mkdir()
    save_backbone("gpt2", folder / "gpt2")
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        config = config_of(folder, RUN)
        train(Config.from_flat({"iterations": 2}, config), folder / "from-one", quiet=True)
        model = config_of(folder, MODEL_RUN)
        train(Config.from_flat({"iterations": 1}, model), folder / "model-from-one", quiet=True)
        port = free_port()
        processes = [start_rank(folder, rank, port) for rank in range(RANKS)]
        train(config, folder / "alone", quiet=True)
        train(model, folder / "model-alone", quiet=True)
    whole = {"shard": False}
    alone = {
        case: played(config_of(folder, settings | whole if case in SHARDED else settings))
        for case, settings in CASES.items()
    }
    torch.save(alone, folder / "one.pt")
    for rank, process in enumerate(processes):
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, f"rank {rank}: {output}"


def start_rank(folder: Path, rank: int, port: int) -> subprocess.Popen:
    """One process of two, as torchrun starts it."""
    launched = {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "tests.helpers.ranked_runs", str(folder)],
        cwd=ROOT,
        env=os.environ | launched,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def assert_close(one: dict[str, float], other: dict[str, float], tolerance: float) -> None:
    """The same metrics but for seconds; figures that only rounding makes are at most 1e-5."""
    assert one.keys() == other.keys()
    apart = {
        key: (value, other[key])
        for key, value in one.items()
        if not key.startswith(("time/", "speed/"))
        and not np.isclose(value, other[key], rtol=tolerance, atol=tolerance, equal_nan=True)
    }
    assert apart == {}


def assert_near(run: Path, other: Path, *, iterations: int, tolerance: float) -> None:
    """The same tensors in the last checkpoints of two runs, within the tolerance."""
    got, want = (traces(one, iterations)["tensors"] for one in (run, other))
    assert got.keys() == want.keys()
    for file, tensors in want.items():
        assert got[file].keys() == tensors.keys()
        for key, tensor in tensors.items():
            torch.testing.assert_close(got[file][key], tensor, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_sample_the_tokens_of_one_process(found, case):
    one, two = found.one[case], found.first["cases"][case]
    for (got_BT, got_B), (want_BT, want_B) in zip(two["responses"], one["responses"], strict=True):
        assert torch.equal(got_B, want_B)
        assert torch.equal(got_BT, want_BT)
    assert {name: ids for name, (ids, _) in two["evaluated"].items()} == {
        name: ids for name, (ids, _) in one["evaluated"].items()
    }


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_have_the_first_gradients_and_the_metrics_of_one_process(found, case):
    one, two = found.one[case], found.first["cases"][case]
    assert two["gradients"].keys() == one["gradients"].keys()
    got, want = (torch.cat([g.flatten() for g in ranked["gradients"].values()]) for ranked in (two, one))
    assert want.norm() > 1e-4
    assert (got - want).norm() / want.norm() < 1e-6
    for got, want in zip(two["metrics"], one["metrics"], strict=True):
        assert_close(got, want, 1e-5)
    for name, (_, arrays) in one["evaluated"].items():
        for quantity, values in arrays.items():
            np.testing.assert_allclose(two["evaluated"][name][1][quantity], values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_both_ranks_hold_the_same_bits(found, case):
    first, second = (ranked["cases"][case] for ranked in (found.first, found.second))
    assert all(torch.equal(weight, second["weights"][name]) for name, weight in first["weights"].items())
    assert first["weights"].keys() == second["weights"].keys()


@pytest.mark.parametrize("case", SHARDED)
def test_each_rank_holds_its_part_of_the_layers(found, case):
    """A layer of GPT-2: 12 width^2 weights and 13 width of norms and biases."""
    first, second = (ranked["cases"][case]["held"] for ranked in (found.first, found.second))
    width, layers = 32, 2
    shared = layers * (12 * width**2 + 13 * width)
    assert sum(first) + sum(second) == shared
    assert abs(sum(first) - shared / 2) <= 64
    assert found.one[case]["held"] == []


def test_sharded_ranks_resume_what_one_process_saved_and_the_reverse(folder, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        train(config_of(folder, MODEL_RUN), folder / "model-to-resume", resume="must", quiet=True)
    for name in ("model-from-one", "model-to-resume"):
        assert_near(folder / name, folder / "model-alone", iterations=2, tolerance=1e-3)
    assert (folder / "model-from-one/policies/llm_1/model.safetensors").exists()


def test_shards_need_several_processes():
    with pytest.raises(ValueError, match=r"--shard shares weights out among processes .* torchrun"):
        Trainer(Config(shard=True))


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"policy.kind": "table"}, "policy.kind table"),
        ({"algorithm": "trpo"}, "algorithm trpo, which updates by itself"),
        ({"learner.optimizer": "adam8bit"}, "learner.optimizer adam8bit"),
        ({"learner.elastic_reset": 2}, "learner.elastic_reset"),
        ({"learner.ema": 0.9}, "learner.ema"),
        ({"policy.kind": "lora_team", "lora.four_bit": "yes"}, "lora.four_bit yes"),
    ],
)
def test_shards_refuse_settings_that_need_whole_weights(settings, what):
    with pytest.raises(ValueError, match=f"--shard does not go with {what}"):
        Config.from_flat({"shard": True} | settings, Config())


def test_memory_that_runs_out_on_one_rank_makes_passes_smaller_on_all(found):
    case = "memory runs out on one of the ranks"
    first, second = (ranked["cases"][case]["memory"] for ranked in (found.first, found.second))
    assert first == second
    assert first[0] // BYTES_PER_LOGIT < 5 * 100 < found.one[case]["memory"][0] // BYTES_PER_LOGIT


def test_a_run_of_two_ranks_leaves_what_a_run_of_one_process_does(folder):
    alone, two = folder / "alone", folder / "whole"
    files, wanted = (
        {path.relative_to(run) for path in run.rglob("*") if "tfevents" not in path.name}
        for run in (two, alone)
    )
    assert files == wanted
    assert read_lines(two / "samples.jsonl") == read_lines(alone / "samples.jsonl")
    for got, want in zip(read(two), read(alone), strict=True):
        assert_close(got, want, 1e-5)


def test_ranks_of_machines_without_a_common_disk_train_and_keep_the_best_checkpoint(folder):
    run, other = folder / "disk-0/run", folder / "disk-1"
    assert [path.name for path in other.rglob("*")] == ["settings.yaml"]
    assert (run / "policies/llm_1").is_dir()
    keys = [f"validation/llm_{i}/combined_reward" for i in (1, 2)]
    scores = [sum(row[key] for key in keys) / 2 for row in read(run) if keys[0] in row]
    best = best_of(run)
    assert len(scores) == 5
    assert best["score"] == pytest.approx(max(scores))
    assert best["iteration"] == np.argmax(scores) > 0


def test_a_run_that_two_ranks_resume_is_bit_equal(folder):
    assert same(traces(folder / "half", 4), traces(folder / "whole", 4))


def test_two_ranks_resume_what_one_process_saved_and_the_reverse(folder, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        train(config_of(folder, RUN), folder / "to-resume", resume="must", quiet=True)
    for name in ("from-one", "to-resume"):
        assert_near(folder / name, folder / "alone", iterations=4, tolerance=1e-4)


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("unlike settings", "ValueError: settings differ between ranks 0 and 1: seed is 0 and 1"),
        ("fewer games than ranks", "ValueError: a batch of 1 games cannot be shared by 2 processes"),
        ("a judge that fails on one rank", "ValueError: rank 1: the judge has no answer"),
        ("a judge that fails on one sharded rank", "ValueError: rank 1: the judge has no answer"),
        ("a signal to one rank", "Stopped: stopped by SIGTERM"),
        (
            "other weights on one rank",
            "RuntimeError: iteration 2: policy 'llm_1' differs between ranks",
        ),
        ("an occupied folder", "ValueError: the run directory"),
        ("ranks at other places", "RuntimeError: rank 0 is at 'here' and rank 1 at 'there'"),
    ],
)
def test_error_of_a_rank_ends_all_ranks_with_the_same_error(found, what, error):
    first, second = (ranked["failures"][what] for ranked in (found.first, found.second))
    assert first.startswith(error)
    assert second.partition(":")[0] == first.partition(":")[0]


@pytest.mark.parametrize(("run", "iteration"), [("judged", 1), ("sharded-judged", 1), ("signalled", 3)])
def test_the_run_is_saved_where_its_ranks_were_stopped(folder, run, iteration):
    assert checkpoint.finished(folder / run)[-1] == checkpoint.folder_of(folder / run, iteration)
    checkpoint.verify(checkpoint.folder_of(folder / run, iteration))


class LockError(ValueError):
    """An error that cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class CheckError(ArithmeticError):
    """An error that holds a function of its own."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.check = lambda: text


class StatusError(OSError):
    """An error that is not made from its text alone."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (LockError("no answer"), ValueError, "LockError: no answer"),
        (StatusError("no answer", status=503), OSError, "StatusError: no answer"),
        (CheckError("no answer"), ArithmeticError, "CheckError: no answer"),
        (KeyError(("a", "b")), KeyError, "('a', 'b')"),
        (signals.Stopped(15), signals.Stopped, "stopped by SIGTERM"),
    ],
)
def test_an_error_that_cannot_be_sent_reaches_the_others_as_text_of_its_kind(error, kind, text):
    sent = pickle.loads(pickle.dumps(ranks._portable(error)))
    assert type(sent) is kind
    assert str(sent) == text


def test_an_environment_that_names_several_processes_and_no_meeting_place_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        ValueError, match="WORLD_SIZE is 2 and there is no RANK, MASTER_ADDR, MASTER_PORT; start"
    ):
        ranks.join()


def test_one_process_is_rank_0_of_1_and_has_all_rows():
    assert (ranks.rank(), ranks.count(), ranks.is_main_process()) == (0, 1, True)
    assert list(range(5))[ranks.share(5)] == list(range(5))
    assert ranks.gather_results("here", lambda: 3) == [3]


def test_a_changed_bit_and_a_changed_type_change_a_checksum():
    tensor = torch.arange(5.0)
    changed_bit = tensor.clone()
    changed_bit.view(torch.int32)[3] ^= 1
    assert ranks.checksums([tensor, changed_bit]) != ranks.checksums([tensor, tensor])
    assert ranks.checksums([tensor]) == ranks.checksums([tensor.clone()])
