"""IPPO of TorchRL trains two language models: the pocket LM in both seats solves sums step by step.

    python examples/torchrl_llm.py

Each seat is a group with its own copy of the pretrained model, `IPPOLoss` and optimizer; both are paid the
sum of the scores. At first half of the responses guess the sum; those that write the steps are right.

Shapes: R rows, D width of the model, V vocabulary; `..` environments and steps.
"""

import argparse
import copy
from collections.abc import Iterator

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import Tensor, nn
from torchrl.envs import ExplorationType, PettingZooWrapper, SerialEnv, set_exploration_type
from torchrl.modules import ProbabilisticActor
from torchrl.objectives.multiagent import IPPOLoss
from torchrl.objectives.value.functional import reward2go

from cory import pocket
from cory.interop.language_model import next_token_states
from cory.policies.causal_lm import CausalLMPolicy
from cory_env import parallel_env, seat_names
from cory_env.tasks.arithmetic import Task
from cory_env.tokenizer import HFTokenizer

SEATS = seat_names(2)
CAP = 18  # tokens of the longest correct response to three numbers of one digit


class NextToken(nn.Module):
    """Logits [.., V] and states [.., D] from which the next token is predicted; zeros while a seat waits."""

    def __init__(self, policy: CausalLMPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, ids: Tensor, acting: Tensor) -> tuple[Tensor, Tensor]:
        chosen = acting > 0
        state_RD = next_token_states(self.policy, ids[chosen])
        state = torch.zeros(*chosen.shape, state_RD.shape[1]).masked_scatter(chosen[..., None], state_RD)
        return self.policy.logits(state), state.detach()


class Learner:
    """One seat: the model as TorchRL's actor, a critic on its states, IPPO's loss, an optimizer."""

    def __init__(self, seat: str, policy: CausalLMPolicy, *, lr: float) -> None:
        self.seat, self.policy = seat, policy
        rows = [(seat, "observation"), (seat, "info", "acting")]
        self.actor = ProbabilisticActor(
            TensorDictModule(NextToken(policy), rows, [(seat, "logits"), (seat, "state")]),
            in_keys={"logits": (seat, "logits")},
            out_keys=[(seat, "action")],
            distribution_class=torch.distributions.Categorical,
            return_log_prob=True,
        )
        critic = TensorDictModule(policy.value_head, [(seat, "state")], [(seat, "state_value")])
        self.loss = IPPOLoss(self.actor, critic, entropy_bonus=False, normalize_advantage=True)
        self.loss.set_keys(
            action=(seat, "action"), sample_log_prob=(seat, "action_log_prob"), value=(seat, "state_value"),
            advantage=(seat, "advantage"), value_target=(seat, "value_target"),
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.loss.parameters(), lr=lr)

    def update(self, batch: TensorDictBase, *, epochs: int) -> None:
        """Learn from the seat's own rows of the games that ended."""
        ended = batch["next", "done"].flip(1).cumsum(1).flip(1) > 0
        done = batch["next", "done"].unsqueeze(-1)
        target = reward2go(batch["next", self.seat, "reward"], done, gamma=1.0, time_dim=1)
        value = self.policy.value_head(batch[self.seat, "state"]).detach()
        batch[self.seat, "value_target"], batch[self.seat, "advantage"] = target, target - value
        rows = batch[(batch[self.seat, "info", "acting"] > 0).squeeze(-1) & ended.squeeze(-1)]
        for _ in range(epochs):
            terms = self.loss(rows)
            self.optimizer.zero_grad()
            (terms["loss_objective"] + terms["loss_critic"]).backward()
            nn.utils.clip_grad_norm_(self.loss.parameters(), 1.0)
            self.optimizer.step()


def train(*, iterations: int, seed: int, steps: int = 100, lr: float = 1e-4) -> Iterator[dict[str, float]]:
    """The mean score of each seat in the games of every iteration, before its update."""
    torch.manual_seed(seed)
    first = CausalLMPolicy.load("pocket", pocket.ARITHMETIC_LM)
    tokenizer = HFTokenizer(first.tokenizer, eos=first.eos, vocab_size=first.vocab_size)
    task = Task(tokenizer, worked=True, digits=1, terms=3, signs="+-")
    groups = {seat: [seat] for seat in SEATS}
    env = SerialEnv(16, lambda: PettingZooWrapper(parallel_env(task, max_response=CAP), group_map=groups))
    env.set_seed(seed)
    learners = [Learner(seat, copy.deepcopy(first), lr=lr) for seat in SEATS]
    actors = TensorDictSequential(*(learner.actor for learner in learners))
    for _ in range(iterations):
        with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
            batch = env.rollout(steps, actors, break_when_any_done=False)
        over = batch["next", "done"].squeeze(-1)
        yield {seat: float(batch["next", seat, "info", "score"][over].mean()) for seat in SEATS}
        for learner in learners:
            learner.update(batch, epochs=4)


def main() -> None:
    """Train, and print the scores of every iteration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for iteration, scores in enumerate(train(iterations=args.iterations, seed=args.seed)):
        print(
            f"iteration {iteration}:", *(f"{seat} {score:.2f}" for seat, score in scores.items()), flush=True
        )


if __name__ == "__main__":
    main()
