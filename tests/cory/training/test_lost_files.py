"""Files of a run that are lost or stray: what was learned is kept, and what is missing is said."""

import json
import shutil
from pathlib import Path

import pytest

import cory
from cory.cli.main import main
from cory.evaluation.records import best_of
from cory.runtime.files import read_json, remove
from cory.tracking.tracker import read, read_lines, read_samples
from cory.training import checkpoint, run_directory
from cory.training.run_directory import newest_whole
from cory.training.targets import find
from cory.training.trainer import Trainer
from tests.helpers.runs import finished_run, train, without_report

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    without_report(monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return finished_run(tmp_path_factory)


@pytest.fixture
def run(finished, tmp_path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


STRAY = (".DS_Store", "llm_1/._table.safetensors", "notes.txt", "llm_1/config.json~", "Thumbs.db", "x/y/z")


def test_files_that_no_manifest_names_do_not_make_a_checkpoint_damaged(run):
    last = checkpoint.finished(run)[-1]
    for name in STRAY:
        (last / name).parent.mkdir(parents=True, exist_ok=True)
        (last / name).write_text("stray")
    assert newest_whole(run) == (last, [])
    assert main(["train", "--run", str(run), "--resume", "must", "--iterations", "7"]) == 0
    assert all((last / name).read_text() == "stray" for name in STRAY)


def test_a_checkpoint_reads_nothing_but_what_its_manifest_names(run):
    """A planted state of the algorithm, which checkpoints of PPO do not have."""
    last = checkpoint.finished(run)[-1]
    (last / "algorithm.safetensors").write_text("no safetensors")
    assert main(["train", "--run", str(run), "--resume", "must", "--iterations", "7"]) == 0


def test_a_manifest_that_leads_elsewhere_or_says_a_thing_twice_is_damaged(run):
    manifest = checkpoint.finished(run)[-1] / checkpoint.MANIFEST
    text = manifest.read_text()
    first = next(iter(json.loads(text)))
    for harmed in (text.replace(first, f"../{first}"), text.replace("{", f'{{"{first}": {{}},', 1)):
        manifest.write_text(harmed)
        with pytest.raises(ValueError, match="is damaged"):
            checkpoint.verify(manifest.parent)


def test_a_skipped_checkpoint_is_kept_for_good(run, capsys):
    """With one checkpoint kept, five more are written and pruned after it."""
    *_, before, last = checkpoint.finished(run)
    (last / "llm_1/table.safetensors").write_text("damaged")
    more = ("--resume", "must", "--iterations", "11", "--keep-checkpoints", "1")
    assert main(["train", "--run", str(run), *more]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    (kept,) = last.parent.glob(f"{last.name}.damaged-*")
    assert f"the skipped checkpoint is kept as {kept}" in printed
    assert (kept / "llm_1/table.safetensors").read_text() == "damaged"
    assert (kept / "llm_2/table.safetensors").exists()
    assert before not in checkpoint.finished(run) or best_of(run)


def test_pruning_keeps_what_a_user_has_put_into_a_checkpoint(run):
    first, *_, last = checkpoint.finished(run)
    (run / "checkpoints/best.json").unlink()
    (first / "notes.txt").write_text("mine")
    outside = run.parent / "outside"
    shutil.move(last, outside)
    link = first.with_name("step-000001")
    link.symlink_to(outside)
    checkpoint.keep_last(run, 1)
    (rest,) = (run / "checkpoints").glob("step-000000.rest-*")
    assert [path.name for path in rest.rglob("*")] == ["notes.txt"]
    assert not link.is_symlink()
    checkpoint.verify(outside)


def test_a_run_whose_metrics_are_lost_goes_on_and_exports_its_policies(run, finished, capsys):
    (run / "metrics.jsonl").unlink()
    (run / "samples.jsonl").unlink()
    shutil.rmtree(run / "policies")
    assert main(["train", "--run", str(run), "--resume", "must", "--iterations", "8"]) == 0
    assert "has lost 6 of the iterations before 6, from 0 on" in " ".join(capsys.readouterr().err.split())
    assert [row["iteration"] for row in read(run) if "time/update/seconds" in row] == [6, 7]
    assert (run / "policies/llm_2/table.safetensors").exists()
    (resumed,) = json.loads((run / "environment.json").read_text())["resumed"]
    assert "has lost 6" in resumed["lost_metrics"]


def test_a_finished_run_whose_metrics_are_lost_exports_again(run, finished):
    (run / "metrics.jsonl").unlink()
    shutil.rmtree(run / "policies")
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    new, old = (folder / "policies/llm_1/table.safetensors" for folder in (run, finished))
    assert new.read_bytes() == old.read_bytes()


def test_a_run_that_is_killed_between_two_policies_of_a_second_export_is_its_checkpoint(run, monkeypatch):
    def killed(part, final):
        (part / "llm_1/table.safetensors").replace(final / "llm_1/table.safetensors")
        raise KeyboardInterrupt

    assert find(str(run)).folders["llm_1"] == str(run / "policies/llm_1")
    monkeypatch.setattr(run_directory, "replace_folder", killed)
    with pytest.raises(KeyboardInterrupt):
        cory.train(run=run, resume="must", quiet=True)
    assert find(str(run)).folders["llm_1"] == str(checkpoint.folder_of(run, 6) / "llm_1")


def test_others_may_read_the_weights_of_a_run_as_its_other_files(run):
    weights = [*run.rglob("*.safetensors")]
    assert len(weights) > 4
    assert {path.stat().st_mode for path in weights} == {(run / "config.yaml").stat().st_mode}


def test_a_lost_config_is_said_and_lies_in_the_checkpoint(run, capsys):
    (run / "config.yaml").unlink()
    argv = ["train", "--run", str(run), "--resume", "must"]
    assert main(argv) == 2
    last = checkpoint.finished(run)[-1]
    assert f"its config.yaml is missing; copy that of {last} to its place" in capsys.readouterr().err
    shutil.copy(last / "config.yaml", run)
    assert main(argv) == 0


def harmed_in(monkeypatch, iteration: int, harm) -> None:
    """Call `harm` at the start of an iteration."""
    plain = Trainer.iterate

    def iterate(self, number, **more):
        if number == iteration:
            harm()
        return plain(self, number, **more)

    monkeypatch.setattr(Trainer, "iterate", iterate)


@pytest.mark.parametrize("what", [".", "metrics.jsonl"])
def test_a_run_stops_at_the_next_checkpoint_where_its_files_were_removed(what, tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        harmed_in(patch, 3, lambda: remove(run / what))
        assert train(run, 6) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert f"this was removed or renamed while the run trained: '{run / 'metrics.jsonl'}'" in printed


HALF_A_LETTER = '{"iteration": 7, "query": "schö'.encode()[:-1]
TORN = (b'{"iteration": 7, "eval/llm', HALF_A_LETTER, b"\x00" * 64, b"\xff\xfe")


@pytest.mark.parametrize("tail", TORN)
@pytest.mark.parametrize("name", ["metrics.jsonl", "samples.jsonl"])
def test_whatever_tears_a_last_line_it_is_cut(name, tail, run):
    whole = (run / name).read_bytes()
    (run / name).write_bytes(whole + tail)
    assert read_lines(run / name)[-1]["iteration"] == 6
    assert main(["train", "--run", str(run), "--resume", "must"]) == 0
    assert (run / name).read_bytes().startswith(whole[:200])
    assert tail not in (run / name).read_bytes()


DAMAGED = {
    "bytes that are no text": (b"\xff\xfe{}", "is not JSON"),
    "zeros": (b"\x00" * 9, "is not JSON"),
    "a text for a number": (b'{"iteration": 1, "a/b/c": "x"}', "'a/b/c' is 'x', no number"),
    "a list for a number": (b'{"iteration": 1, "a/b/c": [1]}', "no number"),
    "a truth for a number": (b'{"iteration": 1, "a/b/c": true}', "no number"),
    "a name with a flipped bit": (b'{"iteration": 1, "a/bnc": 1}', "not of the form seat/policy/quantity"),
    "a truth for an iteration": (b'{"iteration": true, "a/b/c": 1}', "is not a row of an iteration"),
    "brackets without end": (b"[" * 100_000, "is not JSON"),
}


NO_SAMPLES = {
    "a row of nothing": b'{"iteration": 1}',
    "a score of nobody": b'{"iteration": 1, "query": "a", "score": 1}',
    "a text that is none": b'{"iteration": 1, "query": "a", "score": {}, "eval": {"llm_1": 3}}',
    "bytes that are no text": b"\xff",
}


@pytest.mark.parametrize("case", NO_SAMPLES)
def test_a_damaged_sample_is_named_with_its_file(case, tmp_path):
    sound = b'{"iteration": 0, "query": "a", "score": {}, "eval": {"llm_1": "b"}}\n'
    failed = b'{"iteration": 0, "query": "a", "failure": "took more than 2 s"}\n'
    (tmp_path / "samples.jsonl").write_bytes(sound + failed)
    games, failures = read_samples(tmp_path)
    assert (len(games), len(failures)) == (1, 1)
    (tmp_path / "samples.jsonl").write_bytes(sound + failed + NO_SAMPLES[case] + b"\n")
    with pytest.raises(ValueError, match=r"samples\.jsonl line 3 is no.*remove or repair that line"):
        read_samples(tmp_path)


@pytest.mark.parametrize("name", ["environment.json", "checkpoints/step-000006/environment.json"])
def test_a_damaged_json_file_is_named(name, run):
    (run / name).write_bytes(b"\xff\x00")
    with pytest.raises(ValueError, match=rf"{name} is damaged"):
        read_json(run / name)


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_line_is_named_with_its_file(case, tmp_path):
    line, message = DAMAGED[case]
    (tmp_path / "metrics.jsonl").write_bytes(b'{"iteration": 0, "a/b/c": 1}\n' + line + b"\n")
    with pytest.raises(ValueError, match=rf"metrics\.jsonl line 2.*{message}.*remove or repair that line"):
        read(tmp_path)
