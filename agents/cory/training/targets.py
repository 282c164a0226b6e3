"""Targets of evaluation and play: runs, checkpoints, model folders, adapters, hub names, players."""

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cory.config import own_model, presets
from cory.config.parsing import settings_of
from cory.config.schema import Config, PayoffConfig
from cory.config.values import at_home, dotted
from cory.evaluation.averaging import NAME
from cory.evaluation.external import named_players
from cory.evaluation.records import EXPORTED, export_of, policies_of
from cory.policies.loading import base_of
from cory.runtime import hub
from cory.training import checkpoint
from cory.training.overwriting import MARKER
from cory_env.contents import digest
from cory_env.nearest import did_you_mean_path
from cory_env.registry import Registry

SETTINGS = "config.yaml"
PLAYERS: Registry[Any] = Registry("target", "cory.players", {}, form="module:NAME or path/to/file.py:NAME")
"""Loaders of players; a target without a colon is a folder or a hub name, never an entry point."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Saved policies and the settings to evaluate them with."""

    name: str
    """Its name on the command line."""

    config: Config

    folders: dict[str, str]
    """Folder or hub name of each policy, by the policy's name."""

    run: Path | None = None
    """The run directory, if the target is a run."""

    players: Mapping[str, Any] = field(default_factory=dict)
    """Objects with `act(observation, info)` by name, if the target is a function that loads them."""


def find_all(
    names: Sequence[str], *, preset: str | None = None, settings: Mapping[str, Any] = MappingProxyType({})
) -> list[Target]:
    """The targets of an evaluation: those of `find`, and functions that load players.

    Players have the settings of the first other target, so that they play the same game on the same queries;
    without one, or with `preset`, those of the preset (by default pocket). ValueError before any model is
    loaded for a function that is missing or returns no player.
    """
    targets = {name: find(name, preset=preset, settings=settings) for name in names if not is_loader(name)}
    config = config_of(() if preset else names, preset=preset, settings=settings)
    return [targets.get(name) or load_external(name, config) for name in names]


def config_of(
    names: Sequence[str],
    *,
    preset: str | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Config:
    """The settings of the first target that is no function, else of the preset, changed by `settings`.

    Those of a run leave out what only training needs.
    """
    name = next((at_home(name) for name in names if not is_loader(name)), None)
    if name is None:
        return Config.from_flat(settings, presets.get(preset or "pocket"))
    folder = Path(name)
    home = folder if _is_checkpoint(folder) or run_of(name) else None if preset else _home(folder)
    return _of_a_model(name, preset, settings) if home is None else _settings(home, settings)


def run_of(name: str) -> Path | None:
    """The run directory that a target is, None for any other."""
    folder = Path(at_home(name))
    is_run = (folder / SETTINGS).exists() and not _is_checkpoint(folder) and not _holds_model(folder)
    return folder if is_run else None


def _is_checkpoint(folder: Path) -> bool:
    return (folder / checkpoint.MANIFEST).exists()


def is_loader(name: str) -> bool:
    """Whether a target is `module:function` or `file.py:function`, and no folder of that name."""
    module, _, function = name.rpartition(":")
    is_place = bool(module) and function.isidentifier() and not Path(name).exists()
    return is_place or name in PLAYERS.items


def remembered(player: Any) -> str:
    """The name of a player for settings: it is found by it while this process lasts."""
    if isinstance(player, str | Path):
        return str(player)
    name = f"{type(player).__name__}@{digest(player)}"
    PLAYERS.items[name] = lambda: player
    return name


def load_external(name: str, config: Config) -> Target:
    """The players that the function `name` loads, as a target with these settings.

    The function is called with `seed`, the seed of the settings, if it has an argument of that name. It
    returns an object with `act(observation, info) -> token id`, or a dict of them by name.
    """
    source = f"target {name!r}"
    load = PLAYERS.load(name)
    if not callable(load):
        raise ValueError(f"{source} is {load!r:.80}; give a function that returns a player")
    try:
        takes_seed = "seed" in inspect.signature(load).parameters
        with hub.quiet():
            made = load(seed=config.seed) if takes_seed else load()
    except Exception as error:
        raise ValueError(f"{source} cannot load its player ({type(error).__name__}: {error})") from error
    module = name.rpartition(":")[0]
    alone = (
        Path(module).stem if module.endswith(".py") else (module or name.partition("-")[0]).rpartition(".")[2]
    )
    players = named_players(made, source, name=f"player_{alone}" if alone.startswith("reference") else alone)
    return Target(name=name, config=config, folders={}, players=players)


def find(
    name: str,
    *,
    preset: str | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Target:
    """The target called `name`, its settings changed by `settings`.

    A target inside a run has the settings of that run. Any other model has those of `preset`, whose model is
    its reference; by default those of pocket, or of `own` if it is not bundled, and without `policy.model` it
    is its own reference (an adapter's base model). Of an unfinished run it is the newest checkpoint.
    """
    if not name.strip():
        raise ValueError("a target is empty; name a run directory, a model folder or a hub name")
    name = at_home(name)
    if "@" in name and not Path(name).exists():
        raise ValueError(f"the player {name} was an object of another session; pass it again, in players")
    folder, run = Path(name), run_of(name)
    if not folder.exists() and hub.can_only_be_a_path(name):
        raise ValueError(
            f"there is no folder {name}; name a run directory, a model folder or a hub name"
            + did_you_mean_path(name)
        )
    saved = folder
    if run is not None and not is_exported(folder):
        if not (written := checkpoint.finished(folder)):
            raise ValueError(
                f"{folder} is neither a run directory with policies nor one with checkpoints; let it write "
                "one"
            )
        saved = written[-1]
    if _is_checkpoint(saved):
        checkpoint.verify(saved)
    elif run is None and folder.exists() and not _holds_model(folder) and _home(folder) is None:
        raise ValueError(
            f"{folder} is neither a run directory with policies nor a model folder nor a "
            "checkpoint; name one of them"
        )
    config = config_of([name], preset=preset, settings=settings)
    if _is_checkpoint(saved):
        config = _at(config, checkpoint.iteration_of(saved))
        folders = {policy: str(saved / policy) for policy in dict.fromkeys(config.policy_names)}
    elif run is not None:
        config = _at(config, export_of(run).get("after", config.iterations))  # perhaps the best checkpoint's
        exported = policies_of(run)
        folders = {
            name: str(exported[name]) for name in (*config.policy_names, *exported) if name in exported
        }
    else:
        folders = {f"model_{folder.name}" if folder.name.startswith("reference") else folder.name: name}
    return Target(name=name, config=config, folders=folders, run=run)


def _at(config: Config, iteration: int) -> Config:
    """The settings of a run that ends at an iteration: its seats and payoffs are those of that one."""
    if iteration:
        return replace(config, iterations=iteration)
    unmoved = replace(config.exchange, every=0)
    return replace(config, iterations=1, payoff_options=PayoffConfig(), exchange=unmoved)


def labels(names: Sequence[str]) -> list[str]:
    """The shortest path suffixes that distinguish several targets."""
    parts = [Path(name).resolve().parts if Path(name).exists() else Path(name).parts for name in names]
    if len(set(parts)) < len(parts):
        raise ValueError(f"a target is named twice among {', '.join(names)}; name each once")
    length = 1
    while len({part[-length:] for part in parts}) < len(parts):
        length += 1
    return ["/".join(part[-length:]) for part in parts]


def is_exported(run: Path) -> bool:
    """Whether a run has policies and did not go on after them."""
    if not policies_of(run):
        return False
    written, asked = checkpoint.finished(run), settings_of(run / SETTINGS).get("iterations")
    if (run / EXPORTED).exists():
        return export_of(run).get("iterations") == asked
    return not written or asked is None or checkpoint.iteration_of(written[-1]) == asked


def trained_in(folder: str) -> str:
    """The run that holds the folder of a policy, empty for any other."""
    above = Path(folder).resolve().parents if folder and Path(folder).exists() else ()
    return next((str(place) for place in above if (place / MARKER).exists()), "")


def _home(folder: Path) -> Path | None:
    """The folder with the settings, for the folder of a policy or of the average in it; else None."""
    above = folder.resolve().parent
    home = above.parent if above.name == "policies" else above
    inside = above.name == "policies" or _is_checkpoint(above) or folder.name == NAME
    return home if inside and folder.is_dir() and (home / SETTINGS).exists() else None


OF_TRAINING = ("algorithm", "critic", "kl.kind", "kl.place", "kl.target", "payoff_scaling", "sharing")
"""Beginnings of the settings that only training needs."""


def _settings(home: Path, settings: Mapping[str, Any]) -> Config:
    """The settings in a folder, changed by `settings`; another task starts from its own defaults.

    What only training needs is left out: it may fit neither the other settings nor the checks of today, and
    code that it names is not imported.
    """
    saved = settings_of(home / SETTINGS)
    own_order = _names_code(saved.get("exchange.order"))  # else seats depend on the exchange
    left_out = (*OF_TRAINING, "exchange") if own_order else OF_TRAINING
    kept = {name: value for name, value in saved.items() if not name.startswith(left_out)}
    try:
        config = Config.from_flat(kept)
    except ValueError as error:
        raise ValueError(f"{home / SETTINGS} cannot be read: {error}") from error
    return Config.from_flat(settings, config)


def _names_code(value: Any) -> bool:
    """Whether a setting names a file, or an importable module or what is in it."""
    return isinstance(value, str) and (value.endswith(".py") or "." in value or ":" in value)


def _of_a_model(name: str, preset: str | None, settings: Mapping[str, Any]) -> Config:
    given = dotted(settings)
    if not (model := given.get("policy.model")):
        model = name
        with suppress(ValueError):  # what cannot be found is an error where it is loaded
            model = base_of(name) or name
    start = own_model.start(preset, {**given, "policy.model": model})
    if preset is None:
        start = replace(start, policy=replace(start.policy, model=model))
    return Config.from_flat(given, start)


def _holds_model(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("config.json", "adapter_config.json"))
