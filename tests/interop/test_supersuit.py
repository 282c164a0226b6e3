import numpy as np
import pytest

pytest.importorskip("supersuit", reason="needs SuperSuit (pip install 'cory[interop]')")
pytestmark = pytest.mark.interop


def test_pioneers_rows_carry_its_payoff(example):
    supersuit_shared = example("supersuit_shared")
    model = supersuit_shared.make_model(supersuit_shared.make_env(8, seed=0), seed=0)
    model.learn(32 * 16)  # one batch: 32 steps of 8 games with 2 seats
    buffer = model.rollout_buffer
    # Flattened by now, one environment (a seat of a game) after the other: [game, seat, step].
    actions = buffer.actions.reshape(8, 2, 32)
    seen = buffer.observations.reshape(8, 2, 32, -1, 8)  # eight ids per one-hot vector
    query = seen[:, 0, ::2, 0].argmax(axis=-1)  # a game is two steps; the pioneer's prompt is the query
    payoff = (actions[:, 0, ::2] == query) * 1.0 + (actions[:, 1, 1::2] == query)
    rewards = buffer.rewards.T.reshape(8, 2, 32)
    assert payoff.sum() > 5
    assert not rewards[:, :, ::2].any()
    np.testing.assert_array_equal(rewards[:, 0, 1::2], payoff)
    np.testing.assert_array_equal(rewards[:, 1, 1::2], payoff)
    assert len(np.unique(query, axis=0)) == 8, "the copies deal different queries"
