"""The model card of trained policies: metadata that the Hugging Face hub reads, and a page.

Made from settings and numbers that are at hand; only `online` lets it use the network.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cory import pocket
from cory.evaluation import collapse
from cory.evaluation.averaging import NAME as AVERAGE
from cory.runtime import hub
from cory.tracking.labels import in_order, label

EMBEDDED = {
    "pocket": "the pocket LM of this project",
    "pocket-arithmetic": "the arithmetic LM of this project",
    "pocket-arithmetic-llama": "the arithmetic LM of this project, in the Llama architecture",
    "smollm2": "SmolLM2-135M-Instruct, with the weights of its GGUF file Q4_1",
    "smollm2-original": "SmolLM2-135M-Instruct",
    "smollm2-words": "SmolLM2-135M-Instruct after supervised learning on word problems",
}
VALUE_HEAD = (
    "`value_head.safetensors` is its value head, as it was at the start if the algorithm uses no values; "
    "text generation does not need it."
)
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")

INDEXED = ("task_reward", "accuracy", "probability", "kl", "combined_reward")
"""Quantities of the model-index; the table on the card has all of them."""

Results = Mapping[str, Mapping[str, float]]
"""Held-out metrics by policy and quantity; `reference` is the model that the policies started from."""

Intervals = Mapping[str, Mapping[str, Sequence[float | None]]]
"""95 % intervals of results, by policy and quantity."""


def write_card(
    folder: Path, name: str, settings: Mapping[str, Any], *, iterations: int | None = None
) -> None:
    """Write README.md beside the weights of policy `name`; `settings` are the run's, by flag.

    `iterations` is the number after which the weights were saved; by default all of the run's.
    """
    text = make_card([name], settings, iterations=iterations)
    (folder / "README.md").write_text(text, encoding="utf-8")


def make_card(
    names: Sequence[str],
    settings: Mapping[str, Any],
    *,
    iterations: int | None = None,
    repo: str | None = None,
    results: Results | None = None,
    intervals: Intervals | None = None,
    measured: str = "",
    templates: Mapping[str, str] | None = None,
    online: bool = False,
) -> str:
    """Return the card of the policies `names` of a run with `settings`, by flag.

    With several policies each is in a subfolder of the repository `repo`. `measured` says what the results
    were measured on, `templates` are the prompts of the game by seat. `online` lets the card ask the hub for
    the licence of the base model.
    """
    from huggingface_hub import ModelCard, ModelCardData

    models = list(dict.fromkeys(_start(name, settings) for name in names))
    of_table = settings["policy.kind"] == "table"
    on_hub = [] if of_table else [model for model in models if is_hub_name(model)]
    title = repo or names[0]
    license_data, datasets = ({} if of_table else _license(models, online=online)), _datasets(settings)
    if repo is not None:  # others read it: no folder of this machine
        settings = {name: without_folders(value) for name, value in settings.items()}
        measured = without_folders(measured)
    data = ModelCardData(
        base_model=on_hub[0] if len(on_hub) == 1 else on_hub or None,
        library_name={"lora_team": "peft", "causal_lm": "transformers"}.get(_format(settings)),
        pipeline_tag=None if of_table else "text-generation",
        tags=["cory", "reinforcement-learning", settings["algorithm"]],
        datasets=datasets or None,
        model_name=title if results else None,
        eval_results=_eval_results(names, settings, results or {}, measured) or None,
        **license_data,
    )
    signs = _signs(names, results or {})
    parts = [
        f"# {title}\n\n{_origin(names, settings, iterations)}",
        f"**Signs of collapse** in the last evaluation: {'; '.join(signs)}." if signs else "",
        _loading(names, settings, repo),
        _table(names, results, intervals or {}, measured) if results else "",
        _prompts(templates) if templates else "",
        "It was trained to raise one automatic score on short responses: an experiment in reinforcement "
        "learning, not a\nmodel to rely on.",
    ]
    text = "\n\n".join(part for part in parts if part)
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}\n", ignore_metadata_errors=True))


def _signs(names: Sequence[str], results: Results) -> list[str]:
    """Return the signs of collapse of each policy against its reference."""
    signs = []
    for name in names:
        ours, reference = (
            results.get(name, {}),
            results.get(f"reference_{name}", results.get("reference", {})),
        )
        if all(sign.quantity in ours and sign.quantity in reference for sign in collapse.SIGNS):
            signs += [f"{name}: {sign}" for sign in collapse.signs(ours, reference)]
    return signs


def without_folders(value: Any) -> Any:
    """A setting in which paths of this machine are only their last part, those of `file.py:NAME` too."""
    if isinstance(value, list | tuple):
        return [without_folders(one) for one in value]
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
    return name not in EMBEDDED and not Path(name).exists() and (plain or bool(HUB_NAME.fullmatch(name)))


def _start(name: str, settings: Mapping[str, Any]) -> str:
    """Return the model that a policy started from."""
    several = settings["policy.models"]
    if not several:
        return str(settings["policy.model"])
    return str(several[0 if name == AVERAGE else int(name.rpartition("_")[2]) - 1])


def _format(settings: Mapping[str, Any]) -> str:
    """Return the kind of policy, by the files that are exported: a merged LoRA team is a whole model."""
    merged = settings["policy.kind"] == "lora_team" and settings["export"] != "as_trained"
    return "causal_lm" if merged else str(settings["policy.kind"])


def _origin(names: Sequence[str], settings: Mapping[str, Any], iterations: int | None) -> str:
    """Return what the policies are and how they were trained."""
    models = dict.fromkeys(_start(name, settings) for name in names)
    start = " and ".join(EMBEDDED.get(model, f"`{model}`") for model in models)
    if settings["policy.kind"] == "lora_team" and settings["lora.adapter"]:
        start = f"the adapter `{settings['lora.adapter']}` on {start}"
    trained = settings["iterations"] if iterations is None else iterations
    algorithm = settings["algorithm"].upper()
    how = f"CORY ({algorithm})" if settings["seats"] > 1 else f"single-agent {algorithm}"
    seats = "1 seat" if settings["seats"] == 1 else f"{settings['seats']} seats"
    origin = "Trained from an empty lookup table"
    if settings["policy.kind"] != "table":
        origin = f"Fine-tuned from {start}"
    if list(names) == [AVERAGE]:
        averaged = (
            "moving averages of the policies' weights" if settings["learner.ema"] else "policies' weights"
        )
        origin = f"The mean of the {averaged}. {origin}"
    return f"""{origin} by {how} on the task `{settings["task"]}`: {seats}, {trained} iterations of
{settings["batch"]} games, seed {settings["seed"]}, KL penalty {settings["kl.kind"]} with coefficient
{settings["kl.coef"]}. All settings are in the `config.yaml` of the run."""


def _loading(names: Sequence[str], settings: Mapping[str, Any], repo: str | None) -> str:
    """Return how the files are loaded."""
    kind = _format(settings)
    if kind == "table":
        return "It is a lookup table of this project (`table.safetensors`)."
    if kind == "lora_team":
        text = f"It is a PEFT adapter: load it with `PeftModel.from_pretrained`. {VALUE_HEAD}"
    elif kind == "causal_lm":
        text = f"Load it with `AutoModelForCausalLM.from_pretrained`. {VALUE_HEAD}"
    else:
        return f"It is a policy of the kind `{kind}`, which also loads it."
    if repo is None:
        return text
    if len(names) > 1:
        text = text.replace("Load it", "Load one").replace("It is a PEFT", "Each is a PEFT")
    arguments = f'"{repo}"' if len(names) == 1 else f'"{repo}", subfolder="{names[0]}"'
    loader = (
        "PeftModel.from_pretrained(base, " if kind == "lora_team" else "AutoModelForCausalLM.from_pretrained("
    )
    folders = "" if len(names) == 1 else f"Policies, each in its subfolder: {', '.join(names)}. "
    return f"{folders}{text}\n\n```python\nmodel = {loader}{arguments})\n```"


def _license(models: Sequence[str], *, online: bool) -> dict[str, Any]:
    """Return licence metadata of the base model, from its own card; nothing if it is not known."""
    from huggingface_hub import ModelCard

    found: list[dict[str, Any]] = []
    for model in models:
        path = Path(pocket.lm_path(model)) / "README.md"
        if not path.is_file() and not (online and is_hub_name(model) and hub.is_reachable()):
            return {}
        try:
            data = ModelCard.load(
                path if path.is_file() else model, ignore_metadata_errors=True
            ).data.to_dict()
        except Exception:  # the hub has no such card, or none that can be read
            return {}
        found.append({key: data[key] for key in ("license", "license_name", "license_link") if data.get(key)})
    return found[0] if all(one == found[0] for one in found) else {}


def _datasets(settings: Mapping[str, Any]) -> list[str]:
    """Return the data set's name if it is one on the hub."""
    data = settings.get("task.data")
    return [data] if isinstance(data, str) and HUB_NAME.fullmatch(data) and not Path(data).exists() else []


def _eval_results(
    names: Sequence[str], settings: Mapping[str, Any], results: Results, measured: str
) -> list[Any]:
    """Return the model-index: the main metrics of every policy."""
    from huggingface_hub import EvalResult

    data = _datasets(settings) or [settings["task"]]
    several = len(names) > 1
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=data[0],
            dataset_name=measured or settings["task"],
            dataset_split="test",
            metric_type=quantity,
            metric_name=f"{label(quantity)}, {name}" if several else label(quantity),
            metric_value=round(results[name][quantity], 6),
        )
        for name in names
        for quantity in in_order(results.get(name, {}))
        if quantity in INDEXED or quantity.startswith("pass_at_")
    ]


def _table(names: Sequence[str], results: Results, intervals: Intervals, measured: str) -> str:
    """Return the held-out results as a table, with the reference beside the policies."""
    columns = [name for name in ("reference", *names) if name in results]
    brackets = "; 95 % intervals in brackets" if any(name in intervals for name in columns) else ""
    lines = [
        f"Held-out results, each policy by itself ({measured}){brackets}:\n",
        "| | " + " | ".join(columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for quantity in in_order(quantity for name in columns for quantity in results[name]):
        cells = []
        for name in columns:
            value, ends = results[name].get(quantity), intervals.get(name, {}).get(quantity)
            cell = "" if value is None else f"{value:.3f}"
            if ends is not None and None not in ends:
                cell += f" [{ends[0]:.3f}, {ends[1]:.3f}]"
            cells.append(cell)
        lines.append(f"| {label(quantity)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _prompts(templates: Mapping[str, str]) -> str:
    """Return the prompts of the game by seat."""
    blocks = "\n\n".join(f"`{seat}`:\n\n```text\n{text}\n```" for seat, text in templates.items())
    return (
        "## Prompts of the game\n\nWhat each seat read; `{query}` is the query, `{response_0}` the pioneer's "
        "response.\n\n" + blocks
    )
