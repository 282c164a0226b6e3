"""Passes over rows, and who makes them: each policy by itself, or several in one.

A learner is a generator here: it yields a `Pass`, gets the sums back once gradients have been added up, and
goes on. So one loop serves learners that share a backbone in lockstep, and learners that share nothing.

Knows neither games nor transformers.

Shapes: B rows, K chosen tokens, D width.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from agents.algorithms import TokenLoss, Tokens
from agents.batch import Batch, Rows
from agents.policies.base import Evaluation, Joint, LossSums, Policy

T = TypeVar("T")


class Pass(NamedTuple):
    """Rows that one policy is to learn from; see `Policy.forward`."""

    policy: Policy
    batch: Batch
    targets: dict[str, Tensor]
    token_loss: Callable[[Tokens], TokenLoss]
    exact_kl: bool
    scale: float
    """What the sum of the loss is multiplied by before its gradient is added to those that are there."""


Passes = Generator[Pass, Any, T]
"""Asks for passes, is sent the `LossSums` of each, and ends with a result."""


def alone(learner: Passes[T]) -> T:
    """Every pass by itself; the learner's result."""
    told: LossSums | None = None  # as a generator is begun
    while True:
        try:
            asked = learner.send(told)
        except StopIteration as end:
            result: T = end.value
            return result
        told = asked.policy(asked.batch, asked.targets, asked.token_loss, exact_kl=asked.exact_kl)
        (told.loss * asked.scale).backward()


def together(learners: Mapping[str, Passes[T]], joint: Joint) -> dict[str, T]:
    """The first pass of every learner as one, then the second, ...; results by name.

    Learners that end early leave the others to go on. Gradients are those of `alone`, but for rounding: no
    policy has a parameter of another.
    """
    results: dict[str, T] = {}
    told: dict[str, LossSums | None] = dict.fromkeys(learners)
    while told:
        asked: dict[str, Pass] = {}
        for name, sums in told.items():
            try:
                asked[name] = learners[name].send(sums)
            except StopIteration as end:
                results[name] = end.value
        told = dict(zip(asked, _in_one(list(asked.values()), joint), strict=True))
    return {name: results[name] for name in learners}


def _in_one(asked: Sequence[Pass], joint: Joint) -> list[LossSums]:
    if not asked:
        return []
    states = joint([(one.policy, one.batch) for one in asked])
    priced = [one for one in asked if one.exact_kl]
    with torch.no_grad():
        found = joint([(one.policy.reference, one.batch) for one in priced]) if priced else []
    references = iter(found)
    told = [
        one.policy(
            one.batch,
            one.targets,
            one.token_loss,
            exact_kl=one.exact_kl,
            states=(state_KD, next(references) if one.exact_kl else None),
        )
        for one, state_KD in zip(asked, states, strict=True)
    ]
    torch.stack([sums.loss * one.scale for sums, one in zip(told, asked, strict=True)]).sum().backward()
    return told


def joint_of(policies: Sequence[Policy]) -> Joint | None:
    """How all of them, and their references, can be read in one pass, if they can."""
    ways = {way.joint for policy in policies for way in (policy, policy.reference)}
    return ways.pop() if len(ways) == 1 else None


@torch.no_grad()
def evaluations(
    policies: Sequence[Policy],
    rows: Sequence[Rows],
    keeps: Callable[[Policy, Rows], bool] = lambda policy, rows: False,
) -> list[Evaluation]:
    """`evaluate` of each policy on its rows; policies and references read in one pass where they can, else
    live where `keeps` says so."""
    if (joint := joint_of(policies)) is None:
        return [
            policy.evaluate(one, live=keeps(policy, one)) for policy, one in zip(policies, rows, strict=True)
        ]
    readers = [way for policy in policies for way in (policy, policy.reference)]
    longest = max(one.longest for one in rows)
    size = max(1, policies[0].rows_at_once(longest, learning=False) // len(readers))
    parts = zip_longest(*(one.split(size) for one in rows for _ in range(2)))
    found: list[list[Tensor]] = [[] for _ in readers]
    for pieces in parts:
        asked = [(i, readers[i], piece) for i, piece in enumerate(pieces) if piece is not None]
        for (i, *_), state_KD in zip(asked, joint([one[1:] for one in asked]), strict=True):
            found[i].append(state_KD)
    whole = iter(torch.cat(states) for states in found)
    return [
        policy.evaluate(one, states=(next(whole), next(whole)))
        for policy, one in zip(policies, rows, strict=True)
    ]
