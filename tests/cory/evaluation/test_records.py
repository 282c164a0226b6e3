"""Files of evaluations in a run directory: one per measurement."""

import pytest

from cory.evaluation import records

MEASURED = {
    "task": "echo", "judge": None, "split": "test", "queries": 12, "samples": 1, "sampling": "own",
    "threshold": None, "settings": {"kl.coef": 0.2}, "weights": {"llm_1": {"sha256": "a"}},
}  # fmt: skip


def test_the_same_measurement_has_the_same_file_whatever_the_order_of_its_parts(tmp_path):
    path = records.path_of(tmp_path, MEASURED)
    assert path == records.path_of(tmp_path, dict(reversed(MEASURED.items())))
    assert path.parent == tmp_path / "evaluations"
    assert path.name.startswith("echo-")
    assert len(path.stem) == len("echo-") + 8


@pytest.mark.parametrize(
    "changed",
    [
        {"task": "relay"},
        {"samples": 2},
        {"settings": {"kl.coef": 0.3}},
        {"weights": {"llm_1": {"sha256": "b"}}},
    ],
)
def test_any_other_measurement_has_another_file(tmp_path, changed):
    assert records.path_of(tmp_path, MEASURED | changed) != records.path_of(tmp_path, MEASURED)


def test_a_task_of_a_users_module_is_a_file_name(tmp_path):
    path = records.path_of(tmp_path, MEASURED | {"task": "my.games:../Task"})
    assert path.parent == tmp_path / "evaluations"
    assert path.name.startswith("my.games-..-Task-")


def test_speed_and_schedule_do_not_define_a_measurement():
    settings = {
        "task": "echo", "task.size": 3, "judge.label": "positive", "judge.timeout": 2, "evaluation.every": 4,
        "evaluation.samples": 5, "kl.coef": 0.1, "kl.kind": "k1", "policy.model": "gpt2", "learner.lr": 1.0,
        "evaluation.team": True, "evaluation.average": True,
        "tasks": 0, "players.observer_1": "frozen", "turns": 2,
    }  # fmt: skip
    kept = {"task", "task.size", "judge.label", "evaluation.samples", "kl.coef", "policy.model"}
    kept |= {"players.observer_1", "turns"}  # who plays, and how often
    assert records.defining(settings) == {name: settings[name] for name in kept}


def test_weights_are_known_by_content_and_names_without_the_card(tmp_path):
    (tmp_path / "a").write_text("1")
    before = records.files_sha256(tmp_path)
    (tmp_path / "README.md").write_text("card")
    assert records.files_sha256(tmp_path) == before
    (tmp_path / "a").rename(tmp_path / "b")
    assert records.files_sha256(tmp_path) != before


def test_texts_are_known_by_content_and_order():
    assert records.texts_sha256(["a", "b"]) == records.texts_sha256(iter(["a", "b"]))
    assert (
        len({records.texts_sha256(texts) for texts in (["a", "b"], ["b", "a"], ["ab"], ["a", "b", ""])}) == 4
    )
