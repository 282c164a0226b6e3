from importlib.metadata import EntryPoint, EntryPoints

import pytest

from cory_env import tasks
from cory_env.tasks import echo


def test_tasks_are_found_by_file_name():
    assert {"echo", "reviews"} <= set(tasks.names())
    assert "base" not in tasks.names()
    assert isinstance(tasks.load("echo", length=2), echo.Task)


def test_tasks_of_other_distributions_are_found_by_entry_point(monkeypatch):
    theirs = EntryPoints([EntryPoint("parrot", "cory_env.tasks.echo", tasks.GROUP)])
    monkeypatch.setattr(tasks, "entry_points", lambda group: theirs.select(group=group))
    assert {"arithmetic", "echo", "parrot", "relay", "reviews"} <= set(tasks.names())
    assert isinstance(tasks.load("parrot"), echo.Task)


def test_a_wrong_name_or_option_is_answered_with_the_right_ones():
    with pytest.raises(ValueError, match=r"no task called 'ecko'; there are arithmetic, echo, .*reviews"):
        tasks.load("ecko")
    with pytest.raises(ValueError, match="task echo has no option 'lenght'; it has tokenizer, length"):
        tasks.load("echo", lenght=3)
