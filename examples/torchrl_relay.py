"""Multi-agent algorithms of TorchRL on `relay`: IPPO, MAPPO and QMIX, all seats stepping together.

    python examples/torchrl_relay.py --algorithm mappo
    python examples/torchrl_relay.py --others 0     # the pioneer counts its own score only: it favours
    python examples/torchrl_relay.py --others -1    # the pioneer is paid for the observer's failure: it hides

In `parallel_env` a waiting seat has one legal action, so that with masks in the policy its rows carry no
gradient, and every seat's row of the last step carries its payoff. Critic (MAPPO) and mixer (QMIX) read
`state()`.

Shapes: T steps, N seats, V vocabulary.
"""

import argparse
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import Tensor, nn
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs.libs.pettingzoo import PettingZooWrapper
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import (
    EGreedyModule,
    MaskedCategorical,
    MultiAgentMLP,
    ProbabilisticActor,
    QMixer,
    QValueModule,
)
from torchrl.objectives import SoftUpdate
from torchrl.objectives.multiagent import IPPOLoss, MAPPOLoss, QMixerLoss

from cory_env import one_hot, parallel_env, seat_names
from cory_env.tasks import load

SEATS = seat_names(2)
TASK = load("relay")


class Scores(NamedTuple):
    """Mean score of each seat."""

    pioneer: float
    observer: float


class Learned(NamedTuple):
    """Scores of the seats after and during training."""

    greedy: Scores
    """Each train query once, actions of highest probability."""

    late: Scores
    """Mean over the last third of training, with sampled actions. Where one seat's gain is the other's loss
    (lambda = -1) no deterministic policy is good, and this approaches the derived value."""


def make_env(others: float, *, seed: int = 0) -> PettingZooWrapper:
    """The task `relay` with payoff own score + `others` times the other's; one token per response."""
    env = one_hot(parallel_env(TASK, payoff=others, max_response=1, action_mask="info"))
    return PettingZooWrapper(env, group_map={"agents": list(SEATS)}, return_state=True, seed=seed)


def per_seat(env: PettingZooWrapper, outputs: int) -> MultiAgentMLP:
    """A network for each seat, on its own observation."""
    return MultiAgentMLP(
        n_agent_inputs=env.observation_spec["agents", "observation"].shape[-1],
        n_agent_outputs=outputs,
        n_agents=len(SEATS),
        centralized=False,
        share_params=False,
        depth=1,
        num_cells=32,
    )


class StateCritic(nn.Module):
    """The value of the whole game's state to each seat: [.., S] -> [.., N, 1]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(size, 32), nn.Tanh(), nn.Linear(32, len(SEATS)))

    def forward(self, state: Tensor) -> Tensor:
        return self.net(state).unsqueeze(-1)


def make_actor(env: PettingZooWrapper) -> ProbabilisticActor:
    """A masked policy for every seat."""
    logits = TensorDictModule(
        per_seat(env, TASK.tokenizer.vocab_size), [("agents", "observation")], [("agents", "logits")]
    )
    return ProbabilisticActor(
        logits,
        in_keys={"logits": ("agents", "logits"), "mask": ("agents", "action_mask")},
        out_keys=[("agents", "action")],
        distribution_class=MaskedCategorical,
        return_log_prob=True,
    )


def make_ppo_loss(algorithm: str, env: PettingZooWrapper, actor: ProbabilisticActor) -> IPPOLoss | MAPPOLoss:
    """PPO's loss. IPPO: a critic per seat on its observation. MAPPO: one on `state()`."""
    if algorithm == "ippo":
        kind, net, source = IPPOLoss, per_seat(env, 1), ("agents", "observation")
    else:
        kind, net, source = MAPPOLoss, StateCritic(env.observation_spec["state"].shape[-1]), "state"
    loss = kind(actor, TensorDictModule(net, [source], [("agents", "state_value")]), entropy_coeff=0.4)
    loss.set_keys(
        action=("agents", "action"),
        sample_log_prob=("agents", "action_log_prob"),
        value=("agents", "state_value"),
        reward=("agents", "reward"),
    )
    loss.make_value_estimator(gamma=1.0, lmbda=0.95)
    return loss


def collect(env: PettingZooWrapper, policy: Any, *, games: int) -> TensorDictBase:
    """Whole games, [T] rows in the order of play, with sampled actions (TorchRL's default is the mode)."""
    with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
        return env.rollout(2 * games, policy, break_when_any_done=False)


def train_ppo(algorithm: str, env: PettingZooWrapper, *, games: int) -> Learned:
    """Train `ippo` or `mappo`; much entropy at first separates secrets with a common best letter."""
    actor = make_actor(env)
    loss = make_ppo_loss(algorithm, env, actor)
    optimiser = torch.optim.Adam(loss.parameters(), lr=2e-2)
    scores = []
    for left in torch.linspace(1, 0, games // 64).tolist():
        batch = collect(env, actor, games=64)
        scores.append(scores_of(batch))
        with torch.no_grad():
            loss.value_estimator(batch)
        loss.entropy_coeff.fill_(0.4 * left)
        for _ in range(4):
            terms = loss(batch)
            optimiser.zero_grad()
            (terms["loss_objective"] + terms["loss_critic"] + terms["loss_entropy"]).backward()
            optimiser.step()
    return Learned(greedy_scores(env, actor), late_scores(scores))


def make_qmix(env: PettingZooWrapper) -> tuple[TensorDictSequential, TensorDictSequential, QMixerLoss]:
    """The greedy policy, the exploring one, and the loss with a mixer of the seats' values on `state()`."""
    values = TensorDictModule(
        per_seat(env, TASK.tokenizer.vocab_size), [("agents", "observation")], [("agents", "action_value")]
    )
    choice = QValueModule(
        action_value_key=("agents", "action_value"),
        action_mask_key=("agents", "action_mask"),
        out_keys=[("agents", "action"), ("agents", "action_value"), ("agents", "chosen_action_value")],
        action_space="categorical",
    )
    greedy = TensorDictSequential(values, choice)
    explore = EGreedyModule(
        env.action_spec, action_key=("agents", "action"), action_mask_key=("agents", "action_mask")
    )
    mixer = TensorDictModule(
        QMixer(env.observation_spec["state"].shape, 16, n_agents=len(SEATS), device="cpu"),
        [("agents", "chosen_action_value"), "state"],
        ["chosen_action_value"],
    )
    loss = QMixerLoss(greedy, mixer, action_space="categorical", delay_value=True)
    loss.make_value_estimator(gamma=1.0)
    return greedy, TensorDictSequential(greedy, explore), loss


def train_qmix(env: PettingZooWrapper, *, games: int) -> Learned:
    """Train `qmix`, which learns from one reward for all seats: the payoff of both under lambda = 1."""
    greedy, exploring, loss = make_qmix(env)
    target = SoftUpdate(loss, eps=0.9)
    optimiser = torch.optim.Adam(loss.parameters(), lr=2e-2)
    # Short: responses of an older pioneer mislead the observer about those of the current one.
    buffer = ReplayBuffer(storage=LazyTensorStorage(512), batch_size=256)
    scores = []
    for left in torch.linspace(1, 0.1, games // 16).tolist():
        exploring[-1].eps.fill_(left)
        batch = collect(env, exploring, games=16)
        scores.append(scores_of(batch))
        batch["next", "reward"] = batch["next", "agents", "reward"].mean(-2)
        buffer.extend(batch)
        for _ in range(8):
            optimiser.zero_grad()
            loss(buffer.sample())["loss"].backward()
            optimiser.step()
            target.step()
    return Learned(greedy_scores(env, greedy), late_scores(scores))


def train(algorithm: str, *, others: float, seed: int, games: int = 3840) -> Learned:
    """Train for `games` games."""
    torch.manual_seed(seed)
    env = make_env(others, seed=seed)
    if algorithm == "qmix":
        return train_qmix(env, games=games)
    return train_ppo(algorithm, env, games=games)


def scores_of(batch: TensorDictBase) -> Tensor:
    """Scores [N], the mean over the games that end in the batch."""
    return batch["next", "agents", "info", "score"][batch["next", "done"].squeeze(-1)].mean(0)


def late_scores(scores: list[Tensor]) -> Scores:
    """The mean over the last third of the batches."""
    return Scores(*torch.stack(scores[-len(scores) // 3 :]).mean(0).tolist())


@torch.no_grad()
def greedy_scores(env: PettingZooWrapper, policy: Any) -> Scores:
    """Scores of actions of highest probability, each train query once."""
    rows = []
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        for query in TASK.queries("train"):
            step = env.reset(options={"query": query})
            while not step["done"]:
                step = env.step(policy(step))["next"]
            rows.append(step["agents", "info", "score"])
    return Scores(*torch.stack(rows).mean(0).tolist())


def main() -> None:
    """Train, and print the scores and the optimum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--algorithm", choices=("ippo", "mappo", "qmix"), default="ippo")
    parser.add_argument("--others", type=float, default=1.0, help="weight of the other's score (lambda)")
    parser.add_argument("--games", type=int, default=3840)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.algorithm == "qmix" and args.others != 1:
        parser.error("QMIX learns from one reward shared by all seats: --others must be 1")
    got = train(args.algorithm, others=args.others, seed=args.seed, games=args.games)
    best = TASK.optimum(args.others)
    for name, score in (*got._asdict().items(), ("best", best)):
        print(f"{name:>6}: pioneer {score.pioneer:.2f}, observer {score.observer:.2f}")
    print(f"the optimal pioneer {best.name}")


if __name__ == "__main__":
    main()
