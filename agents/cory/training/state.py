"""What learning changes, in memory and in checkpoints: weights, optimisers, averages, algorithm states."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cory.distributed import ranks, sharding
from cory.learner.central_critic import CentralCritic
from cory.learner.learner import Learner
from cory.learner.moving_average import MovingAverage
from cory.policies.base import Policy
from cory.runtime.memory import MemoryBudget
from cory.training import checkpoint
from cory.training.snapshot import Snapshot, restore_tensors, take_snapshot


class TrainedState:
    """The state of a run's learners, of its algorithm and of its central critic, if it has one."""

    def __init__(
        self,
        learners: Mapping[str, Learner],
        models: Sequence[Policy],
        *,
        of_team: Any,
        critic: CentralCritic | None,
    ) -> None:
        """`models` are all policies and references, `of_team` what the algorithm keeps for the team."""
        self.learners, self.models, self.of_team, self.critic = learners, models, of_team, critic

    @property
    def memory(self) -> MemoryBudget:
        """Memory that passes may take: one budget for all models."""
        return self.models[0].memory

    def use_memory(self, budget: MemoryBudget) -> None:
        """Give all models this budget for their passes."""
        for model in self.models:
            model.budget = budget

    @property
    def averages(self) -> dict[str, MovingAverage]:
        """The moving average of each policy's weights, of those that have one."""
        return {name: one.ema for name, one in self.learners.items() if one.ema is not None}

    def numbers(self) -> dict[str, Any]:
        """What a checkpoint must hold beside tensors."""
        return {
            "learners": {name: learner.state() for name, learner in self.learners.items()},
            "memory_budget": self.memory.state(),
        }

    def of_algorithm(self) -> dict[str, Any]:
        """What the algorithm keeps for each policy and the team, and averages of weights: with tensors."""
        policies = {name: one.algorithm_state.state_dict() for name, one in self.learners.items()}
        averages = {
            kind: {name: average.state_dict() for name, average in of_kind.items()}
            for kind, of_kind in self._averages().items()
        }
        return {"policies": policies, "team": self.of_team.state_dict(), **averages}

    def _averages(self) -> dict[str, dict[str, MovingAverage]]:
        """Moving averages of weights by kind and policy."""
        learners = self.learners.items()
        return {
            "elastic": {name: one.elastic for name, one in learners if one.elastic is not None},
            "ema": self.averages,
        }

    def _restore(self, numbers: Mapping[str, Any], of_algorithm: Mapping[str, Any]) -> None:
        """Load what `numbers` and `of_algorithm` returned."""
        for name, of_learner in numbers["learners"].items():
            self.learners[name].restore(of_learner)
        self.use_memory(MemoryBudget(**numbers["memory_budget"]))
        for name, state in of_algorithm["policies"].items():
            self.learners[name].algorithm_state.load_state_dict(state)
        self.of_team.load_state_dict(of_algorithm["team"])
        for kind, of_kind in self._averages().items():
            for name, average in of_kind.items():
                average.load_state_dict(of_algorithm[kind][name])

    def save(
        self, run: Path, iteration: int, *, seating: Mapping[str, str], documents: Mapping[str, str]
    ) -> Path:
        """Write the checkpoint of the start of `iteration` into a run directory; its folder."""
        return checkpoint.save(
            run,
            iteration,
            self.learners,
            self.numbers() | {"seating": dict(seating)},
            algorithm=self.of_algorithm(),
            critic=self.critic,
            documents=documents,
        )

    def load(self, folder: Path) -> dict[str, Any]:
        """Load a checkpoint, bit for bit; its numbers, with the `iteration` that comes next."""
        numbers, of_algorithm = checkpoint.load(folder, self.learners, critic=self.critic)
        self._restore(numbers, of_algorithm)
        return numbers

    def snapshot(self) -> Snapshot | None:
        """A copy in main memory; None if that is too large, or if this rank holds only a part."""
        return take_snapshot(self.learners, self.numbers(), self.of_algorithm())

    def revert(self, snapshot: Snapshot) -> None:
        """Return to `snapshot`, in place."""
        restore_tensors(self.learners, snapshot)
        self._restore(snapshot.numbers, snapshot.of_algorithm)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Weights and optimisers are whole on every rank inside; all ranks must enter it together."""
        with ExitStack() as stack:
            for learner in self.learners.values():
                stack.enter_context(learner.policy.whole_weights())
                stack.enter_context(sharding.whole_moments(learner.optimizer))
            yield

    def check_ranks(self, iteration: int) -> None:
        """Raise RuntimeError unless all ranks hold the same weights and optimisers, bit for bit."""
        if ranks.count() == 1:
            return
        held = {
            name: ranks.checksums(sharding.unshared(one.trainable, one.optimizer))
            for name, one in self.learners.items()
        }
        for other, theirs in enumerate(everywhere := ranks.of_all("the weights", held)):
            if differing := [name for name in held if theirs[name] != everywhere[0][name]]:
                raise RuntimeError(
                    f"iteration {iteration}: policy {differing[0]!r} differs between ranks 0 and {other}; go "
                    "on from the newest checkpoint, which was written when all were equal"
                )
