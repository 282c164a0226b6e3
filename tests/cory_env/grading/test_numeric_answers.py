"""Verdicts on outputs of many forms, and bounds on time for hostile ones."""

import json
import time
from pathlib import Path

import pytest

from cory_env.grading.numeric_answers import LONGEST, extract_answer, is_correct

GSM8K = Path(__file__).parents[4] / "shared" / "data" / "gsm8k"

OUTPUTS = [
    # the mark of the data set
    ("She sold 48 + 24 = 72 clips.\n#### 72", "72", True),
    ("She sold 48 + 24 = 72 clips.\n#### 73", "72", False),
    ("#### 72\nThat is 6 dozen, or 6 * 12.", "72", True),
    ("#### 71\nNo, wait.\n#### 72", "72", True),
    ("#### 72\nNo, wait.\n#### 71", "72", False),
    ("####72", "72", True),
    ("####\n72", "72", True),
    ("#### The answer is 72", "72", True),
    ("#### 72 clips in 2 months", "72", True),
    ("#### **72**", "72", True),
    ("#### <<48+24=72>>72", "72", True),
    ("#### 48 + 24 = 72", "72", True),
    ("#### 48 + 24", "48", False),  # nothing is computed, and the first number is not the result
    ("#### 48 + 24", "24", False),
    ("#### 48 + 24", "72", False),
    ("So it is 72.\n####", "72", True),  # nothing behind the mark: the last number in the text
    ("\\boxed{71}\n#### 72", "72", True),
    ("The answer is 71.\n#### 72", "72", True),
    # boxes
    (r"Therefore $\boxed{72}$.", "72", True),
    (r"\boxed{71}, or rather \boxed{72} since 3 * 24 = 72 > 70", "72", True),
    (r"\boxed{\$1{,}234.50}", "1234.5", True),
    (r"\boxed{\frac{3}{4}}", "0.75", True),
    (r"\boxed{-\dfrac12}", "-1/2", True),
    (r"\boxed{3\frac{1}{2}}", "3.5", True),
    (r"\boxed{72\text{ clips in }2\text{ months}}", "72", True),
    (r"\boxed{x = 72}", "72", True),
    (r"\boxed{6 \times 12 = 72}", "72", True),
    (r"\boxed{6 \times 12}", "12", False),
    (r"\boxed{\text{72}}", "72", True),
    (r"\boxed{72", "72", True),  # cut off at the cap
    (r"I get 72 at first. \boxed{}", "72", True),
    (r"The answer is 72. \boxed{71}", "72", False),
    # phrases
    ("The answer is 72.", "72", True),
    ("The answer is 72. To check: 72 - 24 = 48.", "72", True),
    ("The answer is 72 because 3 * 24 = 72 and 72 < 100.", "72", True),
    ("The answer is 71. No, the answer is 72.", "72", True),
    ("The answer is that 3 boxes cost 12 dollars.", "12", True),
    ("The answer is: $1,234.", "1234", True),
    ("the Answer is\n\n72", "72", True),
    ("The final answer is approximately 72 km over 3 days.", "72", True),
    ("The answer is -5 degrees", "-5", True),
    ("The answer is - 5", "-5", True),
    ("The answer is minus 5", "-5", True),
    ("The answer is 10 - 5 = 5.", "5", True),
    ("The answer is 10-20.", "10", False),  # a range
    ("The answer is 5:30", "5", False),  # a time of day
    ("The answer is 12/25/2020", "0.48", False),  # a date
    ("The answer is Rs. 500.", "500", True),
    ("The answer is unknown, though 72 clips were sold. I think.", "72", True),
    ("A: 72", "72", True),
    ("A: 72 clips.\nShe sold 24 in May.", "72", True),
    ("A: She sold 48/2 = 24 clips in May.\nIn all 48 + 24 = 72 clips.", "72", True),
    ("A: 24 clips were sold in May, so 48 + 24 = 72 in all", "72", True),
    ("**Answer:** 72", "72", True),
    ("**Answer:** 72 clips. She had 48 in May.", "72", True),
    ("Answer: 48/2 = 24. So 48 + 24 = 72", "72", True),
    ("**Answer**: 72\n\nExplanation: 48 in April, 24 in May.", "72", True),
    ("MEGA: 5 and then 72", "72", True),
    ("Group A: 12 students\nGroup B: 60 students\n12 + 60 = 72", "72", True),
    # the last number
    ("She sold 72", "72", True),
    ("She sold 48, then 24", "72", False),
    ("72 clips were sold in 2 months", "72", False),
    ("It costs $1,234,567.", "1234567", True),
    ("It costs 1234567 dollars and 00 cents is too much, so 1,234,567.00", "1234567", True),
    ("So it is 1\u202f234.", "1234", True),
    ("They were 5,10,15", "15", True),
    ("It costs $.50", "0.5", True),
    ("It costs 0.50", "1/2", True),
    ("It rose by 20%", "20", True),
    ("It rose by 20%", "0.2", False),
    ("It rose by 20\\%.", "20", True),
    ("It costs €3.20 per kg", "3.2", True),
    ("It costs USD5", "5", True),
    ("5kg", "5", True),
    ("He finished 3rd", "3", True),
    ("He walked 3 1/2 miles", "3.5", True),
    ("He walked 3\u00bd miles", "3.5", True),
    ("a third, that is 2/6", "1/3", True),
    ("a third, that is 0.33", "1/3", False),
    ("48/2", "24", True),
    ("It fell to \u22125", "-5", True),
    ("It fell to -$5", "-5", True),
    ("It fell to $-5", "-5", True),
    ("It fell to -$5", "5", False),
    ("There were 20-5", "-5", False),
    ("There were 20 -5", "5", True),
    ("x = -5", "-5", True),
    ("x = - 5", "-5", True),
    ("We need:\n- 5 apples", "5", True),  # a bullet
    ("a 2-by-4 of type-5", "5", True),  # hyphens
    ("negative 5", "-5", True),
    ("-0", "0", True),
    ("007", "7", True),
    ("reduce the CO2", "2", False),  # part of a name
    ("3 reductions of CO2", "3", True),
    ("10/0", "10", False),
    # another question follows; no number
    ("#### 72\n\nQuestion: How many are 5 and 5?\nAnswer: #### 10", "72", True),
    ("#### 72\n\nQuestion: How many are 5 and 5?\nAnswer: #### 10", "10", False),
    ("Question: is it 72?", "72", False),
    ("I cannot say.", "72", False),
    ("seventy-two", "72", False),
    ("", "72", False),
    ("\u0667\u0662", "72", False),  # digits of other scripts are not read
    ("__import__('os').system('exit 72')", "72", True),  # text is never run
    ("9**9**9**9", "9", True),
    ("#### 10x5=50", "50", True),  # a calculation with or without spaces
    ("#### 5 x3 = 15", "15", True),
    ("The answer is 10x5=50.", "50", True),
]


@pytest.mark.parametrize(("output", "gold", "verdict"), OUTPUTS)
def test_an_output_gets_the_verdict_of_a_human(output, gold, verdict):
    assert is_correct(output, gold) is verdict


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("$1,234.50", "1234.5"),
        ("2469/2", "1234.5"),
        ("-6/4", "-1.5"),
        ("2/6", "1/3"),
        ("1 1/3", "4/3"),
        ("0.000", "0"),
        ("1/0", None),
        ("none", None),
    ],
)
def test_a_number_is_normalised(text, normalised):
    assert extract_answer(text) == normalised


WHOLE_OR_NONE = [
    ("#### 1e3", "1000"),
    ("#### 1.5e6", "1500000"),
    ("#### 1E+3", "1000"),
    ("#### 2.5e-3", "0.0025"),
    ("#### -1e3/4", "-250"),
    ("#### 1e9999", None),
    # thousands
    (r"\boxed{1\ 000}", "1000"),
    (r"\boxed{1~000}", "1000"),
    (r"\boxed{1\;000\:000}", "1000000"),
    (r"\boxed{1\thinspace 000}", "1000"),
    ("It costs 1'000", "1000"),
    ("It costs 1\u2019000\u2019000", "1000000"),
    ("#### 1_000", "1000"),
    ("In all $80 000 + $20 000 = $100 000.", "100000"),
    ("#### 12 050 300", "12050300"),
    ("5 100 dollar bills", "100"),  # two numbers: no group begins with 0
    # fractions
    (r"\boxed{\frac{\$1}{2}}", "0.5"),
    (r"\boxed{\frac{-1}{2}}", "-0.5"),
    (r"\boxed{\frac{1}{-2}}", "-0.5"),
    (r"\boxed{-\frac{-1}{2}}", "0.5"),
    ("2\u2153 cups", "7/3"),
    ("3\u215b", "3.125"),
    ("1\u20442", "0.5"),
    ("#### 1\u00bd", "1.5"),
    ("5 - \u00bd is 4.5", "4.5"),
    ("The answer is approximately -\u00bd", "-0.5"),
    ("The answer is minus \u00bd", "-0.5"),
    ("#### the change is -\u00bd", "-0.5"),
    (r"The answer is approximately -\frac{1}{2}", "-0.5"),
    (r"It is \frac{-3}{4}", "-0.75"),
    # roots, powers and products with them
    (r"\boxed{\sqrt{4}}", None),
    (r"\boxed{\sqrt[3]{8}}", None),
    (r"\boxed{2\sqrt{3}}", None),
    (r"\boxed{\frac{\sqrt{3}}{2}}", None),
    (r"\boxed{\frac{x}{2}}", None),
    (r"\boxed{3\pi}", None),
    (r"\boxed{2^{3}}", None),
    (r"\boxed{10^{6}}", None),
    (r"\boxed{(2)^3}", None),
    (r"\boxed{2^n}", None),
    (r"\boxed{2.5 \times 10^3}", None),
    (r"\boxed{5\times10^{3}}", None),
    (r"72 at first. \boxed{\log 100}", None),
    ("#### 2**3", None),
    ("#### 4\u00b2", None),
    ("It weighs 2.5 \u00d7 10\u00b3 kg", None),
    ("The answer is \u221a16", None),
    (r"\boxed{2^3 = 8}", "8"),
    (r"\boxed{\sqrt{16} = 4}", "4"),
    # an exponent of a unit is none of the number
    ("#### 25 cm^2", "25"),
    ("It is 25 m\u00b2.", "25"),
    (r"The area is 25\,\mathrm{m}^{2}.", "25"),
    (r"\boxed{90^{\circ}}", "90"),
    # more than one point or comma
    ("#### 1.000.000", None),
    ("#### 12,50", None),
    ("#### 1,00,000", None),
    ("It costs 12,00,000", None),
    ("#### 1, 2, 3", "1"),
    ("It costs 12,50", None),
    ("in version 1.2.3", None),
    (r"\boxed{0.\overline{3}}", None),
    (r"\boxed{50\%}", "50"),
]


@pytest.mark.parametrize(("text", "number"), WHOLE_OR_NONE)
def test_a_number_is_read_as_a_whole_or_not_at_all(text, number):
    assert extract_answer(text) == number


@pytest.mark.slow
def test_gold_answers_of_all_rows_are_right_and_their_neighbours_wrong():
    if not GSM8K.is_dir():
        pytest.skip(f"{GSM8K} is not on this machine")
    lines = [
        line for split in ("train", "test") for line in (GSM8K / f"{split}.jsonl").open(encoding="utf-8")
    ]
    answers = [json.loads(line)["answer"] for line in lines]
    assert len(answers) == 8792
    for answer in answers:
        gold = int(answer.split("#### ")[1].replace(",", ""))
        assert extract_answer(answer) == str(gold)
        assert is_correct(answer, answer)
        assert is_correct(str(gold), answer)
        assert not is_correct(str(gold + 1), answer)
        assert not is_correct(answer, str(gold + 1))


def test_a_gold_answer_without_a_number_is_refused():
    with pytest.raises(ValueError, match="the gold answer 'none' holds no number"):
        is_correct("72", "none")


MILLIONS = 10_000_000


UNITS = [
    *(
        "1",
        "1 ",
        "1,111",
        "111,",
        "1/",
        "1 1/",
        "1.",
        "-",
        "- 1",
        "1+",
        "1 + ",
        "(",
        "((1)",
        "{",
        "=",
        "= 1 ",
    ),
    *(r"\boxed{", r"\boxed{1", r"\frac{1", r"\frac", "\\", "#", "####", "#### 1\n", "A:", "A: 1\n", "Rs"),
    *(
        "answer ",
        "answer is ",
        "answer is 1 ",
        "Question",
        "Question:",
        "<<",
        "<<1=",
        "$",
        "$ ",
        "x=",
        "just ",
    ),
    *(
        "1e",
        "1e1",
        "1'111",
        "1 000",
        " 000",
        "1^",
        "m^2",
        "\\sqrt{",
        "\\frac{1}{",
        "2\u00b2",
        "\u00b2",
        "1,1",
        "1.1.",
    ),
    *("a", "a ", "1a", "1 aaaaaaaaaaaaaaaa ", "negative ", " ", "\n", ".", "\u00e9", "\u00bd", "\u00a0111"),
]


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_ten_megabytes_of_anything_are_read_in_bounded_time(unit):
    text = (unit * (MILLIONS // len(unit)))[:MILLIONS]
    start = time.perf_counter()
    for hostile in (text, "#### " + text[-LONGEST // 2 :], "A: " + text[-LONGEST // 2 :] + "b"):
        extract_answer(hostile)
    assert time.perf_counter() - start < 10  # measured: below half a second each


def test_nested_parentheses_and_braces_by_the_thousand_hide_no_number():
    assert extract_answer("(" * 50_000 + "72" + ")" * 50_000) == "72"
    assert extract_answer(r"\boxed{" + "{" * 50_000 + "72" + "}" * 50_000 + "} of 80") == "72"
    assert extract_answer("The answer is " + "(" * 50_000 + "72" + ")" * 50_000) == "72"


def test_numbers_of_ten_thousand_digits_are_compared_digit_by_digit():
    long = "7" * 10_000
    assert is_correct(f"#### {long}.00", f"0{long}")
    assert not is_correct(f"#### {long}", long[:-1] + "8")
    assert not is_correct(f"#### {long}", "7")
    assert is_correct(f"#### {long}/3", f"{long}/3")
    assert is_correct(f"#### 1/{'2' * 300}", f"2/{'4' * 300}")
    assert extract_answer(f"1/1{'0' * 9_999}") == f"1/1{'0' * 9_999}"
