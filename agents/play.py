"""`cory play`: watch games of saved policies, or take a seat yourself."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tyro.conf import Positional

from agents import randomness
from agents.build import hush, load_players
from agents.policies.base import Policy
from agents.settings import parse
from agents.targets import find
from cory_env.env import raw_env
from cory_env.game import one_of, seat_names
from cory_env.render import printable


@dataclass(frozen=True, kw_only=True)
class Options:
    """Who plays, and how often."""

    target: Positional[Path]
    """A run directory, or a model folder (the same policy then sits in every seat)."""

    seat: str | None = None
    """The seat you take, by typing: pioneer_0, observer_1, ...; by default you watch."""

    games: int = 3
    """How many games, each on another held-out query."""

    exchange: bool = False
    """Whether the policies sit one seat further than their names say."""

    seed: int = 0
    """Source of all chance: the queries, the caps, the policies' tokens."""

    def __post_init__(self) -> None:
        if self.games < 1:
            raise ValueError(f"games is {self.games}; play 1 or more")


def play(argv: list[str]) -> None:
    """Parse the flags, load the policies, play the games."""
    about = "Watch games of the policies of a run, or of a model, or take a seat yourself."
    options: Options = parse(Options, argv, about=about, command="cory play")
    hush()
    found = find(str(options.target))
    config = found.config
    seats = seat_names(config.seats)
    if options.seat is not None:
        one_of("seat", options.seat, seats)
    task, _, policies = load_players(config, found.folders)
    sitting = list(policies.values())
    seating = {seat: sitting[(i - options.exchange) % len(sitting)] for i, seat in enumerate(seats)}
    windows = [policy.window for policy in sitting if policy.window is not None]
    env = raw_env(
        task,
        seats=config.seats,
        payoff=config.payoff_rule,
        views=config.sees,
        max_response=config.max_response,
        window=min(windows, default=None),
        render_mode="human",
    )
    for seat, policy in seating.items():
        print(f"{seat}: {'you' if seat == options.seat else policy.name}")
    queries = task.queries("test")
    for game in randomness.permutation((options.seed, "play"), len(queries))[: options.games].tolist():
        print(f"\nquery {game} of {len(queries)}")
        env.reset(seed=options.seed + game, options={"query": queries[game]})
        one_game(env, seating, you=options.seat, key=(options.seed, "play", game))


def one_game(
    env: raw_env, seating: dict[str, Policy], *, you: str | None, key: tuple[int | str, ...]
) -> None:
    """One game at the table, shown whenever a turn ends; what everyone is paid."""
    env.render()
    while (seat := env.game.turn) is not None:
        ids = typed(env, seat) if seat == you else written(env, seat, seating[seat], key)
        for token in env.game.begun(ids):
            env.step(token)
    print("paid: " + ", ".join(f"{seat} {payoff:.3g}" for seat, payoff in env.rewards.items()))


def written(env: raw_env, seat: str, policy: Policy, key: tuple[int | str, ...]) -> list[int]:
    """The response of `policy`."""
    prompt, cap = env.game.prompt(seat), env.infos[seat]["cap"]
    uniforms_BT = torch.from_numpy(randomness.uniforms((*key, seat), np.zeros(1), cap))
    told = policy.sample(
        torch.tensor([prompt]),
        torch.tensor([len(prompt)]),
        uniforms_BT=uniforms_BT,
        caps_B=torch.tensor([cap]),
    )
    response: list[int] = told.response_BT[0, : int(told.response_length_B[0])].tolist()
    return response


def typed(env: raw_env, seat: str) -> list[int]:
    """What a person types for `seat`, spaces and all: cut at the cap, ended with EOS where it is shorter."""
    tokenizer, cap = env.task.tokenizer, env.infos[seat]["cap"]
    print(f"you read: {printable(tokenizer.decode(env.game.prompt(seat)))}")
    while True:
        said = input(f"{seat}, at most {cap} tokens; begin a new word with a space> ")
        try:
            ids = tokenizer.encode(said)
        except ValueError as error:
            print(f"{error}; try again")
            continue
        if len(ids) > cap:
            print(f"cut after {cap} of {len(ids)} tokens: {printable(tokenizer.decode(ids[:cap]))}")
        return [*ids, min(tokenizer.eos)]
