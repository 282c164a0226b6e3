"""Stored settings: those of files, those that have been removed since, and what differs between two runs."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from cory.config import own_model
from cory.config.schema import Config, RunOptions
from cory.config.values import dotted, dotted_once, flat
from cory.runtime.yaml_files import read_mapping

MEASURED = ("memory", "policy.compile")
"""Settings in whose place a run writes what it measured where they are `auto`."""

GONE = {
    "alerts.distinct": 0.5,
    "alerts.kl": ...,
    "alerts.window": ...,
    "cap_per_batch": False,
    "checkpoint_minutes": ...,
    "critic.hidden": 64,
    "evaluation.batch": ...,
    "evaluation.seed": 20_000,
    "exchange.restart_rng": False,
    "export_average": ...,
    "failed_saves": ...,
    "grace": ...,
    "judge.reads": "whole",
    "judge.workers": ...,
    "kl.horizon": 10_000,
    "kl.over": 0,
    "learner.elastic_decay": 0.9,
    "matmul": "auto",
    "payoff_scaling.clip": None,
    "policy.frozen": ...,
    "policy.kernels": "auto",
    "policy.shared": False,
    "policy.tf32": False,
    "sample_rows": ...,
    "sharing.both_views": False,
    "sharing.truncate": 1.0,
}
"""Settings that have been removed, with the default that runs were stored with; `...` is any value, of a
setting that changed no result."""


def base_settings(given: Mapping[str, Any], options: RunOptions) -> tuple[str, Config]:
    """The preset that a run's settings start from, and the settings that those `given` change.

    They are those of the preset, changed by the settings file; without either those of the run to resume. A
    preset that is not named depends on the model (`cory.config.own_model`).
    """
    file, preset = options.config, options.preset
    if file is None and preset is None and options.run is not None and options.resume != "never":
        saved = options.run / "config.yaml"
        file, preset = (saved, "pocket") if saved.exists() else (None, None)
    stored = {} if file is None else settings_of(file)
    if places := [one.name for one in fields(RunOptions) if one.name in stored]:
        raise ValueError(
            f"the settings file {file} sets {', '.join(places)}, which only the command line sets "
            f"({', '.join(f'--{name}' for name in places)}); remove {'it' if len(places) == 1 else 'them'}"
        )
    named = {**stored, **given}
    name = own_model.chosen(preset, named)
    return name, Config.from_flat(stored, own_model.start(name, named))


def settings_of(path: Path) -> dict[str, Any]:
    """A YAML file of settings (flat or nested) as `name: value`; nothing that it names is imported."""
    stored = read_mapping(path, "settings file")
    try:
        return without_gone(dotted_once(stored))
    except ValueError as error:
        raise ValueError(f"the settings file {path}: {error}") from error


def without_gone(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings by dotted name, without those that have been removed since and are at their default."""
    return {
        name: value
        for name, value in dotted(settings).items()
        if name not in GONE or GONE[name] not in (value, ...)
    }


def completed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings, flat, with those added since at their defaults; as stored if unreadable.

    So a setting that is new, and at its default, does not make a run another one.
    """
    try:
        return as_json(Config.from_flat(without_gone(settings)))
    except ValueError:
        return dict(settings)


def changes(before: Mapping[str, Any], now: Mapping[str, Any], *, allowed: tuple[str, ...] = ()) -> list[str]:
    """Flat settings that differ, in words, but for those whose names begin with one of `allowed`.

    `auto` is what the run before has measured (`MEASURED`).
    """
    return [
        f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
        and not name.startswith(allowed)
        and not (name in MEASURED and now.get(name) == "auto")
    ]


def as_json(config: Config) -> dict[str, Any]:
    """Flat settings as JSON and YAML hold them."""
    settings: dict[str, Any] = json.loads(json.dumps(flat(config)))
    return settings
