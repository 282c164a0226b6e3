"""The corpus of the arithmetic model: right answers, shares, slips, stories."""

import random
import re
import string
from itertools import islice

import pytest

from cory_env.data.splits import in_test
from cory_env.tasks.arithmetic import VERDICTS, Task, steps, worked
from examples.pocket_models.arithmetic.problems import Shares, calculated, documents, slipped
from examples.pocket_models.arithmetic.stories import WORDS

PLAIN = Shares(stories=0, worked=1, references=0)


def parts(document):
    """Question, reference (or None) and answer."""
    return re.fullmatch(r"Question: (.+)\n(?:Reference: ([^R]+)\n)?Answer: ([^RQ]+)", document).groups()


def test_the_corpus_is_a_function_of_its_seed():
    first, again, other = (list(islice(documents(seed, Shares()), 50)) for seed in (0, 0, 1))
    assert first == again != other


def test_sums_are_right_and_none_is_held_out():
    for document in islice(documents(0, PLAIN), 300):
        question, reference, answer = parts(document)
        *lines, last = answer.split("\n")
        assert last == f"#### {eval(question)}"
        assert all(eval(line.replace("=", "==")) for line in lines)
        assert reference is None
        assert not in_test(question)


@pytest.mark.slow
def test_no_document_holds_a_problem_of_the_tasks_test_split():
    test = {query.text for query in Task(worked=True, digits=2, terms=3, signs="+-").queries("test")}
    seen = {parts(document)[0] for document in islice(documents(3, PLAIN), 2000)}
    assert not test & seen


def test_shares_are_what_is_drawn():
    drawn = [parts(document) for document in islice(documents(0, Shares()), 4000)]
    share = {
        "stories": sum(question[0].isalpha() for question, _, _ in drawn) / 4000,
        "worked": sum("=" in answer for _, _, answer in drawn) / 4000,
        "references": sum(reference is not None for _, reference, _ in drawn) / 4000,
    }
    # three deviations of a share from 4,000 draws: at most 3 * sqrt(.25 / 4000) = .024
    assert share == pytest.approx({"stories": 0.35, "worked": 0.5, "references": 0.2}, abs=0.024)


def test_verdicts_say_whether_the_attempt_is_right_in_the_words_of_the_task():
    judged = Shares(stories=0, references=1, verdicts=1)
    words = set()
    for document in islice(documents(0, judged), 300):
        question, reference, _ = parts(document)
        attempt, word = reference.rsplit("\n", 1)
        assert word == ("right" if attempt.endswith(f"#### {eval(question)}") else "wrong")
        words.add(f"\n{word}")
    assert words == set(VERDICTS)
    half = islice(documents(0, Shares(references=1, verdicts=0.5)), 2000)
    judged_share = sum(bool(re.search("\n(right|wrong)\nAnswer", text)) for text in half) / 2000
    assert judged_share == pytest.approx(0.5, abs=0.034)


def test_answers_follow_from_the_question_whatever_the_reference():
    always = Shares(stories=0, worked=1, references=1, slips=1)
    for document in islice(documents(0, always), 300):
        question, reference, answer = parts(document)
        assert answer.endswith(f"#### {eval(question)}")
        assert reference.count("=") == answer.count("=")


def test_a_slip_is_made_once_and_carried_on():
    done = steps([50, 20, 7], "+-")
    for seed in range(20):
        wrong = slipped(done, random.Random(seed))
        (a, b) = (step.result - right.result for step, right in zip(wrong, done, strict=True))
        assert b in (-10, -2, -1, 1, 2, 10)
        assert a in (0, b)  # in the first step, then the second begins with it; or in the second
        assert wrong[1].left == wrong[0].result


@pytest.mark.parametrize("text", [text for text, _ in WORDS.stories] + WORDS.asides)
def test_stories_hold_known_places_only(text):
    known = set("ABxyzw") | {"things", "others", "box", "boxes", "place", "colour", "he", "He", "his", "him"}
    assert {name for _, name, _, _ in string.Formatter().parse(text) if name} <= known


@pytest.mark.parametrize("calculation", sorted({calculation for _, calculation in WORDS.stories}))
def test_stories_come_out_whole(calculation):
    rng = random.Random(0)
    for _ in range(50):
        numbers, done = calculated(calculation, rng)
        result = None
        for part in calculation.split(", "):
            result = eval(part, {}, {**numbers, "_": result})
            assert result == int(result) > 0
        assert worked(done).endswith(f"#### {int(result)}")
