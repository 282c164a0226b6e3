"""The gsm8k task: queries, scores, prompts, options and the real data set."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cory_env import Response, VectorGame, make_views, tasks
from cory_env.grading.numeric_answers import extract_answer, is_correct
from cory_env.tasks.gsm8k import SHOT, Task
from cory_env.tokenizer import CharTokenizer, HFTokenizer

GSM8K = Path(__file__).parents[4] / "shared" / "data" / "gsm8k"
SPLITS = ("train", "validation", "test")
TEXT = CharTokenizer("".join(map(chr, range(32, 127))) + "\n")

ROWS = {
    "train": [("How many are 2 and 3?", "2 + 3 = 5\n#### 5"), ("And 600 more than 400?", "#### 1,000")],
    "test": [("How many is half of 9?", "9 / 2 = 4.5\n#### 4.5")],
}


def write(path, rows):
    path.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows))
    return path


@pytest.fixture
def folder(tmp_path):
    for split, rows in ROWS.items():
        write(tmp_path / f"{split}.jsonl", rows)
    return tmp_path


def response_of(text, tokenizer=TEXT):
    return Response.of([*tokenizer.encode(text), min(tokenizer.eos)], tokenizer)


def test_a_query_is_the_question_and_its_row_the_solution(folder):
    task = tasks.load("gsm8k", tokenizer=TEXT, data=folder)
    query = task.queries("test")[0]
    assert (query.text, query.row["answer"]) == ("How many is half of 9?", "9 / 2 = 4.5\n#### 4.5")
    assert TEXT.decode(query.ids) == " How many is half of 9?"
    assert [q.text for q in task.queries("train")] == [q for q, _ in ROWS["train"]]
    assert task.max_query == 23  # a space and the 22 characters of "And 600 more than 400?"


def test_a_response_scores_1_for_the_number_and_0_for_any_other(folder):
    task = Task(TEXT, data=folder)
    queries = [*task.queries("train"), *task.queries("train")]
    texts = ["2 + 3 = 5", "#### $1000", "2 + 3 = 6\n#### 6", ""]
    assert task.score(queries, [response_of(text) for text in texts]) == [1.0, 1.0, 0.0, 0.0]


def test_observers_read_earlier_responses_between_question_and_answer(folder):
    task = Task(TEXT, data=folder)
    pioneer, observer, third = make_views(task, seats=3)
    question = task.queries("train")[0].ids
    eos = min(TEXT.eos)
    responses = [[*TEXT.encode(" 2 + 3 = 5\n#### 5"), eos], [*TEXT.encode(" 6"), eos]]
    assert TEXT.decode(pioneer.prompt(question, [])) == f"{SHOT}Question: How many are 2 and 3?\nAnswer:"
    assert TEXT.decode(observer.prompt(question, responses)) == (
        f"{SHOT}Question: How many are 2 and 3?\nReference: 2 + 3 = 5\n#### 5\nAnswer:"
    )
    assert TEXT.decode(third.prompt(question, responses)).endswith(
        "2 and 3?\nReference: 2 + 3 = 5\n#### 5\nReference: 6\nAnswer:"
    )
    blind = make_views(task, seats=2, sees="none")[1]
    assert blind.prompt(question, responses) == pioneer.prompt(question, [])


def test_the_worked_example_is_right_and_shows_the_mark():
    # 4 * 12 - 30 = 18 rolls, in bags of 6
    assert extract_answer(SHOT.removeprefix("Question:")) == "3"
    assert SHOT.count("Question:") == SHOT.count("Answer:") == SHOT.count("####") == 1


def make_tokenizer(kind, pieces, *, splits, chat=None):
    """A loaded Hugging Face tokenizer with the vocabulary `pieces`."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    inner = tokenizers.Tokenizer(kind(tokenizers.models)(vocabulary))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(splits), "isolated")
    inner.decoder = tokenizers.decoders.Fuse()
    inner.add_special_tokens([piece for piece in pieces if piece.startswith("<") and len(piece) > 1])
    loaded = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>")
    loaded.chat_template = chat
    return HFTokenizer(loaded)


def test_words_of_a_question_have_the_ids_of_words_inside_a_text(folder):
    words = [word for question, _ in ROWS["train"] + ROWS["test"] for word in question.split()]
    pieces = ["?", "</s>", "\n", "Question:", *(f" {word}" for word in words), *words]
    tokenizer = make_tokenizer(
        lambda models: partial(models.WordLevel, unk_token="?"), pieces, splits=" ?[^ \n]+|\n"
    )
    query = Task(tokenizer, data=folder).queries("train")[0]
    assert list(query.ids) == tokenizer.encode("Question: How many are 2 and 3?")[1:]


def test_a_chat_has_question_and_reference_in_the_message_of_the_user(folder):
    chat = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}{{ '<assistant>{x}' }}"
    pieces = [*TEXT.alphabet, "<system>", "<user>", "<assistant>", "</s>"]
    tokenizer = make_tokenizer(lambda models: partial(models.BPE, merges=[]), pieces, splits=".", chat=chat)
    task = Task(tokenizer, data=folder, chat=True)
    pioneer, observer = make_views(task, seats=2)
    question, response = task.queries("train")[0].ids, tokenizer.encode("It is 5.")
    text = tokenizer.inner.decode(observer.prompt(question, [response]))
    system, user, assistant = text.split("</s>")
    assert system.startswith("<system>Solve the problem step by step.")
    assert user == "<user>Question: How many are 2 and 3?\nReference:\nIt is 5."
    assert assistant == "<assistant>{x}"
    text = tokenizer.inner.decode(pioneer.prompt(question, []))
    assert text == f"{system}</s><user>Question: How many are 2 and 3?</s><assistant>{{x}}"


def test_a_game_is_played_and_scored(folder):
    task = Task(TEXT, data=folder)
    game = VectorGame(task, max_response=9)
    game.reset(task.queries("train"), 9)
    for seat, text in zip(game.seats, ("5", "#### 1000"), strict=True):
        ids = [*TEXT.encode(text), *[min(TEXT.eos)] * 9][:9]
        game.respond(seat, np.array([ids, ids]), np.full(2, min(len(text) + 1, 9)))
    assert game.scores().tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_questions_that_are_too_long_are_left_out_and_counted(folder):
    write(folder / "test-more.jsonl", [("How many is 1?", "#### 1")])
    task = Task(TEXT, data=folder, max_query=22)  # " How many are 2 and 3?" has 22 characters
    texts = {split: [query.text for query in task.queries(split)] for split in ("train", "test")}
    assert texts == {"train": ["How many are 2 and 3?"], "test": ["How many is 1?"]}
    assert task.left_out == [f"1 {s} queries of more than 22 tokens are left out" for s in ("train", "test")]
    assert task.max_query == 22


def test_a_single_file_is_divided_and_no_question_is_in_both_splits(tmp_path):
    rows = [(f"How much is {i}?", f"#### {i}") for i in range(50)]
    task = Task(TEXT, data=write(tmp_path / "mine.jsonl", [*rows, *rows]))
    texts = {split: {query.text for query in task.queries(split)} for split in SPLITS}
    assert len(set().union(*texts.values())) == 50 == sum(len(task.queries(split)) for split in SPLITS)
    assert all(texts.values())


def test_questions_that_differ_in_outer_spaces_are_one(tmp_path):
    rows = [(f"How much is {i}?", f"#### {i}") for i in range(50)]
    spaced = [(f" {question}\n", answer) for question, answer in rows[:25]]
    for name, of_split in (("train", rows), ("test", [*spaced, ("And 99?", "#### 99")])):
        write(tmp_path / f"{name}.jsonl", of_split)
    assert [query.text for query in Task(TEXT, data=tmp_path).queries("test")] == ["And 99?"]


def test_the_data_set_on_the_hub_is_the_default(monkeypatch):
    datasets = pytest.importorskip("datasets")
    calls = []

    def load(name, config):
        calls.append((name, config))
        columns = {split: list(zip(*rows, strict=True)) for split, rows in ROWS.items()}
        return datasets.DatasetDict(
            {s: datasets.Dataset.from_dict({"question": q, "answer": a}) for s, (q, a) in columns.items()}
        )

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert len(Task(TEXT).queries("train")) == 2
    assert calls == [("openai/gsm8k", "main")]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"max_query": 0}, "max_query is 0; give the most tokens of a question, from 1"),
        ({"max_query": 5}, "every one of 2 train queries is longer than max_query, 5 tokens; .* least 22"),
        ({"chat": True}, "the template of pioneer_0 is a chat and this tokenizer has no chat template"),
    ],
)
def test_wrong_options_are_refused(folder, options, fault):
    with pytest.raises(ValueError, match=fault):
        make_views(Task(TEXT, data=folder, **options), seats=1)


@pytest.mark.parametrize("row", [(" ", "#### 5"), ("How many?", "many"), ("How many?", "#### 5/0")])
def test_a_row_without_a_question_or_a_number_is_quoted_in_the_error(folder, row):
    write(folder / "train.jsonl", [("How many is 1?", "#### 1"), row])
    with pytest.raises(ValueError, match=r"the row .* lacks a question or a number in its answer"):
        Task(TEXT, data=folder)


def test_a_missing_tokenizer_is_named():
    with pytest.raises(ValueError, match="the gsm8k task needs a tokenizer"):
        Task()


@pytest.mark.slow
def test_the_real_set_scores_1_for_its_own_answers_and_0_for_their_neighbours():
    if not GSM8K.is_dir():
        pytest.skip(f"{GSM8K} is not on this machine")
    text = "".join((GSM8K / f"{split}.jsonl").read_text(encoding="utf-8") for split in ("train", "test"))
    questions = [json.loads(line)["question"] for line in text.splitlines()]
    tokenizer = CharTokenizer("".join(sorted(set("".join(questions)) | set(text) | {"\n"})))
    task = Task(tokenizer, data=GSM8K, max_query=1000)
    assert {split: len(task.queries(split)) for split in SPLITS} == {
        "train": 6731,
        "validation": 7473 - 6731,
        "test": 1319,
    }
    assert task.left_out == []
    for split in SPLITS:
        queries = task.queries(split)
        gold = [int(query.row["answer"].split("#### ")[1].replace(",", "")) for query in queries]
        own = [Response((), query.row["answer"]) for query in queries]
        assert task.score(queries, own) == [1.0] * len(queries)
        assert task.score(queries, [Response((), f"#### {n + 1}") for n in gold]) == [0.0] * len(queries)


def test_a_hostile_response_scores_0(folder):
    task = Task(TEXT, data=folder)
    hostile = ["(" * 1_000_000, "7" * 10_000, r"\boxed{" * 1_000_000, "1/" * 1_000_000 + "0", "5"]
    responses = [Response((), text) for text in hostile]
    assert task.score([task.queries("train")[0]] * 5, responses) == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert is_correct("5", "#### 5")
