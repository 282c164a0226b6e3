"""Rows of different lengths as one array.

Shapes: B rows, T positions.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np


def before(lengths_B: np.ndarray, width: int) -> np.ndarray:
    """[B, width], True at the positions before each row's length."""
    mask: np.ndarray = np.arange(width) < lengths_B[:, None]
    return mask


def pack(rows: Sequence[Sequence[int]], pad: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows as [B, T] int64, right-padded with `pad`, and their lengths [B]; at least one row."""
    lengths_B = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    ids_BT = np.full((len(rows), lengths_B.max()), pad, dtype=np.int64)
    ids_BT[before(lengths_B, ids_BT.shape[1])] = np.fromiter(
        chain.from_iterable(rows), dtype=np.int64, count=int(lengths_B.sum())
    )
    return ids_BT, lengths_B
