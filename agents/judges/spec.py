"""From the text that names a judge to the judge.

    SPEC = TERM [" + " TERM]...        TERM = [WEIGHT "*"] JUDGE
    JUDGE = pocket | FOLDER | OWNER/NAME          a Hugging Face sequence classifier
          | MODULE:FUNCTION | NAME                a Python function; NAME is an entry point of `cory.judges`
          | regex:PATTERN | regex:'PATTERN'       1 where the response holds a match, 0 elsewhere
          | math-verify:COLUMN                    1 where the response equals the gold answer in that column

A WEIGHT is any finite number, 1 if left out. Quotes are for patterns that hold " + ".
"""

import math
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agents.judges.config import Config
from agents.judges.guarded import Guarded
from agents.judges.panel import Panel, Term
from agents.judges.pool import Pool, Source

if TYPE_CHECKING:
    from agents.judges.classifier import Classifier

GROUP = "cory.judges"
"""Entry points of this group name functions, as `my_judge = "my_package.my_module:my_function"`."""

KINDS = ("regex", "math-verify")
"""Judges made from a text, by `agents.judges.rules`."""

TERM = re.compile(
    r"\s*(?:(?P<weight>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*\*\s*)?"
    r"(?P<judge>regex:(?P<quote>['\"]).*?(?P=quote)|\S.*?)(?:\s+\+(?=\s)|\s*$)",
    re.DOTALL,
)


class Named(NamedTuple):
    """One term of a specification; `source` is None for a classifier."""

    weight: float
    name: str
    source: Source | None


def names() -> list[str]:
    """The judges that have a name: the bundled one, and those other distributions bring."""
    return sorted({"pocket"} | entry_points(group=GROUP).names)


def parse(spec: str) -> list[Named]:
    """The terms of a specification; ValueError for what is none."""
    terms: list[Named] = []
    position = 0
    while position < len(spec) or not terms:
        found = TERM.match(spec, position)
        if found is None:
            raise ValueError(
                f"judge {spec!r} cannot be read at {spec[position:]!r}; write one judge, or several as "
                "'0.5*module:function + 2*regex:PATTERN'"
            )
        weight, judge = float(found["weight"] or 1), found["judge"]
        if not math.isfinite(weight):
            raise ValueError(f"judge {spec!r} has a weight of {weight}; give a finite number")
        terms.append(Named(weight, judge, source_of(judge)))
        position = found.end()
    return terms


def is_classifier(spec: str) -> bool:
    """Whether the judge is one classifier, as it is."""
    return [(term.weight, term.source) for term in parse(spec)] == [(1.0, None)]


def source_of(judge: str) -> Source | None:
    """What is called in a process of its own for one judge; None for a classifier."""
    foreign = entry_points(group=GROUP)
    if judge in foreign.names:
        return "function", f"{foreign[judge].module}:{foreign[judge].attr}"
    kind, colon, rest = judge.partition(":")
    if colon and kind in KINDS:
        quoted = kind == "regex" and len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "'\""
        return kind, rest[1:-1] if quoted else rest
    if colon:
        return "function", judge
    if judge not in names() and "/" not in judge and not Path(judge).is_dir():
        raise ValueError(
            f"no judge called {judge!r}; there are {', '.join(names())}; a classifier is a folder or "
            "owner/name on the Hub, a function of your own module:function, a rule regex:PATTERN or "
            "math-verify:COLUMN"
        )
    return None


def make(spec: str, config: Config, *, device: str) -> Panel:
    """The judge of that name. Its functions have been imported, in processes that end with the judge."""
    pool = Pool(workers=config.workers, seconds=config.timeout, memory_mb=config.memory_mb)
    terms: list[Term] = []
    for weight, judge, source in parse(spec):
        label = judge.replace("/", ":") if source is None or source[0] == "function" else source[0]
        same = sum(term.name.partition("#")[0] == label for term in terms)
        name = f"{label}#{same + 1}" if same else label
        if source is None:
            terms.append(Term(name, weight, _classifier(judge, config, device)))
        else:
            terms.append(Term(name, weight, Guarded(source, name=judge, pool=pool, config=config)))
    return Panel(terms, reads=config.reads)


def _classifier(judge: str, config: Config, device: str) -> "Classifier":
    from agents import pocket
    from agents.judges.classifier import Classifier

    label = int(config.label) if config.label.isdigit() else config.label
    folder = pocket.JUDGE if judge == "pocket" else judge
    return Classifier(folder, label=label, output=config.output, device=device)
