"""A reward of both texts: the observer says twice as much as the pioneer, and copies no pair of its words.

python -m examples.reward_of_both --iterations 20
"""

import argparse
import json
from itertools import pairwise

import cory
from cory import pocket


def twice_in_other_words(responses, **columns):
    """Score each game: 1 if the observer has twice as many words, less the share of copied pairs."""
    scores = []
    for game in responses:
        short, long = game["pioneer_0"].split(), game["observer_1"].split()
        ratio = len(long) / max(1, len(short)) / 2
        copied = sum(pair in set(pairwise(short)) for pair in pairwise(long)) / max(1, len(long) - 1)
        scores.append(min(ratio, 1 / ratio if ratio else 0.0) - copied)
    return scores


twice_in_other_words.team_only = "there is no ratio to the length of nothing"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--iterations", type=int, default=20)
    openings = json.loads(pocket.OPENINGS.read_text())
    run = cory.train(
        "pocket",
        {split: [{"prompt": text} for text in openings[split]] for split in ("train", "test")},
        twice_in_other_words,
        preset="pocket",
        iterations=parser.parse_args().iterations,
        max_response=(24, 24),
    )
    print(run.metrics["team/all/collective_reward"].dropna())
