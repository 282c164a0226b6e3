"""A checkpoint whose files are not those that were saved is skipped, with a message."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cory.cli.main import main
from cory.training import checkpoint
from cory.training.run_directory import newest_whole
from cory.training.trainer import Trainer
from tests.helpers.runs import FLAGS, same, traces, without_report
from tests.helpers.tables import TABLES

ARGV = ("train", *FLAGS, "--iterations", "4")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run of 4 iterations, its checkpoints at 0, 2, 3 (the best may be) and 4."""
    run = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        assert main([*ARGV, "--run", str(run)]) == 0
        yield run


def flip(path: Path, bit: int) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def swap(one: Path, other: Path) -> None:
    """Exchange the contents of two files."""
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def harms(folder: Path, older: Path) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Every kind of damage to every file of a checkpoint, by name; each is called with the folder to harm."""
    rng = random.Random(0)
    names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    for name in names:
        size = (folder / name).stat().st_size
        for length in sorted({0, size // 2, size - 1}):
            yield (
                f"{name} cut to {length}",
                lambda at, n=name, k=length: (at / n).write_bytes((at / n).read_bytes()[:k]),
            )
        yield (
            f"{name} with a byte more",
            lambda at, n=name: (at / n).write_bytes((at / n).read_bytes() + b"x"),
        )
        for bit in rng.sample(range(8 * size), k=4):
            yield f"{name} with bit {bit} flipped", lambda at, n=name, b=bit: flip(at / n, b)
        yield f"{name} deleted", lambda at, n=name: (at / n).unlink()
        yield f"{name} a folder", lambda at, n=name: ((at / n).unlink(), (at / n).mkdir())
        if (folder / name).read_bytes() != (older / name).read_bytes():
            yield f"{name} of an older one", lambda at, n=name: shutil.copy(older / n, at / n)
    for one, other in zip(names, names[1:] + names[:1], strict=True):
        yield f"{one} and {other} swapped", lambda at, a=one, b=other: swap(at / a, at / b)


def test_if_any_file_is_damaged_the_checkpoint_before_is_used_and_the_reason_is_given(whole, tmp_path):
    run, last = tmp_path / "run", "step-000004"
    shutil.copytree(whole, run)
    sound, harmed = whole / "checkpoints" / last, run / "checkpoints" / last
    before = checkpoint.finished(run)[-2]
    cases = list(harms(sound, before))
    assert len(cases) > 80
    for what, harm in cases:
        harm(harmed)
        folder, skipped = newest_whole(run)
        assert folder == before, what
        assert len(skipped) == 1, what
        assert last in skipped[0], what
        repair(harmed, sound)
    assert newest_whole(run) == (harmed, [])


def repair(harmed: Path, sound: Path) -> None:
    """Undo one harm."""
    for good in (path for path in sound.rglob("*") if path.is_file()):
        bad = harmed / good.relative_to(sound)
        if bad.is_dir():
            bad.rmdir()
        if not bad.exists() or bad.read_bytes() != good.read_bytes():
            shutil.copy(good, bad)


@pytest.mark.faults
def test_no_bit_of_a_manifest_can_be_flipped_unseen(whole, tmp_path):
    folder = tmp_path / "step"
    shutil.copytree(checkpoint.finished(whole)[-1], folder)
    manifest = folder / checkpoint.MANIFEST
    for bit in range(8 * manifest.stat().st_size):
        flip(manifest, bit)
        with pytest.raises(ValueError, match="older"):
            checkpoint.verify(folder)
        flip(manifest, bit)
    checkpoint.verify(folder)


@pytest.mark.faults
def test_a_run_resumes_from_before_the_damage(whole, tmp_path, tally, capsys):
    """Each harm to each file of the newest checkpoint; 5 iterations must be those of a run of 5."""
    longer = ["--iterations", "5", "--resume", "must"]
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    assert main([*ARGV, *longer, "--run", str(run)]) == 0
    want = traces(run, 5)
    last = "checkpoints/step-000004"
    for what, harm in list(harms(whole / last, checkpoint.finished(whole)[-2]))[::4]:
        counts = tally.setdefault(f"damaged: a file {kind_of(what)}", Counter())
        shutil.rmtree(run)
        shutil.copytree(whole, run)
        harm(run / last)
        capsys.readouterr()
        code = main([*ARGV, *longer, "--run", str(run)])
        counts["times"] += 1
        counts["lost runs"] += code != 0
        counts["corrupted resumes"] += code == 0 and not same(traces(run, 5), want)
        assert "skipped: " in capsys.readouterr().err, what
        assert counts["times"] == counts.total(), what


def kind_of(what: str) -> str:
    """The kind of a harm, without file and position."""
    words = ("cut", "a byte more", "flipped", "deleted", "a folder", "older", "swapped")
    return next(word for word in words if word in what)


def test_no_policy_is_saved_as_another_whatever_the_order(whole, tmp_path):
    """With the learners in reverse order each file is still that of its name."""
    trainer = Trainer(replace(TABLES, seats=3))
    for number, policy in enumerate(trainer.policies.values(), start=1):
        with torch.no_grad():
            policy.logits_SV.fill_(number)
    backwards = dict(reversed(trainer.learners.items()))
    one = checkpoint.save(tmp_path / "one", 0, trainer.learners, trainer.state.numbers())
    other = checkpoint.save(tmp_path / "other", 0, backwards, trainer.state.numbers())
    manifests = [json.loads((folder / checkpoint.MANIFEST).read_text()) for folder in (one, other)]
    assert manifests[0] == manifests[1]
    fresh = Trainer(replace(TABLES, seats=3))
    checkpoint.load(other, fresh.learners)
    assert [policy.logits_SV.unique().tolist() for policy in fresh.policies.values()] == [[1.0], [2.0], [3.0]]
