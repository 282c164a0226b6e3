"""Train, validation and test of a data set: no two share a text, and a hash of the text chooses the split."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

WHOLE = "whole"
"""Split of data without a test split, such as a single file; `separate` divides it into train and test."""

SMALLEST_POOL = 10
"""Fewest train texts from which validation texts are taken."""

R = TypeVar("R", bound=Mapping[str, Any])
T = TypeVar("T")


def text_hash(text: str) -> int:
    """Hash a text to a number from 0 to 2^64 - 1, the same in every process."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def in_test(text: str) -> bool:
    """Return whether an undivided text belongs to test: one in five."""
    return text_hash(text) % 5 == 0


def in_validation(text: str) -> bool:
    """Return whether a train text belongs to validation: the tenth of the texts with the smallest hashes.

    The size of a hash tells nothing of its residues, by which `in_test` chooses.
    """
    return 10 * text_hash(text) < 2**64


def separate(
    rows: Mapping[str, Sequence[R]], key: str, *, where: str | Path
) -> tuple[dict[str, list[R]], list[str]]:
    """Return train, test and given validation rows that share no text under `key`, and lines on the others.

    Of rows with the same text the first stays; validation leaves out the texts of both other splits, test
    those of train. `WHOLE` is divided 80/20 by the sha256 of the text, so that a row's split does not depend
    on other rows. The result has a `validation` only if the data give one with a text of its own.
    """
    split = {name: list(rows.get(name, ())) for name in ("train", "validation", "test")}
    for row in rows.get(WHOLE, ()):
        split["test" if in_test(row[key]) else "train"].append(row)
    train, validation, test = firsts = [_by_text(of_split, key) for of_split in split.values()]
    unique = {"train": [*train.values()], "test": [row for text, row in test.items() if text not in train]}
    for name, of_split in unique.items():
        if not of_split and WHOLE in rows:
            texts = len(unique["train"]) + len(unique["test"])
            raise ValueError(
                f"{where} has no rows for {name}: equal texts count once, which leaves {texts} of "
                f"{len(rows[WHOLE])} rows, and the hash of a text puts one in five into test; give 30 or "
                "more different ones, or splits of your own for train and test"
            )
        if not of_split:
            raise ValueError(
                f"{where} has no rows for {name} ({len(split[name])} read, less those that train has too); "
                "give more"
            )
    given = [row for text, row in validation.items() if text not in train and text not in test]
    counts = {
        f"validation rows have a {key} of train or test,": len(validation) - len(given),
        f"test rows have a {key} of train,": len(test) - len(unique["test"]),
        f"rows repeat an earlier {key} with other values,": sum(
            row != first[row[key]]
            for of_split, first in zip(split.values(), firsts, strict=True)
            for row in of_split
        ),
    }
    lines = [f"{count} {what} and are left out" for what, count in counts.items() if count]
    return unique | ({"validation": given} if given else {}), lines


def _by_text(rows: Sequence[R], key: str) -> dict[str, R]:
    """Return text -> the first row with that text under `key`."""
    first: dict[str, R] = {}
    for row in rows:
        first.setdefault(row[key], row)
    return first


def take_validation(train: Sequence[T], text: Callable[[T], str]) -> tuple[list[T], list[T]]:
    """Divide items of train into train and validation, which gets the texts that are `in_validation`.

    At least one text is taken, the one with the smallest hash; of fewer than ten texts none is. The order is
    kept, and neither split depends on it.
    """
    texts = {text(item) for item in train}
    if len(texts) < SMALLEST_POOL:
        return list(train), []
    taken = {t for t in texts if in_validation(t)} or {min(texts, key=text_hash)}
    return [item for item in train if text(item) not in taken], [i for i in train if text(i) in taken]
