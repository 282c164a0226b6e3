"""svamp: word problems of one step in which key words mislead. Exact match: 1 or 0.

On the Hub `ChilleD/SVAMP` (MIT licence; Patel et al. 2021, arXiv:2103.07191): 700 problems in train, 300 in
test. The authors' own SVAMP.json holds all 1,000 and is split by hash. A row:

    ID        chal-1
    Body      Each pack of dvds costs 76 dollars. If there is a discount of 25 dollars on each pack
    Question  How much do you have to pay to buy each pack?
    Equation  ( 76.0 - 25.0 )
    Answer    51.0
    Type      Subtraction
"""

from typing import ClassVar

from cory_env.data.tables import Row
from cory_env.tasks._word_problem import Problems


class Task(Problems):
    """SVAMP, with body and question as one query; a body without punctuation at its end gets a full stop."""

    hub = "ChilleD/SVAMP"
    columns: ClassVar = {
        "body": ("Body", "body"),
        "question": ("Question", "question"),
        "answer": ("Answer", "answer"),
    }

    def problem(self, row: Row) -> Row:
        """Join body and question in one line."""
        body, question = (" ".join(row[part].split()) for part in ("body", "question"))
        stop = "" if not body or body[-1] in ".?!,;:" else "."
        return {"question": f"{body}{stop} {question}".strip(), "answer": row["answer"]}
