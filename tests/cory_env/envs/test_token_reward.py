"""A token reward of eta * log pi_0 is the KL penalty, for learners that maximise reward + eta * entropy."""

import math
from itertools import product

import numpy as np
import pytest

from cory_env import Query, raw_env
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer

AB = CharTokenizer("ab")  # a b = 0 1, EOS 2, pad 3
ETA = 0.3
RNG = np.random.default_rng(0)
RESPONSES = [(2,), *(ids for ids in product(range(4), repeat=2) if ids[0] != 2)]
"""All responses of cap 2: EOS at once, or two tokens of which EOS is not the first."""
STATES = [(), (0,), (1,), (3,)]
"""Prefixes of responses that are not finished."""
PI_0 = {state: RNG.dirichlet([1.0] * 4) for state in STATES}
PI = {state: RNG.dirichlet([1.0] * 4) for state in STATES}


def probability(table, ids):
    return math.prod(table[ids[:t]][token] for t, token in enumerate(ids))


def reference_reward(seat, read, token):
    return ETA * math.log(PI_0[read[2:]][token])


def rewards_of(ids):
    """The rewards of the env for each token of the response `ids` to the query ab."""
    env = raw_env(Echo(AB, length=2), seats=1, max_response=2, token_reward=reference_reward)
    env.reset(options={"query": Query("ab", (0, 1))})
    rewards = []
    for token in ids:
        env.step(token)
        rewards.append(env.rewards["pioneer_0"])
    assert env.terminations["pioneer_0"]
    return rewards


def score(ids):
    return sum(a == b for a, b in zip((0, 1), ids, strict=False)) / 2


REWARDS = {ids: rewards_of(ids) for ids in RESPONSES}


def test_reward_plus_entropy_is_score_minus_the_kl_to_pi_0():
    with_entropy = sum(
        probability(PI, ids) * (sum(REWARDS[ids]) - ETA * math.log(probability(PI, ids))) for ids in RESPONSES
    )
    kl = sum(
        probability(PI, ids) * math.log(probability(PI, ids) / probability(PI_0, ids)) for ids in RESPONSES
    )
    expected_score = sum(probability(PI, ids) * score(ids) for ids in RESPONSES)
    assert with_entropy == pytest.approx(expected_score - ETA * kl)


def soft_value(state):
    """V(s) = eta log sum_a exp(Q(s, a) / eta), with the rewards of the env."""
    return ETA * np.logaddexp.reduce(soft_q(state) / ETA)


def soft_q(state):
    q = []
    for token in range(4):
        after = (*state, token)
        whole = next(ids for ids in RESPONSES if ids[: len(after)] == after)
        q.append(REWARDS[whole][len(state)] + (soft_value(after) if after in STATES else 0.0))
    return np.array(q)


def test_the_best_maximum_entropy_policy_is_the_kl_regularised_optimum():
    # soft value iteration over tokens must give pi*(y) = pi_0(y) exp(score(y) / eta) / Z over whole responses
    best = {state: np.exp((soft_q(state) - soft_value(state)) / ETA) for state in STATES}
    weight = {ids: probability(PI_0, ids) * math.exp(score(ids) / ETA) for ids in RESPONSES}
    Z = sum(weight.values())
    for ids in RESPONSES:
        assert probability(best, ids) == pytest.approx(weight[ids] / Z)
    assert soft_value(()) == pytest.approx(ETA * math.log(Z))
