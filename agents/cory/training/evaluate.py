"""Held-out evaluation of saved policies: standalone and in every seat, beside their references."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cory.config.schema import Config
from cory.config.values import flat
from cory.evaluation import records
from cory.evaluation.evaluator import (
    SEED,
    Measure,
    Responses,
    evaluate_in_game,
    evaluate_standalone,
)
from cory.evaluation.external import Player
from cory.evaluation.summary import EvaluatedTarget, sample_lines, summary
from cory.judges import weighted_sum
from cory.policies.base import Policy
from cory.runtime.sources import changed, last_of, sources_of
from cory.training import metrics
from cory.training.factory import (
    load_references,
    make_game,
    make_measures,
    make_players,
    make_task,
    tokens_of,
)
from cory.training.players import as_player, seat_players, seatings
from cory.training.targets import OF_TRAINING, Target, labels
from cory_env import tasks
from cory_env.tasks.base import Task, check_seats, counted, team_only
from cory_env.vector import VectorGame

COMPARED = ("task", "task_options", "judge", "judge_options", "max_response", "evaluation")
"""Settings that must agree between targets that are compared."""


def evaluate_targets(
    targets: Sequence[Target], *, game: bool = True, on_progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """The evaluation summary of one or more targets as JSON, with all texts under `responses`.

    Its part `measured` says what was measured (`measurement`). With `game`, policies also play every
    seating. ValueError if the targets' evaluation settings differ.
    """
    check_comparable(targets)
    names = labels([target.name for target in targets])
    evaluated = [
        evaluate_target(target, label, game=game, on_progress=on_progress)
        for target, label in zip(targets, names, strict=True)
    ]
    on_progress("computing intervals")
    return {
        "measured": measurement(targets, evaluated, game=game),
        **summary(evaluated),
        "responses": list(sample_lines(evaluated)),
    }


def measurement(
    targets: Sequence[Target], evaluated: Sequence[EvaluatedTarget], *, game: bool
) -> dict[str, Any]:
    """What an evaluation measured, as JSON: everything that its numbers depend on.

    Equal values mean the same measurement of the same weights. `judge` is None for a task that scores by
    itself. With several targets, the settings are those of the first and policies are named `label:policy`.
    """
    config, first = targets[0].config, evaluated[0]
    return {
        **conditions(config, first.responses.queries),
        "samples": config.evaluation.samples,
        "sampling": config.evaluation.sampling,
        "threshold": first.responses.threshold,
        "kl_coef": config.kl.coef,
        "game": game,
        "weights": {
            name if len(targets) == 1 else f"{part.label}:{name}": _weights(target, Path(folder))
            for target, part in zip(targets, evaluated, strict=True)
            for name, folder in (target.folders or dict.fromkeys(target.players, target.name)).items()
        },
    }


def conditions(config: Config, queries: Sequence[str]) -> dict[str, Any]:
    """The task, its judge, the held-out queries, and the settings that numbers depend on."""
    judged = "judge" in tasks.options(config.task)
    settings = records.defining(flat(config)).items()
    return {
        "task": config.task,
        "judge": config.judge if judged else None,
        "split": "test",
        "queries": len(queries),
        "queries_sha256": records.texts_sha256(queries),
        "settings": {name: value for name, value in settings if judged or name.split(".")[0] != "judge"},
    }


def _weights(target: Target, folder: Path) -> dict[str, str | None]:
    """The folder of a policy's weights, relative to a run, and their sha256.

    For players the function that loads them; there, and for a hub name, no sha256.
    """
    inside = target.run is not None and folder.is_relative_to(target.run)
    place = folder.relative_to(target.run) if inside and target.run is not None else folder
    return {
        "folder": place.as_posix(),
        "sha256": records.files_sha256(folder) if folder.is_dir() else None,
    }


def evaluate_target(
    target: Target, label: str, *, game: bool, on_progress: Callable[[str], None]
) -> EvaluatedTarget:
    """Evaluate references and policies of a target, standalone and with `game` in every seat.

    A task that scores teams only is evaluated in games only; ValueError without them.
    """
    config = target.config
    loaded, measures = load_target(target), make_measures(config)
    task, references, _ = loaded
    data = counted(task)
    data["left_out"] += edited(target)
    check_seats(task, config.seats if game else 1)
    with weighted_sum.closing(task):
        standalone = evaluate_alone(config, loaded, measures, lambda text: on_progress(f"{label}: {text}"))
        games = evaluate_seatings(config, loaded, measures, on_progress) if game else []
        judge = weighted_sum.of_task(task)
        of_judge, failures = judge.metrics(), judge.failures()
    return EvaluatedTarget(
        label=label,
        settings={name: value for name, value in flat(config).items() if not name.startswith(OF_TRAINING)},
        references={name: policy.name for name, policy in references.items()},
        standalone=standalone,
        games=games,
        judge=of_judge,
        failures=failures,
        data=data,
    )


def edited(target: Target) -> list[str]:
    """A line if a file that the settings of a run name is no longer what the run was trained with."""
    if target.run is None:
        return []
    before = last_of(records.environment_of(target.run))
    now = {name: sha256 for name, sha256 in sources_of(flat(target.config)).items() if name in before}
    words = changed({name: before[name] for name in now}, now)
    return [f"{words} since {target.name} was trained: it is evaluated by what is there now"] if words else []


class Evaluated(NamedTuple):
    """The task, the reference of each policy or player by its name, and these."""

    task: Task
    references: dict[str, Policy]
    policies: dict[str, Player]


def load_target(target: Target) -> Evaluated:
    """Task, references and policies of a target; players have played one response when this returns.

    ValueError for a policy with another tokenizer than its reference, and for a player that chooses no token
    of the vocabulary.
    """
    if target.players:
        loaded = _with_players(target)
        once = replace(target.config.evaluation, queries=1, samples=1)
        for player in () if team_only(loaded.task) else loaded.policies.values():
            cap = target.config.max_response
            evaluate_standalone(player, loaded.task, once, max_response=cap, measures={})
        return loaded
    task, references, policies = make_players(target.config, folders=target.folders)
    return Evaluated(task, references, {**policies})


def _with_players(target: Target) -> Evaluated:
    """The players of a target; the first policy's reference is that of all of them."""
    config = target.config
    first = config.policy_names[0]
    if config.policy.kind == "table":
        task, references, _ = make_players(config)
        reference = references[first]
    else:
        reference = load_references(config, [first])[first].requires_grad_(False)
        reference.set_reference(reference)
        task = make_task(config, tokens_of(reference))
    source = f"target {target.name!r}"
    policies = {
        name: as_player(name, player, source, config, task, reference)
        for name, player in target.players.items()
    }
    return Evaluated(task, dict.fromkeys(policies, reference), policies)


def check_target(target: Target) -> None:
    """Load a target and try its players; ValueError as `load_target`."""
    with weighted_sum.closing(load_target(target).task):
        pass


def target_metrics(target: Target) -> dict[str, float]:
    """The held-out metrics of a target, keyed as a run logs them: `eval/...`, `team/...`, `all/policies/...`.

    The team is evaluated with `evaluation.team`, or if the task scores teams only, seated as after the last
    iteration.
    """
    config = target.config
    loaded, measures = load_target(target), make_measures(config)
    with weighted_sum.closing(loaded.task):
        responses = evaluate_alone(config, loaded, measures)
        results = metrics.evaluation_metrics(responses, kl_coef=config.kl.coef)
        if config.evaluation.team or not responses:
            results |= _team_metrics(target, loaded, target, loaded, measures)
    return results


def team_with_observers_of(target: Target, other: Target) -> dict[str, float]:
    """The held-out metrics of the target's pioneer in a team with the observers of another: `team/...`."""
    loaded, theirs = load_target(target), load_target(other)
    with weighted_sum.closing(loaded.task), weighted_sum.closing(theirs.task):
        return _team_metrics(target, loaded, other, theirs, make_measures(target.config))


def _team_metrics(
    target: Target, loaded: Evaluated, other: Target, theirs: Evaluated, measures: Mapping[str, Measure]
) -> dict[str, float]:
    """Metrics of held-out games with the observers of `other`, seated as after the runs' last iterations."""
    config = target.config
    game, players = game_of(config, loaded)
    ours, others = _seated(target, loaded), _seated(other, theirs)
    by_seat = {**others, **players}
    if (pioneer := game.seats[0]) in ours:
        by_seat[pioneer] = ours[pioneer]
    team = evaluate_in_game(game, by_seat, config.evaluation, measures=measures)
    return metrics.team_metrics(team, kl_coef=config.kl.coef)


def _seated(target: Target, loaded: Evaluated) -> Mapping[str, Player]:
    """Who sits in each seat that learns: players in their order, policies as after the last iteration."""
    if target.players:
        return next(seatings(target.config, loaded.policies, {}))
    seating = target.config.seating(target.config.iterations)
    return {seat: loaded.policies[name] for seat, name in seating.items()}


def evaluate_alone(
    config: Config,
    loaded: Evaluated,
    measures: Mapping[str, Measure],
    on_progress: Callable[[str], None] = lambda text: None,
    *,
    seed: int = SEED,
) -> dict[str, Responses]:
    """Responses of every reference and policy to the query only, by name; none for a task of teams only."""
    task, references, policies = loaded
    responses: dict[str, Responses] = {}
    if team_only(task):
        return responses
    for player in (*{id(policy): policy for policy in references.values()}.values(), *policies.values()):
        on_progress(f"{player.name} standalone")
        responses[player.name] = evaluate_standalone(
            player, task, config.evaluation, max_response=config.max_response, measures=measures, seed=seed
        )
    return responses


def game_of(config: Config, loaded: Evaluated) -> tuple[VectorGame, dict[str, Player]]:
    """The game of a target, and who plays in it without being one of its policies, by seat."""
    players = seat_players(config, *loaded)
    return make_game(config, loaded.task, {**loaded.policies, **players}), players


def evaluate_seatings(
    config: Config,
    loaded: Evaluated,
    measures: Mapping[str, Measure],
    on_progress: Callable[[str], None],
) -> list[tuple[dict[str, str], dict[str, Responses]]]:
    """For every seating: the policy names by seat, and the responses of each seat; empty for one seat."""
    if config.seats == 1:
        return []
    game, players = game_of(config, loaded)
    of_references: Mapping[str, Player] = {policy.name: policy for policy in loaded.references.values()}
    everyone = [next(seatings(config, of_references, players)), *seatings(config, loaded.policies, players)]
    results = []
    for policies_by_seat in everyone:
        names = {seat: policies_by_seat[seat].name for seat in game.seats}
        on_progress("in the game: " + ", ".join(names.values()))
        responses = evaluate_in_game(game, policies_by_seat, config.evaluation, measures=measures)
        results.append((names, responses))
    return results


def check_comparable(targets: Sequence[Target]) -> None:
    """Raise ValueError if targets are evaluated on other tasks, judges or settings than the first."""
    first, ours = targets[0], flat(targets[0].config)
    for target in targets[1:]:
        theirs = flat(target.config)
        for name in records.differing([ours, theirs]):
            if name.partition(".")[0] in COMPARED and name not in records.DURING:
                raise ValueError(
                    f"{first.name} and {target.name} are not evaluated alike: {name} is {ours.get(name)} and "
                    f"{theirs.get(name)}; give --{name.replace('_', '-')}, which holds for every target"
                )
