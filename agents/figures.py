"""What an evaluation found, as the JSON and the samples it leaves: figures, intervals, gains, differences."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from agents import collapse
from agents.config import Config
from agents.evaluate import Answers
from agents.intervals import Estimate, differences, estimates
from agents.measures import diversity
from agents.settings import flat

FROM_REFERENCE = ("kl", "kl_per_token", "reference_nats")
"""What measures a distance from the reference and is no gain over it."""

PerQuery = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Everything a target answered; names are those of its policies and references."""

    label: str
    config: Config
    references: dict[str, str]
    """The reference of each policy."""
    alone: dict[str, Answers]
    """Of references and policies."""
    games: list[tuple[dict[str, str], dict[str, Answers]]]
    """Of each game: who sat where, and what every seat answered."""
    judge: dict[str, float] = field(default_factory=dict)
    """What the judge says of itself: `agents.judges.panel.numbers`."""
    failures: list[dict[str, Any]] = field(default_factory=list)
    """Responses it could not score, the first of them."""
    data: dict[str, Any] = field(default_factory=dict)
    """How many queries the task has by split, and what it leaves out: `cory_env.tasks.base.counted`."""


def summary(judged: Sequence[Judged]) -> dict[str, Any]:
    """All figures of one or more targets, that were asked the same, as JSON holds them.

    Of several targets, policies are called `label:policy`; a reference that answers like the first target's
    is told once. The price in combined rewards and the threshold are the first target's for all.
    """
    first = judged[0]
    prices: dict[str, Any] = {"kl_coef": first.config.kl.coef, "threshold": first.config.evaluation.threshold}
    result: dict[str, Any] = {
        "settings": {one.label: flat(one.config) for one in judged},
        "queries": len(next(iter(first.alone.values())).queries),
        "samples": first.config.evaluation.samples,
        "sampling": first.config.evaluation.sampling,
        **prices,
        "collapse_signs": collapse.definitions(),
        "data": first.data,
        "judge": {one.label: one.judge for one in judged},
        "failures": [{"target": one.label, **row} for one in judged for row in one.failures],
    }
    parts = ("figures", "intervals", "gain_over_reference", "collapse", "in_game", "diversity", "comparison")
    result |= {part: {} for part in parts}
    told: list[dict[str, PerQuery]] = []
    for one in judged:
        names = {name: name if len(judged) == 1 else f"{one.label}:{name}" for name in one.alone}
        for name in set(one.references.values()):
            if one is first or _same(one.alone[name], first.alone.get(name)):
                names[name] = name
        of = {name: answers.per_query(**prices) for name, answers in one.alone.items()}
        told.append({names[name]: of[name] for name in one.references})
        _add_alone(result, one, names, of)
        _add_games(result, one, names, prices)
    for later in told[1:]:
        for name, other in ((name, other) for name in later for other in told[0]):
            result["comparison"][f"{name} minus {other}"] = _plain(differences(later[name], told[0][other]))
    return result


def _add_alone(
    result: dict[str, Any], one: Judged, names: Mapping[str, str], of: Mapping[str, PerQuery]
) -> None:
    """Figures, gains and signs of collapse of every policy by itself; how much policies differ."""
    for name, per_query in of.items():
        if names[name] not in result["figures"]:
            _add(result, names[name], estimates(per_query))
    for name, reference in one.references.items():
        gains = {key: of[name][key] for key in of[name] if key not in FROM_REFERENCE}
        told = _plain(differences(gains, of[reference]), value="gain")
        for quantity, values_QS in one.alone[reference].arrays.items():
            if quantity in told:
                spread = float(values_QS.std(ddof=1)) if values_QS.size > 1 else 0.0
                gain = told[quantity]["gain"]
                told[quantity]["in_reference_deviations"] = gain / spread if gain and spread else None
        result["gain_over_reference"][names[name]] = told
        figures = result["figures"]
        result["collapse"][names[name]] = collapse.signs(figures[names[name]], figures[names[reference]])
    for a, b in combinations(one.references, 2):
        unlike = estimates(diversity(one.alone[a].texts, one.alone[b].texts))
        result["diversity"][f"{names[a]}, {names[b]}"] = _plain(unlike)


def _add_games(
    result: dict[str, Any], one: Judged, names: Mapping[str, str], prices: Mapping[str, Any]
) -> None:
    """Every policy in every seat, and how much the seats of a game differ."""
    for seating, answers in one.games:
        called = {seat: f"{seat}/{names[name]}" for seat, name in seating.items()}
        for seat, of in answers.items():
            told = estimates(of.per_query(**prices))
            result["in_game"][called[seat]] = {
                "seating": {place: names[name] for place, name in seating.items()},
                "figures": {name: _finite(e.value) for name, e in told.items()},
                "intervals": {name: [_finite(e.low), _finite(e.high)] for name, e in told.items()},
            }
        for a, b in combinations(answers, 2):
            unlike = estimates(diversity(answers[a].texts, answers[b].texts))
            result["diversity"][f"{called[a]}, {called[b]}"] = _plain(unlike)


def _add(result: dict[str, Any], name: str, told: Mapping[str, Estimate]) -> None:
    result["figures"][name] = {quantity: _finite(e.value) for quantity, e in told.items()}
    result["intervals"][name] = {quantity: [_finite(e.low), _finite(e.high)] for quantity, e in told.items()}


def _plain(told: Mapping[str, Estimate], *, value: str = "value") -> dict[str, dict[str, float | None]]:
    return {
        name: {value: _finite(e.value), "low": _finite(e.low), "high": _finite(e.high)}
        for name, e in told.items()
    }


def _finite(number: float) -> float | None:
    """The number, None where JSON cannot hold it."""
    return number if math.isfinite(number) else None


def _same(ours: Answers, theirs: Answers | None) -> bool:
    """Whether two references are one."""
    return theirs is not None and ours.ids == theirs.ids and ours.queries == theirs.queries


def sample_lines(judged: Sequence[Judged]) -> Iterator[dict[str, Any]]:
    """Every query and sample, with what each policy answered alone and each seat in each game, and its
    numbers."""
    first = next(iter(judged[0].alone.values()))
    for i, query in enumerate(first.queries):
        for sample in range(len(first.texts[i])):
            yield {
                "query": query,
                "sample": sample,
                "targets": {
                    one.label: {
                        "alone": {name: _response(of, i, sample) for name, of in one.alone.items()},
                        "games": [
                            {
                                f"{seat}/{seating[seat]}": _response(of, i, sample)
                                for seat, of in answers.items()
                            }
                            for seating, answers in one.games
                        ],
                    }
                    for one in judged
                },
            }


def _response(answers: Answers, i: int, sample: int) -> dict[str, Any]:
    numbers = {name: _finite(float(values_QS[i, sample])) for name, values_QS in answers.arrays.items()}
    return {"response": answers.texts[i][sample], **numbers}


def write(path: Path, result: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> Path:
    """The figures at `path` and the samples beside it, `NAME.samples.jsonl`; the path of those.

    Each is written beside its place and renamed.
    """
    samples = path.with_suffix(".samples.jsonl")
    for place, text in (
        (samples, "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)),
        (path, json.dumps(result, indent=1, allow_nan=False)),
    ):
        part = place.with_name(place.name + ".part")
        part.write_text(text, encoding="utf-8")
        part.replace(place)
    return samples
