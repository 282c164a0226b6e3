"""Padded arrays: rows of different lengths as one array.

Shapes: B rows, T positions.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np


def length_mask(lengths_B: np.ndarray, width: int) -> np.ndarray:
    """Return a mask [B, width], True at the positions before each row's length."""
    mask: np.ndarray = np.arange(width) < lengths_B[:, None]
    return mask


def pack(rows: Sequence[Sequence[int]], pad: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows as [B, T] int64, right-padded with `pad`, and their lengths [B]; B is at least 1."""
    lengths_B = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    ids_BT = np.full((len(rows), lengths_B.max()), pad, dtype=np.int64)
    ids_BT[length_mask(lengths_B, ids_BT.shape[1])] = np.fromiter(
        chain.from_iterable(rows), dtype=np.int64, count=int(lengths_B.sum())
    )
    return ids_BT, lengths_B
