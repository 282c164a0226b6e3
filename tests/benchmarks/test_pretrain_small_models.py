"""The supervised examples of the models that benchmarks/learning/small_tasks.py starts from."""

import re
from itertools import islice

import numpy as np

from benchmarks.learning import pretrain_small_models as pretrain
from cory_env import tasks
from cory_env.tokenizer import wrap

QUESTIONS = ["Ann had 5 figs and 2 pears. She ate 3 figs. How many figs has she?", "Is 7 more than 4?"]


def test_every_calculation_is_right_and_uses_each_number_at_most_once():
    rng = np.random.default_rng(0)
    texts = [pretrain.calculation([12, 5, 60], rng) for _ in range(3000)]
    seen = set()
    for text in filter(None, texts):
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
    assert {text.count("\n") for text in filter(None, texts)} == {0, 1}


def word_task(tmp_path):
    rows = [f'{{"body": "", "question": "{q} {i}", "answer": 1}}' for i, q in enumerate(QUESTIONS * 20)]
    (tmp_path / "q.jsonl").write_text("\n".join(rows))
    tokenizer = wrap(pretrain.word_tokenizer(QUESTIONS * 3))
    return tasks.load("svamp", tokenizer=tokenizer, data=tmp_path / "q.jsonl")


def test_a_question_keeps_its_words_and_the_answer_is_made_of_its_new_numbers(tmp_path):
    task = word_task(tmp_path)
    for bare, words in ((False, "is more than ?"), (True, "")):
        examples = pretrain.word_examples(task, QUESTIONS[1:], np.random.default_rng(0), bare=bare)
        for prompt, target in islice(examples, 20):
            question = task.tokenizer.decode(prompt).removeprefix("question:").removesuffix("\nanswer:")
            assert " ".join(re.sub(r"\d+", "", question).split()) == words
            a, b, _ = re.fullmatch(r"(\d+)[-+*/](\d+)=(\d+)", task.tokenizer.decode(target)).groups()
            assert sorted(re.findall(r"\d+", question)) == sorted([a, b])
            assert target[-1] in task.tokenizer.eos


def test_only_the_target_is_learned_each_id_one_position_early():
    ids_BT, target_BT = pretrain.batch_of(iter([([5, 6, 7], [8, 9]), ([4], [3])]), 2)
    assert ids_BT.tolist() == [[5, 6, 7, 8, 9], [4, 3, 0, 0, 0]]
    assert target_BT.tolist() == [[-100, -100, 8, 9, -100], [3, -100, -100, -100, -100]]


def test_programs_are_taught_on_train_functions_only():
    task = tasks.load("programs", tokenizer=wrap(pretrain.letter_tokenizer()), **pretrain.PROGRAMS)
    train = {query.text: query for query in task.queries("train")}
    for prompt, target in islice(pretrain.program_examples(task, np.random.default_rng(0)), 50):
        query = train[task.tokenizer.decode(prompt).removesuffix(" f(x)=")]
        response = tasks.programs.Response.of(target, task.tokenizer)
        assert task.score([query], [response]) == [1.0]
