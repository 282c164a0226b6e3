"""Rewards for `cory train --task prompts`: change a copy, and name it with `--judge my_module:my_reward`.

A reward takes `prompts` and `completions`, equally many, and every other column of the data by its name; it
returns one finite number per completion, higher = better. Where prompts are chats, a completion is a list of
one message. An exception costs the score of one completion only, so that there is no need to catch
everything.
"""

import re
from itertools import pairwise


def overlap(prompts, completions, summary, **columns):
    """Summaries: ROUGE-L F1 (Lin 2004), from 0 to 1, with the column `summary`.

    P and R are the longest common subsequence of words over the words of the completion and of the summary.
    """
    return [
        rouge_l(words(text(completion)), words(target))
        for completion, target in zip(completions, summary, strict=True)
    ]


def brevity(prompts, completions, **columns):
    """Summaries: the share of the prompt's words that were saved; below 0 for one that is longer."""
    return [
        1 - len(words(text(completion))) / max(1, len(words(text(prompt))))
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def converses(prompts, completions, **columns):
    """Dialogue: 1 for a reply of 3 to 40 words, half a point more if it ends with a question.

    Less the share of its word pairs that occur earlier, in the prompt or in the reply itself.
    """
    return [
        converse(text(prompt), text(completion))
        for prompt, completion in zip(prompts, completions, strict=True)
    ]


def converse(prompt, reply):
    """The reward of `converses` for one reply."""
    earlier, new = pairs(words(prompt)), pairs(words(reply))
    repeated = sum(pair in earlier or pair in new[:i] for i, pair in enumerate(new))
    fits = 3 <= len(words(reply)) <= 40
    return fits * 1.0 + 0.5 * reply.rstrip().endswith("?") - repeated / max(1, len(new))


def rouge_l(candidate, target):
    """F1 of the longest common subsequence of two lists of words; 0 if they share none."""
    row = [0] * (len(target) + 1)
    for word in candidate:
        above, row = row, [0]
        for i, other in enumerate(target):
            row.append(above[i] + 1 if word == other else max(above[i + 1], row[i]))
    return 2 * row[-1] / (len(candidate) + len(target)) if row[-1] else 0.0


def text(prompt_or_completion):
    """The text itself, or that of all messages of a chat."""
    if isinstance(prompt_or_completion, str):
        return prompt_or_completion
    return "\n".join(message["content"] for message in prompt_or_completion)


def words(string):
    """Lower-case words and numbers."""
    return re.findall(r"[a-z0-9]+", string.lower())


def pairs(tokens):
    """Neighbouring words."""
    return list(pairwise(tokens))
