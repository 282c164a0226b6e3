"""One of two ranks is killed, or their launcher is asked to end; the run goes on from its last checkpoint."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from cory.cli.main import main
from cory.config import presets
from cory.config.command_line import parse_settings
from cory.tracking.tracker import read_lines
from cory.training import checkpoint
from tests.helpers.faults import end, fork
from tests.helpers.runs import FLAGS, same, traces, without_report
from tests.helpers.sockets import free_port

RANKS, ITERATIONS, KILLS = 2, 4, 20
ARGV = ["train", *FLAGS, "--keep-checkpoints", "1", "--iterations", str(ITERATIONS)]
STARTING = 0.1
"""Share of a rank's work in which no kill is drawn."""
ROOT = Path(__file__).parents[2]


def start_ranks(folder: Path, *more: str) -> list[int]:
    """Fork the ranks of a run in `folder`; their process ids."""
    port = free_port()

    def rank(number: int) -> int:
        launched = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": RANKS, "MASTER_PORT": port}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in launched.items()}}
        return main([*ARGV, "--run", str(folder / "run"), *more])

    return [fork(lambda n=n: rank(n), folder / f"rank-{n}.log") for n in range(RANKS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    parse_settings(ARGV[1:], default=presets.get("pocket"), command="")  # a child parses faster then
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        yield tmp_path_factory.mktemp("ranks")


@pytest.mark.faults
def test_a_rank_killed_at_any_moment_ends_the_other_and_loses_nothing(folder, tally):
    counts = tally.setdefault("killed: tables, PPO, one of two ranks", Counter())
    ended = [end(child) for child in start_ranks(folder)]
    assert [code for code, _ in ended] == [0] * RANKS, (folder / "rank-0.log").read_text()
    whole, rng = traces(folder / "run", ITERATIONS), random.Random(0)
    shutil.rmtree(folder / "run")
    while counts["times"] < KILLS:
        killed = counts["times"] % RANKS
        children = start_ranks(folder)
        code, _ = end(children[killed], kill_after=rng.uniform(STARTING, 1) * ended[killed][1])
        start = time.monotonic()
        other, _ = end(children[1 - killed])
        assert time.monotonic() - start < 60
        if code == -signal.SIGKILL:
            counts["times"] += 1
            assert other != 0 or (folder / "run" / "policies").exists()
        codes = [end(child)[0] for child in start_ranks(folder, "--resume", "auto")]
        if codes != [0] * RANKS:
            counts["lost runs"] += 1
            print((folder / "rank-0.log").read_text(), (folder / "rank-1.log").read_text())
        elif not same(traces(folder / "run", ITERATIONS), whole):
            counts["corrupted resumes"] += 1
        shutil.rmtree(folder / "run")
    assert counts["times"] == counts.total()


@pytest.mark.faults
def test_a_launcher_that_is_asked_to_end_has_its_ranks_save(tmp_path):
    """torchrun passes SIGTERM on, waits for its processes and reports 1, whatever they end with."""
    run, log = tmp_path / "run", tmp_path / "log"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)),
        *("--master-port", str(free_port()), "-m", "--", "cory.cli", *ARGV, "--iterations", "100000"),
        *("--checkpoint-every", "100000", "--run", str(run)),
    ]
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
    with log.open("w") as file:
        launcher = subprocess.Popen(command, cwd=ROOT, env=os.environ | paths, stdout=file, stderr=file)
        while not (run / "metrics.jsonl").exists() or len(read_lines(run / "metrics.jsonl")) < 3:
            assert launcher.poll() is None, log.read_text()
            time.sleep(0.2)
        launcher.terminate()
        launcher.wait(timeout=60)
    assert log.read_text().count("stopped by SIGTERM; its newest checkpoint is") == 1
    newest = checkpoint.finished(run)[-1]
    checkpoint.verify(newest)
    iteration = int(newest.name.removeprefix("step-"))
    assert iteration >= 2
    assert main([*ARGV, "--iterations", str(iteration + 1), "--run", str(run), "--resume", "must"]) == 0
