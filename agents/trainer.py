"""The loop: query, pioneer, observer, rewards, advantage, update, exchange.

Shapes: B games, T response tokens.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents import algorithms, randomness
from agents.advantage import Advantage
from agents.batch import Batch, concat, stack
from agents.build import make_critic, make_learners, make_measures, make_players
from agents.config import Config
from agents.evaluate import Answers, alone
from agents.exchange import exchanges_before, seating_at
from agents.policies.base import Policy
from agents.rewards import Moments
from agents.rollout import Clock, Deal, play
from cory_env.game import Query
from cory_env.vector import VectorGame


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
        self._left: dict[str, object] = {}

    def iterate(self, iteration: int) -> dict[str, float]:
        """Play one batch of games and learn from it; what happened, keyed seat/policy/quantity."""
        clock = Clock()
        seating = self.seating(iteration)
        with clock.phase("exchange"):
            self.begin(iteration)
        batches = play(
            self.game, {s: self.policies[n] for s, n in seating.items()}, self.deal(iteration), clock=clock
        )
        if self.critic is not None:
            with clock.phase("critic"):
                batches = self.critic.value(batches)
        sitting = {name: [seat for seat in seating if seating[seat] == name] for name in self.policies}
        rewards = {}
        for name, seats in sitting.items():
            rewards |= dict(zip(seats, self.learners[name].rewards([batches[s] for s in seats]), strict=True))
        memory = {seat: self.learners[name].memory for seat, name in seating.items()}
        advantages = self.algorithm.advantage(batches, rewards, self.config.algorithm_options, memory)
        updates = {}
        with clock.phase("update"):
            for name, seats in sitting.items():
                updates[name] = self.update(
                    iteration, name, [batches[s] for s in seats], [advantages[s] for s in seats]
                )
        central = {}
        if self.critic is not None:
            with clock.phase("critic"):
                central = self.critic.update({s: told.return_BT for s, told in advantages.items()})
        self._left = {name: policy.fingerprint() for name, policy in self.policies.items()}
        numbers = self.numbers(seating, batches, updates, clock)
        return numbers | {f"all/critic/{quantity}": number for quantity, number in central.items()}

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

    def update(
        self, iteration: int, name: str, batches: list[Batch], advantages: list[Advantage]
    ) -> dict[str, float]:
        """One policy's epochs on the rows of every seat it sat in."""
        batch, advantage = (
            stack(batches),
            Advantage(*(concat(parts) for parts in zip(*advantages, strict=True))),
        )
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
        return {**self.learners[name].update(batch, advantage, orders), "sampler_difference": difference}

    def numbers(
        self,
        seating: Mapping[str, str],
        batches: Mapping[str, Batch],
        updates: Mapping[str, dict[str, float]],
        clock: Clock,
    ) -> dict[str, float]:
        """Everything that is logged of an iteration."""
        told: dict[str, float] = {}
        for seat, name in seating.items():
            batch, score = batches[seat], float(batches[seat].score_B.mean())
            ended_B = torch.isin(
                batch.response_BT.gather(1, batch.response_length_B[:, None] - 1), self._eos(batch)
            )
            kl = float(batch.exact_kl_BT.sum(1).mean())
            seen = {
                "task_reward": score,
                "payoff": float(batch.payoff_B.mean()),
                "kl": kl,
                "kl_sampled": float((batch.old_logprobs_BT - batch.ref_logprobs_BT).sum(1).mean()),
                "combined_reward": score - self.config.kl.coef * kl,
                "response_length": float(batch.response_length_B.double().mean()),
                "eos_share": float(ended_B.double().mean()),
                **updates[name],
            }
            told |= {f"{seat}/{name}/{quantity}": number for quantity, number in seen.items()}
        told |= {f"time/{phase}/seconds": seconds for phase, seconds in clock.seconds.items()}
        tokens = sum(int(batch.response_length_B.sum()) for batch in batches.values())
        told["speed/tokens/per_second"] = tokens / sum(clock.seconds.values())
        return told

    def _eos(self, batch: Batch) -> Tensor:
        return torch.tensor(sorted(self.task.tokenizer.eos), device=batch.response_BT.device)

    def answers(self) -> dict[str, Answers]:
        """Every reference's and policy's answers to held-out queries, alone; the references' are kept."""
        if not self.reference_answers:
            references = {policy.name: policy for policy in self.references.values()}
            self.reference_answers = {name: self._alone(policy) for name, policy in references.items()}
        return self.reference_answers | {name: self._alone(policy) for name, policy in self.policies.items()}

    def _alone(self, policy: Policy) -> Answers:
        return alone(
            policy,
            self.task,
            queries=self.config.evaluation.queries,
            batch=self.config.evaluation.batch,
            max_response=self.config.max_response,
            seed=self.config.evaluation.seed,
            measures=self.measures,
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
                "reference": shown.texts[i],
                **{seat: texts[seat][i] for seat in texts},
                "score": dict(zip(texts, scores_BN[i].tolist(), strict=True)),
                "alone": {name: told.texts[i] for name, told in answers.items()},
                "seating": dict(seating),
            }
            for i, query in enumerate(queries)
        ]

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold beside tensors."""
        return {
            "learners": {
                name: {
                    "kl_coef": learner.kl_coef,
                    "moments": vars(learner.moments),
                    "memory": learner.memory,
                    "version": learner.policy.version,
                }
                for name, learner in self.learners.items()
            }
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Undo `state`."""
        for name, told in state["learners"].items():
            learner = self.learners[name]
            learner.kl_coef, learner.moments = told["kl_coef"], Moments(**told["moments"])
            learner.memory = dict(told["memory"])
            learner.policy.version = told["version"]
