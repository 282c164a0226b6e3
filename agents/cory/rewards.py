"""Reward functions for the task `prompts`: accuracy, format, length, overlap with a text, repetition.

Each is called as `f(prompts, completions, **columns)` and returns one number per completion, higher is
better: on the command line `--judge cory.rewards:overlap`, in Python `cory.train(reward=rewards.overlap)`.
A prompt is a text or the messages of a chat; a completion is a text, or a chat of one message. Words are runs
of letters and digits, in lower case.

Keyword arguments with a default are settings. Fix one by `functools.partial`, in a module of your own for the
command line (`short = partial(rewards.overlong, limit=40)`), or give one for each row as a column of that
name.
"""

# ruff: noqa: ARG001 (every function takes all that a reward function is given)

import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

Text = str | Sequence[Mapping[str, str]]
"""A text, or the messages of a chat."""

THINK = r"<think>(?:(?!</?think>).)*</think>\s*\S(?:(?!</?think>).)*"
"""One block of thoughts, then an answer."""

_FORMULA = re.compile(r"[0-9+=^\\/<>]|(?<!\w)-\w")
"""What tells an answer that is a formula from one in words, in which `-` is a hyphen."""

_FINAL = re.compile(r"\banswer(?:\s+is\b|\s*:)\s*", re.IGNORECASE)


def accuracy(
    prompts: Sequence[Text], completions: Sequence[Text], answer: Sequence[Any], **columns: Any
) -> list[float]:
    """Return 1 for a completion with the right final answer, the column `answer`, else 0.

    Where `answer` holds a number, the final numbers of both are compared (`#### 72`, "the answer is 72.0", or
    the last number), all of them where it is a list such as `(5, 6)`. Elsewhere, and for an answer of several
    numbers such as `10:30` or `2x + 3`, the words and signs, but for punctuation, of the whole completion, or
    of what follows its last `####`, "answer is" or "answer:" or is in its last box. ValueError for an
    `answer` that is missing.
    """
    from cory_env.grading.numeric_answers import text_of_answer

    golds = map(text_of_answer, answer)
    return [float(_is_right(_text(c), gold)) for c, gold in zip(completions, golds, strict=True)]


vars(accuracy)["correct_from"] = 1.0  # read by evaluations, which then report accuracy and pass@k


def format(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    *,
    pattern: str | Sequence[str] = THINK,
    **columns: Any,
) -> list[float]:
    """Return 1 if the whole completion matches the regular expression, without spaces at its ends, else 0.

    By default `<think>thoughts</think> answer`. A dot matches line breaks too.
    """
    return [
        float(re.fullmatch(one, _text(completion).strip(), re.DOTALL) is not None)
        for completion, one in zip(completions, _per_row(pattern, len(completions)), strict=True)
    ]


def brevity(prompts: Sequence[Text], completions: Sequence[Text], **columns: Any) -> list[float]:
    """Return the share of the prompt's words that a completion saves; below 0 if it is longer.

    1 - words(completion) / words(prompt)
    """
    return [
        1 - len(_words(_text(completion))) / max(1, len(_words(_text(prompt))))
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def length(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    *,
    least: int | Sequence[int] = 1,
    most: int | Sequence[int] = 100,
    **columns: Any,
) -> list[float]:
    """Return 1 for a completion of `least` to `most` words, both included, else 0."""
    rows = len(completions)
    return [
        float(low <= len(_words(_text(completion))) <= high)
        for completion, low, high in zip(
            completions, _per_row(least, rows), _per_row(most, rows), strict=True
        )
    ]


def overlong(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    *,
    limit: int | Sequence[int] = 100,
    margin: int | Sequence[int] = 50,
    **columns: Any,
) -> list[float]:
    """Return a penalty for length: 0 up to limit - margin words, then falling to -1 at limit words and above.

    The soft overlong punishment of DAPO (Yu et al. 2025, equation 13), in words instead of tokens.
    """
    rows = len(completions)
    return [
        -min(1.0, max(0.0, len(_words(_text(completion))) - (most - soft)) / max(1, soft))
        for completion, most, soft in zip(
            completions, _per_row(limit, rows), _per_row(margin, rows), strict=True
        )
    ]


def overlap(
    prompts: Sequence[Text], completions: Sequence[Text], summary: Sequence[str], **columns: Any
) -> list[float]:
    """Return ROUGE-L F1 (Lin 2004), from 0 to 1, with the column `summary`.

    Precision and recall are the longest common subsequence of words over the words of completion and summary.
    """
    scores = []
    for completion, gold in zip(completions, summary, strict=True):
        words, others = _words(_text(completion)), _words(gold)
        common = _common_subsequence(words, others)
        scores.append(2 * common / (len(words) + len(others)) if common else 0.0)
    return scores


def repetition(
    prompts: Sequence[Text], completions: Sequence[Text], *, size: int | Sequence[int] = 3, **columns: Any
) -> list[float]:
    """Return a penalty for repetition: minus the share of n-grams of `size` words that were there before.

    Distinct n-grams / n-grams - 1; 0 for a completion of fewer words.
    """
    penalties = []
    for completion, n in zip(completions, _per_row(size, len(completions)), strict=True):
        words = _words(_text(completion))
        ngrams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
        penalties.append(len(set(ngrams)) / len(ngrams) - 1 if ngrams else 0.0)
    return penalties


def converses(prompts: Sequence[Text], completions: Sequence[Text], **columns: Any) -> list[float]:
    """Return the quality of a turn in a dialogue.

    1 for 3 to 40 words, plus 0.5 if it ends with a question, minus the share of its word pairs that occur in
    the prompt or earlier in the completion.
    """
    scores = []
    for prompt, completion in zip(prompts, completions, strict=True):
        words, before = _words(_text(completion)), set(pairwise(_words(_text(prompt))))
        repeated = 0
        for pair in pairwise(words):
            repeated += pair in before
            before.add(pair)
        fits = 3 <= len(words) <= 40
        asks = _text(completion).rstrip().endswith("?")
        scores.append(fits * 1.0 + 0.5 * asks - repeated / max(1, len(words) - 1))
    return scores


def _is_right(text: str, gold: str) -> bool:
    from cory_env.grading.numeric_answers import behind_marks, extract_numbers, is_correct, is_one_number

    if listed := extract_numbers(gold):
        return extract_numbers(text) == listed
    final = next(iter(behind_marks(gold)), gold)
    if is_one_number(final):
        return is_correct(text, gold)
    given = (text, _FINAL.split(text)[-1], *behind_marks(text))
    parts = _formula_parts if _FORMULA.search(final) else _words_and_signs
    if right := parts(final):
        return right in map(parts, given)
    return final.strip() in [one.strip() for one in given]


def _words_and_signs(text: str) -> list[str]:
    """`C++` is c, +, +, and `**Yes!**` is yes."""
    return re.findall(r"[^\W_]+|[^\w\s.,;:!?'\"()\[\]{}*`-]", _lower(text))


def _formula_parts(text: str) -> list[str]:
    r"""`$-2x + 3$` is -, 2x, +, 3, and `\left(5, 6\right)` is (, 5, 6, )."""
    plain = re.sub(
        r"\\[()\[\],;! ]|\\(?:left|right)(?![a-z])|\$|\*\*", " ", _lower(text).replace("\u2212", "-")
    )
    return re.findall(r"[^\W_]+|[^\w\s.,;:!?'\"`]", plain)


def _common_subsequence(words: list[str], others: list[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(others) + 1)
    for word in words:
        above, row = row, [0]
        for i, other in enumerate(others):
            row.append(above[i] + 1 if word == other else max(above[i + 1], row[i]))
    return row[-1]


def _per_row(setting: Any, rows: int) -> Sequence[Any]:
    """A setting for all rows, or a column of settings, as one for each row."""
    return setting if isinstance(setting, list | tuple) else [setting] * rows


def _text(text: Text) -> str:
    """The text itself, or the contents of all messages of a chat."""
    return text if isinstance(text, str) else "\n".join(message["content"] for message in text)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", _lower(text))


def _lower(text: str) -> str:
    """The text in small letters, in which a letter and its accent are one character, however it is stored."""
    return unicodedata.normalize("NFC", text).lower()
