"""Values and errors of expressions, and bounds on time and memory for hostile text."""

import random
import time
import tracemalloc

import pytest

from examples.worked_tasks.expressions import LARGEST, STEPS, ExpressionError, parse, run


def value(text, x=0, **bounds):
    return run(parse(text, **bounds), x)


@pytest.mark.parametrize(
    ("text", "x", "expected"),
    [
        ("x", 7, 7),
        ("42", 7, 42),
        ("007", 0, 7),
        ("x+x+1", 3, 7),
        ("10-3-2", 0, 5),  # from the left: (10-3)-2
        ("10-(3-2)", 0, 9),
        ("2+3*x", 4, 14),  # products first
        ("(2+3)*x", 4, 20),
        ("2*3+x*5", 4, 26),
        ("((x))", -2, -2),
        ("x*x*x-(x-1)*(x+1)", 3, 19),  # 27 - 2*4
        (" 1 + x ", 2, 3),
        ("12*34", 0, 408),
    ],
)
def test_an_expression_has_the_value_worked_out_by_hand(text, x, expected):
    assert value(text, x) == expected


def test_a_program_has_signs_behind_their_operands():
    assert parse("x+2*x") == ("x", 2, "x", "*", "+")
    assert parse("(x+2)*x") == ("x", 2, "+", "x", "*")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "+",
        "x+",
        "+x",
        "-1",
        "x-",
        "xx",
        "2x",
        "x2",
        "1 2",
        "x++1",
        "()",
        "(x",
        "x)",
        ")(",
        "x(1)",
        "1+)",
        "x**2",
        "x/2",
        "x^2",
        "x=1",
        "1.5",
        "y",
        "X",
        "x\n",
        "٣",
        "²",
        "one",
        "__import__('os')",
        "f(1)",
    ],
)
def test_text_that_is_no_expression_is_refused(text):
    with pytest.raises(ExpressionError):
        parse(text)


def test_the_error_names_the_place_and_what_belongs_there():
    with pytest.raises(
        ExpressionError, match=r"'\*' where x, a number or \( belongs, at character 3 of 'x\+\*'"
    ):
        parse("x+*")
    with pytest.raises(ExpressionError, match=r"'x' where a sign or \) belongs, at character 2 of '2x'"):
        parse("2x")
    with pytest.raises(ExpressionError, match="'x\\+' is incomplete"):
        parse("x+")


def random_text(rng, depth):
    """A random expression, with spaces and needless brackets."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(["x", str(rng.randrange(20))])
    text = (
        random_text(rng, depth - 1)
        + rng.choice(["+", "-", "*", " + ", " - ", " *"])
        + random_text(rng, depth - 1)
    )
    return f"({text})" if rng.random() < 0.5 else text


def test_ten_thousand_random_expressions_have_the_value_that_python_gives_them():
    rng, checked = random.Random(0), 0
    while checked < 10_000:
        text, x = random_text(rng, 4), rng.randrange(-9, 10)
        if len(text) <= STEPS:
            expected = eval(text, {"x": x})
            if abs(expected) < 10**9:  # the largest intermediate value is then well below LARGEST
                assert value(text, x) == expected, text
                checked += 1


HOSTILE = {
    "10 MB of terms": "x+" * 5_000_000 + "x",
    "10 MB of spaces": " " * 10_000_000,
    "brackets by the million": "(" * 1_000_000 + "x" + ")" * 1_000_000,
    "a number of 10,000 digits": "9" * 10_000,
    "a number of 250 digits": "9" * 250,
    "powers of powers": "*".join(["999999"] * 30),
    "a long number of zeros and one": "0" * 300 + "1",
    "code": "__import__('os').system('true')",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_quickly_and_in_little_memory(name):
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(ExpressionError):
        value(HOSTILE[name], 1)
    seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 2
    assert peak < 1_000_000


def test_brackets_nest_as_deep_as_steps_allow_and_bounds_are_exact():
    deep = "(" * 100_000 + "x" + ")" * 100_000
    assert value(deep, 5, steps=len(deep)) == 5  # no recursion
    with pytest.raises(ExpressionError, match="an expression of 200001 characters; at most 200000 are read"):
        parse(deep, steps=200_000)
    assert value(f"{LARGEST - 2}+x", 1) == LARGEST - 1
    for text in (f"{LARGEST - 1}+x", f"0-{LARGEST - 1}-x", "1000000*1000000"):
        with pytest.raises(
            ExpressionError, match=r"an intermediate value of -?1000000000000; it must stay below"
        ):
            value(text, 1)
    with pytest.raises(ExpressionError, match="a number of 13 digits"):
        parse(str(LARGEST))
