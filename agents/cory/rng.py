"""Counter-based random numbers: the same number for the same key, whatever the batch size or point of resume.

A key is (seed, purpose, iteration, seat, game index, position). No generator has a state to lose.

Shapes: B games, T positions.
"""

import hashlib

import numpy as np

Key = tuple[int | str, ...]


def _mix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection in which every bit matters."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


MAX_SEED = 2**63 - 1


def check_seed(seed: int, name: str = "seed") -> None:
    """Raise ValueError for a seed that is not from 0 to 2^63 - 1."""
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"{name} is {seed}; give a whole number from 0 to {MAX_SEED}")


def bits(key: Key, games_B: np.ndarray, positions: int) -> np.ndarray:
    """64 random bits [B, T] for `key`, each game index and each position."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    step = np.uint64(0x9E3779B97F4A7C15)
    game_B = _mix(
        np.uint64(int.from_bytes(digest, "little")) + (games_B.astype(np.uint64) + np.uint64(1)) * step
    )
    return _mix(game_B[:, None] + (np.arange(positions, dtype=np.uint64) + np.uint64(1)) * step)


def uniforms(key: Key, games_B: np.ndarray, positions: int) -> np.ndarray:
    """Uniform numbers in [0, 1) [B, T], float32 and exactly representable, so none rounds to 1."""
    return (bits(key, games_B, positions) >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


def permutation(key: Key, size: int) -> np.ndarray:
    """A random permutation of `size` indices."""
    return np.argsort(bits(key, np.zeros(1), size)[0], kind="stable")


def caps(key: Key, games_B: np.ndarray, seats: int, *, low: int, high: int) -> np.ndarray:
    """A response cap from `low` to `high` tokens, both included, for every game and seat [B, N]."""
    return low + (uniforms(key, games_B, seats) * (high - low + 1)).astype(np.int64)
