import numpy as np
import pytest

pytest.importorskip("tianshou", reason="needs Tianshou (pip install 'cory[interop]')")
pytestmark = pytest.mark.interop

GAMES = 30


def test_pioneers_rows_carry_its_payoff(example):
    tianshou_rows = example("tianshou_rows")
    batch = tianshou_rows.collect("settle", games=GAMES)
    pioneer, observer = (tianshou_rows.rewards_of(batch, seat) for seat in (0, 1))
    # Rows of a game: the pioneer speaks, the observer speaks, the pioneer is settled with.
    said, settled = pioneer[::2], pioneer[1::2]
    assert said == [0.0] * GAMES
    secrets = batch.obs.obs[::3].reshape(GAMES, -1, 7)[:, 0].argmax(axis=1)  # seven ids per one-hot vector
    letters, named = batch.act[::3], batch.act[1::3]
    # a (0) is the favourite of a and b, c (2) of c and d; anything else costs 0.2.
    scores = np.where(letters == secrets // 2 * 2, 1.0, 0.8) + (named == secrets)
    np.testing.assert_allclose(settled, scores)
    np.testing.assert_allclose(observer, scores)
    assert batch.terminated.tolist() == [False, False, True] * GAMES


def test_without_settling_the_pioneer_learns_from_zeros(example):
    tianshou_rows = example("tianshou_rows")
    batch = tianshou_rows.collect("end", games=GAMES)
    assert tianshou_rows.rewards_of(batch, 0) == [0.0] * GAMES
    assert min(tianshou_rows.rewards_of(batch, 1)) >= 0.8
