"""Messages of settings: whole, within bounds, without the frame of the parser."""

import pytest

from cory.cli.main import main

LONG = "/a/" + "long-name" * 30 + " (two  spaces)│[x]"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--payoff", "[[1, 2, 3]]"],
            "the payoff matrix has shape (1, 3); 2 seats need (2, 2); see cory train",
        ),
        (["--kl.kind", "[red]x[/red]"], "kl.kind is '[red]x[/red]'; there are k1, k2"),
        (["--kl.kind", LONG], f"kl.kind is {LONG.replace('  ', ' ')!r}; there are k1"),
        (["--batch", "[3]"], "error: --batch: invalid literal for int() with base 10: '[3]'; see cory train"),
        (
            ["--judge.max-failures", "9"],
            "judge.max_failures is 9.0; choose a value from 0 to 1; see cory train",
        ),
        (["--task.dat", "x"], "Unrecognized options: --task.dat, x Perhaps you meant: --task.data; see cory"),
        (["--threads", "100000"], "threads is 100000; give at most 1,024"),
        (["--seed", "-5"], "seed is -5; give a whole number from 0 to 9223372036854775807"),
        (["--seed", str(2**63)], "seed is 9223372036854775808; give a whole number from 0"),
        (["--batch", str(10**13)], "batch is 10000000000000; give at most 1,048,576"),
        (["--max-response", "3", str(10**9)], "max_response is 1000000000; give at most 1,048,576"),
        (
            ["--algorithm.epochs", str(10**12)],
            "algorithm.epochs is 1000000000000; give at most 2,147",
        ),
        (["--task", "echo", "--task.length", str(10**12)], "task.length is 1000000000000; give at most"),
    ],
)
def test_a_message_says_all_of_it(words, message, capsys):
    assert main(["train", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_largest_seed_is_a_seed(capsys):
    assert main(["train", "--seed", str(2**63 - 1), "--iterations", "0"]) == 2
    assert "iterations is 0" in capsys.readouterr().err
