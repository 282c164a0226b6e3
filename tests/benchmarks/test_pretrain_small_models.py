"""The models that benchmarks/learning/small_tasks.py starts from: what they are taught."""

import re
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
torch = pytest.importorskip("torch")
warm_up = pytest.importorskip("warm_up")

from cory_env import tasks  # noqa: E402
from cory_env.tokenizer import wrap  # noqa: E402

QUESTIONS = ["Ann had 5 figs and 2 pears. She ate 3 figs. How many figs has she?", "Is 7 more than 4?"]


def test_every_calculation_is_right_and_uses_each_number_at_most_once():
    chance = np.random.default_rng(0)
    said = [warm_up.calculation([12, 5, 60], chance) for _ in range(3000)]
    seen = set()
    for text in filter(None, said):
        left = [12, 5, 60]
        for line in text.split("\n"):
            a, sign, b, c = re.fullmatch(r"(\d+)([-+*/])(\d+)=(\d+)", line).groups()
            a, b, c = int(a), int(b), int(c)
            assert {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign] == c
            left.remove(a)
            left.remove(b)
            left.append(c)
            seen.add(sign)
        assert len(left) == 3 - len(text.split("\n"))
    assert seen == set("+-*/")
    assert {text.count("\n") for text in filter(None, said)} == {0, 1}


def word_task(tmp_path):
    rows = [f'{{"body": "", "question": "{q} {i}", "answer": 1}}' for i, q in enumerate(QUESTIONS * 20)]
    (tmp_path / "q.jsonl").write_text("\n".join(rows))
    tokenizer = wrap(warm_up.word_tokenizer(QUESTIONS * 3))
    return tasks.load("svamp", tokenizer=tokenizer, data=tmp_path / "q.jsonl")


def test_a_question_keeps_its_words_and_the_answer_is_made_of_its_new_numbers(tmp_path):
    pytest.importorskip("tokenizers")
    task = word_task(tmp_path)
    for bare, words in ((False, "is more than ?"), (True, "")):
        made = warm_up.word_examples(task, QUESTIONS[1:], np.random.default_rng(0), bare=bare)
        for prompt, said in islice(made, 20):
            asked = task.tokenizer.decode(prompt).removeprefix("question:").removesuffix("\nanswer:")
            assert " ".join(re.sub(r"\d+", "", asked).split()) == words
            a, b, _ = re.fullmatch(r"(\d+)[-+*/](\d+)=(\d+)", task.tokenizer.decode(said)).groups()
            assert sorted(re.findall(r"\d+", asked)) == sorted([a, b])
            assert said[-1] in task.tokenizer.eos


def test_only_what_is_said_is_learned_each_id_one_place_early():
    ids_BT, target_BT = warm_up.batch_of(iter([([5, 6, 7], [8, 9]), ([4], [3])]), 2)
    assert ids_BT.tolist() == [[5, 6, 7, 8, 9], [4, 3, 0, 0, 0]]
    assert target_BT.tolist() == [[-100, -100, 8, 9, -100], [3, -100, -100, -100, -100]]


def test_programs_are_taught_on_train_functions_alone():
    pytest.importorskip("tokenizers")
    task = tasks.load("programs", tokenizer=wrap(warm_up.letters()), **warm_up.PROGRAMS)
    train = {query.text: query for query in task.queries("train")}
    for prompt, said in islice(warm_up.program_examples(task, np.random.default_rng(0)), 50):
        query = train[task.tokenizer.decode(prompt).removesuffix(" f(x)=")]
        response = tasks.programs.Response.of(said, task.tokenizer)
        assert task.score([query], [response]) == [1.0]
