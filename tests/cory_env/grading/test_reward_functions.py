"""Calling conventions of judges and the arguments that each one gets."""

import asyncio
from dataclasses import replace

import pytest

from cory_env.grading.reward_functions import CaseJudge, Cases, Signature, ask

CHAT = [{"role": "user", "content": "hi"}]
CASES = Cases(prompts=["p", CHAT], answers=["a", "b"], texts=["pa", "hib"], columns={"gold": [1, 2]})


def test_a_completion_of_a_chat_is_a_message_and_of_a_text_a_text():
    assert CASES.completions == ["a", [{"role": "assistant", "content": "b"}]]


def test_a_slice_of_the_cases_slices_every_sequence():
    part = CASES[1:2]
    assert (part.prompts, part.answers, part.texts) == ([CHAT], ["b"], ["hib"])
    assert (part.columns, len(part), len(CASES)) == ({"gold": [2]}, 1, 2)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda texts: texts, ["pa", "hib"]),
        (lambda texts, _power=2: texts, ["pa", "hib"]),
        (lambda completions: completions, CASES.completions),
        (lambda prompts, completions: (prompts, completions), (["p", CHAT], CASES.completions)),
        (lambda completions, gold: (completions, gold), (CASES.completions, [1, 2])),
        (lambda completions, gold=None: (completions, gold), (CASES.completions, [1, 2])),
        (lambda completions, level=3: (completions, level), (CASES.completions, 3)),
        (lambda completions, **columns: [len(completions), *sorted(columns)], [2, "gold", "prompts"]),
        (lambda *, completions, prompts: (prompts, completions), (["p", CHAT], CASES.completions)),
    ],
)
def test_a_function_gets_the_arguments_it_names(function, expected):
    assert ask(function, CASES) == expected


def test_a_missing_column_is_named_and_a_function_of_texts_needs_none():
    with pytest.raises(
        ValueError, match="it needs a column 'best'; the columns beside the prompt are 'gold'"
    ):
        ask(lambda prompts, completions, best: (prompts, completions, best), CASES)
    assert Signature.of([]).needs == ()


@pytest.mark.parametrize("name", ["completion_ids", "responses", "seat"])
def test_a_column_with_the_name_of_what_a_function_gets_of_a_response_is_refused(name):
    function = {
        "completion_ids": lambda completions, completion_ids: (completions, completion_ids),
        "responses": lambda completions, responses: (completions, responses),
        "seat": lambda completions, seat: (completions, seat),
    }[name]
    with pytest.raises(ValueError, match=f"it names '{name}', .* and the data have a column of that name"):
        ask(function, replace(CASES, columns={name: [0, 0]}, ids=[(1,), (2,)]))


def test_calls_of_an_async_function_share_one_event_loop():
    """A semaphore is bound to the loop in which somebody waits for it."""
    limit = asyncio.Semaphore(1)

    async def scored(text):
        async with limit:
            await asyncio.sleep(0)
            return len(text)

    async def judge(texts):
        return await asyncio.gather(*map(scored, texts))

    assert [ask(judge, CASES) for _ in range(2)] == [[2, 3]] * 2


def test_a_judge_of_cases_takes_texts_as_responses_to_empty_prompts():
    class Lengths(CaseJudge):
        def judge(self, cases):
            return [
                float(len(response) + len(prompt))
                for response, prompt in zip(cases.answers, cases.prompts, strict=True)
            ]

    assert Lengths()(["ab", "c"]) == [2, 1]
    assert ask(Lengths(), CASES) == [2, 2]


def test_a_function_that_changes_its_arguments_changes_no_data():
    def takes(prompts, completions, gold):
        prompts[1][0]["content"] = "changed"
        return [gold_of_one.pop() for gold_of_one in gold]

    chat, gold = [{"role": "user", "content": "hi"}], ["right"]
    cases = replace(CASES, prompts=["p", chat], columns={"gold": [gold, gold]})  # two responses to one row
    assert ask(takes, cases) == ask(takes, cases) == ["right", "right"]
    assert (chat, gold) == (CHAT, ["right"])
