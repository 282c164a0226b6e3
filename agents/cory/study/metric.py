"""The metrics of studies by their names: where each is measured, and of what."""

import re
from dataclasses import dataclass

from cory.study import survival
from cory.tracking.labels import label
from cory_env.nearest import did_you_mean

GAME = ("task_reward", "payoff", "kl", "combined_reward", "response_length")
"""Training metrics of each seat that results hold, as means over windows."""
STANDALONE = (
    *("task_reward", "accuracy", "kl", "kl_per_token", "combined_reward", "probability", "second_judge"),
    *("distinct_1", "distinct_2", "repetition", "reference_perplexity", "length", "eos_share"),
)
"""Quantities of standalone evaluations, beside pass_at_k."""
OF_SEAT = (*STANDALONE, "payoff", "honesty", "belief")
"""Quantities of a seat in held-out games, beside pass_at_k."""
TEAM = {
    "": ("collective_reward", "best_reward", "combined_reward"),
    "strangers": ("collective_reward", "best_reward"),
    "gap": ("collective_reward", "best_reward"),
}
"""Quantities of all seats in held-out games: of a run's team, of teams with strangers, of its lead."""
PLACES = {
    "average": "averaged weights",
    "apart": "range over the policies",
    "team": "held-out games",
    "game": "training games",
}
"""Places of metrics, and what they mean."""


@dataclass(frozen=True)
class Metric:
    """A name taken apart: `<quantity>`, `<place>/<quantity>` or `<place>/<of>/<quantity>`.

    docs/studies/README.md has what each is. The names are checked where a study is read (`checked`).
    """

    place: str
    """Empty for standalone evaluations and for survival; else of `PLACES`, `on` or `reward_at_kl`."""
    of: str
    """The task of `on`; of `team` the seat, `strangers`, `gap`, or empty for the run's team."""
    quantity: str
    """The quantity; of `reward_at_kl` the nats."""

    @classmethod
    def named(cls, name: str) -> "Metric":
        """Take a name apart."""
        place, _, quantity = name.rpartition("/")
        place, _, of = place.partition("/")
        return cls(place, of, quantity)

    @property
    def name(self) -> str:
        """The whole name."""
        return "/".join(filter(None, (self.place, self.of, self.quantity)))

    @property
    def is_of_frontier(self) -> bool:
        """Whether it is of the curve of task reward over KL."""
        return self.place == "reward_at_kl" or self.quantity == "hypervolume"

    @property
    def is_once(self) -> bool:
        """Whether a run has it once, not at every evaluation."""
        return self.is_of_frontier or self.quantity in survival.METRICS or self.place in ("apart", "on")

    @property
    def is_of_training(self) -> bool:
        """Whether only trained arms have it."""
        return self.is_once or self.place in ("average", "game")

    @property
    def is_of_strangers(self) -> bool:
        """Whether it is of teams whose seeds are mixed."""
        return self.place == "team" and self.of in ("strangers", "gap")

    @property
    def seat(self) -> str:
        """The seat of held-out games that it is of; empty for all others."""
        return self.of if self.place == "team" and self.of not in TEAM else ""

    @property
    def is_sum_of_seats(self) -> bool:
        """Whether it grows with the number of seats."""
        sums = ("collective_reward", *(("combined_reward",) if self.place == "team" else ()))
        return self.place in ("game", "team") and not self.seat and self.quantity in sums

    @property
    def samples(self) -> int:
        """How many responses to a query it needs."""
        return int(self.quantity.removeprefix("pass_at_")) if self.quantity.startswith("pass_at_") else 1

    @property
    def is_of_right(self) -> bool:
        """Whether it counts responses that are right."""
        return self.quantity == "accuracy" or self.quantity.startswith("pass_at_")

    @property
    def label(self) -> str:
        """The quantity, where it was measured, and its unit."""
        where = [f"on {self.of}"] if self.place == "on" else [self.of, PLACES.get(self.place, "")]
        if self.place == "reward_at_kl":
            return f"task reward at a KL of {self.quantity} nats"
        name, bracket, unit = label(self.quantity).partition(" (")
        return ", ".join(filter(None, [name, *where])) + bracket + unit


def checked(name: str, where: str) -> Metric:
    """The metric of a name; ValueError, with the nearest name, for one that no run has."""
    metric, (place, _, quantity) = Metric.named(name), name.rpartition("/")
    if name in survival.METRICS or re.fullmatch(r"hypervolume|reward_at_kl/\d+(\.\d+)?", name):
        return metric
    of_games = {"game": ("collective_reward", *GAME), "team": TEAM.get(metric.of, OF_SEAT)}
    known = of_games.get(metric.place, STANDALONE)
    is_known = quantity in known or (
        known in (STANDALONE, OF_SEAT) and re.fullmatch(r"pass_at_[1-9]\d*", quantity)
    )
    if not is_known or not re.fullmatch(r"|average|apart|game|team(/\w+)?|on/[^/]+", place):
        names = [f"{place}/{one}" if place else one for one in known]
        hint = did_you_mean(name, [*names, "hypervolume", *survival.METRICS])
        raise ValueError(
            f"{where}: there is no metric {name!r}" + (hint or f"; there are {', '.join(names)}")
        )
    return metric
