"""Games to watch or to join on the terminal."""

import shutil
from dataclasses import replace

import pytest
import yaml

from cory.cli.main import main
from cory.cli.play import command
from cory.training.run import train
from tests.helpers.tables import TABLES


@pytest.fixture(scope="module")
def echo_run(tmp_path_factory):
    """Two tables that have trained on echo a little."""
    folder = tmp_path_factory.mktemp("runs") / "echo"
    train(replace(TABLES, iterations=4), folder)
    return folder


def test_a_spectator_sees_query_responses_scores_and_payoffs(echo_run, capsys):
    command([str(echo_run), "--games", "2"])
    printed = capsys.readouterr().out
    assert printed.startswith("pioneer_0: llm_1\nobserver_1: llm_2\n")
    assert printed.count("paid: pioneer_0 ") == 2
    assert printed.count("(score ") == 2 * 2  # both seats' scores, shown once per game
    command([str(echo_run), "--games", "2"])
    assert capsys.readouterr().out == printed
    command([str(echo_run), "--games", "2", "--exchange"])
    assert capsys.readouterr().out.startswith("pioneer_0: llm_2\nobserver_1: llm_1\n")


@pytest.mark.parametrize("seat", ["pioneer_0", "observer_1"])
def test_a_person_takes_a_seat_by_typing(echo_run, capsys, monkeypatch, seat):
    lines = iter(["a?", "abcdef"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    command([str(echo_run), "--games", "1", "--seat", seat])
    printed = capsys.readouterr().out
    assert f"{seat}: you\n" in printed
    assert "'?' in 'a?' is not in the alphabet 'abcdef'; add it there; try again" in printed
    assert "cut after 3 of 6 tokens: abc" in printed
    assert any(line.split()[:2] == [seat, "abc"] for line in printed.splitlines())


def test_an_empty_line_is_a_response_of_eos_only(echo_run, capsys, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda prompt: "")
    command([str(echo_run), "--games", "1", "--seat", "observer_1"])
    assert "(score 0)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seat", "observer_2"], "seat is 'observer_2'; choose one of 'pioneer_0', 'observer_1'"),
        (["--games", "0"], "games is 0; play 1 or more"),
        (["--game", "1"], "--games"),
    ],
)
def test_wrong_options_are_refused(echo_run, flags, message):
    with pytest.raises(ValueError, match=message):
        command([str(echo_run), *flags])


def test_a_folder_without_policies_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is neither a run directory with policies nor a model folder"):
        command([str(tmp_path)])


@pytest.mark.parametrize("words", [["play"], ["evaluate", "--queries", "4"], ["probe", "--queries", "4"]])
def test_code_that_only_training_needs_is_not_imported(echo_run, tmp_path, words):
    copy, evil = shutil.copytree(echo_run, tmp_path / "run"), tmp_path / "evil.py"
    evil.write_text(f"from pathlib import Path\nPath({str(tmp_path / 'canary')!r}).touch()\n")
    settings = yaml.safe_load((copy / "config.yaml").read_text())
    settings |= {"algorithm": str(evil), "algorithm.unknown": 3, "kl.kind": f"{evil}:f"}
    settings |= {"critic.kind": f"{evil}:f", "exchange.order": f"{evil}:f"}
    (copy / "config.yaml").write_text(yaml.safe_dump(settings))
    assert main([words[0], str(copy), *words[1:]]) == 0
    assert main(["probe", str(copy), "--queries", "4"]) == 0
    assert not (tmp_path / "canary").exists()
