"""The turn-level environment: one response per step."""

import numpy as np
import pettingzoo
import pytest

from cory_env import Query, turn_env
from cory_env.envs.turn import raw_env
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer

ABC = CharTokenizer("abcd", stops=2)  # a b c d = 0 1 2 3, EOS 4 and 5, pad 6
ECHO = Echo(ABC, length=3)
QUERY = Query("abc", (0, 1, 2))


def played(*rows, **options):
    """A game on the query abc in which `rows` have been played."""
    env = raw_env(ECHO, **{"max_response": 3, **options})
    env.reset(seed=0, options={"query": QUERY})
    for row in rows:
        env.step(np.array(row))
    return env


def test_a_step_is_a_response_read_to_its_first_eos_or_its_cap():
    env = played([0, 4, 2])
    assert env.game.responses == {"pioneer_0": (0, 4), "observer_1": ()}
    assert env.agent_selection == "observer_1"
    # the observer reads query and response, EOS removed
    assert env.observe("observer_1").tolist() == [0, 1, 2, 0, 6, 6, 6, 6, 6]
    env.step(np.array([0, 1, 2]))
    # a scores a third, abc one; both are paid the sum
    assert env.rewards == pytest.approx({"pioneer_0": 4 / 3, "observer_1": 4 / 3})
    assert all(env.terminations.values())


def test_the_cap_of_the_game_counts_not_the_length_of_the_row():
    env = raw_env(ECHO, max_response=(1, 3))
    env.reset(options={"query": QUERY, "caps": (2, 3)})
    env.step(np.array([0, 1, 2]))
    assert env.game.responses["pioneer_0"] == (0, 1)


def test_settling_takes_one_more_row_per_earlier_seat():
    env = played([0, 1, 2], [3, 3, 3], payout="settle", payoff="independent")
    assert (env.agent_selection, env.rewards) == ("pioneer_0", {"pioneer_0": 0, "observer_1": 0})
    env.step(np.array([4, 4, 4]))
    assert env.rewards == {"pioneer_0": 1.0, "observer_1": 0.0}


def test_token_rewards_are_summed_over_the_response():
    env = played([0, 4, 2], token_reward=lambda _seat, read, token: 10.0 * len(read) + token)
    # it had read 3, then 4 tokens; tokens after EOS have no reward
    assert env.rewards["pioneer_0"] == 30 + 0 + 40 + 4


@pytest.mark.parametrize(
    "action", [None, 0, [0, 1], [0, 1, 7], [-1, 0, 0], [0.0, 1.0, 2.0], [[0, 1, 2]], "abc", [0, None, 1]]
)
def test_a_wrong_row_is_refused_and_changes_nothing(action):
    env = played()
    with pytest.raises(ValueError, match=r"pioneer_0 played .*; it must play a row of 3 ids from 0 to 6"):
        env.step(action)
    env.step(np.array([0, 1, 2], dtype=np.int32))


def test_a_mask_is_refused_as_every_row_is_legal():
    with pytest.raises(ValueError, match=r"action_mask is 'info'; .* nothing to mask"):
        raw_env(ECHO, action_mask="info")


def test_turn_env_is_in_the_registry_of_pettingzoo():
    env = pettingzoo.make("aec", "cory/turn-v0", max_response=2)
    assert env.action_space("pioneer_0") == turn_env(max_response=2).action_space("observer_1")
    assert str(env) == "cory_turn_v0"
