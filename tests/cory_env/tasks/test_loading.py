"""The registry of tasks, and reports of data that a task leaves out."""

import json
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from cory_env import registry, tasks
from cory_env.tasks import echo
from cory_env.tasks.reviews import Task as Reviews
from cory_env.tokenizer import CharTokenizer
from cory_env.types import Query


def test_tasks_are_found_by_file_name():
    assert {"echo", "reviews"} <= set(tasks.names())
    assert "base" not in tasks.names()
    assert not [name for name in tasks.names() if name.startswith("_")]
    assert isinstance(tasks.load("echo", length=2), echo.Task)


def test_tasks_of_other_distributions_are_found_by_entry_point(monkeypatch):
    installed = EntryPoints([EntryPoint("parrot", "cory_env.tasks.echo", tasks.REGISTRY.group)])
    monkeypatch.setattr(registry, "entry_points", lambda group: installed.select(group=group))
    assert {"arithmetic", "echo", "parrot", "relay", "reviews"} <= set(tasks.names())
    assert isinstance(tasks.load("parrot"), echo.Task)


def test_a_task_in_a_plain_file_is_found_by_its_path(tmp_path):
    (tmp_path / "mine.py").write_text("from cory_env.tasks.echo import Task as Mine\n")
    assert isinstance(tasks.load(f"{tmp_path}/mine.py:Mine", length=2), echo.Task)
    with pytest.raises(ValueError, match=r"cannot .*no file .*none\.py; did you mean .*\); write module"):
        tasks.kind(f"{tmp_path}/none.py:Mine")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(ValueError, match="ZeroDivisionError: division by zero"):
        tasks.kind(f"{tmp_path}/broken.py:Mine")


def test_the_error_for_a_wrong_name_or_option_lists_the_right_ones():
    with pytest.raises(ValueError, match=r"no task called 'ecko'; there are arithmetic, echo, .*reviews"):
        tasks.load("ecko")
    with pytest.raises(ValueError, match="task echo has no option 'lenght'; it has tokenizer, length"):
        tasks.load("echo", lenght=3)


def test_data_that_are_left_out_are_reported(tmp_path):
    openings = {"train": ["ab", "bb"], "test": ["ab", "cb", "bb", "db"]}
    (tmp_path / "openings.json").write_text(json.dumps(openings))
    task = Reviews(CharTokenizer("abcd"), lambda texts: [0.0 for _ in texts], tmp_path / "openings.json")
    # two of the four test openings stand in train
    assert list(task.left_out) == ["2 of the test openings (50.0%) are in train too and left out"]
    assert list(tasks.load("echo").left_out) == []


def test_the_folder_of_a_tasks_file_may_hold_an_at_sign(tmp_path):
    (tmp_path / "me@work").mkdir()
    file = tmp_path / "me@work/mine.py"
    file.write_text("from cory_env.tasks.echo import Task\n")
    assert tasks.load(f"{file}:Task", length=2).max_query == 2


def test_task_objects_of_other_options_or_answers_have_other_names():
    def asked(answer, text="a"):
        task = tasks.load("relay")
        row = {"answer": answer}
        task.queries = lambda split: [Query(text if split == "train" else split, (1,), row)]
        return task

    named = [
        tasks.load("relay", price=0.1),
        tasks.load("relay", price=0.4),
        asked(1),
        asked(2),
        asked(1, "b"),
    ]
    names = [tasks.remember(task) for task in named]
    assert len(set(names)) == 5
    assert tasks.remember(tasks.load("relay", price=0.1)) == names[0]


def test_the_name_of_a_task_object_holds_no_place_in_memory():
    def named(function):
        task = tasks.load("relay", price=0.1)
        task.checks = (function, frozenset({"a", "b"}))
        return tasks.remember(task)

    assert named(lambda: 1) == named(lambda: 1)


def test_task_objects_of_one_session_that_hold_other_objects_have_other_names():
    def named(weights):
        task = tasks.load("relay", price=0.1)
        task.weights = weights
        return tasks.remember(task), task

    names, kept = zip(*(named({"length": weight}) for weight in (0, 9)), strict=True)
    assert names[0] != names[1]
    assert [tasks.load(name) for name in names] == list(kept)
    assert named({"length": 9})[0] == names[1]


def test_a_task_object_with_slots_has_a_name():
    class Slots:
        __slots__ = ("inner",)

        def __init__(self):
            self.inner = tasks.load("relay", price=0.1)

        def queries(self, split):
            return self.inner.queries(split)

    assert "Slots@" in tasks.remember(Slots())


class NeedsTokenizer(echo.Task):
    def __init__(self, tokenizer):
        super().__init__(tokenizer)


def test_an_argument_that_is_missing_is_named_with_what_to_do():
    """Lookup tables pass no tokenizer."""
    fault = "NeedsTokenizer cannot be made: missing a required argument: 'tokenizer'; give it, or a default"
    with pytest.raises(ValueError, match=fault):
        tasks.load(f"{__name__}:NeedsTokenizer")
