"""One iteration: query, pioneer, observer, rewards, advantage, update, exchange.

Shapes: B games, T response tokens.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cory import algorithms, rng
from cory.algorithms.base import check_state
from cory.batch import Batch
from cory.config.schema import Config
from cory.distributed import ranks
from cory.functional.advantage import Advantage
from cory.judges import weighted_sum
from cory.learner.learner import Learner
from cory.learner.sharing import shared_rows
from cory.learner.team import Team
from cory.policies.base import Policy
from cory.policies.causal_lm import shard_policies
from cory.rollout.rollout import RolloutSpec, play_shared
from cory.runtime.clock import Clock, OnPhase
from cory.runtime.device import synchronize
from cory.runtime.memory import agree_on_smallest
from cory.training import metrics
from cory.training.factory import (
    POOL,
    check_credit,
    check_lengths,
    make_critic,
    make_game,
    make_learners,
    make_players,
    resolved,
)
from cory.training.players import Pool, seat_players
from cory.training.state import TrainedState
from cory_env.tasks.base import Task
from cory_env.types import Query


class Trainer:
    """Policies, their learners and the game they play."""

    def __init__(
        self,
        config: Config,
        *,
        task: Task | None = None,
        policies: Mapping[str, Policy] | None = None,
        learners: Mapping[str, Learner] | None = None,
    ) -> None:
        """Objects that are given take the place of what the settings say."""
        ranks.join()
        if config.shard and ranks.count() == 1:
            raise ValueError(
                "--shard shares weights out among processes and this is the only one; start several with "
                "torchrun or accelerate launch, or leave it out"
            )
        players = make_players(config, task=task, policies=policies)
        self.task, self.references, self.policies = players
        drawn = self.policies.pop(POOL, None)
        self.pool = None if drawn is None else Pool(drawn, config)
        self._wait = partial(synchronize, next(iter(self.policies.values())).device)
        agree_on_smallest(next(iter(self.policies.values())).memory)
        self.config = config = resolved(config, players)
        self.players = seat_players(config, self.task, self.references, self.policies, pool=drawn)
        """Who plays without learning, by seat."""
        self.game = make_game(config, self.task, {**self.policies, **self.players})
        check_lengths(self.game, self.players.values())
        weighted_sum.check(self.task, self.game.seats)
        check_credit(config, self.task)
        if config.policy.compile == "yes":
            for model in dict.fromkeys([*players.policies.values(), *players.references.values()]):
                model.compile_blocks()
        models = [*self.policies.values(), *self.references.values()]
        if config.shard:
            shard_policies([*models, *([] if drawn is None else [drawn])])
        self.learners = dict(learners) if learners is not None else make_learners(config, self.policies)
        self.algorithm = algorithms.load(config.algorithm)
        self.group = self.algorithm.needs(config.algorithm_options).group
        self.critic = make_critic(config, self.references, self.game)
        of_team = self.algorithm.team_state(self.learners, config.algorithm_options)
        check_state(of_team, "the team", self.algorithm.name)
        self.state = TrainedState(self.learners, models[0].memory, of_team=of_team, critic=self.critic)
        self.batches: dict[str, Batch] = {}
        """Batches of the current iteration, for error reports."""
        self.learning = False
        """Whether an update has begun: the state is no longer that of the iteration's start."""
        self._fingerprints: dict[str, object] = {}

    def iterate(self, iteration: int, *, on_phase: OnPhase = lambda phase: None) -> dict[str, float]:
        """Play one batch of games and learn from it; its metrics, keyed seat/policy/quantity.

        `Stopped` after a signal; until `learning` the state is still that of the start.
        """
        clock = Clock(on_phase=on_phase, wait=self._wait)
        with clock.phase("exchange"):
            self.begin_iteration(iteration)
        team = self.team(iteration)
        spec = self.spec(iteration)
        played = play_shared(self.game, team.policies, spec, clock=clock, players=self.players)
        valued = self._valued(played, clock)
        batches = {seat: valued[seat] for seat in team.seating}
        team = replace(team, played=played)
        self.batches, self.learning = played, True
        if self.config.sharing.same_view:
            with clock.phase("share"):
                team = replace(team, shared=shared_rows(team, batches))
        advantages = team.advantages(batches)
        with clock.phase("update"):
            updates = team.update_all(batches, advantages)
            for name, learner in () if updates else self.learners.items():
                updates[name] = learner.update(*team.data(name, batches, advantages))
        of_critic = self._update_critic(advantages, clock)
        self.end_iteration(iteration)
        row = metrics.iteration_metrics(team, batches, advantages, updates, clock.seconds, self.config)
        of_game = metrics.game_metrics(self.game, played, self.names(iteration), team, row)
        return of_game | row | of_critic | weighted_sum.of_task(self.task).metrics()

    def example(self) -> str:
        """A game's first response of the iteration, its query, its score, and what the reward received."""
        seat = self.game.seats[0]
        columns = ", ".join(["prompts", "completions", *getattr(self.task, "columns", ())])
        query, response = self.game.queries[0].text[:200], self.game.texts(seat)[0][:200]
        score = float(self.batches[seat].score_B[0])
        return (
            f"for example {response!r} in response to {query!r} has the score {score:g}; the reward received "
            f"the columns {columns}"
        )

    def note_fingerprints(self) -> None:
        """Note the weights as they are; `begin_iteration` finds changes since."""
        self._fingerprints = {name: policy.fingerprint() for name, policy in self.policies.items()}

    def seating(self, iteration: int) -> Mapping[str, str]:
        """Which policy sits in which seat that learns."""
        return self.config.seating(iteration)

    def exchanged(self, iteration: int) -> bool:
        """Whether an exchange is due at the start of `iteration`; with one policy it only resets."""
        every = self.config.exchange.every
        return bool(every) and iteration > 0 and iteration % every == 0

    def begin_iteration(self, iteration: int) -> None:
        """Set what depends on the iteration; RuntimeError if a weight has changed since the last update."""
        self.batches = {}
        for name, fingerprint in self._fingerprints.items():
            if self.policies[name].fingerprint() != fingerprint:
                raise RuntimeError(
                    f"iteration {iteration}: weights of policy {name!r} changed, or were frozen or unfrozen, "
                    "outside an update; an exchange changes seats, never weights"
                )
        resets = self.config.exchange.reset and self.exchanged(iteration)
        for shared in (self.critic, self.state.of_team):
            if resets and shared is not None and hasattr(shared, "reset"):
                shared.reset()
        for learner in self.learners.values():
            if resets:
                learner.reset()
            learner.begin_iteration(iteration, self.config.iterations)
        self.set_game(iteration)

    def set_game(self, iteration: int) -> None:
        """Set the payoff and the opponents of an iteration, or of evaluations at its start."""
        self.game.set_payoff(self.config.payoff_rule, iteration=iteration)
        if self.pool is not None:
            self.pool.begin_iteration(iteration)

    def end_iteration(self, iteration: int) -> None:
        """Update the averages of weights; the state is then that of the start of the next iteration."""
        for learner in self.learners.values():
            learner.end_iteration(iteration)
        self.note_fingerprints()

    def spec(self, iteration: int) -> RolloutSpec:
        """The games of an iteration by seed and counter: every train query once an epoch, by groups."""
        config, train = self.config, self.task.queries("train")
        games_B = np.arange(iteration * config.batch, (iteration + 1) * config.batch)
        drawn_B = games_B // self.group
        queries: list[Query] = []
        for epoch in range(int(drawn_B[0]) // len(train), int(drawn_B[-1]) // len(train) + 1):
            order = rng.permutation((config.seed, "queries", epoch), len(train))
            index_N = drawn_B[drawn_B // len(train) == epoch] % len(train)
            queries += [train[int(order[i])] for i in index_N]
        return RolloutSpec.draw(
            queries,
            seats=self.game.seats,
            games_B=games_B,
            key=(config.seed, "training", iteration),
            max_response=config.max_response,
        )

    def team(self, iteration: int) -> Team:
        """The policies of an iteration in their seats, with their learners."""
        return Team(
            learners=self.learners,
            seating=self.seating(iteration),
            order_key=(self.config.seed, "order", iteration),
            algorithm=self.algorithm,
            options=self.config.algorithm_options,
            state=self.state.of_team,
        )

    def names(self, iteration: int) -> dict[str, str]:
        """Who sits in each seat, in the order of play."""
        seating = self.seating(iteration)
        return {seat: seating.get(seat) or self.players[seat].name for seat in self.game.seats}

    def _valued(self, played: dict[str, Batch], clock: Clock) -> dict[str, Batch]:
        """The batches of all seats, with the values of the central critic if there is one."""
        if self.critic is None:
            return played
        with clock.phase("critic"):
            valued = self.critic.value(played)
        if missing := [seat for seat in played if seat not in (valued or ())]:
            raise ValueError(
                f"value of critic.kind {self.config.critic.kind!r} returned no batch of {missing[0]}; return "
                "those of all seats, with values"
            )
        return valued

    def _update_critic(self, advantages: Mapping[str, Advantage], clock: Clock) -> dict[str, float]:
        """The central critic's own epochs, if there is one."""
        if self.critic is None:
            return {}
        with clock.phase("critic"):
            of_critic = self.critic.update(
                {seat: advantage.return_BT for seat, advantage in advantages.items()}
            )
        if not isinstance(of_critic, Mapping):
            raise ValueError(
                f"update of critic.kind {self.config.critic.kind!r} returned {of_critic!r:.80}; return its "
                "metrics by name"
            )
        return {f"all/critic/{quantity}": value for quantity, value in of_critic.items()}

    def save(self, run: Path, iteration: int, *, documents: Mapping[str, str] | None = None) -> Path:
        """Write the checkpoint of the start of `iteration` into a run directory; its folder."""
        return self.state.save(run, iteration, seating=self.seating(iteration), documents=documents or {})

    def load(self, folder: Path) -> dict[str, Any]:
        """Load a checkpoint, bit for bit; its numbers, with the `iteration` that comes next."""
        return self.state.load(folder)
