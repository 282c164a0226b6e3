"""The wordproblems task: three sources, their answers as floats, and the real data sets."""

import json
from pathlib import Path

import pytest

from cory_env import Response, tasks
from cory_env.tokenizer import CharTokenizer

ARITHMETIC = Path(__file__).parents[4] / "shared" / "data" / "arithmetic"
SPLITS = ("train", "validation", "test")
TEXT = CharTokenizer("".join(map(chr, range(32, 0x2100))) + "\n")

FILES = {"multiarith": "MultiArith.json", "addsub": "AddSub.json", "singleeq": "SingleEq.json"}


def row(question, answer):
    return {"sQuestion": question, "lSolutions": [answer], "lEquations": ["X=1"]}


def load(data, **options):
    return tasks.load("wordproblems", tokenizer=TEXT, data=data, **options)


@pytest.fixture
def folder(tmp_path):
    """A file for each source, with numbers of its own in the questions."""
    for first, name in zip((100, 200, 300), FILES.values(), strict=True):
        rows = [row(f" How  much is {first + i} ? ", float(first + i)) for i in range(20)]
        (tmp_path / name).write_text(json.dumps(rows))
    return tmp_path


@pytest.mark.parametrize(("source", "first"), [("multiarith", "1"), ("addsub", "2"), ("singleeq", "3")])
def test_in_a_folder_the_file_with_the_name_of_the_source_is_read(folder, source, first):
    task = load(folder, source=source)
    texts = [query.text for split in SPLITS for query in task.queries(split)]
    assert sorted(texts) == [f"How much is {first}{i:02} ?" for i in range(20)]


def test_questions_that_differ_only_in_spaces_are_merged_and_the_first_answer_counts(tmp_path):
    rows = [row(f"How much is {i}?", i) for i in range(20)]
    (tmp_path / "MultiArith.json").write_text(json.dumps([*rows, row("How  much is 3? ", 4)]))
    task = load(tmp_path / "MultiArith.json")
    answers = {query.text: query.row["answer"] for s in SPLITS for query in task.queries(s)}
    assert answers == {f"How much is {i}?": str(i) for i in range(20)}


@pytest.mark.parametrize(
    ("answer", "right", "wrong"),
    [
        ("0.6666666666666666", ["2/3", "= 4/6"], ["0.67", "0.6666666666666666", "3/2"]),
        (0.8333333333333334, ["5/6"], ["0.8333"]),
        (3.4000000000000004, ["3.4", "17/5"], ["3.5"]),
        (158.35, ["$158.35"], ["158"]),
        ("43", ["70 - 27 = 43"], ["34"]),
    ],
)
def test_floats_of_the_sets_stand_for_the_numbers_they_are_nearest_to(tmp_path, answer, right, wrong):
    (tmp_path / "train.json").write_text(json.dumps([row("How much?", answer)]))
    (tmp_path / "test.json").write_text(json.dumps([row("And 1?", 1)]))
    task = load(tmp_path)
    query = task.queries("train")[0]
    scores = task.score([query] * len(right + wrong), [Response((), text) for text in right + wrong])
    assert scores == [1.0] * len(right) + [0.0] * len(wrong)


@pytest.mark.parametrize(
    ("answer", "known"), [("1e999999999", False), ("9" * 10_000, True), ("1/0", False), ("nan", False)]
)
def test_no_answer_in_the_data_can_stall_or_crash_the_reader(tmp_path, answer, known):
    (tmp_path / "train.json").write_text(json.dumps([row("How much?", answer)]))
    (tmp_path / "test.json").write_text(json.dumps([row("And 1?", 1)]))
    if known:
        assert load(tmp_path).queries("train")[0].row["answer"] == answer
    else:
        with pytest.raises(ValueError, match="lacks a question or a number in its answer"):
            load(tmp_path)


def test_the_error_for_a_wrong_source_lists_the_right_ones_and_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="source is 'mawps'; give one of multiarith, addsub, singleeq"):
        load(tmp_path, source="mawps")
    with pytest.raises(ValueError, match=r"addsub has no data set on the Hub; give its file as data"):
        tasks.load("wordproblems", tokenizer=TEXT, source="addsub")
    (tmp_path / "AddSub.json").write_text("[]")
    with pytest.raises(ValueError, match=r"no split 'train': .* it holds AddSub.json"):
        load(tmp_path, source="singleeq")


def test_multiarith_is_read_from_the_hub_by_default(monkeypatch):
    datasets = pytest.importorskip("datasets")
    calls = []

    def from_hub(name, config):
        calls.append((name, config))
        rows = {s: [{"question": f"How much is 1 in {s}?", "final_ans": "1"}] for s in ("train", "test")}
        return datasets.DatasetDict({s: datasets.Dataset.from_list(of_split) for s, of_split in rows.items()})

    monkeypatch.setattr(datasets, "load_dataset", from_hub)
    assert len(tasks.load("wordproblems", tokenizer=TEXT).queries("test")) == 1
    assert calls == [("ChilleD/MultiArith", None)]


@pytest.mark.parametrize(
    ("source", "rows", "train", "validation", "test"),
    [
        ("multiarith", 600, 459 - 45, 45, 121),
        ("addsub", 395, 310 - 32, 32, 85),
        ("singleeq", 508, 405 - 42, 42, 103),
    ],
)
def test_the_real_sets_are_complete_and_score_1_for_their_own_answers(source, rows, train, validation, test):
    if not ARITHMETIC.is_dir():
        pytest.skip(f"{ARITHMETIC} is not on this machine")
    task = load(ARITHMETIC, source=source, max_query=1000)
    queries = {split: list(task.queries(split)) for split in SPLITS}
    assert [len(found) for found in queries.values()] == [train, validation, test]
    raw = json.loads((ARITHMETIC / FILES[source]).read_text())
    gold = {" ".join(r["sQuestion"].split()): float(r["lSolutions"][0]) for r in raw}
    assert (len(raw), len(gold)) == (rows, train + validation + test)  # 20 rows of MultiArith are there twice
    every = queries["train"] + queries["validation"] + queries["test"]
    assert {query.text for query in every} == set(gold)
    whole = [query for query in every if gold[query.text].is_integer()]
    for more, score in ((0, 1.0), (1, 0.0)):
        responses = [Response((), f"= {int(gold[query.text]) + more}") for query in whole]
        assert task.score(whole, responses) == [score] * len(whole)
