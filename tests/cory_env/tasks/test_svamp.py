"""The svamp task: queries, scores, prompts and the real data set."""

import json
from pathlib import Path

import pytest

from cory_env import Response, make_views, tasks
from cory_env.tokenizer import CharTokenizer

SVAMP = Path(__file__).parents[4] / "shared" / "data" / "svamp" / "SVAMP.json"
TEXT = CharTokenizer("".join(map(chr, range(32, 127))) + "\n")

SPLITS = ("train", "validation", "test")

ROWS = [
    {"Body": "Ann had 5 figs. She ate 2", "Question": "How many has she left?", "Answer": 3.0, "Type": "-"},
    {"Body": " Bo  bought 4 pens.", "Question": "What did one cost at 12 dollars in all?", "Answer": 3},
    {"Body": "How nice!", "Question": "Is 1 more than 0?", "Answer": 1.0},
]
QUERIES = [
    "Ann had 5 figs. She ate 2. How many has she left?",
    "Bo bought 4 pens. What did one cost at 12 dollars in all?",
    "How nice! Is 1 more than 0?",
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.json").write_text(json.dumps(ROWS[:2]))
    (tmp_path / "test.json").write_text(json.dumps(ROWS[2:]))
    return tmp_path


def test_body_and_question_are_one_query_with_punctuation_between_them(folder):
    task = tasks.load("svamp", tokenizer=TEXT, data=folder)
    assert [query.text for split in SPLITS for query in task.queries(split)] == QUERIES
    assert TEXT.decode(task.queries("train")[1].ids) == f" {QUERIES[1]}"


def test_the_final_number_decides(folder):
    task = tasks.load("svamp", tokenizer=TEXT, data=folder)
    texts = ["5-2=3", "5 - 2 = 3 figs", "It is 3.0.", "5-2=4", "3-5", ""]
    # "3-5" is a calculation without a mark: its last number is 5
    query = task.queries("train")[0]
    assert task.score([query] * 6, [Response((), text) for text in texts]) == [1, 1, 1, 0, 0, 0]


def test_prompts_are_short_and_observers_read_earlier_responses_as_references(folder):
    task = tasks.load("svamp", tokenizer=TEXT, data=folder)
    pioneer, observer, third = make_views(task, seats=3)
    question = task.queries("test")[0].ids
    responses = [[*TEXT.encode(" 1-0=1"), min(TEXT.eos)], TEXT.encode(" 2")]
    assert TEXT.decode(pioneer.prompt(question, [])) == f"Question: {QUERIES[2]}\nAnswer:"
    assert TEXT.decode(observer.prompt(question, responses)) == (
        f"Question: {QUERIES[2]}\nReference: 1-0=1\nAnswer:"
    )
    assert TEXT.decode(third.prompt(question, responses)) == (
        f"Question: {QUERIES[2]}\nReference: 1-0=1\nReference: 2\nAnswer:"
    )


def test_the_data_set_on_the_hub_is_the_default(monkeypatch):
    datasets = pytest.importorskip("datasets")
    calls = []

    def load(name, config):
        calls.append((name, config))
        rows = [{**row, "Answer": str(row["Answer"])} for row in ROWS]
        return datasets.DatasetDict(
            train=datasets.Dataset.from_list(rows[:2]), test=datasets.Dataset.from_list(rows[2:])
        )

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert [query.text for query in tasks.load("svamp", tokenizer=TEXT).queries("test")] == QUERIES[2:]
    assert calls == [("ChilleD/SVAMP", None)]


def test_a_row_without_a_question_is_refused_by_its_content(folder):
    (folder / "train.json").write_text(json.dumps([{"Body": "", "Question": " ", "Answer": 2}]))
    with pytest.raises(ValueError, match=r"the row .*'answer': '2'.* lacks a question"):
        tasks.load("svamp", tokenizer=TEXT, data=folder)
    with pytest.raises(ValueError, match="the svamp task needs a tokenizer"):
        tasks.load("svamp")


def test_the_real_set_has_1000_problems_each_in_one_split_and_scores_1_for_its_own_answer():
    if not SVAMP.is_file():
        pytest.skip(f"{SVAMP} is not on this machine")
    task = tasks.load("svamp", tokenizer=TEXT, data=SVAMP, max_query=1000)
    train, validation, test = (list(task.queries(split)) for split in SPLITS)
    assert (len(train) + len(validation), len(test)) == (791, 209)
    assert len(validation) == 68
    every = train + validation + test
    assert len({query.text for query in every}) == 1000
    raw = json.loads(SVAMP.read_text())
    gold = {letters(row["Body"] + row["Question"]): int(row["Answer"]) for row in raw}
    answers = [gold[letters(query.text)] for query in every]
    for more, score in ((0, 1.0), (1, 0.0)):
        assert task.score(every, [Response((), f"x={n + more}") for n in answers]) == [score] * 1000


def letters(text):
    return "".join(text.replace(".", "").split())
