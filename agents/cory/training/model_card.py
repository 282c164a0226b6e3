"""The model card of a trained policy."""

from pathlib import Path

from cory.config.schema import Config

EMBEDDED = {"pocket": "the pocket LM of this project", "pocket-arithmetic": "the arithmetic LM of this project"}


def write_card(folder: Path, name: str, config: Config) -> None:
    """Write README.md beside the weights of policy `name`."""
    start = EMBEDDED.get(config.policy.model, f"`{config.policy.model}`")
    algorithm = config.algorithm.upper()
    how = f"CORY ({algorithm})" if config.seats > 1 else f"single-agent {algorithm}"
    seats = "1 seat" if config.seats == 1 else f"{config.seats} seats"
    if config.policy.kind == "table":
        what, load = "Trained from an empty lookup table", "It is a lookup table of this project (`table.safetensors`)."
    elif config.policy.kind == "lora_team" and config.export == "as_trained":
        what, load = f"Fine-tuned from {start}", "It is a PEFT adapter: load it with `PeftModel.from_pretrained`."
    else:
        what, load = f"Fine-tuned from {start}", "Load it with `AutoModelForCausalLM.from_pretrained`."
    value_head = (
        ""
        if config.policy.kind == "table"
        else "\n`value_head.safetensors` is the value head it was trained with; text generation does not need it."
    )
    text = f"""# {name}

{what} by {how} on the task `{config.task}`: {seats}, {config.iterations} iterations of {config.batch} games,
seed {config.seed}, KL penalty {config.kl.kind} with coefficient {config.kl.coef}. All settings are in the `config.yaml` of the run.

{load}{value_head}
It was trained to raise one automatic score on short responses: an experiment in reinforcement learning, not a
model to rely on.
"""
    (folder / "README.md").write_text(text, encoding="utf-8")
