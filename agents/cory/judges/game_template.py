"""A judge of texts that reads a whole game as one text."""

import re

from cory_env.grading.reward_functions import CaseJudge, Cases, Judge, prompt_text
from cory_env.templates import parse_template

PLACES = "{query}, {response} (the one that is scored), {seat}, {response_0}, {response_1}, ..."


class GameTemplate(CaseJudge):
    """Calls a judge of texts on a template of `PLACES` for each response."""

    def __init__(self, judge: Judge, template: str) -> None:
        self.scorer, self.pieces = judge, parse_template("the judge", template)
        self.names = [name for _, name in self.pieces if name is not None]
        of_seats = {name: match for name in self.names if (match := re.fullmatch(r"response_(\d+)", name))}
        if unknown := sorted({*self.names} - {"query", "response", "seat"} - of_seats.keys()):
            raise ValueError(f"judge.template holds {{{unknown[0]}}}; it may hold {PLACES}")
        if "response" not in self.names and not of_seats:
            raise ValueError(f"judge.template {template!r} holds no response; it may hold {PLACES}")
        observers = [name for name, match in of_seats.items() if int(match[1])]
        self.team_only = f"judge.template holds {{{observers[0]}}}" if observers else ""

    @property
    def reads_games(self) -> bool:
        """Always."""
        return True

    def judge(self, cases: Cases) -> list[float]:
        """Return the judge's score of the text of each case; ValueError for a seat that the game lacks."""
        texts = []
        seats, games = cases.of_games.values()
        for prompt, answer, seat, game in zip(cases.prompts, cases.answers, seats, games, strict=True):
            values = {"query": prompt_text(prompt), "response": answer, "seat": seat}
            values |= {f"response_{name.rpartition('_')[2]}": text for name, text in game.items()}
            if missing := [name for name in self.names if name not in values]:
                raise ValueError(
                    f"judge.template holds {{{missing[0]}}}, and the game has the seats {', '.join(game)}"
                )
            texts.append("".join(literal + (values[name] if name else "") for literal, name in self.pieces))
        return list(self.scorer(texts))
