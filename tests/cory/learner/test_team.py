"""What joint updates can ask a team for: the states of the whole transcript.

Shapes: B games, D width.
"""

from dataclasses import replace

import pytest
import torch

from cory import algorithms
from cory.batch import Batch
from cory.learner.team import Team
from cory.policies.causal_lm import CausalLMPolicy
from cory.rollout.rollout import play_shared
from cory.runtime.clock import Clock
from cory.training.trainer import Trainer
from tests.cory.learner.test_central_critic import games
from tests.helpers.models import make_model, make_tokenizer
from tests.helpers.tables import flagged


class WithPolicy:
    """The part of a learner that `Team.states` uses."""

    def __init__(self, policy) -> None:
        self.policy = policy


def team_of(policy) -> Team:
    ppo = algorithms.load("ppo")
    learners = {"llm_1": WithPolicy(policy)}
    return Team(learners=learners, seating={}, order_key=(0,), algorithm=ppo, options=ppo.Config())


def relay() -> tuple[Trainer, Team, dict[str, Batch]]:
    trainer = Trainer(flagged("--task", "relay", "--max-response", "1", "1", "--batch", "8"))
    team = trainer.team(0)
    return trainer, team, play_shared(trainer.game, team.policies, trainer.spec(0), clock=Clock())


def test_states_of_tables_hold_the_query_and_all_earlier_responses():
    """Relay: the observer's prompt has no secret, its state has. One-hot ids at position * V + id."""
    trainer, team, batches = relay()
    V, pioneer = trainer.policies["llm_1"].vocab_size, batches["pioneer_0"]
    states = replace(team, played=batches).states()
    for i in range(8):
        secret, mark = pioneer.prompt_BP[i].tolist()
        said = pioneer.response_BT[i, 0].item()
        assert states["pioneer_0"][i].nonzero().flatten().tolist() == [secret, V + mark]
        assert states["observer_1"][i].nonzero().flatten().tolist() == [secret, V + mark, 2 * V + said]


@pytest.mark.parametrize("rows_at_once", [1, 100])
def test_states_of_a_language_model_are_the_references_last_hidden_states(rows_at_once, monkeypatch):
    """Game 0: the query 1 2; the pioneer's 4 7, observer 1's 6. Game 1: the query 3; 5 6 5 and 4 7."""
    tokenizer = make_tokenizer()
    reference = CausalLMPolicy("reference", make_model("gpt2", len(tokenizer)), tokenizer)
    policy = CausalLMPolicy("llm_1", make_model("gpt2", len(tokenizer), seed=1), tokenizer)
    policy.set_reference(reference)
    monkeypatch.setattr(reference, "max_rows", lambda length, learning=True: rows_at_once)
    team = team_of(policy)
    states = replace(team, played=games()).states()
    transcripts = {
        "pioneer_0": [[1, 2], [3]],
        "observer_1": [[1, 2, 4, 7], [3, 5, 6, 5]],
        "observer_2": [[1, 2, 4, 7, 6], [3, 5, 6, 5, 4, 7]],
    }
    for seat, of_games in transcripts.items():
        for i, ids in enumerate(of_games):
            want_D = reference.model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
            assert torch.allclose(states[seat][i], want_D, atol=1e-5)
    assert not states["pioneer_0"].requires_grad


def test_a_transcript_that_outgrows_the_window_is_refused():
    tokenizer = make_tokenizer()
    reference = CausalLMPolicy("reference", make_model("gpt2", len(tokenizer), window=6), tokenizer)
    reference.set_reference(reference)
    team = team_of(reference)
    with pytest.raises(ValueError, match="a transcript has 7 tokens and the model's window is 6"):
        replace(team, played=games()).states()
