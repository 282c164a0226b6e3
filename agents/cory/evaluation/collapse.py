"""Signs of collapse: text that pleases the judge but has degenerated.

Each sign compares a policy's metrics with those of its reference on the same queries.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from cory.tracking.alerts import COLLAPSED_SHARE


class Sign(NamedTuple):
    """A quantity that collapse moves beyond a limit, which depends on the reference's value."""

    quantity: str
    definition: str
    limit: Callable[[float], float]
    above: bool
    """Whether values above the limit are the sign; else those below it."""

    def present(self, ours: float, reference: float) -> bool:
        """Whether the policy's value is beyond the limit."""
        limit = self.limit(reference)
        return ours > limit if self.above else ours < limit


SIGNS = (
    Sign("distinct_2", "below half of the reference's", lambda ref: COLLAPSED_SHARE * ref, above=False),
    Sign("repetition", "more than 0.1 above the reference's", lambda ref: ref + 0.1, above=True),
    Sign(
        "eos_share",
        "below half of the reference's, if that is 0.05 or more",
        lambda ref: ref / 2 if ref >= 0.05 else -math.inf,
        above=False,
    ),
    Sign("length", "below half of the reference's", lambda ref: ref / 2, above=False),
    Sign("reference_perplexity", "more than 3 times the reference's own", lambda ref: 3 * ref, above=True),
)
"""Mode collapse; repeated phrases; no end of the response; very short responses; unlikely text.

The bounds were chosen so that runs of the pocket presets show none of them and the collapsed run of the
settings sweep shows the first.
"""


def signs(metrics: Mapping[str, float], reference: Mapping[str, float]) -> list[str]:
    """A sentence for each sign of collapse in those of a policy's metrics that its reference has too."""
    return [
        f"{sign.quantity} is {sign.definition}: {metrics[sign.quantity]:.3f}, {reference[sign.quantity]:.3f}"
        for sign in SIGNS
        if sign.quantity in metrics.keys() & reference.keys()
        and sign.present(metrics[sign.quantity], reference[sign.quantity])
    ]


def definitions() -> list[str]:
    """The definitions of all signs in words."""
    return [f"{sign.quantity} {sign.definition}" for sign in SIGNS]
