"""Who plays a seat without learning: the reference, saved policies, programs, and checkpoints of the run."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cory import rng
from cory.config.schema import Config
from cory.evaluation.external import ExternalPlayer, Player
from cory.policies.base import Policy
from cory.policies.causal_lm import check_same_tokenizer
from cory.training import checkpoint, factory
from cory.training.factory import POOL
from cory.training.targets import find, is_loader, load_external
from cory_env.tasks.base import Task
from cory_env.vector import VectorGame

FROZEN = "frozen"


class Pool:
    """A player that is one of the learners' last checkpoints, drawn anew in each iteration (self-play)."""

    def __init__(self, policy: Policy, config: Config) -> None:
        """`policy` takes the weights that are drawn; at first it has those that the run starts from."""
        self.policy, self.size = policy, config.pool
        self.every, self.seed = config.checkpoint_every, config.seed
        self.names = list(dict.fromkeys(config.policy_names))
        self.run: Path | None = None
        """The run whose checkpoints are drawn; without one the policy stays as it is."""
        self._loaded: Path | None = None

    def members(self, iteration: int) -> list[int]:
        """The checkpoints that an iteration draws from, as the iterations that they are the starts of.

        Those by number only: the clock must not decide who plays.
        """
        newest = iteration - iteration % self.every
        return [at for at in range(newest - (self.size - 1) * self.every, newest + 1, self.every) if at >= 0]

    def draw(self, iteration: int) -> tuple[int, str]:
        """The checkpoint and the policy in it that play in an iteration: a function of the seed."""
        choices = [(at, name) for at in self.members(iteration) for name in self.names]
        return choices[int(rng.permutation((self.seed, POOL, iteration), len(choices))[0])]

    def begin_iteration(self, iteration: int) -> None:
        """Load the weights that play in this iteration."""
        if self.run is None:
            return
        at, name = self.draw(iteration)
        folder = checkpoint.folder_of(self.run, at) / name
        if folder != self._loaded:
            self.policy.restore(folder)
            self._loaded = folder


def seat_players(
    config: Config,
    task: Task,
    references: Mapping[str, Policy],
    policies: Mapping[str, Player],
    *,
    pool: Policy | None = None,
) -> dict[str, Player]:
    """The players of the settings by seat; `pool` plays for `pool:K`, by default the first policy itself.

    ValueError for one that cannot be loaded or speaks in other tokens.
    """
    own, frozen = next(iter(policies.values())), next(iter(references.values()))
    made: dict[str, Player] = {FROZEN: frozen, f"{POOL}:{config.pool}": pool or own}
    for player in config.players.values():
        if player not in made:
            made[player] = _loaded(player, config, task, frozen)
    return {seat: made[player] for seat, player in config.players.items()}


def _loaded(player: str, config: Config, task: Task, reference: Policy) -> Player:
    if is_loader(player):
        made = load_external(player, config).players
        if len(made) > 1:
            raise ValueError(f"player {player!r} returned {', '.join(made)}; return one object for one seat")
        ((name, loaded),) = made.items()
        return as_player(name, loaded, f"player {player!r}", config, task, reference)
    folders = find(player).folders
    if len(folders) > 1:
        place = next(iter(folders.values()))
        raise ValueError(f"player {player!r} holds {', '.join(folders)}; name one of them, as {place}")
    ((name, folder),) = folders.items()
    policy = factory.load_saved(unlike_learners(name), config, task, folder)
    check_same_tokenizer([reference, policy])
    policy.set_reference(reference)
    policy.budget = reference.memory
    return policy


def as_player(name: str, loaded: Any, source: str, config: Config, task: Task, reference: Policy) -> Player:
    """A policy, or what has `act` or `respond`, as a player of this game."""
    name = unlike_learners(name)
    if isinstance(loaded, Policy):
        loaded.name = name
        loaded.set_reference(reference)
        return loaded
    games = factory.make_game(config, task, {}), VectorGame(task, seats=1, max_response=config.max_response)
    width = max(factory.longest_row(game) for game in games)
    return ExternalPlayer(
        name, loaded, source=source, tokenizer=task.tokenizer, width=width, reference=reference
    )


def unlike_learners(name: str) -> str:
    """A name in metrics that no policy of the run and no reference has."""
    return f"player_{name}" if name.startswith(("llm_", "reference", POOL)) else name


def seatings(
    config: Config, policies: Mapping[str, Player], players: Mapping[str, Player]
) -> Iterator[dict[str, Player]]:
    """As many seatings as it takes for each policy to sit in each seat that learns; players keep theirs."""
    sitting: Sequence[Player] = list(policies.values())
    names = list(dict.fromkeys(config.policy_names))
    order = [names.index(name) for name in config.policy_names]
    for turn in range(len(sitting)):
        seated = zip(config.learning_seats, order, strict=True)
        yield {**{seat: sitting[(i - turn) % len(sitting)] for seat, i in seated}, **players}
