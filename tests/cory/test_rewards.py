"""The reward functions of `cory.rewards`, worked out by hand."""

import inspect
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from cory import rewards
from cory.judges.config import JudgeConfig
from cory.judges.parsing import make
from cory_env.grading.reward_functions import Cases, ask

ROOT = Path(__file__).parents[2]
FUNCTIONS = [
    "accuracy", "brevity", "converses", "format", "length", "overlap", "overlong", "repetition",
]  # fmt: skip


def chat(text, role="assistant"):
    return [{"role": role, "content": text}]


@pytest.mark.parametrize(
    ("completion", "answer", "want"),
    [
        ("48/2 = 24, so 48 + 24 = 72", "#### 72", 1),
        ("The answer is $72.00.", "72", 1),
        ("#### 72\nQuestion: what is 3 + 4? 7", "72", 1),
        ("72, no, 71", 72, 0),
        ("one third is 1/3", "2/6", 1),
        ("no idea", "72", 0),
        ("", "72", 0),
        (chat("It is 72"), "72", 1),
        ("Paris", "paris.", 1),
        ("I think... The answer is: Paris!", "Paris", 1),
        ("Answer: the Hague", "The Hague", 1),
        ("The answer is Rome. No, the answer is Paris", "Paris", 1),
        ("The answer is Paris. No, the answer is Rome", "Paris", 0),
        ("Paris or Rome", "Paris", 0),
        ("not true", "true", 0),
        ("", "Paris", 0),
        ("The answer is >", ">", 1),
        (">", ">", 1),
        ("The answer is <", ">", 0),
        ("", ">", 0),
        ("The answer is **C++**.", "C++", 1),
        ("C#", "C++", 0),
        ("C", "C++", 0),
        (r"\boxed{(5,6)}", "(5, 6)", 1),
        (r"\boxed{(9,6)}", "(5, 6)", 0),
        ("The answer is -3 and 4.", "-3 and 4", 1),
        ("The answer is 3 and 4.", "-3 and 4", 0),
        ("It is 6", "(5, 6)", 0),
        ("...", "...", 1),
        ("", "...", 0),
        ("The answer is 72 clips.", "She sold 72 clips.", 1),
        ("72", "48/2 = 24. And 48 + 24 = 72", 1),
        (r"\boxed{5, 6}", r"\left(5, 6\right)", 1),
        ("The answer is x + 2x.", "-x + 2x", 0),
        ("The answer is 72", "72g", 1),
        ("The answer is 60.", "60 km/h", 1),
        ("The answer is 5", r"5 \text{ feet}", 1),
    ],
)
def test_accuracy_compares_final_numbers_or_words(completion, answer, want):
    assert rewards.accuracy(["?"], [completion], answer=[answer]) == [want]


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("2x+3", "3"),
        ("-2x + 3", "2x + 3"),
        ("y = 2x + 3", "3"),
        ("x^2+1", "1"),
        (r"\left( 3, \frac{\pi}{2} \right)", "2"),
        (r"(-\infty, 5]", "5"),
        ("x = 5 or x = -3", "-3"),
        ("6 + 9i", "9"),
        ("3:4", "1:4"),
        ("10:30", "9:30"),
        ("12/25/2024", "1/25/2024"),
        ("3 hours 20 minutes", "20"),
        (r"\frac{x+2}{7}", r"\frac{x+3}{7}"),
        ("#### 2x + 3", "#### 2x + 5"),
        (r"\boxed{10:30}", r"\boxed{10:45}"),
    ],
)
def test_accuracy_takes_an_answer_of_several_numbers_or_a_formula_whole(answer, wrong):
    bare = answer.removeprefix("#### ").removeprefix(r"\boxed{")
    bare = bare.removesuffix("}") if bare in answer and answer.startswith(r"\boxed") else bare
    right = [bare, f"The answer is {bare}.", rf"so \boxed{{{bare}}}.", f"hence\n#### {bare}"]
    assert rewards.accuracy(["?"] * 4, right, answer=[answer] * 4) == [1] * 4
    assert rewards.accuracy(["?"], [wrong], answer=[answer]) == [0]


@pytest.mark.parametrize("answer", [" ", None, float("nan")])
def test_accuracy_refuses_a_missing_answer(answer):
    with pytest.raises(ValueError, match="an answer is missing; drop the row"):
        rewards.accuracy(["?"], ["None"], answer=[answer])


@pytest.mark.parametrize(
    ("completion", "want"),
    [
        ("<think>48 / 2\n= 24</think>\nIt is 24.", 1),
        (" <think></think> 24 ", 1),
        (chat("<think>a</think>b"), 1),
        ("24", 0),
        ("<think>48 / 2", 0),
        ("<think>48 / 2</think>", 0),
        ("So: <think>48 / 2</think> 24", 0),
        ("<think>a</think> b <think>c</think> d", 0),
        ("<think>a <think>b</think></think> c", 0),
    ],
)
def test_format_asks_for_thoughts_and_an_answer(completion, want):
    assert rewards.format(["?"], [completion]) == [want]


def test_format_takes_a_pattern_for_all_rows_or_one_for_each():
    lines = partial(rewards.format, pattern=r"- .*")
    assert lines(["-"] * 3, ["- a\n- b", "a - b", "- "]) == [1, 0, 0]
    patterns = [r"\d+", r"[a-z]+", r"\d+"]
    assert rewards.format(["-"] * 3, ["12", "12", "12 "], pattern=patterns) == [1, 0, 1]


def test_a_pattern_that_fails_on_long_text_takes_no_time():
    assert rewards.format(["?"], ["<think>" + "a <" * 20_000]) == [0]


def test_brevity_is_the_share_of_words_saved():
    assert rewards.brevity(["one two three four"] * 2, ["one", "1 2 3 4 5"]) == [0.75, -0.25]
    assert rewards.brevity(["", chat("a b", "user")], ["a", chat("b")]) == [0, 0.5]


def test_length_is_1_between_the_least_and_the_most_words():
    assert rewards.length(["-"] * 4, ["", "a", "a " * 100, "a " * 101]) == [0, 1, 1, 0]
    assert rewards.length(["-"] * 3, ["a", "a b", chat("a b c d")], least=2, most=[3, 3, 4]) == [0, 1, 1]


def test_overlong_falls_from_0_to_minus_1_within_the_margin():
    # margin 4 below a limit of 10: 6 words cost nothing, 7 a quarter, 10 and more all
    penalty = partial(rewards.overlong, limit=10, margin=4)
    texts = [" ".join("w" * n) for n in (0, 6, 7, 9, 10, 25)]
    assert penalty(["-"] * 6, texts) == [0, 0, -0.25, -0.75, -1, -1]
    assert rewards.overlong(["-"] * 2, ["a " * 50, chat("a " * 75)]) == [0, -0.5]
    assert rewards.overlong(["-"] * 2, ["a b", "a b"], limit=[2, 4], margin=2) == [-1, 0]
    assert rewards.overlong(["-"] * 2, ["a b", "a b c"], limit=2, margin=0) == [0, -1]


def test_overlap_is_rouge_l_by_hand():
    # the cat on the mat: 5 words of 6 and of 5, F1 = 2 * 5 / 11; the cat: 2 of 5 and of 5
    (near,) = rewards.overlap(["-"], ["The cat sat on the mat."], summary=["the cat, on the mat"])
    assert near == pytest.approx(10 / 11)
    assert rewards.overlap(["-"], ["the mat: the cat sat"], ["the cat on the mat"]) == [pytest.approx(0.4)]
    assert rewards.overlap(["-"] * 3, ["", "dog", chat("cat")], ["cat", "", "cat"], more=[0] * 3) == [0, 0, 1]


def test_a_letter_with_an_accent_is_one_letter_in_either_encoding():
    one, two = "\u00e9t\u00e9", "e\u0301te\u0301"  # composed and decomposed
    assert rewards.accuracy([""], [f"The answer is {one}."], answer=[two]) == [1.0]
    assert rewards.accuracy([""], [one], answer=["ete"]) == [0.0]
    assert rewards.overlap([""], [two], summary=[one]) == [1.0]
    assert rewards.length([""], [f"{two}s"], most=1) == [1.0]


def test_repetition_is_minus_the_share_of_ngrams_that_were_there_before():
    # a b a b a b: four groups of three, two different; a b c: one; of pairs in `no no no`, one of two
    texts = ["a b a b a b", "a b c", "a b", ""]
    assert rewards.repetition(["-"] * 4, texts) == [-0.5, 0, 0, 0]
    assert rewards.repetition(["-"] * 2, [chat("no no no"), "no"], size=2) == [-0.5, 0]


def test_dialogue_by_hand():
    # three words, new, a question: 1.5; three whose pairs are both in the prompt: 1.5 - 1; too short: 0; `no`
    # four times: the pair no-no three times, two of them repeated: 1 - 2/3
    prompts = [chat("How are you today?", "user")] * 4
    completions = ["Fine, and you?", "How are you?", "Fine", "no no no no"]
    got = rewards.converses(prompts, [chat(text) for text in completions])
    assert got == pytest.approx([1.5, 0.5, 0, 1 / 3])
    (long,) = rewards.converses(["?"], [" ".join(map(str, range(41)))])
    assert long == 0


def test_every_function_has_the_signature_of_a_reward():
    found = [
        name
        for name, value in vars(rewards).items()
        if inspect.isfunction(value) and not name.startswith("_") and value.__module__ == "cory.rewards"
    ]
    assert sorted(found) == FUNCTIONS
    columns = {"answer": ["4"], "summary": ["four"], "level": [1]}
    case = Cases(prompts=["2 + 2?"], answers=["4"], texts=[""], columns=columns)
    for name in found:
        (score,) = getattr(rewards, name)(["2 + 2?"], ["4"], **columns)
        assert isinstance(score, float), name
        (same,) = ask(getattr(rewards, name), case)
        assert same == score


def test_bundled_rewards_are_judges_by_name_in_worker_processes():
    judge = make("cory.rewards:overlap + 2*cory.rewards:accuracy", JudgeConfig(timeout=60), device="cpu")
    cases = Cases(
        prompts=["-", "-"],
        answers=["the cat: 4", "5"],
        texts=["", ""],
        columns={"summary": ["the cat", "x"], "answer": ["4", "4"]},
    )
    assert judge.judge(cases) == pytest.approx([0.8 + 2, 0])
    missing = Cases(prompts=["-"], answers=["4"], texts=[""], columns={"summary": ["x"]})
    with pytest.raises(ValueError, match=r"it needs a column 'answer'; the columns .* are 'summary'"):
        judge.judge(missing)
    judge.close()


def test_the_module_imports_the_standard_library_only():
    """A worker process imports it within its memory limit; grading is imported at its first use."""
    script = f"""
import sys
sys.path[:0] = [{str(ROOT / "agents")!r}, {str(ROOT)!r}]
import cory.rewards
heavy = {{"numpy", "torch", "cory_env", "gymnasium", "transformers"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
