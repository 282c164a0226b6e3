"""Probe of saved policies: what two seats do to each other in games on held-out queries."""

from collections.abc import Callable
from dataclasses import asdict, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from cory.evaluation import probe as measures
from cory.evaluation import records
from cory.evaluation.bootstrap import as_json
from cory.evaluation.config import ProbeConfig
from cory.evaluation.probe_games import OBSERVER, PIONEER, play_probe
from cory.judges import weighted_sum
from cory.training.evaluate import conditions, edited, evaluate_alone, load_target
from cory.training.factory import configure_runtime, make_game
from cory.training.targets import Target, find


def probe(
    target: str | PathLike[str],
    *,
    queries: int = 64,
    pioneers: int = 4,
    observers: int = 4,
    seed: int = 0,
    preset: str | None = None,
    on_progress: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> dict[str, Any]:
    """Measure what the seats of a run, checkpoint or model do to each other; write nothing.

    The first two policies are measured in both seatings, and their references; one alone sits in both seats.
    `settings` change those of the target, as in `cory.train`. docs/studies/probe.md explains every number of
    the result. ValueError for a target without two seats, or with a player that does not learn.
    """
    sizes = ProbeConfig(queries=queries, pioneers=pioneers, observers=observers, seed=seed)
    probed = find_target(fspath(target), preset=preset, **settings)
    config = probed.config
    configure_runtime(config)
    named = {name: folder for name, folder in probed.folders.items() if name in config.policy_names}
    probed = replace(probed, folders=dict(list((named or probed.folders).items())[:2]))
    loaded = load_target(probed)
    task, references, policies = loaded
    everyone = {policy.name: policy for policy in (*references.values(), *policies.values())}
    game = make_game(config, task, policies)
    alone = replace(config.evaluation, queries=queries, samples=pioneers * observers, sampling="own")
    first, *_, last = [*policies, *policies]
    pairs = [(first, last), (last, first), (references[first].name, references[last].name)]
    played = []
    with weighted_sum.closing(task):
        standalone = evaluate_alone(
            replace(config, evaluation=alone),
            loaded,
            {},
            lambda text: on_progress(f"{probed.name}: {text}"),
            seed=seed,
        )
        for pair in dict.fromkeys(pairs):
            on_progress(f"{probed.name}: {' -> '.join(pair)}")
            seating = dict(zip((PIONEER, OBSERVER), pair, strict=True))
            seated = {seat: everyone[name] for seat, name in seating.items()}
            played.append((seating, play_probe(game, seated, sizes)))
        failures = weighted_sum.of_task(task).failures()
    on_progress(f"{probed.name}: computing intervals")
    free_riding = measures.free_riding(
        {name: responses.arrays["task_reward"].mean(1) for name, responses in standalone.items()},
        played if standalone else [],
        {name: reference.name for name, reference in references.items()},
    )
    return {
        "measured": {
            "target": probed.name,
            **asdict(sizes),
            **conditions(config, [query.text for query in task.queries("test")[:queries]]),
            "weights": {
                name: records.files_sha256(Path(folder)) if Path(folder).is_dir() else folder
                for name, folder in probed.folders.items()
            },
        },
        "pairs": [
            {
                "seating": seating,
                "reference": seating[PIONEER] not in policies,
                "influence": as_json(measures.influence(games)),
                "reading": as_json(measures.reading(games)),
                "copying": as_json(measures.copying(games)),
            }
            for seating, games in played
        ],
        "free_riding": {name: as_json(of_policy) for name, of_policy in free_riding.items()},
        "failures": failures,
        "edited": edited(probed),
    }


def find_target(name: str, *, preset: str | None = None, **settings: Any) -> Target:
    """The target `name`; ValueError unless its game has two seats of policies."""
    target = find(name, preset=preset, settings=settings)
    if (seats := target.config.seats) != 2:
        raise ValueError(
            f"{name} has {seats} seat{'s' if seats > 1 else ''}, and a probe measures what a pioneer and an "
            "observer do to each other; give --seats 2, or of a run with turns --turns llm_1,llm_2, "
            "for its first two policies, or its one policy in both"
        )
    if target.config.players:
        raise ValueError(
            f"{name} has players.{next(iter(target.config.players))}, and a probe measures what policies do "
            "to each other in both seats; cory evaluate plays with it"
        )
    return target
