"""Padded arrays: rows of different lengths as one array.

Shapes: B rows, T positions.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

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


def caps_of(given: Any, shape: tuple[int, ...], *, high: int) -> np.ndarray:
    """Return caps of `shape`, in tokens, of one for all or as many as are needed.

    ValueError unless they are whole numbers from 1 to `high`.
    """
    try:
        caps = np.array(np.broadcast_to(np.asarray(given), shape))
    except ValueError:  # another shape
        caps = np.zeros(1)
    if caps.dtype.kind not in "iu" or caps.min() < 1 or caps.max() > high:
        raise ValueError(
            f"caps are {given!r:.80}; give whole numbers from 1 to max_response, {high}: one for all, or of "
            f"shape {shape}"
        )
    return caps
