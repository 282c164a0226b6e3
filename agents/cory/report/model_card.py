"""The model card of trained policies, from settings and numbers at hand; without the network."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cory import pocket
from cory.evaluation import collapse
from cory.evaluation.averaging import NAME as AVERAGE
from cory.tracking.labels import in_order, label

TEMPLATE = Path(__file__).parent / "templates/card.md"
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")

Results = Mapping[str, Mapping[str, float]]
"""Held-out metrics by policy and quantity; `reference` is the model that the policies started from."""

Intervals = Mapping[str, Mapping[str, Sequence[float | None]]]
"""95 % intervals of results, by policy and quantity."""


def write_card(folder: Path, name: str, settings: Mapping[str, Any], *, iterations: int) -> None:
    """Write README.md beside the weights of policy `name`; `settings` are the run's, by flag.

    `iterations` is the number after which the weights were saved.
    """
    text = make_card([name], settings, iterations=iterations)
    (folder / "README.md").write_text(text, encoding="utf-8")


def make_card(
    names: Sequence[str],
    settings: Mapping[str, Any],
    *,
    iterations: int,
    repo: str | None = None,
    results: Results | None = None,
    intervals: Intervals | None = None,
    measured: str = "",
    templates: Mapping[str, str] | None = None,
) -> str:
    """The card of the policies `names` of a run with `settings`, by flag.

    With several policies each is in a subfolder of the repository `repo`. `measured` says what the results
    were measured on, `templates` are the prompts of the game by seat.
    """
    from huggingface_hub import ModelCard, ModelCardData

    results, intervals = results or {}, intervals or {}
    models = list(dict.fromkeys(_start(name, settings) for name in names))
    kind, columns = _format(names, settings), _columns(names, settings, results)
    of_table = settings["policy.kind"] == "table"
    on_hub = [] if of_table else [model for model in models if is_hub_name(model)]
    data = settings.get("task.data")
    datasets = (
        [data] if isinstance(data, str) and HUB_NAME.fullmatch(data) and not Path(data).exists() else []
    )
    if repo is not None:  # others read it: no folder of this machine
        settings = {name: without_folders(value) for name, value in settings.items()}
        measured = without_folders(measured)
    card_data = ModelCardData(
        base_model=on_hub[0] if len(on_hub) == 1 else on_hub or None,
        library_name={"lora_team": "peft", "causal_lm": "transformers"}.get(kind),
        pipeline_tag=None if of_table else "text-generation",
        tags=["cory", "reinforcement-learning", settings["algorithm"]],
        datasets=datasets or None,
    )
    card = ModelCard.from_template(
        card_data,
        template_path=str(TEMPLATE),
        title=repo or names[0],
        names=names,
        settings=settings,
        average=list(names) == [AVERAGE],
        models=[f"`{without_folders(model) if repo else model}`" for model in models],
        kind=kind,
        iterations=iterations,
        signs=_signs(names, settings, results),
        repo=repo,
        measured=measured,
        columns=columns,
        rows=[
            [label(quantity), *(_cell(name, quantity, results, intervals) for name in columns)]
            for quantity in in_order(quantity for name in columns for quantity in results[name])
        ],
        templates=templates,
    )
    return str(card)


def _cell(name: str, quantity: str, results: Results, intervals: Intervals) -> str:
    value, ends = results[name].get(quantity), intervals.get(name, {}).get(quantity)
    if value is None:
        return ""
    if ends is None or None in ends:
        return f"{value:.3f}"
    return f"{value:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]"


def _columns(names: Sequence[str], settings: Mapping[str, Any], results: Results) -> list[str]:
    """The references of policies, and the policies, as far as there are results."""
    references = [_reference(name, settings, results) for name in names]
    return [name for name in dict.fromkeys([*references, *names]) if name in results]


def _reference(name: str, settings: Mapping[str, Any], results: Results) -> str:
    """The reference of a policy in results: its own, that of its model's first policy, or that of all."""
    models = settings["policy.models"]
    first = f"reference_llm_{models.index(_start(name, settings)) + 1}" if models else ""
    return next((one for one in (f"reference_{name}", first) if one in results), "reference")


def _signs(names: Sequence[str], settings: Mapping[str, Any], results: Results) -> list[str]:
    """The signs of collapse of each policy against its reference."""
    signs = []
    for name in names:
        reference = results.get(_reference(name, settings, results), {})
        signs += [f"{name}: {sign}" for sign in collapse.signs(results.get(name, {}), reference)]
    return signs


def without_folders(value: Any) -> Any:
    """A setting in which paths of this machine are only their last part, those of `file.py:NAME` too."""
    if isinstance(value, list | tuple):
        return [without_folders(part) for part in value]
    if not isinstance(value, str | Path):
        return value
    shorter = _last_part(str(value))
    return shorter if shorter != str(value) else re.sub(r"[^\s*]+", lambda word: _last_part(word[0]), shorter)


def _last_part(text: str) -> str:
    head, colon, tail = text.rpartition(":")
    for path, rest in ((text, ""), (head, colon + tail)):
        local = path.startswith(("/", "~", "..")) or Path(path).exists()
        if local and len(Path(path).parts) > 1:
            return Path(path).name + rest
    return text


def is_hub_name(name: str) -> bool:
    """Whether a model or data set is one on the hub: not embedded, no folder here, `owner/name` or `name`."""
    plain = re.fullmatch(r"[\w-][\w.-]*", name) is not None
    return name not in pocket.MODELS and not Path(name).exists() and (plain or bool(HUB_NAME.fullmatch(name)))


def _start(name: str, settings: Mapping[str, Any]) -> str:
    """The model that a policy started from."""
    several = settings["policy.models"]
    if not several:
        return str(settings["policy.model"])
    return str(several[0 if name == AVERAGE else int(name.rpartition("_")[2]) - 1])


def _format(names: Sequence[str], settings: Mapping[str, Any]) -> str:
    """The kind of policy, by the files that are exported: a merged LoRA team and its average are models."""
    merged = settings["export"] != "as_trained" or list(names) == [AVERAGE]
    return "causal_lm" if settings["policy.kind"] == "lora_team" and merged else str(settings["policy.kind"])
