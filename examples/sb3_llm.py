"""PPO of Stable-Baselines3 in the observer's seat, beside a language model: both continue film reviews.

    python examples/sb3_llm.py --save runs/observer.zip
    cory evaluate examples/sb3_llm.py:load --max-response 4 4 --queries 64

The pioneer is the frozen pocket LM. The observer reads the pioneer's response and plays tokens of the same
vocabulary of 4,096 ids; both are paid the sum of their scores. It learns from tokens alone: embeddings of the
pocket LM are the features (`TokenFeatures`) and the first weights of the layer that chooses a token.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import stable_baselines3
import torch

from cory import pocket
from cory.interop.language_model import partner
from cory.interop.sb3 import SB3Player, TokenFeatures
from cory.judges.classifier import Classifier
from cory.policies.causal_lm import CausalLMPolicy
from cory_env import seat_env
from cory_env.tasks.reviews import Task
from cory_env.tokenizer import HFTokenizer

SAVED = Path("runs/observer.zip")
CAP = 4
"""Tokens of a response."""


def load_pioneer() -> CausalLMPolicy:
    """The frozen language model."""
    return CausalLMPolicy.load("pioneer", pocket.LM).requires_grad_(False)


def make_env(pioneer: CausalLMPolicy) -> Any:
    """The observer's seat; its observations are rows of token ids."""
    tokenizer = HFTokenizer(pioneer.tokenizer, eos=pioneer.eos, vocab_size=pioneer.vocab_size)
    task = Task(tokenizer, judge=Classifier(pocket.JUDGE), data=pocket.OPENINGS)
    return seat_env("observer_1", task, partners=partner(pioneer), max_response=CAP)


def make_model(env: Any, pioneer: CausalLMPolicy, *, seed: int) -> stable_baselines3.PPO:
    """PPO on the pioneer's embeddings."""
    embeddings = pioneer.model.get_input_embeddings().weight.detach()
    features = {"embeddings": embeddings, "pad": pioneer.pad}
    model = stable_baselines3.PPO(
        "MlpPolicy",
        env,
        n_steps=512,
        batch_size=128,
        n_epochs=4,
        learning_rate=3e-3,
        gamma=1.0,
        seed=seed,
        device="cpu",
        policy_kwargs={
            "features_extractor_class": TokenFeatures,
            "features_extractor_kwargs": features,
            "net_arch": [],
        },
    )
    model.policy.action_net.weight.data.copy_(embeddings)
    return model


def scores(model: Any, env: Any, *, games: int = 100) -> tuple[float, float]:
    """Mean score of the observer, and mean payoff, of the sampling model in games on the same queries."""
    found = []
    observation, _ = env.reset(seed=1000)
    for _ in range(games):
        over = False
        while not over:
            observation, reward, over, _, info = env.step(model.predict(observation)[0])
        found.append((info["score"], reward))
        observation, _ = env.reset()
    score, payoff = np.mean(found, axis=0)
    return float(score), float(payoff)


def train(*, seed: int, steps: int) -> tuple[stable_baselines3.PPO, list[tuple[float, float]]]:
    """The model, and `scores` before and after `steps` tokens of experience."""
    pioneer = load_pioneer()
    env = make_env(pioneer)
    model = make_model(env, pioneer, seed=seed)
    before = scores(model, env)
    model.learn(steps)
    return model, [before, scores(model, env)]


def load() -> SB3Player:
    """The saved observer, for `cory evaluate`."""
    return SB3Player(stable_baselines3.PPO.load(SAVED, device="cpu"))


def main() -> None:
    """Train, print scores before and after, and save the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=5120, help="tokens of experience")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=Path, default=SAVED)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, found = train(seed=args.seed, steps=args.steps)
    for when, (score, payoff) in zip(("before", "after"), found, strict=True):
        print(f"{when:>6}: observer's score {score:+.2f}, payoff {payoff:+.2f}")
    model.save(args.save)


if __name__ == "__main__":
    main()
