"""Labels of metrics on axes and in tables, and their order."""

import re
from collections.abc import Iterable

LABELS = {
    "task_reward": "task reward (judge's units)",
    "accuracy": "correct responses (share)",
    "honesty": "right answers of the pioneer (share)",
    "belief": "answers of the pioneer that are believed (share)",
    "collective_reward": "collective reward (sum of scores)",
    "best_reward": "best score of a game",
    "payoff": "payoff (judge's units)",
    "kl": "KL to the reference (nats per response)",
    "kl_per_token": "KL to the reference (nats per token)",
    "combined_reward": "combined reward (task reward \N{MINUS SIGN} η KL)",
    "score_std": "spread of scores (standard deviation)",
    "payoff_std": "spread of payoffs (standard deviation)",
    "gain_error": "standard error of the gain in combined reward",
    "queries_without_spread": "queries whose games are all paid the same (share)",
    "empty_share": "empty responses (share)",
    "probability": "P(positive)",
    "second_judge": "second judge (log odds)",
    "distinct_1": "distinct-1 (share of words)",
    "distinct_2": "distinct-2 (share of bigrams)",
    "repetition": "repeated token pairs in a response (share)",
    "reference_perplexity": "perplexity under the reference",
    "length": "response length (tokens)",
    "response_length": "response length (tokens)",
    "eos_share": "responses ended by EOS (share)",
    "clip_share": "clipped ratios (share)",
    "entropy": "entropy (nats per token)",
    "kl_coef": "KL coefficient η",
    "explained_variance": "explained variance of returns (share)",
    "value_first": "value of the first token",
    "return_first": "return of the first token",
    "hypervolume": "hypervolume (reward times nats)",
    "survival": "iterations without a sign of collapse",
    "survival_kl": "KL at the first sign of collapse (nats per response)",
}
"""Label of each quantity on axes and in tables; other quantities are labelled by their names."""

DEFINITIONS = {
    "task_reward": "The judge's score of a response.",
    "accuracy": "Responses whose score is that of a correct one.",
    "honesty": "Answers of the pioneer that are right.",
    "belief": "Answers of the pioneer that the observer calls right.",
    "collective_reward": "The scores of all seats of a game, added.",
    "best_reward": "The highest score of a game's seats.",
    "payoff": "What a seat is paid: its score, and the others' by the payoff rule.",
    "kl": "KL(policy, reference), exact over the vocabulary, summed over the tokens of a response.",
    "kl_per_token": "The same, divided by the tokens.",
    "combined_reward": "What training raises: task reward less η times KL.",
    "score_std": "Over the responses of a batch.",
    "payoff_std": "Over the responses of a batch.",
    "gain_error": "Over the held-out queries, of combined reward less the reference's.",
    "queries_without_spread": "Their games have one payoff: groups of games teach the KL penalty only.",
    "probability": "Of a positive review, by the judge.",
    "second_judge": "Score of another judge, that nobody was trained against.",
    "distinct_1": "Distinct words over all words; falls when responses repeat each other.",
    "distinct_2": "Distinct word pairs over all word pairs; falls when responses repeat each other.",
    "repetition": "Token pairs of a response that stood in it before.",
    "reference_perplexity": "exp(nats per token) of the responses under the reference.",
    "clip_share": "Tokens whose ratio to the policy that sampled them was beyond the clipping range.",
    "entropy": "Of the distribution that a token is drawn from.",
    "kl_coef": "Weight of the KL penalty in the reward.",
    "explained_variance": "1 - variance of (return - value) / variance of returns; at 0 values tell nothing.",
    "hypervolume": "Area between the points of most reward at least KL and a reference point.",
    "survival": "Up to the end of the task's shortest run.",
    "survival_kl": "Without a sign the KL of the last evaluation: what the run bore at least.",
}
"""What a quantity is, where its label does not say it."""

SETTINGS = {
    "learner.lr": "learning rate",
    "kl.coef": "KL coefficient η",
    "payoff": "λ (weight of the other seats' scores in the payoff)",
}
"""Label of settings on axes; others have the names of their flags."""


def label(quantity: str) -> str:
    """Return the label of a quantity, with its unit."""
    return LABELS.get(quantity, quantity.replace("pass_at_", "pass@").replace("_", " "))


def defined(quantities: Iterable[str]) -> list[list[str]]:
    """Label and definition of the quantities that have one."""
    return [[label(name), DEFINITIONS[name]] for name in in_order(quantities) if name in DEFINITIONS]


def setting_label(name: str) -> str:
    """Return the label of a setting."""
    return SETTINGS.get(name, name)


def in_order(quantities: Iterable[str]) -> list[str]:
    """Return the distinct quantities in the order of `LABELS`, then by name: pass_at_2 before pass_at_10."""
    distinct = set(quantities)
    known = [quantity for quantity in LABELS if quantity in distinct]
    return known + sorted(
        distinct.difference(known), key=lambda q: re.sub(r"\d+", lambda n: n[0].zfill(9), q)
    )
