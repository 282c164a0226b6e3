"""Pretrain two small models that write valid answers and know no task yet: where small_tasks.py starts from.

    python -m benchmarks.learning.pretrain_small_models words --data ../shared/data --out runs/tasks/words
    python -m benchmarks.learning.pretrain_small_models letters --out runs/tasks/letters

`words` reads the questions of the sets' train splits, without their answers. Every number in a question is
replaced by a random one, and the target is a random calculation with these numbers and its right result:
`76-25=51`, or two such lines. So the model learns to copy numbers and to calculate, and not which calculation
a question requires. `letters` reads train functions and expressions that have their values, and stops early.
Each model is of Llama's architecture, and at most 1 MB in fp16.

Shapes: B rows, T tokens, K target tokens, D width.
"""

import argparse
import re
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
"""Words with the space before them, single digits, single other characters."""

Example = tuple[list[int], list[int]]
"""Ids of a prompt and of its target, EOS included."""


def word_tokenizer(texts: Sequence[str]) -> Any:
    """A Hugging Face tokenizer of the words in three texts or more, the digits and the signs."""
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


def calculation(numbers: Sequence[int], rng: np.random.Generator) -> str | None:
    """One line, or two if there are three numbers, each a random right calculation; None: draw again.

    Half the time the numbers keep their order; sums and differences are likelier than the rest.
    """
    drawn = [numbers[int(i)] for i in rng.permutation(len(numbers))] if rng.integers(2) else [*numbers]
    lines, value = [], drawn[0]
    for other in drawn[1 : 2 + int(len(numbers) == 3 and rng.integers(4) > 0)]:
        sign = "+-+-+-+-*/"[int(rng.integers(10))]
        left, right = (max(value, other), min(value, other)) if sign in "-/" else (value, other)
        if sign == "/" and left % right:
            return None
        value = {"+": left + right, "-": left - right, "*": left * right, "/": left // max(right, 1)}[sign]
        if not 0 < value < 1000 or (sign in "*/" and right < 2):
            return None
        lines.append(f"{left}{sign}{right}={value}")
    return "\n".join(lines)


def word_examples(
    task: Task, questions: Sequence[str], rng: np.random.Generator, *, bare: bool
) -> Iterator[Example]:
    """Questions with other numbers (`bare`: and nothing else), and a calculation with these numbers.

    Numbers are drawn from all in the questions, from 2 to 999, so that sizes are as frequent as there.
    """
    view = make_views(task, seats=1)[0]
    end = min(task.tokenizer.eos)
    known = [int(n) for n in re.findall("[0-9]+", " ".join(questions)) if 2 <= int(n) < 1000]
    while True:
        parts = re.split(r"([0-9]+)", questions[int(rng.integers(len(questions)))])
        parts[0::2] = [" "] * len(parts[0::2]) if bare else parts[0::2]
        numbers = [known[int(rng.integers(len(known)))] for _ in parts[1::2]]
        parts[1::2] = map(str, numbers)
        target = calculation(numbers, rng) if len(numbers) > 1 else None
        if target is not None:
            query = encode_inside(task.tokenizer, " " + "".join(parts))
            yield list(view.prompt(query, [])), [*encode_inside(task.tokenizer, target), end]


def program_examples(task: Task, rng: np.random.Generator) -> Iterator[Example]:
    """Train functions, and random expressions that have their values."""
    view = make_views(task, seats=1)[0]
    end = min(task.tokenizer.eos)
    known = {query.row["values"]: query for query in task.queries("train")}
    while True:
        text = random_expression(
            rng, int(rng.integers(2)) + 1, largest=PROGRAMS["largest"], signs=PROGRAMS["signs"]
        )
        query = known.get(values_of(text, examples=3) or ())
        if query is not None:
            yield list(view.prompt(query.ids, [])), [*task.tokenizer.encode(text), end]


def make_model(tokenizer: Any, *, width: int, layers: int) -> Any:
    """An untrained Llama of this size for the vocabulary of `tokenizer`."""
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
    """Ids [B, T] and next-token targets [B, T], -100 outside of the example's target."""
    drawn = [next(examples) for _ in range(rows)]
    longest = max(len(prompt) + len(target) for prompt, target in drawn)
    ids_BT, target_BT = torch.zeros(rows, longest, dtype=torch.long), torch.full((rows, longest), -100)
    for row, (prompt, target) in enumerate(drawn):
        whole = torch.tensor([*prompt, *target])
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
    log: Callable[[str], None],
) -> None:
    """Supervised steps of Adam, the kinds of examples in turn; warm-up of 100 steps, then linear decay."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    start = time.time()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min((step + 1) / 100, 1 - step / steps)
        ids_BT, target_BT = batch_of(kinds[step % len(kinds)], rows)
        mask_BT = target_BT >= 0
        hidden_KD = model.model(input_ids=ids_BT).last_hidden_state[mask_BT]
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden_KD), target_BT[mask_BT])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0 or step == steps - 1:
            seconds = time.time() - start
            log(f"step {step} kind {step % len(kinds)} loss {loss.item():.3f} seconds {seconds:.0f}")


def make(name: str, data: Path | None, out: Path, *, steps: int, seed: int) -> None:
    """Make the model `name`, and write it with its tokenizer to the folder `out`."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    if name == "letters":
        tokenizer = letter_tokenizer()
        task = tasks.load("programs", tokenizer=wrap(tokenizer), **PROGRAMS)
        kinds = [program_examples(task, rng)]
    else:
        if data is None:
            raise ValueError("words needs the folder of the sets; give it with --data")
        questions = train_questions(data)
        tokenizer = word_tokenizer(questions)
        task = tasks.load("svamp", tokenizer=wrap(tokenizer), data=data / SETS[0][1])
        kinds = [word_examples(task, questions, rng, bare=bare) for bare in (False, True, True, True)]
    model = make_model(tokenizer, width=64, layers=3)
    out.mkdir(parents=True, exist_ok=True)
    with out.with_name(f"{out.name}.log").open("w", buffering=1) as file:
        learn(model, kinds, steps=steps, rows=64, lr=3e-3, log=lambda line: print(line, file=file))
    model.to(torch.float16).save_pretrained(out)
    tokenizer.save_pretrained(out)


def letter_tokenizer() -> Any:
    """A Hugging Face tokenizer of single characters, those that `programs` needs."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(
        models.WordLevel({s: i for i, s in enumerate(["</s>", "?", *"0123456789xf()=; +-*"])}, "?")
    )
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="</s>", unk_token="?")


def train_questions(data: Path) -> list[str]:
    """Every train question with whole numbers only that no set has in its test split."""
    signs: Tokenizer = CharTokenizer("".join(map(chr, range(32, 0x2100))) + "\n")
    by_split: dict[str, list[str]] = {"train": [], "test": []}
    for name, path, options in SETS:
        task = tasks.load(name, tokenizer=signs, data=data / path, max_query=1000, **options)
        for split, questions in by_split.items():
            questions += [query.text for query in task.queries(split)]
    held_out = set(by_split["test"])
    return [q for q in by_split["train"] if q not in held_out and not re.search("[0-9][.,][0-9]", q)]


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
    main()
