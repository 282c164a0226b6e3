"""Word problems with worked answers, to warm up a model and then to train it on the same splits.

    python -m examples.smollm2.worked_answers --arithmetic FOLDER --svamp SVAMP.json --out runs/words

Reads AddSub.json, MultiArith.json, SingleEq.json and SVAMP.json and solves their equations step by step:
"32 + 42 = 74. 74 - 35 = 39. The answer is 39." Each problem is in the split that the tasks `wordproblems` and
`svamp` give it, by the sha256 of its question; a train or validation problem that is nearly one of test, as
AddSub and SingleEq have many, is left out.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from cory_env.data import splits
from cory_env.grading.numeric_answers import is_correct
from cory_env.tasks import svamp
from cory_env.tasks._word_problem import paper_template
from examples.smollm2 import main

SETS = ("AddSub", "MultiArith", "SingleEq")
SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
INVERSE: dict[type, tuple[type, type]] = {
    ast.Add: (ast.Sub, ast.Sub),
    ast.Sub: (ast.Add, ast.Sub),
    ast.Mult: (ast.Div, ast.Div),
    ast.Div: (ast.Mult, ast.Div),
}
"""Operator of a * b = c -> those that give a from c and b, and b from c and a."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Where the sets are, and where the problems go."""

    arithmetic: Path
    """Folder with AddSub.json, MultiArith.json and SingleEq.json."""

    svamp: Path
    """SVAMP.json."""

    out: Path = Path("runs/words")
    """Folder of train, validation and test.jsonl, with the columns question, answer, prompt, completion."""

    alike: float = 0.7
    """Problems of which this share of all words is common are taken for the same."""


def problems(config: Config) -> Iterator[tuple[str, str, str]]:
    """Question, equation and answer of every problem, as the sets have them."""
    for name in SETS:
        for row in json.loads((config.arithmetic / f"{name}.json").read_text(encoding="utf-8")):
            yield " ".join(row["sQuestion"].split()), row["lEquations"][0], str(row["lSolutions"][0])
    task = svamp.Task.__new__(svamp.Task)
    for row in json.loads(config.svamp.read_text(encoding="utf-8")):
        joined = task.problem(
            {"body": row["Body"], "question": row["Question"], "answer": str(row["Answer"])}
        )
        yield joined["question"], row["Equation"], joined["answer"]


def steps(equation: str) -> list[str] | None:
    """The steps that solve an equation in x, or compute a term without one; None where they are not plain."""
    sides = [ast.parse(side.strip(), mode="eval").body for side in equation.lower().split("=")]
    if len(sides) == 1:
        sides = [ast.Name("x"), *sides]
    unknown = [side for side in sides if _holds_x(side)]
    if len(sides) != 2 or len(unknown) != 1:
        return None
    known = sides[1 - sides.index(unknown[0])]
    written: list[str] = []
    try:
        _value(_isolated(unknown[0], known), written)
    except (ValueError, ZeroDivisionError):
        return None
    return written or None


def _isolated(side: ast.expr, other: ast.expr) -> ast.expr:
    """The term that x equals if `side`, which holds it, equals `other`."""
    if isinstance(side, ast.Name):
        return other
    if not isinstance(side, ast.BinOp) or type(side.op) not in INVERSE:
        raise ValueError(ast.dump(side))
    of_left, of_right = INVERSE[type(side.op)]
    if _holds_x(side.left) and _holds_x(side.right):
        raise ValueError("x occurs twice")
    if _holds_x(side.left):
        return _isolated(side.left, ast.BinOp(other, of_left(), side.right))
    swapped = isinstance(side.op, ast.Sub | ast.Div)  # a - x = c: x = a - c
    term = ast.BinOp(side.left, of_right(), other) if swapped else ast.BinOp(other, of_right(), side.left)
    return _isolated(side.right, term)


def _holds_x(term: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) for node in ast.walk(term))


def _value(term: ast.expr, written: list[str]) -> Fraction:
    """The value of a term; its steps are added to `written`. ValueError for numbers without a short form."""
    if isinstance(term, ast.Constant):
        return Fraction(str(term.value))
    if not isinstance(term, ast.BinOp) or type(term.op) not in SIGNS:
        raise ValueError(ast.dump(term))
    a, b = _value(term.left, written), _value(term.right, written)
    sign = SIGNS[type(term.op)]
    value = {"+": a.__add__, "-": a.__sub__, "*": a.__mul__, "/": a.__truediv__}[sign](b)
    written.append(f"{number(a)} {sign} {number(b)} = {number(value)}.")
    return value


def number(value: Fraction) -> str:
    """A number with at most 3 decimals as people write it; ValueError for any other."""
    if value * 1000 % 1:
        raise ValueError(f"{value} has more than 3 decimals")
    return str(value) if value.denominator == 1 else f"{float(value):.3f}".rstrip("0")


def rows_by_split(config: Config) -> dict[str, list[dict[str, Any]]]:
    """Rows of the three splits: test has the tasks' test questions, each once."""
    rows: dict[str, dict[str, dict[str, Any]]] = {"test": {}, "validation": {}, "train": {}}
    for question, equation, answer in problems(config):
        split = (
            "test"
            if splits.in_test(question)
            else "validation"
            if splits.in_validation(question)
            else "train"
        )
        prompt = paper_template("pioneer_0").format(query=f" {question}")
        written = steps(equation) or []
        result = written[-1].rstrip(".").rpartition("= ")[2] if written else ""
        if not is_correct(f"The answer is {result}.", answer):
            if split != "test":
                continue
            written, result = [], answer
        completion = " ".join(["", *written, f"The answer is {result}."])
        row = {"question": question, "answer": answer, "prompt": prompt, "completion": completion}
        rows[split].setdefault(question, row)
    taken: list[set[str]] = []
    kept: dict[str, list[dict[str, Any]]] = {}
    for split, of_split in rows.items():
        others = list(taken)
        kept[split] = [
            row for q, row in of_split.items() if not any(_alike(q, o) >= config.alike for o in others)
        ]
        taken += [_words(row["question"]) for row in kept[split]]
    return kept


def _words(question: str) -> set[str]:
    return set(re.findall(r"[a-z]+|[0-9.]*[0-9]", question.lower()))


def _alike(question: str, words: set[str]) -> float:
    """The share of the words of both that they have in common."""
    ours = _words(question)
    return len(ours & words) / len(ours | words)


def write(config: Config) -> dict[str, int]:
    """Write the three files; the number of problems of each."""
    config.out.mkdir(parents=True, exist_ok=True)
    rows = rows_by_split(config)
    for split, of_split in rows.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in of_split)
        (config.out / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return {split: len(of_split) for split, of_split in rows.items()}


if __name__ == "__main__":
    main(write, Config, __doc__)
