"""The model card of a trained policy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

EMBEDDED = {
    "pocket": "the pocket LM of this project",
    "pocket-arithmetic": "the arithmetic LM of this project",
}
VALUE_HEAD = (
    "`value_head.safetensors` is its value head, as it was at the start if the algorithm uses no values; "
    "text generation does not need it."
)


def write_card(
    folder: Path, name: str, settings: Mapping[str, Any], *, iterations: int | None = None
) -> None:
    """Write README.md beside the weights of policy `name`; `settings` are the run's, by flag.

    `iterations` is the number after which the weights were saved; by default all of the run's.
    """
    model = settings["policy.model"]
    if settings["policy.models"]:
        model = settings["policy.models"][int(name.rpartition("_")[2]) - 1]
    start = EMBEDDED.get(model, f"`{model}`")
    if settings["policy.kind"] == "lora_team" and settings["lora.adapter"]:
        start = f"the adapter `{settings['lora.adapter']}` on {start}"
    trained = settings["iterations"] if iterations is None else iterations
    algorithm = settings["algorithm"].upper()
    how = f"CORY ({algorithm})" if settings["seats"] > 1 else f"single-agent {algorithm}"
    seats = "1 seat" if settings["seats"] == 1 else f"{settings['seats']} seats"
    origin = f"Fine-tuned from {start}"
    if settings["policy.kind"] == "table":
        origin = "Trained from an empty lookup table"
        load = "It is a lookup table of this project (`table.safetensors`)."
    elif settings["policy.kind"] == "lora_team" and settings["export"] == "as_trained":
        load = f"It is a PEFT adapter: load it with `PeftModel.from_pretrained`. {VALUE_HEAD}"
    elif settings["policy.kind"] in ("causal_lm", "lora_team"):
        load = f"Load it with `AutoModelForCausalLM.from_pretrained`. {VALUE_HEAD}"
    else:
        load = f"It is a policy of the kind `{settings['policy.kind']}`, which also loads it."
    text = f"""# {name}

{origin} by {how} on the task `{settings["task"]}`: {seats}, {trained} iterations of
{settings["batch"]} games, seed {settings["seed"]}, KL penalty {settings["kl.kind"]} with coefficient
{settings["kl.coef"]}. All settings are in the `config.yaml` of the run.

{load}
It was trained to raise one automatic score on short responses: an experiment in reinforcement learning, not a
model to rely on.
"""
    (folder / "README.md").write_text(text, encoding="utf-8")
