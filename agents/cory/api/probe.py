"""Probe of saved policies: what two seats do to each other in games on held-out queries.

Shapes: H games of a probe.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from cory import algorithms
from cory.algorithms.base import State
from cory.batch import Batch
from cory.config.parsing import flat
from cory.config.schema import Config
from cory.evaluation import probe as measures
from cory.evaluation import records
from cory.evaluation.config import EvaluationConfig
from cory.evaluation.evaluator import Responses, evaluate_standalone
from cory.evaluation.probe_games import OBSERVER, PIONEER, ProbeConfig, ProbeGames, play_probe
from cory.functional import kl, token_rewards
from cory.functional.advantage import Advantage
from cory.judges import weighted_sum
from cory.policies.base import Policy
from cory.policies.causal_lm import CausalLMPolicy, check_same_tokenizer
from cory.rollout.role_exchange import seating_at
from cory.runtime.files import write_text
from cory.training import checkpoint
from cory.training.factory import load_players, make_game
from cory.training.targets import Target, find
from cory_env import tasks

SCHEMA = "cory-probe/1"


def probe(
    target: str | Path,
    *,
    queries: int = 64,
    pioneers: int = 4,
    observers: int = 4,
    seed: int = 0,
    preset: str | None = None,
    settings: Sequence[str] = (),
    on_progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure what the seats of a run, checkpoint or model do to each other; write nothing.

    `settings` are flags of `cory train` that change those of the target. docs/studies/probe.md explains every
    number of the result. ValueError for a target without two seats.
    """
    found = find(str(target), preset=preset, flags=settings, learns=True)
    config = ProbeConfig(queries=queries, pioneers=pioneers, observers=observers, seed=seed)
    return probe_target(found, config, on_progress=on_progress)


def probe_target(
    target: Target, config: ProbeConfig, *, on_progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Measure a target's policies in both seatings, and their references; the result as JSON.

    A target with one policy has it in both seats.
    """
    check_seats(target)
    settings = target.config
    folders = _of_two(target)
    task, known, policies = load_players(settings, folders)
    references = {name: known[name] for name in policies}
    if models := [
        one for one in (*references.values(), *policies.values()) if isinstance(one, CausalLMPolicy)
    ]:
        check_same_tokenizer(models)
    game = make_game(settings, task, policies)
    game.set_payoff(settings.payoff_rule, iteration=settings.iterations)
    config = replace(config, batch=settings.evaluation.batch)
    everyone = {policy.name: policy for policy in (*references.values(), *policies.values())}
    standalone_config = EvaluationConfig(
        queries=config.queries,
        samples=config.pioneers * config.observers,
        seed=config.seed,
        batch=config.batch,
    )
    pairs: list[tuple[dict[str, str], ProbeGames]] = []
    standalone: dict[str, Responses] = {}
    with weighted_sum.closing(task):
        for name, policy in everyone.items():
            on_progress(f"{target.name}: {name} standalone")
            standalone[name] = evaluate_standalone(
                policy, task, standalone_config, max_response=settings.max_response, measures={}
            )
        for names in seatings(references, _last_seating(target, folders)):
            on_progress(f"{target.name}: " + ", ".join(f"{name} as {seat}" for seat, name in names.items()))
            seated = {seat: everyone[name] for seat, name in names.items()}
            pairs.append((names, play_probe(game, seated, config)))
        failures = weighted_sum.failures(task)
    on_progress(f"{target.name}: computing intervals")
    Q = len(next(iter(standalone.values())).queries)
    before = {name: reference.name for name, reference in references.items()}
    return {
        "schema": SCHEMA,
        "measured": _measured(target, folders, config, standalone),
        "policies": list(policies),
        "pairs": [
            {"seating": names, "reference": names[PIONEER] not in policies}
            | measures.as_json(_measure(settings, games, (Q, config.pioneers, config.observers)))
            for names, games in pairs
        ],
        "skill": measures.as_json(measures.skill(standalone, pairs, before)),
        "specialisation": {
            f"{a}, {b}": measures.as_json(measures.specialisation(standalone[a], standalone[b]))
            for a, b in combinations(policies, 2)
        },
        "failures": failures,
    }


def check_seats(target: Target) -> None:
    """Raise ValueError unless the target's game has two seats."""
    seats = target.config.seats
    if seats == 1:
        raise ValueError(
            f"{target.name} has one seat, and a probe measures what a pioneer and an observer do to each "
            "other; name a run with two seats, or give --seats 2 to seat the policy in both"
        )
    if seats > 2:
        raise ValueError(
            f"{target.name} has {seats} seats, and a probe measures two; give --seats 2 for its first two "
            "policies"
        )


def seatings(references: Mapping[str, Policy], last: Sequence[str]) -> list[dict[str, str]]:
    """Policy names by seat: those of the policies `last`, the same exchanged, and their references."""
    orders = [tuple(last), tuple(reversed(last)), tuple(references[name].name for name in last)]
    return [dict(zip((PIONEER, OBSERVER), names, strict=True)) for names in dict.fromkeys(orders)]


def write(result: Mapping[str, Any], path: Path) -> Path:
    """Write a probe's result."""
    write_text(path, json.dumps(result, indent=1, allow_nan=False))
    return path


def _measure(settings: Config, games: ProbeGames, shape: tuple[int, int, int]) -> dict[str, Any]:
    """All measures of one pair of policies."""
    found: dict[str, Any] = {
        "influence": measures.influence(games),
        "reading": measures.reading(games),
        "copying": measures.copying(games),
        "values": {},
        "advantage": {},
    }
    for seat, advantage in (advantages(settings, games.batches, shape) or {}).items():
        batch = games.batches[seat]
        found["advantage"][seat] = measures.signal(advantage, batch, seat, shape)
        if of_values := measures.values(batch, advantage, shape[0]):
            found["values"][seat] = of_values
    return found


def advantages(
    settings: Config, batches: Mapping[str, Batch], shape: tuple[int, int, int]
) -> dict[str, Advantage] | None:
    """Advantages of both seats by the run's algorithm, in its initial state, from its rewards per token.

    Payoffs are scaled by the moments of these games. None where they cannot be known: a central critic is not
    among the saved policies, and groups must divide the games of a query.
    """
    algorithm, options = algorithms.load(settings.algorithm), settings.algorithm_options
    Q, P, R = shape
    if settings.critic.kind != "own" or (P * R) % algorithm.needs(options).group:
        return None
    # Games of a group share the query only: neighbours have different pioneer responses.
    order_H = torch.arange(Q * P * R).reshape(Q, P, R).transpose(1, 2).flatten()
    ordered = {seat: batch.take(order_H.to(batch.score_B.device)) for seat, batch in batches.items()}
    rewards = {seat: _rewards(settings, batch) for seat, batch in ordered.items()}
    states = {seat: State() for seat in batches}
    found = algorithm.advantage(ordered, rewards, options, states)
    back_H = order_H.argsort()
    return {
        seat: Advantage(*(tensor_BT[back_H.to(tensor_BT.device)] for tensor_BT in one))
        for seat, one in found.items()
    }


def _rewards(settings: Config, batch: Batch) -> torch.Tensor:
    """Token rewards of a seat, with the KL coefficient at the end of training if it is scheduled."""
    scaling, penalty = settings.payoff_scaling, settings.kl
    moments = token_rewards.Moments()
    if scaling.scaling != "none":
        moments = moments.after(batch.payoff_B)
    kl_BT = kl.estimate(penalty.kind, batch.old_logprobs_BT, batch.ref_logprobs_BT, batch.exact_kl_BT)
    coef = penalty.coef if penalty.final is None else penalty.final
    return token_rewards.token_rewards(
        token_rewards.scaled(batch.payoff_B, moments, scaling),
        torch.where(batch.mask_BT, kl_BT, 0.0),
        batch.mask_BT,
        kl_coef=coef if penalty.place == "reward" else 0.0,
    )


def _of_two(target: Target) -> dict[str, str]:
    """The folders of the policies that sit in the two seats."""
    names = target.config.policy_names
    named = {name: folder for name, folder in target.folders.items() if name in names}
    return dict(list((named or target.folders).items())[:2])


def _last_seating(target: Target, folders: Mapping[str, str]) -> list[str]:
    """The policies in the order of their seats in the last iteration before they were saved."""
    settings, names = target.config, list(folders)
    if len(names) == 1 or sorted(names) != sorted(settings.policy_names):
        return [names[0], names[-1]]
    seating = seating_at(
        _iterations(target, folders) - 1,
        every=settings.exchange.every,
        seats=(PIONEER, OBSERVER),
        first=settings.policy_names,
        order=settings.exchange.order,
        random_key=(settings.seed,) if settings.exchange.order == "random" else None,
    )
    return list(seating.values())


def _iterations(target: Target, folders: Mapping[str, str]) -> int:
    """How many iterations the policies were trained for, at least 1."""
    state = Path(next(iter(folders.values()))).parent / "trainer_state.json"
    if state.is_file():
        return max(1, int(json.loads(state.read_text(encoding="utf-8"))["iteration"]))
    best = checkpoint.read_best(target.run) if target.run is not None else None
    return max(1, best["iteration"] if best and target.config.export_best else target.config.iterations)


def _measured(
    target: Target, folders: Mapping[str, str], config: ProbeConfig, standalone: Mapping[str, Responses]
) -> dict[str, Any]:
    """Everything the numbers depend on."""
    settings = target.config
    judged = "judge" in tasks.options(settings.task)
    irrelevant = {"evaluation"} if judged else {"evaluation", "judge"}
    defining = records.defining(flat(settings))
    texts = next(iter(standalone.values())).queries
    weights = {
        name: records.files_sha256(Path(folder)) if Path(folder).is_dir() else folder
        for name, folder in folders.items()
    }
    return {
        "target": target.name,
        "task": settings.task,
        "judge": settings.judge if judged else None,
        "split": "test",
        "queries": len(texts),
        "pioneers": config.pioneers,
        "observers": config.observers,
        "standalone": config.pioneers * config.observers,
        "seed": config.seed,
        "algorithm": settings.algorithm,
        "queries_sha256": records.texts_sha256(texts),
        "settings": {k: v for k, v in defining.items() if k.split(".")[0] not in irrelevant},
        "weights": weights,
    }
