"""Signs of collapse: text that pleases the judge but has degenerated.

Each sign compares a policy's metrics with those of its reference on the same queries.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from cory.tracking.alerts import is_collapsed


class Sign(NamedTuple):
    """A quantity and a condition on it, in words and as a function of (policy's value, reference's value)."""

    quantity: str
    definition: str
    present: Callable[[float, float], bool]


SIGNS = (
    Sign("distinct_2", "below half of the reference's", is_collapsed),
    Sign("repetition", "more than 0.1 above the reference's", lambda ours, ref: ours > ref + 0.1),
    Sign(
        "eos_share",
        "below half of the reference's, if that is 0.05 or more",
        lambda ours, ref: ref >= 0.05 and ours < ref / 2,
    ),
    Sign("length", "below half of the reference's", lambda ours, ref: ours < ref / 2),
    Sign("reference_perplexity", "more than 3 times the reference's own", lambda ours, ref: ours > 3 * ref),
)
"""Mode collapse; repeated phrases; no end of the response; very short responses; unlikely text.

The bounds were chosen so that runs of the pocket presets show none of them and the collapsed run of the
settings sweep shows the first.
"""


def signs(metrics: Mapping[str, float], reference: Mapping[str, float]) -> list[str]:
    """A sentence for each sign of collapse in a policy's metrics, given those of its reference."""
    return [
        f"{sign.quantity} is {sign.definition}: {metrics[sign.quantity]:.3f}, {reference[sign.quantity]:.3f}"
        for sign in SIGNS
        if sign.present(metrics[sign.quantity], reference[sign.quantity])
    ]


def definitions() -> list[str]:
    """The definitions of all signs in words."""
    return [f"{sign.quantity} {sign.definition}" for sign in SIGNS]
