"""`cory evaluate`: policies of runs, checkpoints and any models on held-out queries, alone and in the game,
beside their references and beside one another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from tyro.conf import Positional

from agents import machine, presets
from agents.build import hush, load_players, make_measures
from agents.config import Config
from agents.evaluate import Answers, Measure, alone, at_table
from agents.evaluation_table import print_tables
from agents.figures import Judged, sample_lines, summary, write
from agents.judges import panel
from agents.policies.base import Policy
from agents.policies.causal_lm import CausalLMPolicy, check_same_tokenizer
from agents.sampling import Manner
from agents.settings import parse
from agents.targets import Target, find, labels
from cory_env.tasks.base import Task, counted
from cory_env.vector import VectorGame


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is judged, on how much and how. Settings of the run (`--task`, `--task.data`, `--judge`,
    `--max-response`, `--policy.model` for the reference, ...; see `cory train --help`) may follow and hold
    for every target."""

    targets: Positional[tuple[str, ...]]
    """Run directories, checkpoints, folders of models or adapters, hub names; several are compared."""

    preset: str | None = None
    """Settings for targets that lie in no run; by default pocket, each model its own reference."""

    queries: int | None = None
    """Held-out queries; by default as many as the run took."""

    samples: int | None = None
    """Responses to each query; where scores are 0 or 1, pass@k is told for every k up to this."""

    sampling: Manner | None = None
    """`own` distribution, `paper` (top-k 10, top-p 0.7, repetition penalty 1.1) or `greedy`."""

    threshold: float | None = None
    """The task reward from which a response is correct; by default 1 where all are 0 or 1."""

    game: bool = True
    """Whether the policies also play the game on these queries, each in each seat."""

    json: Path | None = None
    """Where the figures go, samples beside them; by default evaluation.json in the run directory, if that is
    what is judged."""


def command(argv: Sequence[str]) -> None:
    """`cory evaluate TARGET... [options] [settings of the run]`."""
    ours, settings = divided(argv)
    about = "Judge policies on held-out queries, alone and in the game. " + " ".join(
        (Options.__doc__ or "").split()
    )
    judge_again(parse(Options, ours, about=about, command="cory evaluate"), settings)


def divided(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The targets and the options of an evaluation, and what is left: settings of the run."""
    known = {field.name for field in fields(Options)} | {"help", "h", "no-game"}
    ours: list[str] = []
    settings: list[str] = []
    part = ours
    for word in argv:
        if word.startswith("-") and word[1:2] not in set("0123456789."):
            part = ours if word.lstrip("-").split("=", 1)[0] in known else settings
        part.append(word)
    return ours, settings


def judge_again(options: Options, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Print tables, write the JSON and the samples, return the figures. The same weights give the same
    figures as during the run."""
    hush()
    if not options.targets:
        raise ValueError("cory evaluate judges runs and models; name one or more before the options")
    if options.json is not None and not options.json.parent.is_dir():
        raise ValueError(f"there is no folder {options.json.parent} to write {options.json.name} into")
    if options.preset is not None:
        presets.find(options.preset)
    targets = [find(name, preset=options.preset, flags=settings) for name in options.targets]
    machine.settle(threads=targets[0].config.threads, matmul=targets[0].config.matmul)
    given = {
        name: value
        for name in ("queries", "samples", "sampling", "threshold")
        if (value := getattr(options, name)) is not None
    }
    configs = [replace(t.config, evaluation=replace(t.config.evaluation, **given)) for t in targets]
    check_comparable(options.targets, configs)
    with Console(stderr=True).status("loading") as status:
        judged = [
            judge(replace(target, config=config), label, game=options.game, say=status.update)
            for target, config, label in zip(targets, configs, labels(options.targets), strict=True)
        ]
        status.update("drawing intervals")
        result = summary(judged)
    print_tables(result)
    in_run = targets[0].run / "evaluation.json" if len(targets) == 1 and targets[0].run else None
    if path := options.json or in_run:
        print(f"figures: {path}\nsamples: {write(path, result, sample_lines(judged))}")
    return result


def judge(target: Target, label: str, *, game: bool, say: Callable[[str], None]) -> Judged:
    """Let references and policies of a target answer alone and, if asked, in the seats of the game."""
    config = target.config
    task, known, policies = load_players(config, target.folders)
    references = {name: known[name] for name in policies}
    for name, policy in policies.items():
        reference = references[name]
        if isinstance(policy, CausalLMPolicy) and isinstance(reference, CausalLMPolicy):
            check_same_tokenizer([reference, policy])
    measures = make_measures(config)
    told: dict[str, Answers] = {}
    with panel.closing(task):
        for name, policy in {**{r.name: r for r in references.values()}, **policies}.items():
            say(f"{label}: {name} alone")
            told[name] = alone(
                policy, task, config.evaluation, max_response=config.max_response, measures=measures
            )
        games = play_games(config, task, references, policies, measures, say) if game else []
        numbers, failures = panel.numbers(task), panel.failures(task)
    return Judged(
        label=label,
        config=config,
        references={name: policy.name for name, policy in references.items()},
        alone=told,
        games=games,
        judge=numbers,
        failures=failures,
        data=counted(task),
    )


def play_games(
    config: Config,
    task: Task,
    references: dict[str, Policy],
    policies: dict[str, Policy],
    measures: Mapping[str, Measure],
    say: Callable[[str], None],
) -> list[tuple[dict[str, str], dict[str, Answers]]]:
    """Of every seating: who sat where, and what each seat answered; none where a game has one seat."""
    if config.seats == 1:
        return []
    windows = [policy.window for policy in policies.values() if policy.window is not None]
    game = VectorGame(
        task,
        seats=config.seats,
        views=config.sees,
        payoff=config.payoff_rule,
        max_response=config.max_response,
        window=min(windows, default=None),
    )
    told = []
    for seating in seatings(game.seats, policies, references):
        sitting = {seat: policy.name for seat, policy in seating.items()}
        say("in the game: " + ", ".join(sitting.values()))
        told.append((sitting, at_table(game, seating, config.evaluation, measures=measures)))
    return told


def seatings(
    seats: Sequence[str], policies: dict[str, Policy], references: dict[str, Policy]
) -> list[dict[str, Policy]]:
    """The references at the table; then the policies, as often as it takes for each to sit in each seat."""
    frozen, sitting = list(references.values()), list(policies.values())
    told = [{seat: frozen[i % len(frozen)] for i, seat in enumerate(seats)}]
    for turn in range(len(sitting)):
        told.append({seat: sitting[(i - turn) % len(sitting)] for i, seat in enumerate(seats)})
    return told


def check_comparable(names: Sequence[str], configs: Sequence[Config]) -> None:
    """Refuse targets that would be asked other things, or judged by other judges, than the first."""
    first = configs[0]
    for name, config in zip(names[1:], configs[1:], strict=True):
        for what in ("task", "task_options", "judge", "judge_options", "max_response", "evaluation"):
            ours, theirs = (getattr(one, what) for one in (first, config))
            if what == "evaluation":
                ours, theirs = (replace(one, every=0, batch=1) for one in (ours, theirs))
            if ours != theirs:
                flag = what.removesuffix("_options").replace("_", "-")
                raise ValueError(
                    f"{names[0]} and {name} were not asked the same: {flag} is {ours} and {theirs}; give "
                    f"--{flag} and its options as flags, they hold for every target"
                )
