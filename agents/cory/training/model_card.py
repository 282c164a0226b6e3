"""The model card of a trained policy."""

from pathlib import Path

from cory.config.schema import Config

EMBEDDED = {
    "pocket": "the pocket LM of this project",
    "pocket-arithmetic": "the arithmetic LM of this project",
}
VALUE_HEAD = (
    "`value_head.safetensors` is the value head it was trained with; text generation does not need it."
)


def write_card(folder: Path, name: str, config: Config) -> None:
    """Write README.md beside the weights of policy `name`."""
    start = EMBEDDED.get(config.policy.model, f"`{config.policy.model}`")
    algorithm = config.algorithm.upper()
    how = f"CORY ({algorithm})" if config.seats > 1 else f"single-agent {algorithm}"
    seats = "1 seat" if config.seats == 1 else f"{config.seats} seats"
    origin = f"Fine-tuned from {start}"
    if config.policy.kind == "table":
        origin = "Trained from an empty lookup table"
        load = "It is a lookup table of this project (`table.safetensors`)."
    elif config.policy.kind == "lora_team" and config.export == "as_trained":
        load = f"It is a PEFT adapter: load it with `PeftModel.from_pretrained`. {VALUE_HEAD}"
    else:
        load = f"Load it with `AutoModelForCausalLM.from_pretrained`. {VALUE_HEAD}"
    text = f"""# {name}

{origin} by {how} on the task `{config.task}`: {seats}, {config.iterations} iterations of {config.batch}
games, seed {config.seed}, KL penalty {config.kl.kind} with coefficient {config.kl.coef}. All settings are in
the `config.yaml` of the run.

{load}
It was trained to raise one automatic score on short responses: an experiment in reinforcement learning, not a
model to rely on.
"""
    (folder / "README.md").write_text(text, encoding="utf-8")
