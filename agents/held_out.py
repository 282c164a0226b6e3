"""`cory evaluate`: the held-out evaluation of a run, or of any model, repeated and compared with the
reference."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from agents import presets
from agents.build import hush, load_players, make_measures
from agents.config import Config
from agents.evaluate import Answers, alone, compare
from agents.flags import read
from agents.settings import flags_of

SHOWN = (
    "task_reward",
    "probability",
    "second_judge",
    "kl",
    "distinct_2",
    "length",
    "eos_share",
    "reference_perplexity",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is judged, on how much."""

    target: Positional[Path]
    """A run directory, or a model folder."""

    queries: int | None = None
    """Held-out queries; by default as many as the run took."""

    json: Path | None = None
    """Where the figures go as JSON; by default evaluation.json in the run directory."""


def judge_again(options: Options) -> dict[str, Any]:
    """Print a table, write the JSON, return it. The same weights give the same figures as during the run."""
    hush()
    config, folders = subjects(options.target)
    task, references, policies = load_players(config, folders)
    measures = make_measures(config)
    told: dict[str, Answers] = {}
    for name, policy in {**{r.name: r for r in references.values()}, **policies}.items():
        told[name] = alone(
            policy,
            task,
            queries=options.queries or config.evaluation.queries,
            batch=config.evaluation.batch,
            max_response=config.max_response,
            seed=config.evaluation.seed,
            measures=measures,
        )
    figures = {name: answers.numbers(kl_coef=config.kl.coef) for name, answers in told.items()}
    gains = {name: compare(told[name], told[references[name].name]) for name in policies}
    print_table(figures, gains)
    result = {"queries": len(told[next(iter(told))].texts), "figures": figures, "gain_over_reference": gains}
    in_run = options.target / "evaluation.json" if (options.target / "policies").is_dir() else None
    if path := options.json or in_run:
        path.write_text(json.dumps(result, indent=1), encoding="utf-8")
        print(f"figures: {path}")
    return result


def subjects(target: Path) -> tuple[Config, dict[str, Path]]:
    """Settings to judge under and policies by name: a run's own; the pocket preset's for a bare model."""
    if (target / "policies").is_dir():
        settings = read(flags_of(target / "config.yaml"), default=Config(), about="", command="cory evaluate")
        return settings, {path.name: path for path in sorted((target / "policies").iterdir())}
    if (target / "config.json").exists():
        return presets.get("pocket"), {target.name: target}
    raise ValueError(
        f"{target} is neither a run directory with policies nor a model folder; name one of them"
    )


def print_table(figures: dict[str, dict[str, float]], gains: dict[str, Any]) -> None:
    """One column per policy; gains over the reference with their 95 % intervals below the figures."""
    table = Table("quantity", *figures, title="each policy alone, held-out queries")
    for name in SHOWN:
        if name in next(iter(figures.values())):
            table.add_row(name, *(_cell(name, policy, figures, gains) for policy in figures))
    Console().print(table)


def _cell(name: str, policy: str, figures: dict[str, dict[str, float]], gains: dict[str, Any]) -> str:
    cell = f"{figures[policy][name]:.3f}"
    gain = gains.get(policy, {}).get(name)
    return f"{cell} ({gain['gain']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}])" if gain else cell
