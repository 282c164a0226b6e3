"""Parser of judge specifications, and the factory of judges.

    SPEC = TERM [" + " TERM]...        TERM = [WEIGHT "*"] JUDGE
    JUDGE = ALIAS | FOLDER | OWNER/NAME           a Hugging Face sequence classifier
          | MODULE:FUNCTION | FILE.py:FUNCTION    a Python function
          | NAME                                  the same, by an entry point of `cory.judges`
          | regex:PATTERN | regex:'PATTERN'       1 if the response matches, else 0
          | math-verify:COLUMN                    1 if the response equals the gold answer in that column

A WEIGHT is any finite number, 1 if left out. Quote patterns that contain " + ".
"""

import math
import os
import re
from collections.abc import Collection
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

from cory import pocket
from cory.judges.config import JudgeConfig
from cory.judges.game_template import GameTemplate
from cory.judges.supervisor import Source, Supervisor
from cory.judges.user_function import UserFunction
from cory.judges.weighted_sum import Term, WeightedSum
from cory_env.grading.reward_functions import Judge
from cory_env.nearest import did_you_mean
from cory_env.registry import Registry

REGISTRY: Registry[Judge] = Registry("judge", "cory.judges", {}, form="")
"""Functions by name; entry points are imported by worker processes."""

ALIASES = {"pocket": pocket.JUDGE, "smollm2": pocket.SMOLLM2_JUDGE}
"""Folders of classifiers by name."""

KINDS = ("regex", "math-verify")
"""Judges made by `cory.judges.rules`."""

TERM = re.compile(
    r"\s*(?:(?P<weight>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*\*\s*)?"
    r"(?P<judge>regex:(?P<quote>['\"]).*?(?P=quote)|\S.*?)(?:\s+\+(?=\s)|\s*$)",
    re.DOTALL,
)


OF_CLASSIFIERS = ("label", "output", "template")
"""Options that classifiers have; the others are of functions in worker processes."""


class ParsedTerm(NamedTuple):
    """One term of a specification; `source` is None for classifiers and registered functions."""

    weight: float
    name: str
    source: Source | None


def names() -> list[str]:
    """Return all named judges: aliases, registered functions and entry points."""
    return sorted({*ALIASES, *REGISTRY.names()})


def parse(spec: str) -> list[ParsedTerm]:
    """Return the terms of a specification; ValueError if it is malformed."""
    terms: list[ParsedTerm] = []
    position = 0
    while position < len(spec) or not terms:
        match = TERM.match(spec, position)
        if match is None:
            raise ValueError(
                f"judge {spec!r} cannot be read at {spec[position:]!r}; write one judge, or several as "
                "'0.5*module:function + 2*regex:PATTERN'"
            )
        weight, judge = float(match["weight"] or 1), os.path.expanduser(match["judge"])
        if not math.isfinite(weight):
            raise ValueError(f"judge {spec!r} has a weight of {weight}; give a finite number")
        terms.append(ParsedTerm(weight, judge, source_of(judge)))
        position = match.end()
    return terms


def is_classifier(spec: str) -> bool:
    """Whether the judge is a single classifier with weight 1."""
    first, *others = parse(spec)
    return not others and first.weight == 1 and first.source is None and first.name not in REGISTRY.items


def without_effect(spec: str, options: Collection[str]) -> list[str]:
    """Those of the options, fields of `JudgeConfig`, that no judge of a specification has."""
    terms = parse(spec)
    classifiers = any(term.source is None and term.name not in REGISTRY.items for term in terms)
    workers = any(term.source is not None for term in terms)
    return [name for name in options if not (classifiers if name in OF_CLASSIFIERS else workers)]


def source_of(judge: str) -> Source | None:
    """Return the function that a worker must load for a judge; None for other kinds of judges."""
    installed = entry_points(group=REGISTRY.group)
    if judge in REGISTRY.items:
        return None
    if judge in installed.names:
        return "function", f"{installed[judge].module}:{installed[judge].attr}"
    kind, colon, rest = judge.partition(":")
    if colon and kind in KINDS:
        quoted = kind == "regex" and len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "'\""
        return kind, rest[1:-1] if quoted else rest
    if colon:
        return "function", judge
    if judge not in names() and "/" not in judge and not Path(judge).is_dir():
        known = ", ".join(names())
        raise ValueError(
            f"no judge called {judge!r}; there are {known}; a classifier is a folder or "
            "owner/name on the Hub, a user function module:function or file.py:function, a rule "
            "regex:PATTERN or math-verify:COLUMN" + did_you_mean(judge, names())
        )
    return None


def make(spec: str, config: JudgeConfig, *, device: str) -> WeightedSum:
    """Make the judge of a specification."""
    supervisor = Supervisor(seconds=config.timeout, memory_mb=config.memory_mb)
    terms: list[Term] = []
    for weight, judge, source in parse(spec):
        name = judge.replace("/", ":") if source is None or source[0] == "function" else source[0]
        if judge in REGISTRY.items:
            terms.append(Term(name, weight, REGISTRY.load(judge)))
        elif source is None:
            terms.append(Term(name, weight, _classifier(ALIASES.get(judge, judge), config, device)))
        else:
            function = UserFunction(source, name=judge, supervisor=supervisor, config=config)
            terms.append(Term(name, weight, function))
    if config.template and not any(isinstance(term.judge, GameTemplate) for term in terms):
        raise ValueError(f"judge.template is for classifiers, and {spec!r} names none; leave it out")
    return WeightedSum(terms)


def _classifier(folder: str | Path, config: JudgeConfig, device: str) -> Judge:
    from cory.judges.classifier import Classifier

    classifier = Classifier(folder, label=config.label, output=config.output, device=device)
    return GameTemplate(classifier, config.template) if config.template else classifier
