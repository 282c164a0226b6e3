"""Rewards for `cory train --task prompts`: change a copy, and name it: `--judge my_module:my_reward`.

A reward takes `prompts` and `completions`, equally many, and every other column of the data by its name; it
returns one finite number per completion, higher = better. Where prompts are chats, a completion is a list of
one message. One bad completion costs one score, so there is no need to catch everything.
"""

import re
from itertools import pairwise


def overlap(prompts, completions, summary, **columns):
    """Summaries: ROUGE-L F1 (Lin 2004), from 0 to 1, with the column `summary`.

    P and R are the longest common subsequence of words over the words of the completion and of the summary.
    """
    return [rouge_l(words(text(said)), words(best)) for said, best in zip(completions, summary, strict=True)]


def brevity(prompts, completions, **columns):
    """Summaries: the share of the prompt's words that were saved; below 0 for one that is longer."""
    return [
        1 - len(words(text(said))) / max(1, len(words(text(prompt))))
        for prompt, said in zip(prompts, completions, strict=True)
    ]


def converses(prompts, completions, **columns):
    """Dialogue: 1 for an answer of 3 to 40 words, half a point more if it asks something back, less the share
    of its word pairs that were said before, by anyone or by itself.
    """
    return [answered(text(prompt), text(said)) for prompt, said in zip(prompts, completions, strict=True)]


def answered(before, said):
    """What `converses` gives for one answer to all that was said before."""
    heard, spoken = pairs(words(before)), pairs(words(said))
    stale = sum(pair in heard or pair in spoken[:i] for i, pair in enumerate(spoken))
    fits = 3 <= len(words(said)) <= 40
    return fits * 1.0 + 0.5 * said.rstrip().endswith("?") - stale / max(1, len(spoken))


def rouge_l(said, best):
    """F1 of the longest common subsequence of two lists of words; 0 where they share none."""
    row = [0] * (len(best) + 1)
    for word in said:
        above, row = row, [0]
        for i, other in enumerate(best):
            row.append(above[i] + 1 if word == other else max(above[i + 1], row[i]))
    return 2 * row[-1] / (len(said) + len(best)) if row[-1] else 0.0


def text(said):
    """The words of a text, or of all messages of a chat."""
    return said if isinstance(said, str) else "\n".join(message["content"] for message in said)


def words(said):
    """Lower-case words and numbers."""
    return re.findall(r"[a-z0-9]+", said.lower())


def pairs(said):
    """Neighbouring words."""
    return list(pairwise(said))
