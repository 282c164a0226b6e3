"""Probe of saved policies: what two seats do to each other in games on held-out queries."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cory.config.values import flat
from cory.evaluation import probe as measures
from cory.evaluation import records
from cory.evaluation.config import EvaluationConfig
from cory.evaluation.evaluator import Responses, evaluate_standalone
from cory.evaluation.probe_games import OBSERVER, PIONEER, ProbeConfig, ProbeGames, play_probe
from cory.judges import weighted_sum
from cory.policies.causal_lm import check_same_tokenizer
from cory.training.factory import configure_runtime, make_game, make_players, silence_transformers
from cory.training.targets import Target, find
from cory_env import tasks
from cory_env.tasks.base import team_only


def probe(
    target: str | Path,
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

    `settings` change those of the target, as in `cory.train`. docs/studies/probe.md explains every
    number of the result. ValueError for a target without two seats.
    """
    config = ProbeConfig(queries=queries, pioneers=pioneers, observers=observers, seed=seed)
    silence_transformers()
    found = find_target(str(target), preset=preset, **settings)
    configure_runtime(found.config)
    return probe_target(found, config, on_progress=on_progress)


def find_target(name: str, *, preset: str | None = None, **settings: Any) -> Target:
    """The target `name`; ValueError unless its game has two seats."""
    target = find(name, preset=preset, settings=settings)
    if (seats := target.config.seats) != 2:
        raise ValueError(
            f"{name} has {seats} seat{'s' if seats > 1 else ''}, and a probe measures what a pioneer and an "
            "observer do to each other; give --seats 2 for its first two policies, or its one policy in both"
        )
    return target


def probe_target(
    target: Target, config: ProbeConfig, *, on_progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Measure a target's first two policies in both seatings, and their references; the result as JSON.

    A target with one policy has it in both seats.
    """
    settings = target.config
    named = {name: folder for name, folder in target.folders.items() if name in settings.policy_names}
    folders = dict(list((named or target.folders).items())[:2])
    task, references, policies = make_players(settings, folders=folders)
    references = {name: references[name] for name in policies}
    everyone = {policy.name: policy for policy in (*references.values(), *policies.values())}
    check_same_tokenizer(everyone.values())
    game = make_game(settings, task, policies)
    pairs: list[tuple[dict[str, str], ProbeGames]] = []
    standalone: dict[str, Responses] = {}
    alone = EvaluationConfig(queries=config.queries, samples=config.pioneers * config.observers)
    with weighted_sum.closing(task):
        for name, policy in () if team_only(task) else everyone.items():
            on_progress(f"{target.name}: {name} standalone")
            standalone[name] = evaluate_standalone(
                policy, task, alone, max_response=settings.max_response, measures={}, seed=config.seed
            )
        first, *_, last = [*policies, *policies]
        for order in dict.fromkeys(
            [(first, last), (last, first), (references[first].name, references[last].name)]
        ):
            seating = dict(zip((PIONEER, OBSERVER), order, strict=True))
            on_progress(f"{target.name}: {' -> '.join(order)}")
            games = play_probe(game, {seat: everyone[name] for seat, name in seating.items()}, config)
            pairs.append((seating, games))
        failures = weighted_sum.of_task(task).failures()
    on_progress(f"{target.name}: computing intervals")
    return {
        "measured": _measured(
            target, folders, config, [query.text for query in task.queries("test")[: config.queries]]
        ),
        "pairs": [
            {
                "seating": seating,
                "reference": seating[PIONEER] not in policies,
                "influence": measures.as_json(measures.influence(games)),
                "reading": measures.as_json(measures.reading(games)),
                "copying": measures.as_json(measures.copying(games)),
            }
            for seating, games in pairs
        ],
        "free_riding": measures.as_json(
            measures.free_riding(
                {name: responses.arrays["task_reward"].mean(1) for name, responses in standalone.items()},
                pairs,
                {name: reference.name for name, reference in references.items()},
            )
            if standalone
            else {}
        ),
        "failures": failures,
    }


def _measured(
    target: Target, folders: Mapping[str, str], config: ProbeConfig, queries: Sequence[str]
) -> dict[str, Any]:
    """Everything the numbers depend on."""
    settings = target.config
    judged = "judge" in tasks.options(settings.task)
    irrelevant = {"evaluation"} if judged else {"evaluation", "judge"}
    defining = records.defining(flat(settings))
    return {
        "target": target.name,
        "task": settings.task,
        "judge": settings.judge if judged else None,
        "split": "test",
        "queries": len(queries),
        "pioneers": config.pioneers,
        "observers": config.observers,
        "seed": config.seed,
        "queries_sha256": records.texts_sha256(queries),
        "settings": {k: v for k, v in defining.items() if k.split(".")[0] not in irrelevant},
        "weights": {
            name: records.files_sha256(Path(folder)) if Path(folder).is_dir() else folder
            for name, folder in folders.items()
        },
    }
