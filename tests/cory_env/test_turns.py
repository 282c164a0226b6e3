import numpy as np
import pettingzoo
import pytest

from cory_env import Query, turn_env
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer
from cory_env.turns import raw_env

ABC = CharTokenizer("abcd", stops=2)  # a b c d = 0 1 2 3, EOS 4 and 5, pad 6
ECHO = Echo(ABC, length=3)
QUERY = Query("abc", (0, 1, 2))


def table(*rows, **options):
    """A game on the query abc in which `rows` have been played."""
    made = raw_env(ECHO, **{"max_response": 3, **options})
    made.reset(seed=0, options={"query": QUERY})
    for row in rows:
        made.step(np.array(row))
    return made


def test_a_step_is_a_response_read_to_its_first_eos_or_its_cap():
    made = table([0, 4, 2])
    assert made.game.responses == {"pioneer_0": (0, 4), "observer_1": ()}
    assert made.agent_selection == "observer_1"
    # the observer reads query and response, EOS removed
    assert made.observe("observer_1").tolist() == [0, 1, 2, 0, 6, 6, 6, 6, 6]
    made.step(np.array([0, 1, 2]))
    # a scores a third, abc one; both are paid the sum
    assert made.rewards == pytest.approx({"pioneer_0": 4 / 3, "observer_1": 4 / 3})
    assert all(made.terminations.values())


def test_the_cap_of_the_game_counts_not_the_length_of_the_row():
    made = raw_env(ECHO, max_response=(1, 3))
    made.reset(options={"query": QUERY, "caps": (2, 3)})
    made.step(np.array([0, 1, 2]))
    assert made.game.responses["pioneer_0"] == (0, 1)


def test_settling_takes_one_more_row_per_earlier_seat():
    made = table([0, 1, 2], [3, 3, 3], payout="settle", payoff="independent")
    assert (made.agent_selection, made.rewards) == ("pioneer_0", {"pioneer_0": 0, "observer_1": 0})
    made.step(np.array([4, 4, 4]))
    assert made.rewards == {"pioneer_0": 1.0, "observer_1": 0.0}


def test_token_rewards_are_summed_over_the_response():
    made = table([0, 4, 2], token_reward=lambda seat, read, token: 10.0 * len(read) + token)
    assert (
        made.rewards["pioneer_0"] == 30 + 0 + 40 + 4
    )  # it had read 3, then 4 tokens; after EOS nothing is priced


@pytest.mark.parametrize(
    "action", [None, 0, [0, 1], [0, 1, 7], [-1, 0, 0], [0.0, 1.0, 2.0], [[0, 1, 2]], "abc", [0, None, 1]]
)
def test_a_wrong_row_is_refused_and_changes_nothing(action):
    made = table()
    with pytest.raises(ValueError, match=r"pioneer_0 played .*; it must play a row of 3 ids from 0 to 6"):
        made.step(action)
    made.step(np.array([0, 1, 2], dtype=np.int32))


def test_masks_have_nothing_to_forbid():
    with pytest.raises(ValueError, match=r"action_mask is 'info'; .* nothing to mask"):
        raw_env(ECHO, action_mask="info")


def test_it_is_in_pettingzoos_registry():
    made = pettingzoo.make("aec", "cory/turn-v0", max_response=2)
    assert made.action_space("pioneer_0") == turn_env(max_response=2).action_space("observer_1")
    assert str(made) == "cory_turn_v0"
