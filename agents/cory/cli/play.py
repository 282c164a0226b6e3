"""`cory play`: watch games of saved policies, or take a seat yourself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from cory import rng
from cory.cli.common import settings_for
from cory.config.command_line import parse_command
from cory.runtime.terminal import say
from cory_env.render import printable
from cory_env.types import one_of, seat_names

if TYPE_CHECKING:
    from cory.evaluation.external import Player
    from cory_env.envs.token import raw_env


@dataclass(frozen=True, kw_only=True)
class Options:
    """Whose games, how many, and whether you play.

    Settings of the run (`--task`, `--judge`, `--max-response`, ...; see `cory train --help`) may follow.
    """

    target: Positional[Path]
    """A run directory, a checkpoint, or the folder of a model, which then plays in every seat."""

    preset: str | None = None
    """Settings for a target that is not part of a run; by default pocket, or `own` for a model
    that is not bundled."""

    seat: str | None = None
    """The seat you play, such as observer_1; the policies play the others. None = watch."""

    games: int = 3
    """Number of games, each on another held-out query."""

    exchange: bool = False
    """Whether every policy sits one seat further than its name says."""

    seed: int = 0
    """Random seed of queries, caps and the policies' tokens."""

    def __post_init__(self) -> None:
        if self.games < 1:
            raise ValueError(f"games is {self.games}; play 1 or more")
        rng.check_seed(self.seed)


def command(argv: Sequence[str]) -> None:
    """`cory play TARGET [options] [settings of the run]`."""
    about = "Watch games of the policies of a run, or of a model, or take a seat yourself."
    options, words = parse_command(argv, Options, command="cory play", about=about)
    from cory.training.factory import game_options, make_players, silence_transformers
    from cory.training.players import seat_players, seatings
    from cory.training.targets import find
    from cory_env.envs.token import raw_env

    silence_transformers()
    settings = settings_for([str(options.target)], words, preset=options.preset)
    target = find(str(options.target), preset=options.preset, settings=settings)
    config = target.config
    seats = seat_names(config.seats)
    if options.seat is not None:
        one_of("seat", options.seat, seats)
    task, references, loaded = make_players(config, folders=target.folders)
    players = seat_players(config, task, references, loaded)
    one_further = options.exchange and len(loaded) > 1
    sitting = list(seatings(config, loaded, players))[one_further]
    policies_by_seat = {seat: sitting[seat] for seat in seats}
    env = raw_env(task, **game_options(config, {**loaded, **players}), render_mode="human")
    env.set_payoff(config.payoff_rule, iteration=config.iterations)
    for seat, policy in policies_by_seat.items():
        say(f"{seat}: {'you' if seat == options.seat else policy.name}")
    queries = task.queries("test")
    for game in rng.permutation((options.seed, "play"), len(queries))[: options.games].tolist():
        print(f"\nquery {game} of {len(queries)}")
        env.reset(seed=options.seed + game, options={"query": queries[game]})
        play_game(env, policies_by_seat, you=options.seat, seed=options.seed)


def play_game(env: raw_env, policies_by_seat: Mapping[str, Player], *, you: str | None, seed: int) -> None:
    """Play one game, rendered after every turn, and print the payoffs."""
    env.render()
    while (seat := env.game.turn) is not None:
        ids = ask_user(env, seat) if seat == you else sampled(env, seat, policies_by_seat[seat], seed)
        for token in env.game.begun(ids):
            env.step(token)
    print("paid: " + ", ".join(f"{seat} {payoff:.3g}" for seat, payoff in env.rewards.items()))


def sampled(env: raw_env, seat: str, player: Player, seed: int) -> list[int]:
    """A response of a policy or a player to what `seat` reads."""
    import numpy as np

    from cory.interop.language_model import response

    prompt, cap = env.game.prompt(seat), int(env.infos[seat]["cap"])
    return response(player, prompt, rng.uniforms((seed, "play", seat, *prompt), np.zeros(1), cap))


def ask_user(env: raw_env, seat: str) -> list[int]:
    """The response a person types for `seat`: cut at the cap, ended with EOS if shorter."""
    tokenizer, cap = env.task.tokenizer, env.infos[seat]["cap"]
    say(f"you read: {printable(tokenizer.decode(env.game.prompt(seat)))}")
    while True:
        try:
            text = input(f"{seat}, at most {cap} tokens; begin a new word with a space> ")
        except EOFError:
            raise ValueError(f"input ended before the response of {seat}") from None
        try:
            ids = tokenizer.encode(text)
        except ValueError as error:
            say(f"{error}; try again")
            continue
        if len(ids) > cap:
            say(f"cut after {cap} of {len(ids)} tokens: {printable(tokenizer.decode(ids[:cap]))}")
        return [*ids, min(tokenizer.eos)]
