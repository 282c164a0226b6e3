"""The worked tasks: what is generated is right, rewards know good responses, and each runs to its end."""

import random

import pytest

from cory import rewards
from examples.worked_tasks import code_from_words, dialogue, summaries
from examples.worked_tasks.expressions import parse, run


def test_a_report_has_its_result_among_three_asides():
    text, summary = summaries.report(random.Random(1))
    winner, _, loser, result = summary.rstrip(".").split()
    assert winner in text
    assert loser in text
    assert result in text
    assert sum(aside in text for aside in summaries.ASIDES) == 3


def test_the_shortest_summary_is_the_best():
    row = summaries.rows(1)[0]
    more = f"{row['summary']} It rained all day."
    best, long, wrong = rewards.overlap(
        [row["prompt"]] * 3, [row["summary"], more, "It rained all day."], summary=[row["summary"]] * 3
    )
    assert best == 1 > long > wrong


def test_replies_are_scored_by_the_facts_they_repeat():
    said = ["So a table for two at six.", "So a table for two.", "Yes.", "At SIX, for Two!"]
    chats = [[{"role": "assistant", "content": text}] for text in said]
    found = dialogue.confirms([None] * 4, chats, facts=[["two", "six"]] * 4)
    assert found == [1.0, 0.5, 0.0, 1.0]


@pytest.mark.parametrize(
    ("steps", "want"),
    [
        ([("+", 2), ("*", 3)], "(x+2)*3"),
        ([("*", 2), ("*", 3)], "x*2*3"),
        ([("*", 2), ("-", 3), ("*", 4)], "(x*2-3)*4"),
    ],
)
def test_operations_are_taken_in_their_order(steps, want):
    assert code_from_words.expression(steps) == want
    value = 5
    for sign, number in steps:
        value = {"+": value + number, "-": value - number, "*": value * number}[sign]
    assert run(parse(want), 5) == value


def test_code_is_scored_by_the_tests_it_passes():
    tests = [[0, 2], [1, 3], [2, 4], [5, 7]]
    found = code_from_words.passes([""] * 4, [" x+2", "2", "x+", "while True:"], tests=[tests] * 4)
    assert found == [1.0, 0.25, 0.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "options"),
    [
        (dialogue, dialogue.Dialogue),
        pytest.param(summaries, summaries.Summaries, marks=pytest.mark.long),
        pytest.param(code_from_words, code_from_words.Code, marks=pytest.mark.long),
    ],
)
def test_each_example_runs_to_its_end(example, options, tmp_path, capsys):
    made = example.main(options(run=tmp_path / "run", iterations=1, batch=8, queries=8, steps=2))
    assert (made.path / "report.html").exists()
    printed = capsys.readouterr().out
    assert all(f"{name}: " in printed for name in ("reference", "llm_1", "llm_2"))
    samples = (made.path / "samples.jsonl").read_text("utf-8")
    assert ("user: " in samples) == (example is dialogue)
