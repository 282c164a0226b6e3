"""Signs that a policy pleases its judge with text nobody wants: each a stated comparison with the reference
on the same queries."""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class Sign(NamedTuple):
    """A quantity, what is alarming about it in words, and the same as a function of (ours, the
    reference's)."""

    quantity: str
    definition: str
    seen: Callable[[float, float], bool]


SIGNS = (
    Sign("distinct_2", "below half of the reference's", lambda ours, ref: ours < ref / 2),
    Sign("repetition", "more than 0.1 above the reference's", lambda ours, ref: ours > ref + 0.1),
    Sign(
        "eos_share",
        "below half of the reference's, which is 0.05 or more",
        lambda ours, ref: ref >= 0.05 and ours < ref / 2,
    ),
    Sign("length", "below half of the reference's", lambda ours, ref: ours < ref / 2),
    Sign("reference_perplexity", "more than 3 times the reference's own", lambda ours, ref: ours > 3 * ref),
)
"""Few different phrases (mode collapse); phrases said over and over; responses that no longer end; responses
cut down to nothing; text the reference would hardly write. Bounds were set so that none shows on runs of the
pocket presets and the collapsed run of the settings sweep shows the first."""


def signs(figures: Mapping[str, float], reference: Mapping[str, float]) -> list[str]:
    """What is alarming about a policy's figures beside those of its reference, as sentences."""
    return [
        f"{sign.quantity} is {sign.definition}: {figures[sign.quantity]:.3f}, {reference[sign.quantity]:.3f}"
        for sign in SIGNS
        if sign.seen(figures[sign.quantity], reference[sign.quantity])
    ]


def definitions() -> list[str]:
    """All signs in words."""
    return [f"{sign.quantity} {sign.definition}" for sign in SIGNS]
