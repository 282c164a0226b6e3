"""Two Hugging Face models play one game of CORY in the PettingZoo loop; both are paid the collective reward.

    python examples/llm_at_the_table.py [MODEL]

MODEL is a folder or a hub name of a causal LM; by default the embedded pocket model continues film reviews.
A policy object plays by `policy.act(observation, info) -> token id`, so it can sit at any AEC environment of
`cory_env`.
"""

import sys

from cory import pocket
from cory.judges.classifier import Classifier
from cory.policies.causal_lm import CausalLMPolicy
from cory_env import env
from cory_env.tasks.reviews import Task
from cory_env.tokenizer import HFTokenizer


def main(model: str = "pocket", seed: int = 0) -> dict[str, float]:
    """Play one game and print it; the payoff of each seat."""
    path = pocket.lm_path(model)
    policies = {
        "pioneer_0": CausalLMPolicy.load("llm_1", path),
        "observer_1": CausalLMPolicy.load("llm_2", path),
    }
    first = policies["pioneer_0"]
    tokenizer = HFTokenizer(first.tokenizer, eos=first.eos, vocab_size=first.vocab_size)
    task = Task(tokenizer, judge=Classifier(pocket.JUDGE), data=pocket.OPENINGS)
    game = env(task, payoff="cooperative", max_response=12)
    payoffs = dict.fromkeys(game.possible_agents, 0.0)

    game.reset(seed=seed)
    for seat in game.agent_iter():
        observation, reward, termination, truncation, info = game.last()
        payoffs[seat] += reward
        over = termination or truncation
        game.step(None if over else policies[seat].act(observation, info, seed=seed))

    print(f"query:      {game.unwrapped.game.query.text}")
    for seat in game.possible_agents:
        print(f"{seat:<11} {game.unwrapped.text(seat)}")
    print("paid:       " + ", ".join(f"{seat} {payoff:+.2f}" for seat, payoff in payoffs.items()))
    return payoffs


if __name__ == "__main__":
    main(*sys.argv[1:])
