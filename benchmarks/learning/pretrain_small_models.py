"""Two small models that can say something valid and know nothing yet: where task_runs.py starts from.

    python -m benchmarks.learning.pretrain_small_models words --data ../shared/data --out runs/tasks/words
    python -m benchmarks.learning.pretrain_small_models letters --out runs/tasks/letters

`words` reads the questions of the sets' train splits, without their answers. Every number in a question is
replaced by one that is drawn, and what is to be said is a calculation drawn from these numbers, with its
right result: `76-25=51`, or two such lines. So the model learns to copy numbers and to calculate, and not
which calculation a question asks for. `letters` reads train functions and expressions that have their
values, and stops early. Each model is of Llama's architecture, and at most 1 MB in fp16.

Shapes: B rows, T tokens, K tokens that are learned, D width.
"""

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cory_env import make_views, tasks
from cory_env.tasks.base import Task
from cory_env.tasks.programs import random_expression, values_of
from cory_env.tokenizer import CharTokenizer, Tokenizer, encode_inside, wrap

SETS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("svamp", "svamp/SVAMP.json", {}),
    *(("wordproblems", "arithmetic", {"source": s}) for s in ("multiarith", "addsub", "singleeq")),
)
PROGRAMS: dict[str, Any] = {"signs": "+-", "largest": 99}
"""The difficulty of `programs` here: sums and differences of two or three."""

PIECES = r" ?[a-z']+|[0-9]|\s|[^\sa-z0-9']"
"""Words with the space before them, every digit by itself, every other sign."""

Example = tuple[list[int], list[int]]
"""Ids of a prompt and of what is to be said, EOS included."""


def word_tokenizer(texts: Sequence[str]) -> Any:
    """A Hugging Face tokenizer of the words that stand in three texts or more, the digits and the signs."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    counts = Counter(piece for text in texts for piece in set(re.findall(PIECES, f" {text.lower()}")))
    known = sorted(piece for piece, count in counts.items() if count >= 3)
    fixed = ["</s>", "<unk>", "\n", " ", *"0123456789+-*/=:.,?$x()", "question", "answer", "reference", "f"]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys([*fixed, *known]))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.normalizer = normalizers.Lowercase()
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", unk_token="<unk>")


def calculation(numbers: Sequence[int], chance: np.random.Generator) -> str | None:
    """One line, or two where there are three numbers, each a random right calculation; None: try again.

    Half the time the numbers come in their order; sums and differences are likelier than the rest.
    """
    drawn = [numbers[int(i)] for i in chance.permutation(len(numbers))] if chance.integers(2) else [*numbers]
    lines, value = [], drawn[0]
    for other in drawn[1 : 2 + int(len(numbers) == 3 and chance.integers(4) > 0)]:
        sign = "+-+-+-+-*/"[int(chance.integers(10))]
        left, right = (max(value, other), min(value, other)) if sign in "-/" else (value, other)
        if sign == "/" and left % right:
            return None
        value = {"+": left + right, "-": left - right, "*": left * right, "/": left // max(right, 1)}[sign]
        if not 0 < value < 1000 or (sign in "*/" and right < 2):
            return None
        lines.append(f"{left}{sign}{right}={value}")
    return "\n".join(lines)


def word_examples(
    task: Task, questions: Sequence[str], chance: np.random.Generator, *, bare: bool
) -> Iterator[Example]:
    """Questions with numbers of ours (`bare`: and nothing else), and a calculation of these numbers.

    Ours are drawn from all that stand in the questions, from 2 to 999: sizes are as common as there.
    """
    view = make_views(task, seats=1)[0]
    end = min(task.tokenizer.eos)
    known = [int(n) for n in re.findall("[0-9]+", " ".join(questions)) if 2 <= int(n) < 1000]
    while True:
        parts = re.split(r"([0-9]+)", questions[int(chance.integers(len(questions)))])
        parts[0::2] = [" "] * len(parts[0::2]) if bare else parts[0::2]
        numbers = [known[int(chance.integers(len(known)))] for _ in parts[1::2]]
        parts[1::2] = map(str, numbers)
        said = calculation(numbers, chance) if len(numbers) > 1 else None
        if said is not None:
            query = encode_inside(task.tokenizer, " " + "".join(parts))
            yield list(view.prompt(query, [])), [*encode_inside(task.tokenizer, said), end]


def program_examples(task: Task, chance: np.random.Generator) -> Iterator[Example]:
    """Train functions, and any expression drawn that has their values."""
    view = make_views(task, seats=1)[0]
    end = min(task.tokenizer.eos)
    known = {query.row["values"]: query for query in task.queries("train")}
    while True:
        text = random_expression(
            chance, int(chance.integers(2)) + 1, largest=PROGRAMS["largest"], signs=PROGRAMS["signs"]
        )
        query = known.get(values_of(text, examples=3) or ())
        if query is not None:
            yield list(view.prompt(query.ids, [])), [*task.tokenizer.encode(text), end]


def make_model(tokenizer: Any, *, width: int, layers: int) -> Any:
    """A new Llama of this size for the words of `tokenizer`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=None,
        )
    )


def batch_of(examples: Iterator[Example], rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids [B, T] and the targets to predict [B, T]: the next id of what is said, -100 elsewhere."""
    drawn = [next(examples) for _ in range(rows)]
    longest = max(len(prompt) + len(said) for prompt, said in drawn)
    ids_BT, target_BT = torch.zeros(rows, longest, dtype=torch.long), torch.full((rows, longest), -100)
    for row, (prompt, said) in enumerate(drawn):
        whole = torch.tensor([*prompt, *said])
        ids_BT[row, : len(whole)] = whole
        target_BT[row, len(prompt) - 1 : len(whole) - 1] = whole[len(prompt) :]
    return ids_BT, target_BT


def learn(
    model: Any,
    kinds: Sequence[Iterator[Example]],
    *,
    steps: int,
    rows: int,
    lr: float,
    say: Callable[[str], None],
) -> None:
    """Supervised steps of Adam, the kinds of examples in turn; the rate rises over 100, then falls to 0."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    began = time.time()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min((step + 1) / 100, 1 - step / steps)
        ids_BT, target_BT = batch_of(kinds[step % len(kinds)], rows)
        said_BT = target_BT >= 0
        hidden_KD = model.model(input_ids=ids_BT).last_hidden_state[said_BT]
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden_KD), target_BT[said_BT])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == steps - 1:
            seconds = time.time() - began
            say(f"step {step} kind {step % len(kinds)} loss {loss.item():.3f} seconds {seconds:.0f}")


def make(name: str, data: Path | None, out: Path, *, steps: int, seed: int) -> None:
    """Make the model called `name`, and write it with its tokenizer to the folder `out`."""
    torch.manual_seed(seed)
    chance = np.random.default_rng(seed)
    if name == "letters":
        hugging = letters()
        task = tasks.load("programs", tokenizer=wrap(hugging), **PROGRAMS)
        kinds = [program_examples(task, chance)]
        model = make_model(hugging, width=64, layers=3)
    else:
        if data is None:
            raise ValueError("words needs the folder of the sets; give it with --data")
        questions = train_questions(data)
        hugging = word_tokenizer(questions)
        task = tasks.load("svamp", tokenizer=wrap(hugging), data=data / SETS[0][1])
        kinds = [word_examples(task, questions, chance, bare=bare) for bare in (False, True, True, True)]
        model = make_model(hugging, width=64, layers=3)
    out.mkdir(parents=True, exist_ok=True)
    log = out.with_name(f"{out.name}.log").open("w", buffering=1)
    learn(model, kinds, steps=steps, rows=64, lr=3e-3, say=lambda line: print(line, file=log))
    model.to(torch.float16).save_pretrained(out)
    hugging.save_pretrained(out)


def letters() -> Any:
    """A Hugging Face tokenizer of single signs, those that `programs` needs."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(
        models.WordLevel({s: i for i, s in enumerate(["</s>", "?", *"0123456789xf()=; +-*"])}, "?")
    )
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", unk_token="?")


def train_questions(data: Path) -> list[str]:
    """Every train question of whole numbers only that no set has in its test split."""
    signs: Tokenizer = CharTokenizer("".join(map(chr, range(32, 0x2100))) + "\n")
    asked: dict[str, list[str]] = {"train": [], "test": []}
    for name, place, options in SETS:
        task = tasks.load(name, tokenizer=signs, data=data / place, max_query=1000, **options)
        for split, questions in asked.items():
            questions += [query.text for query in task.queries(split)]
    held_out = set(asked["test"])
    return [q for q in asked["train"] if q not in held_out and not re.search("[0-9][.,][0-9]", q)]


def main() -> None:
    """Make one of the models."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=("words", "letters"))
    parser.add_argument("--data", type=Path, help="the folder that holds svamp/ and arithmetic/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    make(options.name, options.data, options.out, steps=options.steps, seed=options.seed)


if __name__ == "__main__":
    sys.exit(main())
