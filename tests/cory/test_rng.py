import numpy as np
from scipy.stats import kstest

from cory import rng


def test_a_game_gets_its_numbers_whatever_batch_it_is_in():
    whole = rng.uniforms((1, "training", 3, "pioneer_0"), np.arange(10), 5)
    part = rng.uniforms((1, "training", 3, "pioneer_0"), np.array([7, 2]), 3)
    assert (part == whole[[7, 2], :3]).all()


def test_every_part_of_the_key_matters():
    keys = [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1), (0, "a", 0, "seat")]
    seen = {rng.uniforms(key, np.arange(4), 4).tobytes() for key in keys}
    assert len(seen) == len(keys)


def test_numbers_are_uniform_and_never_one():
    numbers = rng.uniforms((0, "x"), np.arange(400), 50)
    assert numbers.dtype == np.float32
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert kstest(numbers.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(numbers[:, 0], numbers[:, 1])[0, 1]) < 0.2


def test_permutations_hold_everything_once_and_caps_reach_both_ends():
    assert sorted(rng.permutation((0, "p"), 50)) == list(range(50))
    caps = rng.caps((0, "c"), np.arange(500), 2, low=4, high=6)
    assert caps.shape == (500, 2)
    assert set(caps.ravel()) == {4, 5, 6}
