"""Sample the bundled queries, openings of reviews, from the pocket LM.

    python -m examples.pocket_models.openings

The default run needs no text of a data set, and none is committed: the LM writes these openings.

Shapes: B openings, T tokens, V vocabulary.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cory.pocket import LM, OPENINGS
from cory_env.data.splits import take_validation


@dataclass(frozen=True, kw_only=True)
class Config:
    """Number and length of the openings, and the model that writes them."""

    lm: Path = LM
    """The language model, sampled at temperature 1."""

    out: Path = OPENINGS
    """The JSON file: `{"train": [text, ...], "validation": [text, ...], "test": [text, ...]}`."""

    train: int = 6144
    test: int = 1536

    tokens: tuple[int, int] = (2, 7)
    """Shortest and longest opening."""

    batch: int = 2048
    seed: int = 0


@torch.inference_mode()
def draw(model: Any, config: Config, *, generator: torch.Generator) -> list[tuple[int, ...]]:
    """Up to `config.batch` openings: tokens after END, of uniform length; those with an END are left out."""
    end = model.config.eos_token_id
    low, high = config.tokens
    ids_BT = torch.full((config.batch, 1), end)
    for _ in range(high):
        probability_BV = model(ids_BT).logits[:, -1].float().softmax(dim=1)
        ids_BT = torch.cat([ids_BT, torch.multinomial(probability_BV, 1, generator=generator)], dim=1)
    length_B = torch.randint(low, high + 1, (config.batch,), generator=generator)
    found = [tuple(ids[1 : 1 + n]) for ids, n in zip(ids_BT.tolist(), length_B.tolist(), strict=True)]
    return [ids for ids in found if end not in ids]


def readable(tokenizer: Any, ids: tuple[int, ...]) -> bool:
    """Whether decoding and encoding returns the same ids; it never does for broken UTF-8."""
    text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    return "\ufffd" not in text and tuple(tokenizer.encode(text, add_special_tokens=False)) == ids


def sample(config: Config) -> dict[str, list[str]]:
    """Distinct openings by split; a tenth of `config.train`, by the sha256 of the ids, is for validation."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(config.lm, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(config.lm)
    generator = torch.Generator().manual_seed(config.seed)
    found: dict[tuple[int, ...], None] = {}
    while len(found) < config.train + config.test:
        drawn = draw(model.eval(), config, generator=generator)
        found |= dict.fromkeys(ids for ids in drawn if readable(tokenizer, ids))
    openings = list(found)[: config.train + config.test]
    order = torch.randperm(len(openings), generator=generator).tolist()
    shuffled = [openings[i] for i in order]
    train, validation = take_validation(shuffled[: config.train], lambda ids: " ".join(map(str, ids)))
    divided = {"train": train, "validation": validation, "test": shuffled[config.train :]}
    return {split: [tokenizer.decode(ids) for ids in of_split] for split, of_split in divided.items()}


def write(config: Config) -> None:
    """Sample and save, one opening per line."""
    splits = sample(config)
    lines = {
        name: ",\n".join(json.dumps(text, ensure_ascii=False) for text in rows)
        for name, rows in splits.items()
    }
    config.out.write_text("{" + ",\n".join(f'"{name}": [\n{rows}\n]' for name, rows in lines.items()) + "}\n")


if __name__ == "__main__":
    import tyro

    write(tyro.cli(Config, description=__doc__))
