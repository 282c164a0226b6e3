"""Worked answers from equations, the splits they keep, and the supervised start of a model."""

import json

import pytest
from transformers import AutoModelForCausalLM

from cory_env import Response, tasks
from cory_env.data import splits
from cory_env.tokenizer import CharTokenizer
from examples.smollm2 import warm_start, worked_answers
from tests.helpers.models import make_model, make_tokenizer

LETTERS = CharTokenizer("".join(map(chr, range(32, 127))) + "\n")


@pytest.mark.parametrize(
    ("equation", "steps"),
    [
        ("X = 70 - 27", ["70 - 27 = 43."]),
        ("X=((32.0+42.0)-35.0)", ["32 + 42 = 74.", "74 - 35 = 39."]),
        ("( ( 13.0 * 17.0 ) + 8.0 )", ["13 * 17 = 221.", "221 + 8 = 229."]),
        ("70-x=27", ["70 - 27 = 43."]),
        ("28+x=54", ["54 - 28 = 26."]),
        ("x+28=54", ["54 - 28 = 26."]),
        ("x-3=4", ["4 + 3 = 7."]),
        ("72=x*12", ["72 / 12 = 6."]),
        ("72=12*x", ["72 / 12 = 6."]),
        ("x/4=5", ["5 * 4 = 20."]),
        ("20/x=5", ["20 / 5 = 4."]),
        ("2*x+1=9", ["9 - 1 = 8.", "8 / 2 = 4."]),
        ("3.75/3=x", ["3.75 / 3 = 1.25."]),
        ("0.7 + 0.6 = x", ["0.7 + 0.6 = 1.3."]),
        ("x=1/3", None),  # no short decimal
        ("x=1/0", None),
        ("x+x=4", None),
        ("x=7", None),  # nothing to compute
    ],
)
def test_an_equation_is_solved_step_by_step(equation, steps):
    assert worked_answers.steps(equation) == steps


def split_of(text):
    return "test" if splits.in_test(text) else "validation" if splits.in_validation(text) else "train"


def in_split(split, text):
    """The text with a word more, chosen so that the tasks put it into the split."""
    return next(t for n in range(999) if split_of(t := f"{text} Number {n}.") == split)


HELD_OUT = in_split("test", "Ann has 1 pen and gets 2 pens more, how many pens are there?")
ALIKE = in_split("train", "Ann has 1 pen and gets 2 pens more, how many pens are there?")
BIRDS = in_split("train", "A wholly other text with 5 red birds, 6 blue ones.")
WRONG = in_split("train", "What a wrong equation this set of numbers holds!")
COWS = in_split("validation", "Bob sold cows. How many did he keep?").removeprefix("Bob sold cows. ")


@pytest.fixture
def sets(tmp_path):
    """The four sets, with one question of each split and a train question that is nearly the one of test."""
    rows = [
        {"sQuestion": f" {q} ", "lEquations": [equation], "lSolutions": [answer]}
        for q, equation, answer in [
            (HELD_OUT, "X = 1 + 2", 3.0),
            (ALIKE, "X = 1 + 2", 3.0),
            (BIRDS, "X = 5 + 6", 11.0),
            (WRONG, "X = 5 + 6", 5.0),
        ]
    ]
    cows = {"Body": "Bob sold cows", "Question": COWS, "Equation": "( 9.0 - 4.0 )", "Answer": 5.0}
    for name in worked_answers.SETS:
        (tmp_path / f"{name}.json").write_text(json.dumps(rows if name == "AddSub" else []))
    (tmp_path / "SVAMP.json").write_text(json.dumps([cows]))
    return worked_answers.Config(arithmetic=tmp_path, svamp=tmp_path / "SVAMP.json", out=tmp_path / "words")


def test_problems_keep_the_splits_of_the_tasks_and_none_is_nearly_a_test_problem(sets):
    assert worked_answers.write(sets) == {"test": 1, "validation": 1, "train": 1}
    rows = {
        split: json.loads((sets.out / f"{split}.jsonl").read_text())
        for split in ("train", "validation", "test")
    }
    assert {split: row["question"] for split, row in rows.items()} == {
        "train": BIRDS, "validation": f"Bob sold cows. {COWS}", "test": HELD_OUT,
    }  # fmt: skip
    assert rows["train"]["completion"] == " 5 + 6 = 11. The answer is 11."


def test_the_prompts_and_splits_are_those_of_the_game_on_the_same_folder(sets):
    worked_answers.write(sets)
    task = tasks.load("wordproblems", tokenizer=LETTERS, data=sets.out)
    template = task.template("pioneer_0")
    for split in ("train", "validation", "test"):
        [query] = task.queries(split)
        row = json.loads((sets.out / f"{split}.jsonl").read_text())
        assert row["prompt"] == template.replace("{query}", LETTERS.decode(query.ids))
        assert task.score([query], [Response.of(LETTERS.encode(row["completion"]), LETTERS)]) == [1]


@pytest.fixture
def pairs(tmp_path):
    """A file of prompts with one answer for all."""
    path = tmp_path / "pairs.jsonl"
    rows = [json.dumps({"prompt": f"a good film {n}", "completion": " 7"}) + "\n" for n in range(80)]
    path.write_text("".join(rows))
    return path


@pytest.fixture
def start(tmp_path):
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path / "start")
    make_model("llama", len(tokenizer)).save_pretrained(tmp_path / "start")
    return tmp_path / "start"


def test_training_ends_once_enough_answers_are_right_and_writes_a_folder(pairs, start, tmp_path):
    config = warm_start.Config(
        data=pairs, model=str(start), out=tmp_path / "out", until=0.5, check_every=4, lr=3e-3, epochs=40,
        max_new_tokens=4,
    )  # fmt: skip
    result = warm_start.warm_start(config)
    checks = list(result["right_by_step"].values())
    assert checks[-1] >= 0.5
    assert all(check < 0.5 for check in checks[:-1])
    assert result["steps"] == 4 * len(checks) < 40 * 8
    assert result["validation_loss"]["after"] < result["validation_loss"]["before"]
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert json.loads((tmp_path / "out" / warm_start.RESULT).read_text())["steps"] == result["steps"]


def test_the_loss_is_on_the_completion_and_its_end_only(pairs):
    tokenizer = make_tokenizer()
    row = warm_start.pairs_by_split(pairs)["train"][0]
    prompt = tokenizer(row["prompt"])["input_ids"]
    answer = [*tokenizer(" 7")["input_ids"], tokenizer.eos_token_id]
    assert warm_start.example(row, tokenizer) == {
        "input_ids": prompt + answer,
        "labels": [-100] * len(prompt) + answer,
    }


def test_no_prompt_of_test_is_read(pairs):
    prompts = {row["prompt"] for rows in warm_start.pairs_by_split(pairs).values() for row in rows}
    assert prompts == {p for n in range(80) if not splits.in_test(p := f"a good film {n}")}
