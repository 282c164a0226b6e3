"""A one-step bandit whose KL-regularised optimum is known: the effect of each KL estimator in each place.

One state, four actions, one token per response: reference pi0, payoff r, KL coefficient eta.

    max over pi of sum_a pi_a r_a - eta KL(pi || pi0)    is reached by    pi* = pi0 exp(r / eta) / sum

- k1 in the reward: its mean gradient is that of eta KL(pi || pi0), so it gets to pi*.
- full in the reward: the same number for every action, so any baseline swallows it; what is left is the
  payoff, and pi goes to the best action for every coefficient.
- full or k2 in the loss: the gradient of KL(pi || pi0), at once or in the mean (E[x grad log pi]): pi*.
- k3 in the loss: in the mean (1 - pi0 / pi) grad log pi = grad KL(pi0 || pi), the other direction. At its
  optimum r_a + eta pi0_a / pi_a = c for every action, so pi_a = eta pi0_a / (c - r_a), and they sum to 1.
"""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from cory import algorithms
from cory.batch import Rows
from cory.functional import kl, token_rewards
from cory.learner.learner import Learner
from cory.learner.optimizer import LearnerConfig
from cory.policies.scoring import make_batch
from cory.policies.table import TablePolicy

pytestmark = pytest.mark.slow

PAYOFF = np.array([0.0, 0.5, 1.0, 0.2])
REFERENCE = np.array([0.4, 0.3, 0.1, 0.2])
ETA = 0.5
GAMES = 256
WEIGHTED = REFERENCE * np.exp(PAYOFF / ETA)
BEST = WEIGHTED / WEIGHTED.sum()
"""About 0.18, 0.36, 0.33, 0.13."""


def reverse_kl_optimum() -> np.ndarray:
    """The optimum under eta KL(pi0 || pi)."""
    c = brentq(lambda c: (ETA * REFERENCE / (c - PAYOFF)).sum() - 1, 1.0 + 1e-6, 10.0)
    return ETA * REFERENCE / (c - PAYOFF)


def table(name: str) -> TablePolicy:
    policy = TablePolicy(name, vocab_size=4, eos=frozenset(), pad=0, max_response=1)
    with torch.no_grad():
        policy.logits_SV.copy_(torch.tensor(REFERENCE).log())
    return policy


def learned(algorithm: str, kl_config: kl.KLConfig, *, iterations: int = 100, **options) -> np.ndarray:
    """The policy after training. Uniforms are spread evenly: actions come as often as they are probable."""
    policy = table("llm_1")
    policy.set_reference(table("reference").requires_grad_(False))
    module = algorithms.load(algorithm)
    options = module.Config(**options)
    learner = Learner(
        policy,
        module,
        options,
        config=LearnerConfig(lr=0.1, decay="linear"),
        kl_config=kl_config,
        payoff_config=token_rewards.PayoffScalingConfig(),
    )
    ones_B, evenly_B = torch.ones(GAMES, dtype=torch.long), (torch.arange(GAMES) + 0.5) / GAMES
    prompt = {"prompt_BP": torch.zeros(GAMES, 1, dtype=torch.long), "prompt_length_B": ones_B}
    for iteration in range(iterations):
        learner.begin_iteration(iteration, iterations)
        drawn = policy.sample(*prompt.values(), uniforms_BT=evenly_B[:, None], caps_B=ones_B)
        rows = Rows(**prompt, response_BT=drawn.response_BT, response_length_B=drawn.response_length_B)
        payoff_B = torch.tensor(PAYOFF).float()[drawn.response_BT[:, 0]]
        batch = make_batch(policy, rows, drawn.logprobs_BT, payoff_B, payoff_B)
        (rewards_BT,) = learner.rewards([batch])
        advantage = module.advantage(
            {"pioneer_0": batch}, {"pioneer_0": rewards_BT}, options, {"pioneer_0": learner.algorithm_state}
        )["pioneer_0"]
        learner.update(batch, advantage, [torch.arange(GAMES)] * learner.epochs)
    return policy.logits_SV[0].softmax(-1).detach().numpy()


@pytest.mark.parametrize(
    ("kind", "place", "want"),
    [
        ("k1", "reward", BEST),
        ("full", "loss", BEST),
        ("k2", "loss", BEST),
        ("k3", "loss", reverse_kl_optimum()),
    ],
)
def test_the_known_optimum_is_reached(kind, place, want):
    got = learned("reinforce", kl.KLConfig(kind=kind, place=place, coef=ETA))
    np.testing.assert_allclose(got, want, atol=0.01)


@pytest.mark.parametrize(("kind", "place"), [("k1", "reward"), ("full", "loss")])
def test_ppo_gets_there_too_with_advantages_in_units_of_payoff(kind, place):
    got = learned("ppo", kl.KLConfig(kind=kind, place=place, coef=ETA), whiten=False)
    np.testing.assert_allclose(got, BEST, atol=0.02)


def test_whitened_advantages_outweigh_kl_in_the_loss():
    """Whitening scales payoffs up as entropy falls; a KL term in the loss is not scaled."""
    got = learned("ppo", kl.KLConfig(kind="full", place="loss", coef=ETA), whiten=True)
    assert got[PAYOFF.argmax()] > 0.9


@pytest.mark.parametrize("coef", [0.5, 5.0])
def test_full_in_the_reward_ends_at_the_best_action_for_every_coefficient(coef):
    got = learned("reinforce", kl.KLConfig(kind="full", place="reward", coef=coef))
    assert got[PAYOFF.argmax()] > 0.97
    assert BEST[PAYOFF.argmax()] < 0.4


def test_the_optimum_of_k3_in_the_loss_is_another_one():
    assert np.abs(reverse_kl_optimum() - BEST).max() > 0.1
