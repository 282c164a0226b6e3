"""One iteration: query, pioneer, observer, rewards, advantage, update, exchange.

Shapes: B games, T response tokens.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
from cory.evaluation import averaging
from cory.evaluation.averaging import averaged
from cory.evaluation.evaluator import Responses
from cory.functional.advantage import Advantage
from cory.judges import weighted_sum
from cory.learner import sharing
from cory.learner.learner import Learner
from cory.learner.team import Team, check_advantages, checked_updates
from cory.policies.base import Policy
from cory.rollout.role_exchange import exchanges_before, seating_at
from cory.rollout.rollout import play_shared
from cory.rollout.spec import RolloutSpec
from cory.runtime.clock import Clock
from cory.runtime.device import synchronize
from cory.runtime.memory import agree_on_smallest
from cory.runtime.signals import Interrupt, never
from cory.training import metrics
from cory.training.factory import (
    check_lengths,
    compile_blocks,
    make_critic,
    make_game,
    make_learners,
    make_players,
    resolved,
    share_out,
)
from cory.training.held_out import HeldOut
from cory.training.snapshot import Snapshot
from cory.training.state import TrainedState
from cory_env.grading.reward_functions import CaseJudge, Judge
from cory_env.tasks.base import Task, validation_queries
from cory_env.types import Query


class Trainer:
    """Policies, their learners and the game they play."""

    def __init__(
        self,
        config: Config,
        *,
        task: Task | None = None,
        policies: Mapping[str, Policy] | None = None,
        judge: Judge | CaseJudge | None = None,
        learners: Mapping[str, Learner] | None = None,
    ) -> None:
        """Objects that are given take the place of what the settings say."""
        ranks.join()
        if config.shard and ranks.count() == 1:
            raise ValueError(
                "--shard shares weights out among processes and this is the only one; start several with "
                "torchrun or accelerate launch, or leave it out"
            )
        players = make_players(config, task=task, policies=policies, judge=judge)
        self.task, self.references, self.policies = players
        agree_on_smallest(next(iter(self.policies.values())).memory)
        self.config = config = resolved(config, players)
        self.game = make_game(config, self.task, self.policies)
        check_lengths(self.game, self.policies)
        weighted_sum.check(self.task)
        if config.policy.compile == "yes":
            compile_blocks(players)
        if config.shard:
            share_out(self.references, self.policies)
        self.learners = dict(learners) if learners is not None else make_learners(config, self.policies)
        self.algorithm = algorithms.load(config.algorithm)
        self.group = self.algorithm.needs(config.algorithm_options).group
        self.critic = make_critic(config, self.references, self.game)
        self.held_out = HeldOut(config, self.task, self.game)
        models = [*self.policies.values(), *self.references.values()]
        of_team = self.algorithm.team_state(self.learners, config.algorithm_options)
        self.state = TrainedState(self.learners, models, of_team=of_team, critic=self.critic)
        self.batches: dict[str, Batch] = {}
        """Batches of the current iteration, for error reports."""
        self.learning = False
        """Whether an update is in progress: the state is then neither that of its start nor of its end."""
        self._fingerprints: dict[str, object] = {}

    def iterate(
        self,
        iteration: int,
        *,
        interrupt: Interrupt = never,
        interrupt_update: Interrupt = never,
        on_phase: Callable[[str], None] = lambda phase: None,
    ) -> dict[str, float]:
        """Play one batch of games and learn from it; its metrics, keyed seat/policy/quantity.

        `interrupt` is called until learning begins and may raise: the state is then still that of the start.
        `interrupt_update` is called before every optimiser step, `on_phase` as a phase begins.
        """
        clock = Clock(on_phase=on_phase, wait=partial(synchronize, next(iter(self.policies.values())).device))
        seating, spec = self.seating(iteration), self.spec(iteration)
        self.batches, self.learning = {}, False
        with clock.phase("exchange"):
            self.begin_iteration(iteration)
        batches = play_shared(self.game, self.seated(seating), spec, clock=clock, interrupt=interrupt)
        self.batches = batches = self.with_critic_values(batches, clock)
        ranks.agreed("the end of the games", interrupt)
        self.learning = True
        team = self.team(iteration, seating, partial(ranks.agreed, "a step", interrupt_update))
        advantages = self.advantages(team, batches)
        team = replace(team, checked=advantages)
        if self.config.sharing.same_view or self.config.sharing.both_views:
            with clock.phase("share"):
                team = replace(team, shared=self.shared(team, batches))
        with clock.phase("update"):
            data = {name: team.data(name, batches, advantages) for name in self.learners}
            updates: dict[str, dict[str, float]] = {}
            if self.algorithm.update_all is not None:
                options = self.config.algorithm_options
                updates = checked_updates(self.algorithm.update_all(team, batches, advantages, options), team)
            else:
                for name, learner in self.learners.items():
                    updates[name] = learner.update(*data[name][:3], interrupt=team.interrupt)
            for name in updates:
                updates[name]["sampler_difference"] = data[name].sampler_difference
        of_critic = self.update_critic(advantages, clock)
        for learner in self.learners.values():
            learner.end_iteration(iteration)
        self._note_fingerprints()
        self.learning = False
        eta, eos = self.config.kl.coef, self.task.tokenizer.eos
        found = metrics.iteration_metrics(
            seating, batches, advantages, updates, clock.seconds, kl_coef=eta, eos=eos, group=self.group
        )
        return found | of_critic | weighted_sum.metrics(self.task)

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

    def _note_fingerprints(self) -> None:
        """Note the weights as they are; `begin_iteration` finds changes since."""
        self._fingerprints = {name: policy.fingerprint() for name, policy in self.policies.items()}

    def seating(self, iteration: int) -> Mapping[str, str]:
        """Which policy sits in which seat."""
        exchange = self.config.exchange
        return seating_at(
            iteration,
            every=exchange.every,
            seats=self.game.seats,
            first=self.config.policy_names,
            order=exchange.order,
            random_key=(self.config.seed,) if exchange.order == "random" else None,
        )

    def seated(self, seating: Mapping[str, str]) -> dict[str, Policy]:
        """The policy in each seat."""
        return {seat: self.policies[name] for seat, name in seating.items()}

    def exchanged(self, iteration: int) -> bool:
        """Whether seats change at the start of `iteration`."""
        every = self.config.exchange.every
        return iteration > 0 and exchanges_before(iteration, every=every) > exchanges_before(
            iteration - 1, every=every
        )

    def begin_iteration(self, iteration: int) -> None:
        """Set what depends on the iteration; RuntimeError if a weight has changed since the last update."""
        for name, fingerprint in self._fingerprints.items():
            if self.policies[name].fingerprint() != fingerprint:
                raise RuntimeError(
                    f"iteration {iteration}: weights of policy {name!r} changed, or were frozen or unfrozen, "
                    "outside an update; an exchange changes seats, never weights"
                )
        resets = self.config.exchange.reset and self.exchanged(iteration)
        if resets and self.critic is not None:
            self.critic.reset()
        for learner in self.learners.values():
            if resets:
                learner.reset()
            learner.begin_iteration(iteration, self.config.iterations)
        self.game.set_payoff(self.config.payoff_rule, iteration=iteration)

    def spec(self, iteration: int) -> RolloutSpec:
        """The games of an iteration: a function of the seed and the counter, so there is nothing to save.

        Every train query occurs once an epoch, for all games of a group.
        """
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
            games_B=games_B - (iteration - self.rng_iteration(iteration)) * config.batch,
            key=(config.seed, "training", self.rng_iteration(iteration)),
            max_response=config.max_response,
            cap_per_batch=config.cap_per_batch,
        )

    def rng_iteration(self, iteration: int) -> int:
        """The iteration in random keys: with `exchange.restart_rng`, since the last exchange."""
        exchange = self.config.exchange
        return iteration % exchange.every if exchange.restart_rng and exchange.every else iteration

    def team(self, iteration: int, seating: Mapping[str, str], interrupt: Interrupt = never) -> Team:
        """The policies of an iteration in their seats, with their learners."""
        key = (self.config.seed, "order", self.rng_iteration(iteration))
        return Team(
            learners=self.learners,
            seating=seating,
            order_key=key,
            algorithm=self.config.algorithm,
            state=self.state.of_team,
            interrupt=interrupt,
        )

    def advantages(self, team: Team, batches: Mapping[str, Batch]) -> dict[str, Advantage]:
        """Advantages of every seat by the algorithm; ValueError for results that do not fit the batches."""
        states = {seat: self.learners[name].algorithm_state for seat, name in team.seating.items()}
        options, name = self.config.algorithm_options, self.config.algorithm
        rewards = team.rewards(batches)
        found = self.algorithm.advantage(batches, rewards, options, states)
        where = f"algorithm {name!r}: the advantage hook returned"
        check_advantages(found, batches, where, rewards=rewards)
        for policy, learner in self.learners.items():
            check_state(learner.algorithm_state, policy, name)
        check_state(self.state.of_team, "the team", name)
        return found

    def shared(self, team: Team, batches: Mapping[str, Batch]) -> sharing.Shared:
        """What each policy learns from beside its own rows."""
        options = self.config.algorithm_options
        return sharing.shared_rows(team, batches, self.algorithm, options, self.config.sharing)

    def with_critic_values(self, batches: dict[str, Batch], clock: Clock) -> dict[str, Batch]:
        """The batches with the central critic's values, or as they are without one."""
        if self.critic is None:
            return batches
        with clock.phase("critic"):
            return self.critic.value(batches)

    def update_critic(self, advantages: Mapping[str, Advantage], clock: Clock) -> dict[str, float]:
        """The central critic's own epochs, if there is one."""
        if self.critic is None:
            return {}
        with clock.phase("critic"):
            found = self.critic.update({seat: one.return_BT for seat, one in advantages.items()})
        return {f"all/critic/{quantity}": value for quantity, value in found.items()}

    def evaluate(
        self, *, interrupt: Interrupt = never, on_policy: Callable[[str], None] = lambda name: None
    ) -> dict[str, Responses]:
        """Responses of every reference and policy to held-out queries, query only.

        The references' are computed once, and are those of every policy that equals its reference. Where
        policies start from several models, `reference_<policy>` are those of each. `on_policy` is called
        with each name before it begins.
        """
        evaluate = partial(self.held_out.standalone, interrupt=interrupt, on_policy=on_policy)
        references: dict[str, Policy] = {one.name: one for one in self.references.values()}
        if len(references) > 1:
            references = {f"reference_{name}": one for name, one in self.references.items()}
        found = evaluate(references | self.policies)
        if self.state.averages or (self.config.evaluation.average and len(self.policies) > 1):
            with self.average() as average:
                found |= evaluate({averaging.NAME: average})
        return found

    @contextmanager
    def average(self) -> Iterator[Policy]:
        """The mean of the policies' weights, or of their moving averages; their own are back after it."""
        moving = [one.average for one in self.state.averages.values()]
        with averaged(list(self.policies.values()), columns=moving) as average:
            yield average
        self._note_fingerprints()  # the weights were away, and are back

    def evaluate_team(self, iteration: int, *, interrupt: Interrupt = never) -> dict[str, Responses]:
        """Responses of every seat in games on the held-out queries, seated as in `iteration`."""
        return self.held_out.team(self.seated(self.seating(iteration)), interrupt=interrupt)

    def validate(
        self, *, interrupt: Interrupt = never, on_policy: Callable[[str], None] = lambda name: None
    ) -> dict[str, Responses]:
        """Responses of every policy to the validation queries, for choices; empty for a task without any."""
        if not validation_queries(self.task):
            return {}
        return self.held_out.standalone(
            self.policies, split="validation", interrupt=interrupt, on_policy=on_policy
        )

    @property
    def validation_count(self) -> int:
        """Validation queries that choices are made on."""
        return min(len(validation_queries(self.task)), self.config.evaluation.queries)

    def sample_rows(self, iteration: int, responses: Mapping[str, Responses]) -> list[dict[str, Any]]:
        """A few held-out games, beside each policy's and the reference's standalone responses."""
        seating, reference = self.seating(iteration), self.references[self.config.policy_names[0]].name
        return self.held_out.sample_rows(self.seated(seating), seating, responses, reference=reference)

    def save(self, run: Path, iteration: int, *, documents: Mapping[str, str] | None = None) -> Path:
        """Write the checkpoint of the start of `iteration` into a run directory; its folder."""
        return self.state.save(run, iteration, seating=self.seating(iteration), documents=documents or {})

    def load(self, folder: Path) -> dict[str, Any]:
        """Load a checkpoint, bit for bit; its numbers, with the `iteration` that comes next."""
        return self.state.load(folder)

    def revert(self, snapshot: Snapshot) -> None:
        """Return to the state of `snapshot`, in place; an update that was in progress is undone."""
        self.state.revert(snapshot)
        self._fingerprints, self.learning = {}, False
