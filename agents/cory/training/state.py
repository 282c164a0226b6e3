"""What learning changes, in memory and in checkpoints: weights, optimisers, averages, algorithm states."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cory.distributed import ranks, sharding
from cory.learner.central_critic import CentralCritic
from cory.learner.learner import Learner
from cory.learner.moving_average import MovingAverage
from cory.runtime.memory import MemoryBudget
from cory.training import checkpoint


class TrainedState:
    """The state of a run's learners, of its algorithm and of its central critic, if it has one."""

    def __init__(
        self,
        learners: Mapping[str, Learner],
        memory: MemoryBudget,
        *,
        of_team: Any,
        critic: CentralCritic | None,
    ) -> None:
        """`memory` is the budget that all models share, `of_team` what the algorithm keeps for the team."""
        self.learners, self.memory, self.of_team, self.critic = learners, memory, of_team, critic

    def averages(self) -> dict[str, dict[str, MovingAverage]]:
        """Moving averages of weights by kind, `elastic` and `ema`, and policy."""
        learners = self.learners.items()
        return {
            "elastic": {name: learner.elastic for name, learner in learners if learner.elastic is not None},
            "ema": {name: learner.ema for name, learner in learners if learner.ema is not None},
        }

    def numbers(self) -> dict[str, Any]:
        """What a checkpoint must hold beside tensors."""
        return {
            "learners": {name: learner.state() for name, learner in self.learners.items()},
            "memory_budget": self.memory.state(),
        }

    def save(
        self, run: Path, iteration: int, *, seating: Mapping[str, str], documents: Mapping[str, str]
    ) -> Path:
        """Write the checkpoint of the start of `iteration` into a run directory; its folder."""
        averages = {
            kind: {name: average.state_dict() for name, average in of_kind.items()}
            for kind, of_kind in self.averages().items()
        }
        policies = {name: learner.algorithm_state.state_dict() for name, learner in self.learners.items()}
        return checkpoint.save(
            run,
            iteration,
            self.learners,
            self.numbers() | {"seating": dict(seating)},
            algorithm={"policies": policies, "team": self.of_team.state_dict(), **averages},
            critic=self.critic,
            documents=documents,
        )

    def load(self, folder: Path) -> dict[str, Any]:
        """Load a checkpoint, bit for bit; its numbers, with the `iteration` that comes next."""
        numbers, of_algorithm = checkpoint.load(folder, self.learners, critic=self.critic)
        for name, of_learner in numbers["learners"].items():
            self.learners[name].restore(of_learner)
        self.memory.restore(numbers["memory_budget"])
        for name, state in of_algorithm["policies"].items():
            self.learners[name].algorithm_state.load_state_dict(state)
        self.of_team.load_state_dict(of_algorithm["team"])
        for kind, of_kind in self.averages().items():
            for name, average in of_kind.items():
                average.load_state_dict(of_algorithm[kind][name])
        return numbers

    @contextmanager
    def unsharded(self) -> Iterator[None]:
        """Weights and optimisers are whole on every rank inside; all ranks must enter it together."""
        with ExitStack() as stack:
            for learner in self.learners.values():
                stack.enter_context(learner.policy.unsharded())
                stack.enter_context(sharding.whole_moments(learner.optimizer))
            yield

    def check_ranks(self, iteration: int) -> None:
        """Raise RuntimeError unless all ranks hold the same weights and optimisers, bit for bit."""
        if ranks.count() == 1:
            return
        held = {
            name: ranks.checksums(sharding.unshared(learner.trainable, learner.optimizer))
            for name, learner in self.learners.items()
        }
        for other, theirs in enumerate(everywhere := ranks.gather_object("the weights", held)):
            if differing := [name for name in held if theirs[name] != everywhere[0][name]]:
                raise RuntimeError(
                    f"iteration {iteration}: policy {differing[0]!r} differs between ranks 0 and {other}; go "
                    "on from the newest checkpoint, which was written when all were equal"
                )
