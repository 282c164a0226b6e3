"""Evaluation summary: metrics, intervals, gains over the reference and paired differences, as JSON."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from cory.evaluation import collapse
from cory.evaluation.bootstrap import Estimate, differences, estimates
from cory.evaluation.evaluator import Responses
from cory.evaluation.text_metrics import diversity

FROM_REFERENCE = ("kl", "kl_per_token", "reference_nats")
"""Quantities that measure a distance from the reference and have no gain over it."""

PerQuery = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class EvaluatedTarget:
    """All responses of a target; names are those of its policies and references."""

    label: str
    settings: dict[str, Any]
    """Its settings, flat."""
    kl_coef: float
    """The coefficient of its combined reward."""
    samples: int
    sampling: str
    threshold: float | None
    """The task reward from which a response counts as correct."""
    references: dict[str, str]
    """The reference of each policy."""
    standalone: dict[str, Responses]
    """Responses to the query only, of references and policies."""
    games: list[tuple[dict[str, str], dict[str, Responses]]]
    """Per seating: policy names by seat, and the responses of every seat."""
    judge: dict[str, float] = field(default_factory=dict)
    """Metrics of the judge (`cory.judges.weighted_sum.metrics`)."""
    failures: list[dict[str, Any]] = field(default_factory=list)
    """The first responses that could not be scored."""
    data: dict[str, Any] = field(default_factory=dict)
    """Number of queries by split, and what is left out (`cory_env.tasks.base.counted`)."""


def summary(evaluated: Sequence[EvaluatedTarget]) -> dict[str, Any]:
    """All figures of one or more targets, that were asked the same, as JSON holds them.

    Of several targets, policies are called `label:policy`; a reference that answers like the first target's
    is told once. The price in combined rewards and the threshold are the first target's for all.
    """
    first = evaluated[0]
    prices: dict[str, Any] = {"kl_coef": first.kl_coef, "threshold": first.threshold}
    result: dict[str, Any] = {
        "settings": {one.label: one.settings for one in evaluated},
        "queries": len(next(iter(first.standalone.values())).queries),
        "samples": first.samples,
        "sampling": first.sampling,
        **prices,
        "collapse_signs": collapse.definitions(),
        "data": first.data,
        "judge": {one.label: one.judge for one in evaluated},
        "failures": [{"target": one.label, **row} for one in evaluated for row in one.failures],
    }
    parts = ("figures", "intervals", "gain_over_reference", "collapse", "in_game", "diversity", "comparison")
    result |= {part: {} for part in parts}
    told: list[dict[str, PerQuery]] = []
    for one in evaluated:
        names = {name: name if len(evaluated) == 1 else f"{one.label}:{name}" for name in one.standalone}
        for name in set(one.references.values()):
            if one is first or _same(one.standalone[name], first.standalone.get(name)):
                names[name] = name
        of = {name: answers.per_query(**prices) for name, answers in one.standalone.items()}
        told.append({names[name]: of[name] for name in one.references})
        _add_alone(result, one, names, of)
        _add_games(result, one, names, prices)
    for later in told[1:]:
        for name, other in ((name, other) for name in later for other in told[0]):
            result["comparison"][f"{name} minus {other}"] = _plain(differences(later[name], told[0][other]))
    return result


def _add_alone(
    result: dict[str, Any], one: EvaluatedTarget, names: Mapping[str, str], of: Mapping[str, PerQuery]
) -> None:
    """Figures, gains and signs of collapse of every policy by itself; how much policies differ."""
    for name, per_query in of.items():
        if names[name] not in result["figures"]:
            _add(result, names[name], estimates(per_query))
    for name, reference in one.references.items():
        gains = {key: of[name][key] for key in of[name] if key not in FROM_REFERENCE}
        told = _plain(differences(gains, of[reference]), value="gain")
        for quantity, values_QS in one.standalone[reference].arrays.items():
            if quantity in told:
                spread = float(values_QS.std(ddof=1)) if values_QS.size > 1 else 0.0
                gain = told[quantity]["gain"]
                told[quantity]["in_reference_deviations"] = gain / spread if gain and spread else None
        result["gain_over_reference"][names[name]] = told
        figures = result["figures"]
        result["collapse"][names[name]] = collapse.signs(figures[names[name]], figures[names[reference]])
    for a, b in combinations(one.references, 2):
        unlike = estimates(diversity(one.standalone[a].texts, one.standalone[b].texts))
        result["diversity"][f"{names[a]}, {names[b]}"] = _plain(unlike)


def _add_games(
    result: dict[str, Any], one: EvaluatedTarget, names: Mapping[str, str], prices: Mapping[str, Any]
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


def _same(ours: Responses, theirs: Responses | None) -> bool:
    """Whether two references are one."""
    return theirs is not None and ours.ids == theirs.ids and ours.queries == theirs.queries


def sample_lines(evaluated: Sequence[EvaluatedTarget]) -> Iterator[dict[str, Any]]:
    """Every query and sample, with what each policy answered alone and each seat in each game, and its
    numbers."""
    first = next(iter(evaluated[0].standalone.values()))
    for i, query in enumerate(first.queries):
        for sample in range(len(first.texts[i])):
            yield {
                "query": query,
                "sample": sample,
                "targets": {
                    one.label: {
                        "eval": {name: _response(of, i, sample) for name, of in one.standalone.items()},
                        "games": [
                            {
                                f"{seat}/{seating[seat]}": _response(of, i, sample)
                                for seat, of in answers.items()
                            }
                            for seating, answers in one.games
                        ],
                    }
                    for one in evaluated
                },
            }


def _response(answers: Responses, i: int, sample: int) -> dict[str, Any]:
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
