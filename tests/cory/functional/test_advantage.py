import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.buffers import RolloutBuffer

from cory.functional.advantage import gae, whiten


def test_gae_on_three_tokens_by_hand():
    rewards = torch.tensor([[0.0, 0.0, 1.0, 9.0]])
    values = torch.tensor([[0.5, 0.5, 0.5, 9.0]])
    mask = torch.tensor([[True, True, True, False]])
    # A2 = 1 - .5 = .5 ; A1 = 0 + .5*.5 = .25 ; A0 = 0 + .5*.25 = .125
    got = gae(rewards, values, mask, gamma=1.0, lam=0.5)
    assert got.advantage_BT.tolist() == [[0.125, 0.25, 0.5, 0.0]]
    assert got.return_BT.tolist() == [[0.625, 0.75, 1.0, 0.0]]


def test_gae_is_that_of_stable_baselines3():
    rng = np.random.default_rng(0)
    T = 7
    rewards, values = rng.normal(size=(T, 1)), rng.normal(size=(T, 1))
    space = gym.spaces.Box(-1, 1, (1,))
    buffer = RolloutBuffer(T, space, space, gae_lambda=0.9, gamma=0.97, n_envs=1)
    for t in range(T):
        buffer.add(
            np.zeros((1, 1)),
            np.zeros((1, 1)),
            rewards[t],
            np.array([t == 0]),
            torch.tensor(values[t]),
            torch.zeros(1),
        )
    buffer.compute_returns_and_advantage(last_values=torch.zeros(1), dones=np.array([True]))
    # our row: the same episode followed by poison
    padded = lambda x: torch.tensor(np.append(x[:, 0], [9.0, np.nan]))[None].float()  # noqa: E731
    mask = torch.arange(T + 2)[None] < T
    got = gae(padded(rewards), padded(values), mask, gamma=0.97, lam=0.9)
    np.testing.assert_allclose(got.advantage_BT[0, :T], buffer.advantages[:, 0], rtol=1e-5)
    np.testing.assert_allclose(got.return_BT[0, :T], buffer.returns[:, 0], rtol=1e-5)
    assert got.advantage_BT[0, T:].tolist() == [0.0, 0.0]


def test_whitening_sees_chosen_tokens_only():
    values = torch.tensor([[1.0, 3.0, float("nan")]])
    mask = torch.tensor([[True, True, False]])
    # mean 2, sample variance 2: (1 - 2) / sqrt(2)
    got = whiten(values, mask)
    torch.testing.assert_close(got, torch.tensor([[-(0.5**0.5), 0.5**0.5, 0.0]]))
    torch.testing.assert_close(whiten(values, mask, shift_mean=False)[:, :2], got[:, :2] + 2)
