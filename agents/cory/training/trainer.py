"""One iteration: query, pioneer, observer, rewards, advantage, update, exchange.

Shapes: B games, T response tokens.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cory import algorithms, rng
from cory.batch import Batch, concat, stack
from cory.config.schema import Config
from cory.evaluation import averaging
from cory.evaluation.averaging import averaged
from cory.evaluation.evaluator import Responses, Split, evaluate_in_game, evaluate_standalone
from cory.functional.advantage import Advantage
from cory.judges import weighted_sum
from cory.learner.learner import Learner
from cory.policies.base import Policy
from cory.rollout.role_exchange import exchanges_before, seating_at
from cory.rollout.rollout import play
from cory.rollout.spec import RolloutSpec
from cory.runtime.clock import Clock
from cory.runtime.memory import MemoryBudget, memory_budget
from cory.runtime.signals import Interrupt, never
from cory.training import metrics
from cory.training.factory import make_critic, make_game, make_learners, make_measures, make_players
from cory.training.snapshot import Snapshot, check_states, restore_tensors
from cory_env.grading.reward_functions import CaseJudge, Judge
from cory_env.tasks.base import Task, validation_queries
from cory_env.types import Query


class LearningData(NamedTuple):
    """What one policy learns from in an iteration."""

    batch: Batch
    advantage: Advantage
    orders: list[Tensor]
    """A permutation of the rows per epoch."""
    sampler_difference: float
    """Largest difference in nats between sampler and learner on a token."""


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
        self.config = config
        self.task, self.references, self.policies = make_players(
            config, task=task, policies=policies, judge=judge
        )
        self.use_memory(memory_budget(next(iter(self.policies.values())).device))
        self.learners = dict(learners) if learners is not None else make_learners(config, self.policies)
        self.measures = make_measures(config)
        self.algorithm = algorithms.load(config.algorithm)
        self.group = self.algorithm.needs(config.algorithm_options).group
        self.game = make_game(config, self.task, self.policies)
        self.critic = make_critic(config, self.references, self.game)
        self.reference_responses: dict[str, Responses] = {}
        self.batches: dict[str, Batch] = {}
        """Batches of the current iteration, for error reports."""
        self.learning = False
        """Whether an update is in progress: the state is then neither that of its start nor of its end."""
        self._fingerprints: dict[str, object] = {}

    def iterate(
        self, iteration: int, *, interrupt: Interrupt = never, interrupt_update: Interrupt = never
    ) -> dict[str, float]:
        """Play one batch of games and learn from it; its metrics, keyed seat/policy/quantity.

        `interrupt` is called until learning begins and may raise: the state is then still that of the start.
        `interrupt_update` is called before every optimiser step.
        """
        clock, seating, spec = Clock(), self.seating(iteration), self.spec(iteration)
        self.batches, self.learning = {}, False
        with clock.phase("exchange"):
            self.begin_iteration(iteration)
        policies_by_seat = {seat: self.policies[name] for seat, name in seating.items()}
        batches = play(self.game, policies_by_seat, spec, clock=clock, interrupt=interrupt)
        self.batches = batches = self.with_critic_values(batches, clock)
        interrupt()
        self.learning = True
        rewards = self.rewards(seating, batches)
        states = {seat: self.learners[name].algorithm_state for seat, name in seating.items()}
        advantages = self.algorithm.advantage(batches, rewards, self.config.algorithm_options, states)
        check_states(states, self.config.algorithm)
        updates: dict[str, dict[str, float]] = {}
        with clock.phase("update"):
            learning_data = {  # of all policies before any weight moves
                name: self.learning_data(iteration, name, seating, batches, advantages)
                for name in self.learners
            }
            for name, data in learning_data.items():
                updates[name] = self.learners[name].update(*data[:3], interrupt=interrupt_update)
                updates[name]["sampler_difference"] = data.sampler_difference
        of_critic = self.update_critic(advantages, clock)
        self._note_fingerprints()
        self.learning = False
        eta, eos = self.config.kl.coef, self.task.tokenizer.eos
        found = metrics.iteration_metrics(
            seating, batches, advantages, updates, clock.seconds, kl_coef=eta, eos=eos
        )
        return found | of_critic | weighted_sum.metrics(self.task)

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
            random_key=(self.config.seed,) if exchange.order == "random" else None,
        )

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

    def learning_data(
        self,
        iteration: int,
        name: str,
        seating: Mapping[str, str],
        batches: Mapping[str, Batch],
        advantages: Mapping[str, Advantage],
    ) -> LearningData:
        """What one policy learns from: the rows of every seat it sat in, in an order for each epoch."""
        seats = [seat for seat in seating if seating[seat] == name]
        batch = stack(Batch, [batches[seat] for seat in seats])
        columns = zip(*(advantages[seat] for seat in seats), strict=True)
        key = (self.config.seed, "order", self.rng_iteration(iteration))
        orders = [
            torch.from_numpy(rng.permutation((*key, name, epoch), len(batch)))
            for epoch in range(self.learners[name].epochs)
        ]
        difference = float((batch.behaviour_logprobs_BT - batch.old_logprobs_BT).abs().max())
        if difference > self.policies[name].tolerance:
            raise ArithmeticError(
                f"iteration {iteration}: sampler and learner disagree by {difference:.2g} nats on a token of "
                f"policy {name!r}; the distribution that is sampled is not the one that is scored"
            )
        device = batch.response_BT.device
        advantage = Advantage(*(concat(column) for column in columns))
        return LearningData(batch, advantage, [order_B.to(device) for order_B in orders], difference)

    def rewards(self, seating: Mapping[str, str], batches: Mapping[str, Batch]) -> dict[str, Tensor]:
        """Token rewards of every seat, by the learner of the policy that sits there."""
        rewards: dict[str, Tensor] = {}
        for name, learner in self.learners.items():
            seats = [seat for seat in seating if seating[seat] == name]
            rewards |= zip(seats, learner.rewards([batches[seat] for seat in seats]), strict=True)
        return {seat: rewards[seat] for seat in seating}

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

        The references' are computed once. `on_policy` is called with each name before it begins.
        """
        if not self.reference_responses:
            references = {policy.name: policy for policy in self.references.values()}
            self.reference_responses = {
                name: self._evaluate(policy, interrupt, on_policy) for name, policy in references.items()
            }
        found = self.reference_responses | {
            name: self._evaluate(policy, interrupt, on_policy) for name, policy in self.policies.items()
        }
        if self.config.evaluation.average and len(self.policies) > 1:
            with averaged(list(self.policies.values())) as average:
                found[averaging.NAME] = self._evaluate(average, interrupt, on_policy)
            self._note_fingerprints()  # the weights were away, and are back
        return found

    def evaluate_team(self, iteration: int, *, interrupt: Interrupt = never) -> dict[str, Responses]:
        """Responses of every seat in games on the held-out queries, seated as in `iteration`."""
        seating = self.seating(iteration)
        return evaluate_in_game(
            self.game,
            {seat: self.policies[name] for seat, name in seating.items()},
            self.config.evaluation,
            measures=self.measures,
            interrupt=interrupt,
        )

    def validate(
        self, *, interrupt: Interrupt = never, on_policy: Callable[[str], None] = lambda name: None
    ) -> dict[str, Responses]:
        """Responses of every policy to the validation queries, for choices; empty for a task without any."""
        if not validation_queries(self.task):
            return {}
        return {
            name: self._evaluate(policy, interrupt, on_policy, split="validation")
            for name, policy in self.policies.items()
        }

    def _evaluate(
        self,
        policy: Policy,
        interrupt: Interrupt,
        on_policy: Callable[[str], None],
        *,
        split: Split = "test",
    ) -> Responses:
        on_policy(policy.name)
        return evaluate_standalone(
            policy,
            self.task,
            self.config.evaluation,
            max_response=self.config.max_response,
            measures=self.measures,
            split=split,
            interrupt=interrupt,
        )

    def sample_rows(self, iteration: int, responses: Mapping[str, Responses]) -> list[dict[str, Any]]:
        """A few held-out games, beside each policy's and the reference's standalone responses."""
        reference = responses[self.references[self.config.policy_names[0]].name]
        count = min(self.config.sample_rows, len(reference.texts))
        queries = list(self.task.queries("test")[:count])
        spec = RolloutSpec.draw(
            queries,
            seats=self.game.seats,
            games_B=np.arange(count),
            key=(self.config.evaluation.seed, "samples", 0),
            max_response=self.config.max_response,
        )
        seating = self.seating(iteration)
        play(self.game, {seat: self.policies[name] for seat, name in seating.items()}, spec, clock=Clock())
        scores_BN, texts = self.game.scores(), {seat: self.game.texts(seat) for seat in self.game.seats}
        return [
            {
                "query": query.text,
                "reference": reference.texts[i][0],
                **{seat: texts[seat][i] for seat in texts},
                "score": dict(zip(texts, scores_BN[i].tolist(), strict=True)),
                "eval": {name: found.texts[i][0] for name, found in responses.items()},
                "seating": dict(seating),
            }
            for i, query in enumerate(queries)
        ]

    def use_memory(self, budget: MemoryBudget) -> None:
        """Give all policies and references this budget for their passes."""
        for policy in (*self.policies.values(), *self.references.values()):
            policy.budget = budget

    def revert(self, snapshot: Snapshot) -> None:
        """Return to the state of `snapshot`, in place; an update that was in progress is undone."""
        restore_tensors(self.learners, snapshot)
        self.restore(snapshot.state)
        self._fingerprints, self.learning = {}, False

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold beside tensors."""
        budget = next(iter(self.policies.values())).memory
        return {
            "learners": {name: learner.state() for name, learner in self.learners.items()},
            "memory_budget": budget.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load what `state` returned."""
        for name, of_learner in state["learners"].items():
            self.learners[name].restore(of_learner)
        self.use_memory(MemoryBudget(**state["memory_budget"]))
