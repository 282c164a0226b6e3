"""What settings name outside of the package, by its hash; every edit is made between two looks."""

import hashlib

import pytest
from huggingface_hub import constants

from cory import pocket
from cory.config.parsing import as_json
from cory.config.schema import Config
from cory.runtime import sources
from cory.runtime.sources import changed, sources_of
from cory_env.payoff import rule


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory, from which modules are imported."""
    monkeypatch.setattr(sources, "REGISTERED", {})  # of other tests
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def write(path, text="1"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_built_in_names_and_bundled_models_have_no_source():
    assert sources_of(as_json(Config())) == {}
    assert sources_of({"judge": "pocket + 0.5*cory.rewards:brevity", "exchange.order": "random"}) == {}


def test_what_is_only_called_like_a_built_in_part_is_no_source(folder):
    for name in ("ppo", "regex"):
        write(folder / f"{name}.py")
    assert sources_of({"algorithm": "ppo", "judge": "regex:answer"}) == {}


def test_source_of_a_file_is_the_sha256_of_its_content(folder):
    write(folder / "mine.py", "x = 1\n")
    assert sources_of({"algorithm": "mine.py"}) == {"mine.py": hashlib.sha256(b"x = 1\n").hexdigest()}


def test_a_run_is_its_policies_and_no_report_of_it(tmp_path):
    """As a player it is what it plays."""
    run = tmp_path / "run"
    for name in ("config.yaml", "policies/llm_1/model.safetensors", "report.html"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("a")
    before = sources_of({"players.observer_1": str(run)})
    (run / "report.html").write_text("b")
    assert sources_of({"players.observer_1": str(run)}) == before
    (run / "policies/llm_1/model.safetensors").write_text("b")
    assert sources_of({"players.observer_1": str(run)}) != before


@pytest.mark.parametrize(
    ("setting", "value", "file"),
    [
        ("algorithm", "mine.py", "mine.py"),
        ("algorithm", "mine", "mine.py"),
        ("algorithm", "package.mine", "package/mine.py"),
        ("task", "mine.py:Task", "mine.py"),
        ("judge", "mine:reward", "mine.py"),
        ("judge", "pocket + 0.5*package.mine:reward", "package/mine.py"),
        ("payoff", "package/mine.py:pay", "package/mine.py"),
        ("critic.kind", "mine:Critic", "mine.py"),
        ("kl.kind", "mine:k4", "mine.py"),
        ("exchange.order", "mine.py:order", "mine.py"),
        ("policy.kind", "mine:Policy", "mine.py"),
        ("target", "mine.py:players", "mine.py"),
        ("task.data", "rows.jsonl", "rows.jsonl"),
        ("task.data", "rows", "rows/train.csv"),
        ("policy.model", "model", "model/weights/model.safetensors"),
        ("policy.models", ["pocket", "models/b"], "models/b/config.json"),
        ("judge.model", "classifier", "classifier/config.json"),
        ("lora.adapter", "adapter", "adapter/adapter.safetensors"),
        ("players.observer_1", "opponent", "opponent/model.safetensors"),
    ],
)
def test_an_edit_of_whatever_a_setting_names_changes_its_source(folder, setting, value, file):
    write(folder / file, "before")
    before = sources_of({setting: value})
    write(folder / file, "after!")
    after = sources_of({setting: value})
    assert len(before) == 1
    assert before.keys() == after.keys()
    assert changed(before, after) == f"{next(iter(before))} has changed"
    assert changed(after, sources_of({setting: value})) == ""


def test_modules_that_a_file_imports_from_beside_it_belong_to_it(folder):
    write(folder / "code/mine.py", "import numpy\nfrom helper import f\nfrom .parts import loss\n")
    write(folder / "code/helper.py", "import deeper")
    write(folder / "code/deeper.py")
    write(folder / "code/parts/__init__.py")
    write(folder / "code/parts/loss.py")
    write(folder / "code/stranger.py")
    before = sources_of({"algorithm": "code/mine.py"})
    assert list(before) == [
        "code/mine.py",
        "code/mine.py (__init__.py)",
        "code/mine.py (deeper.py)",
        "code/mine.py (helper.py)",
        "code/mine.py (loss.py)",
    ]
    write(folder / "code/deeper.py", "edited")
    write(folder / "code/stranger.py", "edited")
    assert (
        changed(before, sources_of({"algorithm": "code/mine.py"})) == "code/mine.py (deeper.py) has changed"
    )


def test_installed_plugins_and_attributes_of_classes_are_known_by_their_modules(folder, monkeypatch):
    """One name in two groups stands for both modules."""
    for name in ("first", "second"):
        write(folder / f"{name}.py")
    points = "[cory.tasks]\nmytask = first:Task\n[cory.payoffs]\nmytask = second:pay\n"
    write(folder / "mine-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    write(folder / "mine-1.dist-info/entry_points.txt", points)
    sources._installed.cache_clear()
    assert list(sources_of({"task": "mytask"})) == ["first", "second"]
    sources._installed.cache_clear()
    assert list(sources_of({"judge": "first:Judge.score + 2*second:f"})) == ["first", "second"]


def test_a_module_that_was_edited_after_it_was_loaded_is_refused(folder):
    write(folder / "edited_later.py", "def pay(scores, iteration):\n    return scores\n")
    rule("edited_later:pay", 2)
    assert list(sources_of({"payoff": "edited_later:pay"})) == ["edited_later"]
    write(folder / "edited_later.py", "def pay(scores, iteration):\n    return 2 * scores\n")
    with pytest.raises(ValueError, match="edited_later has changed since this session loaded it"):
        sources_of({"payoff": "edited_later:pay"})


def test_a_registered_plugin_is_known_by_what_it_holds_and_by_its_module(folder, monkeypatch):
    def pay(scale):
        return lambda scores, iteration: scale * scores

    found = []
    for scale in (1, 50):
        monkeypatch.setattr(sources, "REGISTERED", {"mine": [pay(scale)]})
        found.append(sources_of({"payoff": "mine"}))
    assert changed(*found) == "mine has changed"


def test_no_module_is_imported_to_find_its_source(folder):
    write(folder / "package/__init__.py", "raise RuntimeError('imported')")
    write(folder / "package/mine.py", "raise RuntimeError('imported')")
    assert list(sources_of({"judge": "package.mine:reward"})) == ["package.mine"]


def test_folder_without_a_slash_counts_only_where_a_setting_names_data_or_a_model(folder):
    """A folder `reviews` with notes beside the task of that name."""
    write(folder / "reviews/notes.txt")
    assert sources_of({"task": "reviews"}) == {}
    assert list(sources_of({"task.data": "reviews"})) == ["reviews"]
    write(folder / "frozen/notes.txt")
    write(folder / "pool/notes.txt")
    assert sources_of({"players.pioneer_0": "frozen", "players.observer_1": "pool:2"}) == {}


def test_stray_hidden_files_and_caches_do_not_change_a_folder(folder):
    write(folder / "model/config.json")
    before = sources_of({"policy.model": "model"})
    write(folder / "model/.DS_Store")
    write(folder / "model/__pycache__/code.pyc")
    assert sources_of({"policy.model": "model"}) == before


@pytest.mark.parametrize("setting", ["policy.model", "policy.models", "judge", "players.pioneer_0", "target"])
def test_a_model_that_was_made_anew_has_changed_and_one_that_is_not_here_has_not(
    setting, tmp_path, monkeypatch
):
    """A folder of its name in the working directory is another thing."""
    monkeypatch.setitem(pocket.MODELS, "smollm2", tmp_path / "cache")
    write(tmp_path / "smollm2/notes.txt")
    missing = sources_of({setting: "smollm2"})
    write(tmp_path / "cache/model.safetensors", "1")
    made = sources_of({setting: "smollm2"})
    write(tmp_path / "cache/model.safetensors", "22")
    again = sources_of({setting: "smollm2"})
    assert missing == {}
    assert changed(made, again) == "smollm2 has changed"
    assert changed(made, missing) == changed(missing, again) == ""


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("policy.model", "owner/name"),
        ("judge", "0.5*owner/name + pocket"),
        ("lora.adapter", "owner/name"),
        ("players.pioneer_0", "owner/name"),
    ],
)
def test_a_hub_model_is_known_by_its_commit_and_compared_where_both_have_one(
    setting, value, folder, monkeypatch
):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))

    def fetched(commit):
        write(folder / "cache/models--owner--name/refs/main", commit)
        write(folder / "cache/models--owner--name/snapshots" / commit / "config.json")
        return sources_of({setting: value})

    missing, old, new = sources_of({setting: value}), fetched("1" * 40), fetched("2" * 40)
    assert missing == {}
    assert old == {"owner/name": "commit " + "1" * 40}
    assert changed(old, new) == "owner/name has changed"
    assert changed(old, missing) == changed(missing, new) == ""
    write(folder / "owner/name/config.json")
    assert changed(old, sources_of({setting: value})) == "owner/name has changed"


def test_large_file_is_known_by_blocks_from_its_beginning_to_its_end(folder, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK", 4)
    monkeypatch.setattr(sources, "BLOCKS", 4)
    content = bytearray(range(64))
    path = folder / "model.safetensors"
    path.write_bytes(content)
    found = {sources_of({"policy.model": path.name})[path.name]}
    for place in (0, 20, 40, 63):  # blocks of 4 begin at 0, 20, 40 and 60
        path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
        found.add(sources_of({"policy.model": path.name})[path.name])
    path.write_bytes(content + b"\0")
    found.add(sources_of({"policy.model": path.name})[path.name])
    assert len(found) == 6


def test_files_that_are_new_or_gone_have_changed():
    assert changed({"a.py": "1"}, {"b.py": "1"}) == "a.py and b.py have changed"
