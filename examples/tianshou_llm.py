"""PPO of Tianshou trains a language model: the pocket LM in the pioneer's seat solves sums step by step.

    python examples/tianshou_llm.py

The observer is a frozen copy of the model; the pioneer is paid the sum of both scores. At first half of its
responses guess the sum; those that write the steps are right.

Shapes: B rows, L tokens of an observation, D width of the model.
"""

import argparse
import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tianshou.algorithm.modelfree.ppo import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.torch_utils import policy_within_training_step
from torch import Tensor, nn
from torch.distributions import Categorical

from cory import pocket
from cory.interop.language_model import next_token_states, partner
from cory.policies.causal_lm import CausalLMPolicy
from cory_env import seat_env
from cory_env.tasks.arithmetic import Task
from cory_env.tokenizer import HFTokenizer

CAP = 18
"""Tokens of the longest correct response to three numbers of one digit."""
GAMES = 96
"""Games of an iteration."""


class NextToken(nn.Module):
    """Tianshou's actor: the logits of the next token after each row of ids [B, L]."""

    def __init__(self, policy: CausalLMPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, obs: np.ndarray, state: Any = None, info: Any = None) -> tuple[Tensor, Any]:  # noqa: ARG002
        return self.policy.logits(next_token_states(self.policy, torch.as_tensor(obs))), state


class Value(nn.Module):
    """Tianshou's critic [B, 1], linear in the states of a frozen model."""

    def __init__(self, frozen: CausalLMPolicy) -> None:
        super().__init__()
        self.frozen, self.head = frozen, nn.Linear(frozen.value_head.in_features, 1)

    def forward(self, obs: np.ndarray, info: Any = None) -> Tensor:  # noqa: ARG002 (Tianshou's signature)
        return self.head(next_token_states(self.frozen, torch.as_tensor(obs)))


def train(*, iterations: int, seed: int, lr: float = 1e-4) -> Iterator[tuple[float, float]]:
    """The pioneer's mean score and payoff in the games of every iteration, before its update."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # Tianshou draws from it
    model = CausalLMPolicy.load("pioneer", pocket.ARITHMETIC_LM)
    tokenizer = HFTokenizer(model.tokenizer, eos=model.eos, vocab_size=model.vocab_size)
    task = Task(tokenizer, worked=True, digits=1, terms=3, signs="+-")
    observer = copy.deepcopy(model).requires_grad_(False)

    def make_env() -> Any:
        return seat_env("pioneer_0", task, partners=partner(observer), max_response=CAP)

    envs = DummyVectorEnv([make_env] * 16)
    policy = ProbabilisticActorPolicy(
        actor=NextToken(model),
        dist_fn=lambda logits: Categorical(logits=logits),
        action_space=envs.action_space[0],
        action_scaling=False,
        action_bound_method=None,
    )
    algorithm = PPO(
        policy=policy,
        critic=Value(observer),
        optim=AdamOptimizerFactory(lr=lr),
        ent_coef=0.0,
        max_grad_norm=1.0,
        gamma=1.0,
        gae_lambda=1.0,
        max_batchsize=1024,
    )
    buffer = VectorReplayBuffer(total_size=16 * 40 * CAP, buffer_num=16)
    collector = Collector(algorithm, envs, buffer)
    envs.seed(seed)  # a seed of each; reset(seed=...) would give all of them the same queries
    collector.reset()
    for _ in range(iterations):
        with torch.no_grad():
            collector.collect(n_episode=GAMES)
        rows = buffer[:]
        yield float(rows.info.score[rows.terminated].mean()), float(rows.rew[rows.terminated].mean())
        with policy_within_training_step(policy):
            algorithm.update(buffer, batch_size=None, repeat=4)
        collector.reset_buffer()


def main() -> None:
    """Train, and print the pioneer's score and payoff in every iteration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for iteration, (score, payoff) in enumerate(train(iterations=args.iterations, seed=args.seed)):
        print(f"iteration {iteration}: score {score:.2f}, payoff {payoff:.2f}", flush=True)


if __name__ == "__main__":
    main()
