"""The parallel environment: one action of every seat per step."""

import copy
import pickle

import pettingzoo
import pytest

from cory_env import Query, parallel_env
from cory_env.payoff import Linear
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer

ABC = CharTokenizer("abcd", stops=2)  # a b c d = 0 1 2 3, EOS 4 and 5, pad 6
ECHO = Echo(ABC, length=3)
QUERY = Query("abc", (0, 1, 2))


def begin(**options):
    """A game on the query abc with caps 2 and 1, and what its reset returned."""
    env = parallel_env(ECHO, **{"max_response": 2, **options})
    return env, *env.reset(seed=0, options={"query": QUERY, "caps": (2, 1)})


def test_only_the_action_of_the_seat_to_act_counts_and_all_are_paid_at_the_end():
    env, observations, infos = begin(payoff="independent")
    assert [infos[seat]["acting"] for seat in env.agents] == [1, 0]
    assert observations["observer_1"].tolist() == [0, 1, 2, 6, 6, 6, 6]
    for pioneer, observer in [(0, 3), (1, 3)]:
        observations, rewards, ended, _, infos = env.step({"pioneer_0": pioneer, "observer_1": observer})
        assert (rewards, any(ended.values())) == ({"pioneer_0": 0, "observer_1": 0}, False)
    assert [infos[seat]["acting"] for seat in env.agents] == [0, 1]
    assert observations["observer_1"].tolist() == [0, 1, 2, 0, 1, 6, 6]
    _, rewards, ended, cut, infos = env.step({"pioneer_0": 3, "observer_1": 0})
    assert rewards == pytest.approx({"pioneer_0": 2 / 3, "observer_1": 1 / 3})  # ab and a of abc
    assert (ended, cut) == (
        {"pioneer_0": True, "observer_1": True},
        {"pioneer_0": False, "observer_1": False},
    )
    assert infos["pioneer_0"]["score"] == pytest.approx(2 / 3)
    assert (env.agents, env.text("pioneer_0")) == ([], "ab")


@pytest.mark.parametrize("where", ["info", "obs"])
def test_a_waiting_seat_has_exactly_one_legal_action_pad(where):
    env, observations, infos = begin(action_mask=where)
    masks = {
        seat: (infos if where == "info" else observations)[seat]["action_mask"].tolist()
        for seat in env.agents
    }
    assert masks == {"pioneer_0": [1] * 7, "observer_1": [0] * 6 + [1]}


def test_wrong_actions_are_refused_and_change_nothing():
    env, *_ = begin()
    for actions in (
        {"pioneer_0": 0},
        {"pioneer_0": 0, "observer_1": 7},
        {"pioneer_0": 0, "observer_1": None},
    ):
        with pytest.raises(ValueError, match=r"observer_1 played .*; it must play an id from 0 to 6"):
            env.step(actions)
    assert env.text("pioneer_0") == ""


def test_after_the_end_only_reset_is_legal():
    env, *_ = begin()
    for _ in range(3):
        env.step({"pioneer_0": 0, "observer_1": 0})
    with pytest.raises(ValueError, match="every seat has left; call reset"):
        env.step({})
    env.reset()
    env.step({"pioneer_0": 0, "observer_1": 0})


def test_a_copy_of_a_game_in_progress_goes_on_apart():
    env, *_ = begin()
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        twin.step({"pioneer_0": 1, "observer_1": 6})
        assert (twin.text("pioneer_0"), env.text("pioneer_0")) == ("b", "")


def test_a_game_is_resumed_and_the_payoff_follows_its_schedule():
    env, *_ = begin()
    env.step({"pioneer_0": 0, "observer_1": 6})
    twin, *_ = begin()
    twin.set_state(env.get_state())
    assert twin.state().tolist() == env.state().tolist()
    twin.set_payoff(Linear(0, 1, iterations=2), iteration=1)
    twin.step({"pioneer_0": 1, "observer_1": 6})
    _, rewards, *_ = twin.step({"pioneer_0": 6, "observer_1": 3})
    assert rewards == pytest.approx({"pioneer_0": 2 / 3, "observer_1": 1 / 3})  # own 2/3, and half of it


def test_payout_settle_is_refused():
    with pytest.raises(ValueError, match="payout is 'settle'; where all seats step together it is 'end'"):
        parallel_env(payout="settle")


def test_parallel_env_is_in_the_registry_of_pettingzoo():
    assert pettingzoo.make("parallel", "cory/token-v0", seats=3).possible_agents[2] == "observer_2"
