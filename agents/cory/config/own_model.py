"""Settings to start from for a model that is not bundled: by its size, its window and what is trained."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cory import pocket
from cory.config import presets
from cory.config.schema import Config

NAME = "own"
"""The preset of models that are not bundled."""

LEARNING_RATES = ((20e6, 1e-4), (1e9, 1.41e-5), (float("inf"), 1e-6))
"""Learning rate of Adam where all weights are trained, up to a number of weights.

1e-4: the presets of the pocket models (1 to 4 million weights). 1.41e-5: GPT-2 to GPT2-XL in table 1 of the
paper and in TRL's sentiment example. 1e-6: the actors of 7B models in the examples of verl and OpenRLHF.
"""
ADAPTER_LEARNING_RATE = 5e-5
"""Learning rate of adapters: that of the preset one-gpu-24gb; the paper has 1e-4, in table 2, with 4 bits."""
LARGEST_CAP = 128
"""Tokens of a response: a paragraph; a quarter of the window where that is less."""


class Shape(NamedTuple):
    """What the settings follow from; None where a model cannot be read, which its loading then reports."""

    weights: int | None = None
    window: int | None = None


def _model_of(settings: Mapping[str, Any]) -> Any:
    """The model in flat settings; of several the first."""
    several = settings.get("policy.models") or ()
    first = several if isinstance(several, str) else next(iter(several), None)
    return settings.get("policy.model") or first


def chosen(preset: str | None, settings: Mapping[str, Any]) -> str:
    """The preset to start from: `preset` if given, `own` for a language model that is not bundled."""
    if preset is not None:
        return preset
    model, kind = _model_of(settings), settings.get("policy.kind")
    embedded = {name: path for name, path in pocket.MODELS.items() if name not in pocket.MADE_BY}
    bundled = {*embedded, *map(str, embedded.values())}
    is_language_model = kind in (None, "causal_lm", "lora_team")
    return NAME if model is not None and is_language_model and str(model) not in bundled else "pocket"


def start(preset: str | None, settings: Mapping[str, Any]) -> Config:
    """The settings of the preset that is `chosen`; those of `own` by the size of the model."""
    name, model = chosen(preset, settings), _model_of(settings)
    config = presets.get(name)
    if name != NAME or model is None:
        return config
    return by_shape(config, shape_of(model), settings.get("policy.kind"))


def by_shape(config: Config, shape: Shape, kind: str | None) -> Config:
    """The settings with the learning rate and the response cap of a model."""
    lr = config.learner.lr
    if kind == "lora_team":
        lr = ADAPTER_LEARNING_RATE
    elif shape.weights is not None:
        lr = next(rate for most, rate in LEARNING_RATES if shape.weights <= most)
    cap = min(LARGEST_CAP, max(1, (shape.window or 4 * LARGEST_CAP) // 4))
    return replace(config, learner=replace(config.learner, lr=lr), max_response=(cap, cap))


def shape_of(model: str | Path) -> Shape:
    """Weights and window of a model, by its configuration; no weights are read."""
    from cory.policies.loading import without_weights

    try:
        path = pocket.lm_path(Path(model).expanduser() if str(model).startswith("~") else model)
        if not Path(path).exists() and len(Path(path).parts) != 2:
            return Shape()
        empty = without_weights(path)
    except ValueError:  # loading it says why, with advice
        return Shape()
    window = getattr(empty.config.get_text_config(), "max_position_embeddings", None)
    return Shape(sum(weight.numel() for weight in empty.parameters()), window)


def lines(preset: str, config: Config) -> list[str]:
    """What a run prints first of its preset: the values of `own`, or that it has not been run."""
    if preset != NAME:
        return [] if presets.find(preset).run else [presets.describe(preset)]
    return [
        f"preset {NAME}, for models that are not bundled: learning rate {config.learner.lr:g}, responses of "
        f"up to {config.max_response[1]} tokens, gradient norm {config.learner.max_grad_norm}, warm-up "
        f"{config.learner.warmup} iterations; --preset NAME starts from another (cory presets lists them), "
        "flags such as --learner.lr change single settings"
    ]
