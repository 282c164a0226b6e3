"""Tables of an evaluation in a terminal: whole at 80 columns, with the reason for missing intervals."""

import pytest

from cory.report.evaluation import make_tables, remarks
from cory.report.tables import Table, cell, print_tables, split_columns

SEATS = [
    f"{seat}/{name}" for name in ("reference_llm_1", "llm_1", "llm_2") for seat in ("pioneer_0", "observer_1")
]
METRICS = {"task_reward": -0.125, "reference_perplexity": 123.456}
INTERVALS = {"task_reward": [-0.25, 0.5], "reference_perplexity": [100.5, 150.25]}
SUMMARY = {
    "data": {"test": 99, "left_out": []},
    "queries": 64, "samples": 1, "sampling": "own", "kl_coef": 0.2, "threshold": None,
    "metrics": {"llm_1": METRICS},
    "intervals": {"llm_1": INTERVALS},
    "gain_over_reference": {},
    "in_game": {name: {"seating": {}, "metrics": METRICS, "intervals": INTERVALS} for name in SEATS},
    "comparison": {}, "collapse": {}, "failures": [],
    "collapse_signs": ["length below half"],
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 60, 120])
def test_every_seat_and_number_is_whole_in_a_narrow_terminal(capsys, width):
    print_tables(make_tables(SUMMARY), remarks(SUMMARY), width=width)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= width
    for name in SEATS:
        assert shown.count(name) == 1
    assert shown.count("-0.125 [-0.250, 0.500]") == 1 + len(SEATS)
    assert shown.count("123.456 [100.500, 150.250]") == 1 + len(SEATS)
    assert "…" not in shown
    assert shown.count("in the game") == 1


def test_a_table_has_as_many_columns_as_fit():
    """A first column of 4 and columns of 10 take 1 + 7 + 13 n: two in 34, three in 47; at least one."""
    table = Table("title", ["", *(f"column {i:03d}" for i in range(5))], [["name", *"12345"]])
    for width, counts in ((33, [1] * 5), (34, [2, 2, 1]), (47, [3, 2]), (46, [2, 2, 1]), (10, [1] * 5)):
        parts = split_columns(table, width)
        assert [len(part.head) - 1 for part in parts] == counts
        assert [text for part in parts for text in part.rows[0][1:]] == list("12345")
        assert all(part.rows[0][0] == "name" for part in parts)


def test_a_missing_interval_is_a_dash_and_one_line_tells_why():
    assert cell(1.0, None, None) == "1.000 [-]"
    assert cell(None, None, None) == "-"
    assert remarks(SUMMARY)[0].startswith("Signs of collapse")
    at_edge = {"llm_1": {**INTERVALS, "task_reward": [None, None]}}
    assert "a value at the edge of its range" in remarks({**SUMMARY, "intervals": at_edge})[0]


def test_a_metric_that_is_not_finite_is_not_called_an_edge():
    changed = {
        "metrics": {"llm_1": {"task_reward": None}},
        "intervals": {"llm_1": {"task_reward": [None, None]}},
    }
    assert remarks({**SUMMARY, **changed})[0].startswith("Signs of collapse")
