"""Evaluation summary: metrics, intervals, gains over the reference and paired differences, as JSON."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from cory.evaluation import collapse
from cory.evaluation.bootstrap import Estimate, as_json, differences, estimates, finite
from cory.evaluation.evaluator import Responses
from cory.runtime import files
from cory.runtime.files import write_text

FROM_REFERENCE = ("kl", "kl_per_token", "reference_nats")
"""Quantities that measure a distance from the reference and have no gain over it."""

PARTS = ("metrics", "intervals", "gain_over_reference", "collapse", "in_game", "comparison")
"""Parts of a summary that are filled target by target."""

PerQuery = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class EvaluatedTarget:
    """All responses of a target; names are those of its policies and references."""

    label: str
    settings: dict[str, Any]
    """Its settings, flat."""
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

    @property
    def responses(self) -> Responses:
        """The first responses; those of all others are to the same queries."""
        return next(iter([*self.standalone.values(), *(r for _, game in self.games for r in game.values())]))

    @property
    def names(self) -> list[str]:
        """Names of references and policies."""
        return list(dict.fromkeys([*self.references.values(), *self.references]))


def summary(evaluated: Sequence[EvaluatedTarget]) -> dict[str, Any]:
    """The evaluation summary of targets that were evaluated on the same queries, as JSON.

    With several targets policies are named `label:policy`; standalone, a reference whose responses equal
    those of the first target's is listed once. The KL coefficient of the first target applies to all.
    """
    first = evaluated[0]
    kl_coef = first.settings["kl.coef"]
    result: dict[str, Any] = {
        "settings": {target.label: target.settings for target in evaluated},
        "queries": len(first.responses.queries),
        "samples": first.settings["evaluation.samples"],
        "sampling": first.settings["evaluation.sampling"],
        "kl_coef": kl_coef,
        "threshold": first.responses.threshold,
        "collapse_signs": collapse.definitions(),
        "data": first.data | {"left_out": _once(target.data["left_out"] for target in evaluated)},
        "judge": {target.label: target.judge for target in evaluated},
        "failures": [{"target": target.label, **row} for target in evaluated for row in target.failures],
    }
    result |= {part: {} for part in PARTS}
    policies: list[dict[str, PerQuery]] = []
    for target in evaluated:
        prefix = f"{target.label}:" if len(evaluated) > 1 else ""
        names = _display_names(target, first, prefix)
        standalone = target.standalone.items()
        per_query = {name: responses.per_query(kl_coef=kl_coef) for name, responses in standalone}
        policies.append({names[name]: per_query[name] for name in target.references if per_query})
        _add_standalone(result, target, names, per_query)
        _add_games(result, target, prefix, kl_coef)
    for later in policies[1:]:
        for name, other in ((name, other) for name in later for other in policies[0]):
            comparison = differences(later[name], policies[0][other])
            result["comparison"][f"{name} minus {other}"] = as_json(comparison)
    return result


def _once(lists: Iterable[Iterable[str]]) -> list[str]:
    """The lines of all lists, each once."""
    return list(dict.fromkeys(chain.from_iterable(lists)))


def _display_names(target: EvaluatedTarget, first: EvaluatedTarget, prefix: str) -> dict[str, str]:
    """The name in the summary of every policy and reference of `target`, standalone."""
    shared = {
        name
        for name in target.references.values()
        if target is first or _equal(target.standalone.get(name), first.standalone.get(name))
    }
    return {name: name if name in shared else prefix + name for name in target.names}


def _add_standalone(
    result: dict[str, Any],
    target: EvaluatedTarget,
    names: Mapping[str, str],
    per_query: Mapping[str, PerQuery],
) -> None:
    """Add metrics, gains and signs of collapse of every policy standalone."""
    for name, values in per_query.items():
        if names[name] not in result["metrics"]:
            result["metrics"][names[name]], result["intervals"][names[name]] = _values(estimates(values))
    for name, reference in target.references.items() if per_query else ():
        comparable = {key: values_Q for key, values_Q in per_query[name].items() if key not in FROM_REFERENCE}
        gains = differences(comparable, per_query[reference])
        result["gain_over_reference"][names[name]] = as_json(gains, value="gain")
        metrics = result["metrics"]
        result["collapse"][names[name]] = collapse.signs(metrics[names[name]], metrics[names[reference]])


def _add_games(result: dict[str, Any], target: EvaluatedTarget, prefix: str, kl_coef: float) -> None:
    """Add the metrics of every policy in every seat; who sits there in a second game has partners' names."""
    for seating, responses in target.games:
        for seat, written in responses.items():
            metrics, intervals = _values(estimates(written.per_query(kl_coef=kl_coef)))
            name = f"{seat}/{prefix}{seating[seat]}"
            if name in result["in_game"]:
                partners = [partner for other, partner in seating.items() if other != seat]
                name += f" beside {', '.join(partners)}"
            result["in_game"][name] = {
                "seating": {other: prefix + partner for other, partner in seating.items()},
                "metrics": metrics,
                "intervals": intervals,
            }


def _values(
    by_quantity: Mapping[str, Estimate],
) -> tuple[dict[str, float | None], dict[str, list[float | None]]]:
    """The values and the intervals of estimates, by quantity."""
    metrics = {quantity: finite(e.value) for quantity, e in by_quantity.items()}
    intervals = {quantity: [finite(e.low), finite(e.high)] for quantity, e in by_quantity.items()}
    return metrics, intervals


def _equal(ours: Responses | None, theirs: Responses | None) -> bool:
    """Whether two references gave the same responses to the same queries."""
    if ours is None or theirs is None:
        return False
    return ours.ids == theirs.ids and ours.queries == theirs.queries


def sample_lines(evaluated: Sequence[EvaluatedTarget]) -> Iterator[dict[str, Any]]:
    """One row per query and sample: all standalone and in-game responses with their metrics."""

    def rows(by_name: Mapping[str, Responses]) -> dict[str, Any]:
        return {
            name: {
                "response": responses.texts[i][sample],
                **{key: finite(float(values[i, sample])) for key, values in responses.arrays.items()},
            }
            for name, responses in by_name.items()
        }

    first = evaluated[0].responses
    for i, query in enumerate(first.queries):
        for sample in range(len(first.texts[i])):
            targets = {
                target.label: {
                    "eval": rows(target.standalone),
                    "games": [
                        rows({f"{seat}/{seating[seat]}": played for seat, played in by_seat.items()})
                        for seating, by_seat in target.games
                    ],
                }
                for target in evaluated
            }
            yield {"query": query, "sample": sample, "targets": targets}


def write(path: Path, result: Mapping[str, Any]) -> Path:
    """Write the summary to `path` and its responses beside it; return the path of these samples.

    Each is written to a temporary file, then renamed. The folder is made if it is missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = samples_of(path)
    rows = (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in result["responses"])
    write_text(samples, "".join(rows))
    rest = {name: part for name, part in result.items() if name != "responses"}
    write_text(path, json.dumps(rest, indent=1, allow_nan=False))
    return samples


def samples_of(path: Path) -> Path:
    """The file of the samples beside the file of a summary."""
    return path.with_suffix(".samples.jsonl")


def check_output(path: Path) -> None:
    """Raise ValueError unless a summary and its samples can be written here without a loss."""
    files.check_output(path, '"measured": {')
    files.check_output(samples_of(path), '{"query": ')
