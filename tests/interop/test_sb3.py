from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs Stable-Baselines3")
pytestmark = pytest.mark.interop

LETTERS = 3


@pytest.fixture(params=["ppo", "maskable_ppo"])
def algorithm(request):
    if request.param == "maskable_ppo":
        pytest.importorskip("sb3_contrib", reason="needs sb3-contrib (pip install 'cory[interop]')")
    return request.param


def test_pioneers_rows_carry_its_payoff(example, algorithm):
    sb3 = example("sb3_seat")
    model = sb3.make_model(algorithm, sb3.make_env(), seed=0)
    model.learn(512)  # one rollout
    buffer = model.rollout_buffer
    observations, actions = buffer.observations.reshape(512, -1), buffer.actions.reshape(512)
    starts = [*np.flatnonzero(buffer.episode_starts[:, 0]), len(buffer.rewards)]
    paid = 0.0
    for first, after in pairwise(starts[:-1]):  # the last game is unfinished
        # Eight ids per one-hot vector; the query is the first three of the pioneer's prompt.
        query = observations[first].reshape(-1, 8)[:LETTERS].argmax(axis=1)
        said = actions[first:after]
        right = sum(a == b for a, b in zip(query, said, strict=False))
        # A third for each letter in its place, and the same again for the partner's copy.
        rewards = buffer.rewards[first:after, 0]
        np.testing.assert_allclose(rewards, [*[0.0] * (len(said) - 1), 2 * right / LETTERS], atol=1e-6)
        paid += rewards.sum()
    assert paid > 5


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_learns_to_echo(example, algorithm, seed):
    sb3 = example("sb3_seat")
    before, after = sb3.train(algorithm, seed=seed, steps=20_000)
    # A random letter is right once in eight, and EOS may come before it: less than 2/8 a game.
    assert before < 0.3
    assert after > before + 0.5 * (2 - before)
