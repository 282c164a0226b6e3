"""A training process is killed with SIGKILL; the next one ends as if nothing had happened.

Every kill is followed by a resume that must finish, with the weights, optimizers, metrics and samples of the
run that was not killed, bit for bit.
"""

import json
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import pytest
import torch

from cory.config import presets
from cory.config.command_line import parse_settings
from tests.helpers.faults import PHASES, STAGES, end, start
from tests.helpers.models import save_backbone
from tests.helpers.runs import FLAGS, same, traces, without_report

TABLES = (*FLAGS, "--keep-checkpoints", "1", "--iterations", "4")
SMALL = (
    *("--batch", "4", "--max-response", "2", "3", "--evaluation.queries", "4", "--evaluation.every", "2"),
    *("--exchange.every", "2", "--checkpoint-every", "1", "--keep-checkpoints", "2"),
    *("--threads", "1", "--iterations", "4", "--policy.device", "cpu", "--policy.precision", "float32"),
)
REINFORCE = ("--algorithm", "reinforce")
CASES = {
    "tables, PPO": TABLES,
    "tables, RLOO": (*TABLES, "--algorithm", "rloo"),
    "tables, central critic": (*TABLES, "--critic.kind", "central"),
    "LoRA team, PPO": (*SMALL, "--task", "echo", "--policy.kind", "lora_team", "--policy.model", "{tiny}"),
    "whole models, REINFORCE": (*SMALL, "--task", "echo", "--policy.model", "{tiny}", *REINFORCE),
    "pocket models, PPO": SMALL,
}


IN_PHASES = [
    ("tables, PPO", 6),
    ("tables, central critic", 2),
    ("LoRA team, PPO", 2),
    ("pocket models, PPO", 2),
]
"""Cases and how many kills in each phase."""

RANDOM = [("tables, PPO", 30), ("LoRA team, PPO", 4), ("pocket models, PPO", 2)]
"""Cases and how many kills."""

STARTING = 0.2
"""Share of a run's work in which no random kill is drawn: nothing is written yet."""


class Case:
    """A run of `CASES` that is not killed, what it left, and the boundaries at which it can be killed."""

    def __init__(self, name: str, folder: Path, tiny: Path) -> None:
        self.name, self.folder = name, folder
        self.argv = ["train", *(word.replace("{tiny}", str(tiny)) for word in CASES[name])]
        self.iterations = int(self.argv[self.argv.index("--iterations") + 1])
        parse_settings(self.argv[1:], default=presets.get("pocket"), command="")  # a child parses faster then
        code, self.seconds = end(start([*self.argv, "--run", str(folder / "whole")], folder / "log"))
        assert code == 0, (folder / "log").read_text()
        self.traces = traces(folder / "whole", self.iterations)
        self.boundaries = self.met()

    def on_disk(self) -> list[int]:
        """The boundaries on the disk, counted from 1."""
        return [n for n, (stage, _) in enumerate(self.boundaries, start=1) if stage in STAGES.values()]

    def in_phases(self, count: int) -> list[int]:
        """`count` boundaries, spread evenly, in each phase."""
        by_stage: dict[str, list[int]] = {}
        for number, (stage, _) in enumerate(self.boundaries, start=1):
            if stage in PHASES.values():
                by_stage.setdefault(stage, []).append(number)
        return sorted(number for numbers in by_stage.values() for number in spread(numbers, count))

    def run(self, run: Path, *more: str, fatal: int | None = None, kill_after: float | None = None) -> int:
        """Run one process: its exit code, or minus the signal that killed it."""
        argv = [*self.argv, "--run", str(run), *more]
        return end(start(argv, self.folder / "log", fatal=fatal), kill_after=kill_after)[0]

    def met(self) -> list[tuple[str, str]]:
        """Stage and name of each boundary of the previous process."""
        return [tuple(place) for place in json.loads((self.folder / "log.json").read_text())]

    def survives(self, run: Path, counts: Counter) -> None:
        """Resume a killed run; count whether it finishes, and with the same traces."""
        counts["times"] += 1
        if self.run(run, "--resume", "auto"):
            counts["lost runs"] += 1
            print((self.folder / "log").read_text())
        elif not same(traces(run, self.iterations), self.traces):
            counts["corrupted resumes"] += 1
        shutil.rmtree(run)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """Cases by name, each run once."""
    torch.set_num_threads(1)
    tiny = save_backbone("gpt2", tmp_path_factory.mktemp("tiny"))
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        yield cache(lambda name: Case(name, tmp_path_factory.mktemp("case"), tiny))


def kill_at_boundaries(case: Case, numbers: Iterable[int], tally: dict[str, Counter]) -> None:
    """Kill one process at each of these boundaries, counted from 1."""
    failed = []
    for number in numbers:
        stage, place = case.boundaries[number - 1]
        counts = tally.setdefault(f"killed: {case.name}, {stage}", Counter())
        run, before = case.folder / "run", counts.copy()
        status = case.run(run, fatal=number)
        assert status == -signal.SIGKILL, (number, stage, place, (case.folder / "log").read_text())
        case.survives(run, counts)
        if counts["times"] != counts.total() or counts["times"] != before["times"] + 1:
            failed.append((number, stage, place))
    assert not failed


def spread(numbers: Sequence[int], count: int) -> list[int]:
    """`count` of them at equal distances, the first and the last included."""
    return sorted({numbers[round(i * (len(numbers) - 1) / (count - 1))] for i in range(count)})


@pytest.mark.slow
def test_a_few_kills_lose_nothing(case, tally):
    """The quick form of what follows: one kill in every stage of a run."""
    tables = case("tables, PPO")
    stages = {stage: number for number, (stage, _) in enumerate(tables.boundaries, start=1)}
    # an old checkpoint is removed only if it is not the best so far
    may_lack = {"as a run resumes", "as old checkpoints go", "in the central critic"}
    assert {*STAGES.values(), *PHASES.values()} - may_lack <= stages.keys()
    kill_at_boundaries(tables, sorted(stages.values()), tally)


@pytest.mark.faults
def test_killed_at_every_boundary(case, tally):
    tables = case("tables, PPO")
    kill_at_boundaries(tables, tables.on_disk(), tally)


@pytest.mark.faults
@pytest.mark.parametrize(("name", "count"), [(name, 8) for name in list(CASES)[1:]])
def test_killed_at_boundaries_of_other_runs(case, tally, name, count):
    """Another algorithm, another critic, other policies."""
    kill_at_boundaries(case(name), spread(case(name).on_disk(), count), tally)


@pytest.mark.faults
@pytest.mark.parametrize(("name", "count"), IN_PHASES)
def test_killed_in_every_phase(case, tally, name, count):
    """Before a token, before a step of an optimiser, as games are scored, as seats are exchanged."""
    kill_at_boundaries(case(name), case(name).in_phases(count), tally)


@pytest.mark.faults
def test_killed_at_every_boundary_of_a_resume(case, tally):
    """The second process is killed as it resumes where the first one was killed."""
    tables = case("tables, PPO")
    first, run = tables.folder / "first", tables.folder / "run"
    inside = [n for n, (stage, _) in enumerate(tables.boundaries, start=1) if stage == "inside a save"]
    assert tables.run(first, fatal=inside[-1]) == -signal.SIGKILL
    shutil.copytree(first, run)
    assert tables.run(run, "--resume", "must") == 0
    shutil.rmtree(run)
    stages = [stage for stage, _ in tables.met()]
    counts = tally.setdefault("killed: tables, PPO, as a run resumes", Counter())
    for number in range(1, stages.count("as a run resumes") + 1):
        shutil.copytree(first, run)
        assert tables.run(run, "--resume", "must", fatal=number) == -signal.SIGKILL
        tables.survives(run, counts)
    assert counts["times"] == counts.total()


@pytest.mark.faults
def test_killed_as_a_run_overwrites_an_older_one(case, tally):
    """With --overwrite the same command once more succeeds."""
    tables = case("tables, PPO")
    run, counts = tables.folder / "run", tally.setdefault("killed: tables, PPO, as one overwrites", Counter())
    shutil.copytree(tables.folder / "whole", run)
    assert tables.run(run, "--overwrite") == 0
    last = max(n for n, (stage, _) in enumerate(tables.met(), start=1) if stage == "as a run begins")
    for number in range(1, last + 1, 6):
        shutil.rmtree(run)
        shutil.copytree(tables.folder / "whole", run)
        assert tables.run(run, "--overwrite", fatal=number) == -signal.SIGKILL
        counts["times"] += 1
        if tables.run(run, "--overwrite"):
            counts["lost runs"] += 1
        elif not same(traces(run, tables.iterations), tables.traces):
            counts["corrupted resumes"] += 1
    shutil.rmtree(run)
    assert counts["times"] == counts.total()


@pytest.mark.faults
@pytest.mark.parametrize(("name", "count"), RANDOM)
def test_killed_at_random_moments(case, tally, name, count):
    """From outside, at any point of the process; the same directory twice in a row."""
    whole, rng = case(name), random.Random(0)
    counts = tally.setdefault(f"killed: {name}, at random moments", Counter())
    run, kills = whole.folder / "run", 0
    while kills < count:
        kills += whole.run(run, kill_after=rng.uniform(STARTING, 1) * whole.seconds) == -signal.SIGKILL
        again = whole.run(run, "--resume", "auto", kill_after=rng.uniform(0, 1) * whole.seconds)
        counts["times"] += again == -signal.SIGKILL
        kills += again == -signal.SIGKILL
        whole.survives(run, counts)
    assert counts["times"] == counts.total()
