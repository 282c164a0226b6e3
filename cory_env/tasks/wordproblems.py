"""wordproblems: three older sets of word problems, one number each. Exact match: 1 or 0.

`source` is one of `multiarith` (two steps; Roy and Roth 2015; 600 rows, 580 questions), `addsub` (addition
and subtraction; Hosseini et al. 2014; 395) and `singleeq` (one equation; Koncel-Kedziorski et al. 2015; 508).
On the Hub `ChilleD/MultiArith` has the first (420 in train, 180 in test); all three are files of
`HuggingFaceTB/math_tasks`, ODC-By licence, to be given as `data`. A row of MultiArith.json:

    iIndex      0
    lEquations  ["X=((32.0+42.0)-35.0)"]
    lSolutions  [39.0]
    sQuestion   For Halloween Debby and her sister combined the candy they received. Debby had 32 pieces of
                candy while her sister had 42. If they ate 35 pieces the first night, how many pieces do they
                have left?
"""

import re
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Literal

from cory_env.data.tables import READERS, Row, suffix_of
from cory_env.tasks._word_problem import Problems
from cory_env.tokenizer import Tokenizer

HUB = {"multiarith": "ChilleD/MultiArith"}
SOURCES = ("multiarith", "addsub", "singleeq")


class Task(Problems):
    """One of the three sets; a file is split by the sha256 of the question, duplicates merged.

    `data` may also be a folder that holds the file of the source, such as MultiArith.json.
    """

    columns: ClassVar = {
        "question": ("sQuestion", "question", "input"),
        "answer": ("lSolutions", "final_ans", "answer", "target"),
    }

    def __init__(
        self,
        tokenizer: Tokenizer | None = None,
        *,
        source: Literal["multiarith", "addsub", "singleeq"] = "multiarith",
        data: str | Path | None = None,
        max_query: int = 256,
        chat: bool = False,
    ) -> None:
        """Read the problems of one set.

        Args:
            tokenizer: Splits the questions.
            source: Which set.
            data: A file or folder of problems, or a name on the Hub; only `multiarith` has a default.
            max_query: Questions of more tokens are left out.
            chat: Whether prompts are rendered by the tokenizer's chat template.
        """
        if source not in SOURCES:
            raise ValueError(f"source is {source!r}; give one of {', '.join(SOURCES)}")
        if data is None and source not in HUB:
            raise ValueError(
                f"{source} has no data set on the Hub; give its file as data, such as {source}.jsonl"
            )
        super().__init__(
            tokenizer,
            data=HUB[source] if data is None else _file_of(source, Path(data)) or data,
            max_query=max_query,
            chat=chat,
        )

    def problem(self, row: Row) -> Row:
        """Normalise spaces, so that equal questions match; rewrite rounded floats as fractions."""
        return {"question": " ".join(row["question"].split()), "answer": _exact(row["answer"])}


def _file_of(source: str, folder: Path) -> Path | None:
    """Return the file in `folder` with the name of the source in any case; None if there is none."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return next(
        (f for f in files if suffix_of(f) in READERS and f.name.lower().partition(".")[0] == source), None
    )


def _exact(answer: str) -> str:
    """Rewrite 0.6666666666666666 as `2/3`: the sets hold answers as floats, but a match must be exact."""
    if not re.fullmatch(r"-?[0-9]{1,20}\.[0-9]{13,20}", answer):
        return answer
    value = Fraction(answer)
    near = value.limit_denominator(1000)
    return str(near) if abs(near - value) < 1e-12 else answer
