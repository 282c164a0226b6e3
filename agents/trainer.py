"""The loop: query, pioneer, observer, rewards, advantage, update, exchange.

Shapes: B games, T response tokens.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from agents import algorithms, randomness, readings
from agents.advantage import Advantage
from agents.batch import Batch, Rows, concat, stack
from agents.build import make_critic, make_learners, make_measures, make_players
from agents.config import Config
from agents.evaluate import Answers, alone
from agents.exchange import exchanges_before, seating_at
from agents.judges import panel
from agents.passes import joint_of, together
from agents.policies.base import Policy
from agents.rollout import Clock, Deal, play
from agents.stopping import Interrupt, never
from cory_env.game import Query
from cory_env.vector import VectorGame


class Work(NamedTuple):
    """What one policy learns from in an iteration."""

    batch: Batch
    advantage: Advantage
    orders: list[Tensor]
    difference: float
    """Nats by which sampler and learner differ at most on a token."""


class Trainer:
    """Policies, their learners and the game they play."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.task, self.references, self.policies = make_players(config)
        self.learners = make_learners(config, self.policies)
        self.measures = make_measures(config)
        self.algorithm = algorithms.load(config.algorithm)
        self.group = self.algorithm.needs(config.algorithm_options).group
        windows = [policy.window for policy in self.policies.values() if policy.window is not None]
        self.game = VectorGame(
            self.task,
            seats=config.seats,
            views=config.sees,
            payoff=config.payoff_rule,
            max_response=config.max_response,
            window=min(windows, default=None),
        )
        self.critic = make_critic(config, self.references, self.game)
        self.reference_answers: dict[str, Answers] = {}
        self.batches: dict[str, Batch] = {}
        """Those of the iteration at work, for whoever looks into what went wrong."""
        self.learning = False
        """Whether the state is between that of the start and that of the end of an iteration."""
        self._left: dict[str, object] = {}

    def iterate(
        self, iteration: int, *, interrupt: Interrupt = never, interrupt_update: Interrupt = never
    ) -> dict[str, float]:
        """Play one batch of games and learn from it; what happened, keyed seat/policy/quantity.

        `interrupt` is called until learning begins, and may raise: the state is then still that of the start.
        `interrupt_update` is called before every optimiser step.
        """
        clock, seating = Clock(), self.seating(iteration)
        self.batches, self.learning = {}, False
        with clock.phase("exchange"):
            self.begin(iteration)
        at_table = {seat: self.policies[name] for seat, name in seating.items()}
        deal = self.deal(iteration)
        played = play(self.game, at_table, deal, clock=clock, interrupt=interrupt, keeps=self.keeps)
        batches = self.batches = self.valued(played, clock)
        interrupt()
        self.learning = True
        sitting = {name: [seat for seat in seating if seating[seat] == name] for name in self.policies}
        rewards = self.rewards(sitting, batches)
        memory = {seat: self.learners[name].memory for seat, name in seating.items()}
        advantages = self.algorithm.advantage(batches, rewards, self.config.algorithm_options, memory)
        with clock.phase("update"):
            updates = self.update(
                {
                    name: self.work(iteration, name, [(batches[s], advantages[s]) for s in seats])
                    for name, seats in sitting.items()
                },
                interrupt_update,
            )
        central = self.update_critic(advantages, clock)
        self._left = {name: policy.fingerprint() for name, policy in self.policies.items()}
        self.learning = False
        eta, eos = self.config.kl.coef, self.task.tokenizer.eos
        told = readings.of_iteration(seating, batches, updates, clock.seconds, kl_coef=eta, eos=eos)
        return told | central | panel.numbers(self.task)

    def keeps(self, policy: Policy, rows: Rows) -> bool:
        """Whether the pass that values what `policy` wrote is kept for its first step."""
        learner = self.learners[policy.name]
        return self.config.valued_alone and learner.keeps(rows, sharing=len(self.policies))

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

    def begin(self, iteration: int) -> None:
        """Set what the clock decides; make sure that since the last update no weight has moved."""
        for name, left in self._left.items():
            if self.policies[name].fingerprint() != left:
                raise RuntimeError(
                    f"iteration {iteration}: weights of policy {name!r} moved, or were frozen or thawed, "
                    "outside an update; an exchange changes seats, never weights"
                )
        every = self.config.exchange.every
        exchanged = iteration and exchanges_before(iteration, every=every) > exchanges_before(
            iteration - 1, every=every
        )
        for learner in self.learners.values():
            if exchanged and self.config.exchange.reset:
                learner.reset()
            learner.begin(iteration, self.config.iterations)
        self.game.set_payoff(self.config.payoff_rule, iteration=iteration)

    def deal(self, iteration: int) -> Deal:
        """The games of an iteration: a function of the seed and the counter, so there is nothing to save.

        Every train query comes once an epoch, to all games of a group.
        """
        config, train = self.config, self.task.queries("train")
        games_B = np.arange(iteration * config.batch, (iteration + 1) * config.batch)
        drawn_B = games_B // self.group
        queries: list[Query] = []
        for epoch in range(int(drawn_B[0]) // len(train), int(drawn_B[-1]) // len(train) + 1):
            order = randomness.permutation((config.seed, "queries", epoch), len(train))
            here = drawn_B[drawn_B // len(train) == epoch] % len(train)
            queries += [train[int(order[i])] for i in here]
        return Deal(
            queries=queries,
            games_B=games_B,
            key=(config.seed, "training", iteration),
            max_response=config.max_response,
            cap_per_batch=config.cap_per_batch,
        )

    def work(self, iteration: int, name: str, parts: list[tuple[Batch, Advantage]]) -> Work:
        """What one policy learns from: the rows of every seat it sat in, in an order for each epoch."""
        batches, advantages = zip(*parts, strict=True)
        batch = stack(Batch, batches)
        advantage = Advantage(*(concat(columns) for columns in zip(*advantages, strict=True)))
        orders: list[Tensor] = []
        for epoch in range(self.learners[name].epochs):
            key = (self.config.seed, "order", iteration, name, epoch)
            orders.append(
                torch.from_numpy(randomness.permutation(key, len(batch))).to(batch.response_BT.device)
            )
        difference = float((batch.behaviour_logprobs_BT - batch.old_logprobs_BT).abs().max())
        if difference > self.policies[name].tolerance:
            raise ArithmeticError(
                f"iteration {iteration}: sampler and learner disagree by {difference:.2g} nats on a token of "
                f"policy {name!r}; the distribution that is sampled is not the one that is scored"
            )
        return Work(batch, advantage, orders, difference)

    def update(self, works: Mapping[str, Work], interrupt: Interrupt = never) -> dict[str, dict[str, float]]:
        """Every policy's epochs: one policy after another, or all in lockstep where one pass reads them."""
        learners, joint = self.learners, joint_of([self.policies[name] for name in works])
        if joint is None:
            told = {
                name: learners[name].update(*work[:3], interrupt=interrupt) for name, work in works.items()
            }
        else:
            learning = {
                name: learners[name].learning(*work[:3], interrupt=interrupt, sharing=len(works))
                for name, work in works.items()
            }
            told = together(learning, joint)
        return {
            name: {**numbers, "sampler_difference": works[name].difference} for name, numbers in told.items()
        }

    def valued(self, batches: dict[str, Batch], clock: Clock) -> dict[str, Batch]:
        """The batches as they are, or with the values of the central critic."""
        if self.critic is None:
            return batches
        with clock.phase("critic"):
            return self.critic.value(batches)

    def update_critic(self, advantages: Mapping[str, Advantage], clock: Clock) -> dict[str, float]:
        """The central critic's own epochs, where there is one."""
        if self.critic is None:
            return {}
        with clock.phase("critic"):
            told = self.critic.update({seat: advantage.return_BT for seat, advantage in advantages.items()})
        return {f"all/critic/{quantity}": number for quantity, number in told.items()}

    def rewards(self, sitting: Mapping[str, list[str]], batches: Mapping[str, Batch]) -> dict[str, Tensor]:
        """Token rewards of every seat, by the learner of the policy that sits there."""
        told: dict[str, Tensor] = {}
        for name, seats in sitting.items():
            told |= zip(seats, self.learners[name].rewards([batches[s] for s in seats]), strict=True)
        return told

    def answers(
        self, *, interrupt: Interrupt = never, asked: Callable[[str], None] = lambda name: None
    ) -> dict[str, Answers]:
        """Every reference's and policy's answers to held-out queries, alone; the references' are kept.

        `asked` is told the name of each before it begins.
        """
        if not self.reference_answers:
            references = {policy.name: policy for policy in self.references.values()}
            self.reference_answers = {
                name: self._alone(policy, interrupt, asked) for name, policy in references.items()
            }
        return self.reference_answers | {
            name: self._alone(policy, interrupt, asked) for name, policy in self.policies.items()
        }

    def _alone(self, policy: Policy, interrupt: Interrupt, asked: Callable[[str], None]) -> Answers:
        asked(policy.name)
        return alone(
            policy,
            self.task,
            self.config.evaluation,
            max_response=self.config.max_response,
            measures=self.measures,
            interrupt=interrupt,
        )

    def sample_rows(self, iteration: int, answers: Mapping[str, Answers]) -> list[dict[str, Any]]:
        """A few held-out games at full table, beside what each policy and the reference answer alone."""
        shown = answers[self.references[self.config.policy_names[0]].name]
        count = min(self.config.sample_rows, len(shown.texts))
        seed = self.config.evaluation.seed
        queries = list(self.task.queries("test")[:count])
        deal = Deal(
            queries=queries,
            games_B=np.arange(count),
            key=(seed, "samples", 0),
            max_response=self.config.max_response,
        )
        seating = self.seating(iteration)
        play(self.game, {seat: self.policies[name] for seat, name in seating.items()}, deal, clock=Clock())
        scores_BN, texts = self.game.scores(), {seat: self.game.texts(seat) for seat in self.game.seats}
        return [
            {
                "query": query.text,
                "reference": shown.texts[i][0],
                **{seat: texts[seat][i] for seat in texts},
                "score": dict(zip(texts, scores_BN[i].tolist(), strict=True)),
                "alone": {name: told.texts[i][0] for name, told in answers.items()},
                "seating": dict(seating),
            }
            for i, query in enumerate(queries)
        ]

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold beside tensors."""
        return {"learners": {name: learner.state() for name, learner in self.learners.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Undo `state`."""
        for name, told in state["learners"].items():
            self.learners[name].restore(told)
