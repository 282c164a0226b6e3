"""The reviews task: openings of reviews from files and the Hub, prompts, and scores by a judge."""

import csv
import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from cory_env import Response, VectorGame, make_views
from cory_env.tasks.base import checked_scores
from cory_env.tasks.reviews import Task
from cory_env.tokenizer import CharTokenizer

SPLITS = ("train", "validation", "test")
LETTERS = CharTokenizer('abcdefghijklmnopqrstuvwxyzI ".:')


def lengths(texts):
    return [len(text) for text in texts]


def openings(folder, train, test):
    path = folder / "openings.json"
    path.write_text(json.dumps({"train": train, "test": test}))
    return path


@pytest.fixture
def task(tmp_path):
    return Task(LETTERS, lengths, openings(tmp_path, ["a film", "so"], ["the", "so"]))


def test_openings_come_as_texts_and_a_test_opening_of_train_is_dropped_and_counted(task):
    assert [query.text for query in task.queries("train")] == ["a film", "so"]
    assert [(query.text, query.ids) for query in task.queries("test")] == [
        ("the", tuple(LETTERS.encode("the")))
    ]
    assert task.dropped == {"validation": 0, "test": 1}


def test_the_judge_reads_query_and_response_as_one_text_in_one_call(task):
    calls = []
    task.judge = lambda texts: calls.append(list(texts)) or [0.5] * len(texts)
    responses = [
        Response.of([*LETTERS.encode(text), LETTERS.vocab_size - 2], LETTERS) for text in (" i saw", " good")
    ]
    assert task.score(task.queries("train"), responses) == [0.5, 0.5]
    assert calls == [["a film i saw", "so good"]]


@pytest.mark.parametrize(
    ("sees", "prompt"),
    [
        ("all", 'I can make this sentence "so good" more positive: so'),
        ("none", "so"),
    ],
)
def test_the_observer_reads_the_template_of_the_paper(task, sees, prompt):
    observer = make_views(task, seats=2, sees=sees)[1]
    ids = observer.prompt(LETTERS.encode("so"), [[*LETTERS.encode(" good"), min(LETTERS.eos)]])
    assert LETTERS.decode(ids) == prompt


def test_a_third_seat_reads_both_earlier_sentences(task):
    third = make_views(task, seats=3)[2]
    ids = third.prompt(LETTERS.encode("so"), [LETTERS.encode(" good"), LETTERS.encode(" nice")])
    assert LETTERS.decode(ids) == 'I can make these sentences "so good" "so nice" more positive: so'
    assert make_views(task, seats=3, sees="previous")[2].template.count("{response_1}") == 1


def test_a_game_is_played_and_scored(task):
    game = VectorGame(task, max_response=2)
    game.reset(task.queries("train"), 2)
    for seat in game.seats:
        prompts, sizes = game.prompts(seat)
        game.respond(seat, prompts[:, :2], sizes * 0 + 2)
    assert game.scores().tolist() == [
        [8.0, 8.0],
        [4.0, 4.0],
    ]  # lengths of "a film" + "a ", "so" + "so", and so on


REVIEWS = [f"review {chr(97 + i % 26)}{chr(97 + i // 26)} is long enough" for i in range(60)]


def parquet(path, texts):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": texts}), path)


def jsonl(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def comma_separated(path, texts):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], *enumerate(texts)])


@pytest.mark.parametrize(
    ("name", "write"), [("r.parquet", parquet), ("r.jsonl", jsonl), ("r.csv", comma_separated)]
)
def test_a_file_of_reviews_in_any_format_is_split_by_text(tmp_path, name, write):
    write(tmp_path / name, REVIEWS + REVIEWS[:7])
    task = Task(LETTERS, lengths, tmp_path / name, max_query=(9, 11))
    train, validation, test = (task.queries(split) for split in SPLITS)
    held_out = [r for r in REVIEWS if int(hashlib.sha256(r.encode()).hexdigest()[:16], 16) % 5 == 0]
    assert len(test) + task.dropped["test"] == len(held_out)
    assert len(validation) + task.dropped["validation"] > 0
    assert len([*train, *validation, *test]) + sum(task.dropped.values()) == 60  # duplicates merged
    assert {len(query.ids) for query in [*train, *test]} == {9, 10, 11}
    every = [*train, *validation, *test]
    assert all(any(review.startswith(query.text) for review in REVIEWS) for query in every)


@pytest.mark.parametrize("shortest", [1, 3])
def test_the_length_of_an_opening_does_not_tell_its_split(tmp_path, shortest):
    drawn = random.Random(0)
    jsonl(tmp_path / "r.jsonl", ["".join(drawn.choices("abcde", k=20)) for _ in range(2000)])
    task = Task(LETTERS, lengths, tmp_path / "r.jsonl", max_query=(shortest + 9, shortest + 13))
    counts = [
        np.bincount([len(query.ids) for query in task.queries(split)], minlength=20) for split in SPLITS
    ]
    seen = np.array(counts)[:, shortest + 9 : shortest + 14]
    assert seen.sum() > 1900
    assert scipy.stats.chi2_contingency(seen).pvalue > 1e-3


def test_a_folder_has_its_own_splits_and_no_text_is_in_both(tmp_path):
    jsonl(tmp_path / "train.jsonl", ["aaaa bbb<br />c", "dddd", "aaaa bbb<br />c", " "])
    jsonl(tmp_path / "test_public.jsonl", ["eeee", "dddd"])
    jsonl(tmp_path / "unsup.jsonl", ["never read"])
    task = Task(LETTERS, lengths, tmp_path, max_query=(10, 10))
    assert [query.text for query in task.queries("train")] == ["aaaa bbb c", "dddd"]
    assert [query.text for query in task.queries("test")] == ["eeee"]


def test_a_missing_argument_is_named():
    with pytest.raises(ValueError, match="the reviews task needs the argument tokenizer"):
        Task()
    with pytest.raises(ValueError, match="the reviews task needs the argument data"):
        Task(LETTERS, lengths)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("o.json", "{", "cannot be read as openings"),
        ("o.json", "[]", "has no openings under 'train'"),
        ("o.json", '{"train": ["a"], "test": []}', "has no openings under 'test'"),
        ("o.json", '{"train": ["a"], "test": [[5, 1]]}', r"holds '\[5, 1\]' under 'test'"),
        ("o.json", '{"train": ["a"], "test": [""]}', "holds '' under 'test'"),
        ("r.jsonl", '{"txt": "a"}', "has no column 'text' or 'review' or .*; its columns are 'txt'"),
        ("r.jsonl", '{"text": " "}', "the split 'whole' has no review of 1 characters or more"),
    ],
)
def test_a_malformed_file_is_refused_by_name(tmp_path, name, content, fault):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=fault) as caught:
        Task(LETTERS, lengths, path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere.json cannot be read"):
        Task(LETTERS, lengths, tmp_path / "nowhere.json")
    with pytest.raises(ValueError, match=r"has no split 'train': files named train\* are needed"):
        Task(LETTERS, lengths, tmp_path)


def test_the_range_of_lengths_must_be_in_order(tmp_path):
    with pytest.raises(ValueError, match=r"max_query is \(3, 2\)"):
        Task(LETTERS, lengths, tmp_path, max_query=(3, 2))


def test_the_column_of_reviews_is_found_or_named(tmp_path):
    rows = [{"id": i, "review": "aaaa", "summary": text} for i, text in enumerate(REVIEWS)]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[0]]))
    with pytest.raises(ValueError, match="has no rows for t"):  # found: every one is "aaaa"
        Task(LETTERS, lengths, tmp_path / "r.jsonl")
    task = Task(LETTERS, lengths, tmp_path / "r.jsonl", max_query=(9, 11), column="summary")
    assert task.queries("train")[0].text.startswith("re")
    with pytest.raises(ValueError, match="has no column 'label'; its columns are 'id', 'review', 'summary'"):
        Task(LETTERS, lengths, tmp_path / "r.jsonl", column="label")


@pytest.mark.parametrize("options", [{"max_query": (2, 3)}, {"column": "text"}, {"min_chars": 101}])
def test_options_about_whole_reviews_are_refused_for_a_file_of_openings(tmp_path, options):
    name = next(iter(options))
    with pytest.raises(ValueError, match=f"openings as they are, and {name} .* is about .* or give reviews"):
        Task(LETTERS, lengths, openings(tmp_path, ["so"], ["the"]), **options)


def test_reviews_shorter_than_min_chars_are_left_out(tmp_path):
    jsonl(tmp_path / "train.jsonl", ["a" * 101, "b" * 100])
    jsonl(tmp_path / "test.jsonl", ["c" * 101, "d" * 100])
    task = Task(LETTERS, lengths, tmp_path, min_chars=101)  # more than 100, as the released code has it
    assert [query.text[0] for split in ("train", "test") for query in task.queries(split)] == ["a", "c"]
    with pytest.raises(ValueError, match="the split 'train' has no review of 102 characters or more"):
        Task(LETTERS, lengths, tmp_path, min_chars=102)


def test_the_share_of_test_openings_that_are_also_in_train_is_reported(tmp_path):
    jsonl(tmp_path / "train.jsonl", ["aaaa one", "bbbb two"])
    jsonl(tmp_path / "test.jsonl", ["aaaa three", "aaaa four", "bbbb five", "cccc six"])
    task = Task(LETTERS, lengths, tmp_path, max_query=(4, 4))
    assert [query.text for query in task.queries("test")] == ["cccc"]
    assert (task.dropped["test"], task.overlap["test"]) == (3, 0.75)


def test_reviews_come_from_the_hub_by_name(monkeypatch):
    datasets = pytest.importorskip("datasets")
    hub = {"train": ["aaaa bbb<br />c", "dddd"], "test": ["eeee", "dddd"]}
    calls = []

    def load(name, config):
        calls.append((name, config))
        return datasets.DatasetDict(
            {s: datasets.Dataset.from_dict({"label": [0, 1], "text": texts}) for s, texts in hub.items()}
        )

    monkeypatch.setattr(datasets, "load_dataset", load)
    task = Task(LETTERS, lengths, "stanfordnlp/imdb", max_query=(10, 10))
    assert calls == [("stanfordnlp/imdb", None)]
    assert [query.text for query in task.queries("train")] == ["aaaa bbb c", "dddd"]
    assert [query.text for query in task.queries("test")] == ["eeee"]


IMDB = Path(__file__).parents[4] / "shared" / "data" / "imdb"


def test_real_reviews_train_and_test_share_no_opening(tmp_path):
    if not IMDB.is_dir():
        pytest.skip(f"{IMDB} is not on this machine")
    import pyarrow.parquet as pq

    texts = pq.read_table(IMDB / "test_public.parquet", columns=["text"])["text"].to_pylist()
    letters = CharTokenizer("".join(sorted(set("".join(texts)))))
    task = Task(letters, lengths, IMDB / "test_public.parquet", max_query=(8, 12), min_chars=101)
    train, validation, test = ({query.ids for query in task.queries(split)} for split in SPLITS)
    assert not train & test
    assert not validation & (train | test)
    assert sum(len(task.queries(split)) for split in SPLITS) + sum(task.dropped.values()) == len(
        {text.replace("<br />", " ") for text in texts if len(text) > 100}
    )
    for split in ("validation", "test"):
        dropped = task.dropped[split]
        assert task.overlap[split] == dropped / (dropped + len(task.queries(split)))


def test_a_tokenizer_that_drops_a_leading_space_does_not_glue_words_together(tmp_path):
    class Dropping(CharTokenizer):
        def decode(self, ids):
            return super().decode(ids).removeprefix(" ")

    letters = Dropping(LETTERS.alphabet)
    judged = []
    task = Task(letters, lambda texts: judged.extend(texts) or [0.0], openings(tmp_path, ["so"], ["the"]))
    task.score(task.queries("train"), [Response.of(letters.encode(" good"), letters)])
    assert judged == ["so good"]


def test_a_reward_function_gets_opening_and_continuation_separately(tmp_path):
    def reward(prompts, completions, **columns):
        assert (prompts, columns) == (["so"], {})
        return [float(len(text)) for text in completions]

    task = Task(LETTERS, reward, openings(tmp_path, ["so"], ["the"]))
    assert task.score(task.queries("train"), [Response.of(LETTERS.encode(" good"), LETTERS)]) == [5]


def test_a_reward_function_gets_the_games_of_continuations(tmp_path):
    def reward(seat, responses):
        return [
            float(len(game[place])) - len(game["pioneer_0"])
            for place, game in zip(seat, responses, strict=True)
        ]

    task = Task(LETTERS, reward, openings(tmp_path, ["so"], ["the"]))
    first, second = ([Response.of(LETTERS.encode(text), LETTERS)] for text in (" good", " a film"))
    responses = {"pioneer_0": first, "observer_1": second}
    assert checked_scores(task, task.queries("train"), responses).tolist() == [[0, 2]]
    assert task.score(task.queries("train"), second) == [0]  # alone it is the pioneer's
