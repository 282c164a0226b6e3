"""Control characters of models, judges, files and settings never reach the terminal."""

import pytest

from cory.cli.main import main, print_error
from cory.report.tables import Table, print_tables
from cory.runtime.terminal import plain, say
from cory.tracking.progress import RunProgress

EVIL = "a\x1b]0;title\x07b\x1b[2Jc\x9b31md\re\x00\u202ef"
SHOWN = "a\\x1b]0;title\\x07b\\x1b[2Jc\\x9b31md\\re\\x00\\u202ef"


def test_control_characters_are_written_out_and_line_breaks_stay():
    assert plain(EVIL) == SHOWN
    assert plain("é [/INST]\n\tok") == "é [/INST]\n\tok"


def test_errors_tables_lines_and_progress_show_them_written_out(capsys):
    print_error(ValueError(), EVIL)
    say(EVIL)
    print_tables([Table(EVIL, ["", EVIL], [["x", EVIL]])], [EVIL])
    progress = RunProgress(start=0, iterations=1)
    progress.warn(EVIL)
    progress.say(EVIL)
    printed = "".join(capsys.readouterr())
    assert printed.count(SHOWN) == 8
    assert not set(printed) & set("\x1b\x07\x9b\r\x00\u202e")


NAME = EVIL.replace("\x00", "")
"""A name that a path may have."""


@pytest.mark.parametrize(
    "words", [["train", "--judge", NAME], ["evaluate", f"./{NAME}"], [NAME], ["report", NAME]]
)
def test_an_error_that_quotes_a_name_writes_its_control_characters_out(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    printed = "".join(capsys.readouterr())
    assert "x1b" in printed
    assert not set(printed) & set("\x1b\x07\x9b\r\x00\u202e")
