"""Tables: files of every format, folders and the Hub."""

import csv
import gzip
import json
import sys

import pytest

from cory_env.data.tables import read_rows, read_table

COLUMNS = {"query": ("question", "problem"), "gold": ("answer",)}
ROWS = [{"answer": 2, "question": "1+1"}, {"answer": 0.5, "question": "1/2"}]
READ = [{"query": "1+1", "gold": "2"}, {"query": "1/2", "gold": "0.5"}]


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))


def comma_separated(path, rows):
    with path.open("w", newline="", encoding="utf-8-sig") as file:  # as spreadsheets write it
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def json_list(path, rows):
    path.write_text(json.dumps(rows, indent=1))


def parquet(path, rows):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: [row[name] for row in rows] for name in rows[0]}), path)


@pytest.mark.parametrize(
    ("suffix", "write"),
    [("jsonl", jsonl), ("json", json_list), ("csv", comma_separated), ("parquet", parquet)],
)
def test_a_file_of_any_format_gives_texts_under_the_given_keys(tmp_path, suffix, write):
    rows = (
        [{"answer": row["gold"], "question": row["query"]} for row in READ] if suffix == "parquet" else ROWS
    )
    write(tmp_path / f"mine.{suffix}", rows)
    assert read_rows(tmp_path / f"mine.{suffix}", COLUMNS) == {"whole": READ}


CSV = "question,answer\n1+1,2\n1/2,0.5\n"
WRITTEN = {
    "bom.jsonl": "\n".join(map(json.dumps, ROWS)).encode("utf-8-sig"),
    "bom.json": json.dumps(ROWS).encode("utf-8-sig"),
    "lines.json": "\n".join(map(json.dumps, ROWS)).encode(),
    "little.jsonl": "\n".join(map(json.dumps, ROWS)).encode("utf-16"),
    "big.csv": b"\xfe\xff" + CSV.encode("utf-16-be"),
    "r.jsonl.gz": gzip.compress("\r\n".join(map(json.dumps, ROWS)).encode()),
    "R.CSV.GZ": gzip.compress(CSV.encode()),
    "DATA.CSV": CSV.encode(),
    "tabs.tsv": CSV.replace(",", "\t").encode(),
    "commas.tsv": b"question\tanswer\tof whom, of what\n1+1\t2\tme\n1/2\t0.5\tme",
    "tabs.csv": CSV.replace(",", "\t").encode(),
    "excel.csv": CSV.replace(",", ";").encode("utf-8-sig"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_is_read_as_windows_excel_and_scrapers_write_it(name, tmp_path):
    (tmp_path / name).write_bytes(WRITTEN[name])
    assert read_rows(tmp_path / name, COLUMNS) == {"whole": READ}


def test_a_field_may_be_longer_than_pythons_limit_for_csv_which_stays(tmp_path):
    before = csv.field_size_limit()
    (tmp_path / "r.csv").write_text(f"question,answer\n1,{'x' * 140_000}")
    (row,) = read_rows(tmp_path / "r.csv", COLUMNS)["whole"]
    assert len(row["gold"]) == 140_000
    assert csv.field_size_limit() == before


def test_columns_without_a_name_are_no_columns(tmp_path):
    """Spreadsheets write them behind the last one."""
    (tmp_path / "r.csv").write_text("question,answer,,\n1,2,,\n")
    (row,) = read_rows(tmp_path / "r.csv", COLUMNS)["whole"]
    assert row["gold"] == "2"


def test_texts_of_a_csv_stay_as_they_are_written(tmp_path):
    (tmp_path / "r.csv").write_text('question,answer\n007,null\n"a, ""b""\u2028c",1e3', encoding="utf-8")
    assert read_rows(tmp_path / "r.csv", COLUMNS)["whole"] == [
        {"query": "007", "gold": "null"},
        {"query": 'a, "b"\u2028c', "gold": "1e3"},
    ]


def test_a_line_separator_inside_a_text_begins_no_row_and_whole_pairs_are_read(tmp_path):
    text = "a\u2028b\x85c \U0001f600"
    rows = [{"question": text, "answer": json.loads('"\\ud83d\\ude00"')}]
    (tmp_path / "r.jsonl").write_text(
        json.dumps(rows[0], ensure_ascii=False) + "\n" + json.dumps(rows[0]), encoding="utf-8"
    )
    assert read_rows(tmp_path / "r.jsonl", COLUMNS)["whole"] == [{"query": text, "gold": "\U0001f600"}] * 2


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl", "r.json"])
def test_a_file_in_another_encoding_is_refused_with_line_and_remedy(name, tmp_path):
    (tmp_path / name).write_bytes("a,b\n1,2\nn,gr\xf6\xdfer".encode("cp1252"))
    with pytest.raises(ValueError, match=r"line 3 holds the byte 0xf6, which is no UTF-8; .*iconv -f CP1252"):
        read_rows(tmp_path / name, COLUMNS)


def test_a_list_of_one_counts_as_its_item_only_if_listed(tmp_path):
    json_list(tmp_path / "r.json", [{"question": "1", "answer": [2.5]}, {"question": "2", "answer": "3"}])
    read = read_rows(tmp_path / "r.json", {"answer": ("answer",)}, listed=("answer",))
    assert read == {"whole": [{"answer": "2.5"}, {"answer": "3"}]}
    with pytest.raises(ValueError, match=r"row 1 .* no text in column 'answer' but '\[2.5\]'"):
        read_rows(tmp_path / "r.json", {"answer": ("answer",)}, listed=("question",))
    json_list(tmp_path / "r.json", [{"answer": ["2", "3"]}])
    with pytest.raises(ValueError, match=r"no text in column 'answer' but \"\['2', '3'\]"):
        read_rows(tmp_path / "r.json", {"answer": ("answer",)}, listed=("answer",))


def test_files_of_a_folder_belong_to_the_split_their_names_start_with(tmp_path):
    jsonl(tmp_path / "train-0.jsonl", ROWS[:1])
    jsonl(tmp_path / "train-1.jsonl", ROWS[1:])
    jsonl(tmp_path / "test_public.jsonl", ROWS[:1])
    (tmp_path / "unsup.jsonl").write_text("never read")
    (tmp_path / "train").mkdir()
    assert read_rows(tmp_path, COLUMNS) == {"train": READ, "test": READ[:1]}


@pytest.mark.parametrize("name", ["validation", "valid-0", "val", "dev"])
def test_a_folder_may_hold_a_validation_split(tmp_path, name):
    for file, rows in (("train", ROWS), ("test", ROWS[:1]), (name, ROWS[1:])):
        jsonl(tmp_path / f"{file}.jsonl", rows)
    assert read_rows(tmp_path, COLUMNS) == {"train": READ, "validation": READ[1:], "test": READ[:1]}


def test_the_train_files_of_a_folder_without_test_are_whole(tmp_path):
    jsonl(tmp_path / "TRAIN.jsonl", ROWS)
    assert read_rows(tmp_path, COLUMNS) == {"whole": READ}
    jsonl(tmp_path / "validation.jsonl", ROWS[1:])
    assert read_rows(tmp_path, COLUMNS) == {"whole": READ, "validation": READ[1:]}


@pytest.mark.parametrize("name", ["", " "])
def test_no_name_is_not_the_working_directory(name):
    with pytest.raises(ValueError, match="the name of the data is empty"):
        read_rows(name, COLUMNS)


def test_a_folder_without_train_is_refused_with_what_it_holds(tmp_path):
    jsonl(tmp_path / "test.jsonl", ROWS)
    jsonl(tmp_path / "validation.jsonl", ROWS)
    with pytest.raises(ValueError, match=r"no split 'train': .* it holds test.jsonl, validation.jsonl"):
        read_rows(tmp_path, COLUMNS)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("r.jsonl", '{"question": "1", "a": 1}', "has no column 'answer'; its columns are 'question', 'a'"),
        ("r.jsonl", '{"q": "1", "answer": 1}', "has no column 'question' or 'problem'; its columns are 'q'"),
        (
            "r.jsonl",
            '{"question": "1", "answer": "1"}\n{"question": null, "answer": 1}',
            "row 2 of .* has no text in",
        ),
        (
            "r.jsonl",
            '{"question": "1", "answer": "1"}\n{"answer": 1}',
            "row 2 .* column 'question' but 'None'",
        ),
        ("r.jsonl", '{"question": ["1"], "answer": 1}', r"row 1 .* but \"\['1'\]\"; drop or correct the row"),
        (
            "r.jsonl",
            '{"question": true, "answer": 1}',
            "row 1 .* has no text in column 'question' but 'True'",
        ),
        ("r.jsonl", '{"question": NaN, "answer": 1}', "row 1 .* has no text in column 'question' but 'nan'"),
        ("r.csv", 'question,answer\n1,2\n"open,3\n4,5\n', "unexpected end of data"),
        ("r.csv", "question,answer,answer\n1,2,3\n", "its heading has 'answer' twice"),
        ("r.jsonl", "[1]", "row 1 is '\\[1\\]'; each line must be a JSON object"),
        ("r.jsonl", "nonsense", "cannot be read as .jsonl"),
        (
            "r.jsonl",
            '{"question": "1", "answer": 1}\n\n' * 40 + "{answer: 1}",
            "row 41, on line 81, is no JSON: Expecting property name .* at character 2",
        ),
        (
            "r.jsonl",
            '{"question": "1", "answer": 1}\n{"question": "a \\ud83d", "answer": 1}',
            r"row 2 holds half of a character in column 'question', '\\ud83d'; drop or correct the row",
        ),
        (
            "r.json",
            '[{"question": "1", "answer": ["\\udc00"]}]',
            r"row 1 holds half of a character in column 'answer', '\\udc00'",
        ),
        ("r.jsonl", "", "r.jsonl is empty"),
        ("r.json", '{"question": "1", "answer": 1}', "r.json cannot .*it must hold one list of objects"),
        ("r.json", '[{"question": "1", "answer": 1}, 2]', "it must hold one list of objects"),
        ("r.json", '[{"question": "1", "answer": 1}', "cannot be read as .json"),
        ("r.json", "[]", "r.json is empty"),
        ("r.csv", "", "r.csv is empty"),
        ("r.csv", "question,answer\n1\n", "row 1 of .* has no text in column 'answer'"),
        ("r.parquet", "not parquet", "cannot be read as .parquet"),
        (
            "r.doc",
            "",
            r"is not a .parquet, .csv, .json, .jsonl file; give one, a folder of them, or owner/name",
        ),
    ],
)
def test_a_malformed_file_is_refused_by_name(tmp_path, name, content, fault):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=fault) as caught:
        read_rows(path, COLUMNS)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_not_taken_for_a_name_on_the_hub(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file data/mine\.csv"):
        read_rows("data/mine.csv", COLUMNS)
    with pytest.raises(ValueError, match=r"is not a .parquet"):
        read_rows(tmp_path / "nowhere", COLUMNS)


def test_a_name_on_the_hub_is_fetched_split_by_split(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "set"
    folder.mkdir()
    jsonl(folder / "train.jsonl", ROWS)
    jsonl(folder / "test.jsonl", ROWS[:1])
    real = datasets.load_dataset

    def from_folder(name, config):
        assert (name, config) == ("openai/gsm8k", "main")
        return real(str(folder), cache_dir=str(tmp_path / "cache"))

    monkeypatch.setattr(datasets, "load_dataset", from_folder)
    assert read_rows("openai/gsm8k", COLUMNS, config="main") == {
        "train": [{"query": "1+1", "gold": "2.0"}, {"query": "1/2", "gold": "0.5"}],  # a column has one type
        "test": [{"query": "1+1", "gold": "2.0"}],
    }
    jsonl(folder / "validation.jsonl", ROWS[1:])
    assert read_rows("openai/gsm8k", COLUMNS, config="main")["validation"] == [
        {"query": "1/2", "gold": "0.5"}
    ]
    (folder / "test.jsonl").unlink()
    assert list(read_rows("openai/gsm8k", COLUMNS, config="main")) == ["whole", "validation"]
    (folder / "train.jsonl").rename(folder / "test.jsonl")
    with pytest.raises(
        ValueError, match="the Hub gave no split 'train' of that name: it has validation, test"
    ):
        read_rows("openai/gsm8k", COLUMNS, config="main")


@pytest.mark.parametrize(("package", "name"), [("pyarrow.parquet", "r.parquet"), ("datasets", "owner/name")])
def test_a_missing_package_is_named(monkeypatch, package, name):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"needs the package {package.split('.')[0]}: pip install"):
        read_rows(name, COLUMNS)


def test_the_first_present_column_is_picked(tmp_path):
    jsonl(tmp_path / "r.jsonl", ROWS)
    table = read_table(tmp_path / "r.jsonl")
    assert table.columns == ("answer", "question")
    assert table.pick(("problem", "question")) == "question"
