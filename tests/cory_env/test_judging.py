"""Which convention a function is written in, and what it is handed."""

import pytest

from cory_env.judging import CaseJudge, Cases, Signature, ask

CHAT = [{"role": "user", "content": "hi"}]
CASES = Cases(prompts=["p", CHAT], answers=["a", "b"], texts=["pa", "hib"], columns={"gold": [1, 2]})


def test_an_answer_to_a_chat_is_a_message_and_to_a_text_a_text():
    assert CASES.completions == ["a", [{"role": "assistant", "content": "b"}]]


def test_a_part_of_the_cases_keeps_everything_together():
    part = CASES[1:2]
    assert (part.prompts, part.answers, part.texts) == ([CHAT], ["b"], ["hib"])
    assert (part.columns, len(part), len(CASES)) == ({"gold": [2]}, 1, 2)


@pytest.mark.parametrize(
    ("function", "want"),
    [
        (lambda texts: texts, ["pa", "hib"]),
        (lambda said, power=2: said, ["pa", "hib"]),
        (lambda completions: completions, CASES.completions),
        (lambda prompts, completions: (prompts, completions), (["p", CHAT], CASES.completions)),
        (lambda completions, gold: gold, [1, 2]),
        (lambda completions, gold=None: gold, [1, 2]),
        (lambda completions, level=3: level, 3),
        (lambda completions, **columns: sorted(columns), ["gold", "prompts"]),
        (lambda *, completions, prompts: prompts, ["p", CHAT]),
    ],
)
def test_a_function_is_handed_what_it_names(function, want):
    assert ask(function, CASES) == want


def test_a_needed_column_is_asked_for_and_a_text_function_needs_none():
    with pytest.raises(
        ValueError, match="it needs a column 'best'; the columns beside the prompt are 'gold'"
    ):
        ask(lambda prompts, completions, best: 0, CASES)
    assert Signature.of([]).needs == ()


def test_a_judge_of_cases_reads_texts_alone_as_answers():
    class Lengths(CaseJudge):
        def judge(self, cases):
            return [
                float(len(answer) + len(prompt))
                for answer, prompt in zip(cases.answers, cases.prompts, strict=True)
            ]

    assert Lengths()(["ab", "c"]) == [2, 1]
    assert ask(Lengths(), CASES) == [2, 2]
