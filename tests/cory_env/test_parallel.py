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


def table(**options):
    made = parallel_env(ECHO, **{"max_response": 2, **options})
    return made, *made.reset(seed=0, options={"query": QUERY, "caps": (2, 1)})


def test_only_the_turns_action_counts_and_all_are_paid_at_the_end():
    made, seen, infos = table(payoff="independent")
    assert [infos[seat]["acting"] for seat in made.agents] == [1, 0]
    assert seen["observer_1"].tolist() == [0, 1, 2, 6, 6, 6, 6]
    for pioneer, observer in [(0, 3), (1, 3)]:
        seen, rewards, ended, _, infos = made.step({"pioneer_0": pioneer, "observer_1": observer})
        assert (rewards, any(ended.values())) == ({"pioneer_0": 0, "observer_1": 0}, False)
    assert [infos[seat]["acting"] for seat in made.agents] == [0, 1]
    assert seen["observer_1"].tolist() == [0, 1, 2, 0, 1, 6, 6]
    _, rewards, ended, cut, infos = made.step({"pioneer_0": 3, "observer_1": 0})
    assert rewards == pytest.approx({"pioneer_0": 2 / 3, "observer_1": 1 / 3})  # ab and a of abc
    assert (ended, cut) == (
        {"pioneer_0": True, "observer_1": True},
        {"pioneer_0": False, "observer_1": False},
    )
    assert infos["pioneer_0"]["score"] == pytest.approx(2 / 3)
    assert (made.agents, made.text("pioneer_0")) == ([], "ab")


@pytest.mark.parametrize("where", ["info", "obs"])
def test_a_waiting_seat_has_exactly_one_legal_action_pad(where):
    made, seen, infos = table(action_mask=where)
    masks = {seat: (infos if where == "info" else seen)[seat]["action_mask"].tolist() for seat in made.agents}
    assert masks == {"pioneer_0": [1] * 7, "observer_1": [0] * 6 + [1]}


def test_wrong_actions_are_refused_and_change_nothing():
    made, *_ = table()
    for actions in (
        {"pioneer_0": 0},
        {"pioneer_0": 0, "observer_1": 7},
        {"pioneer_0": 0, "observer_1": None},
    ):
        with pytest.raises(ValueError, match=r"observer_1 played .*; it must play an id from 0 to 6"):
            made.step(actions)
    assert made.text("pioneer_0") == ""


def test_after_the_end_only_reset():
    made, *_ = table()
    for _ in range(3):
        made.step({"pioneer_0": 0, "observer_1": 0})
    with pytest.raises(ValueError, match="every seat has left; call reset"):
        made.step({})
    made.reset()
    made.step({"pioneer_0": 0, "observer_1": 0})


def test_a_copy_of_a_game_in_progress_goes_on_apart():
    made, *_ = table()
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        twin.step({"pioneer_0": 1, "observer_1": 6})
        assert (twin.text("pioneer_0"), made.text("pioneer_0")) == ("b", "")


def test_a_game_is_resumed_and_the_payoff_follows_its_schedule():
    made, *_ = table()
    made.step({"pioneer_0": 0, "observer_1": 6})
    twin, *_ = table()
    twin.set_state(made.get_state())
    assert twin.state().tolist() == made.state().tolist()
    twin.set_payoff(Linear(0, 1, iterations=2), iteration=1)
    twin.step({"pioneer_0": 1, "observer_1": 6})
    _, rewards, *_ = twin.step({"pioneer_0": 6, "observer_1": 3})
    assert rewards == pytest.approx({"pioneer_0": 2 / 3, "observer_1": 1 / 3})  # own 2/3, and half of it


def test_settling_and_wrong_options_are_refused():
    with pytest.raises(ValueError, match="payout is 'settle'; where all seats step together it is 'end'"):
        parallel_env(payout="settle")


def test_it_is_in_pettingzoos_registry():
    assert pettingzoo.make("parallel", "cory/token-v0", seats=3).possible_agents[2] == "observer_2"
