"""The rules of `Game`, and the checks of seats, caps and queries."""

import numpy as np
import pytest

import cory_env
from cory_env import Game, Query, Response, View, seat_names
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer
from cory_env.types import response_range

EOS = frozenset({8, 9})
PIONEER = View(seat="pioneer_0", template="{query}", segments=(-1,), eos=EOS)
OBSERVER = View(seat="observer_1", template="", segments=((7,), -1, 0), eos=EOS)


def two_seats(max_response=3):
    return Game(Query("ab", (1, 2)), views=(PIONEER, OBSERVER), eos=EOS, max_response=max_response)


def test_seats_are_named_in_the_order_of_play():
    assert seat_names(3) == ("pioneer_0", "observer_1", "observer_2")


@pytest.mark.parametrize("seats", [0, 17, -1])
def test_a_game_has_1_to_16_seats(seats):
    with pytest.raises(ValueError, match=f"seats is {seats}; a game has 1 to 16"):
        seat_names(seats)


def test_any_eos_ends_a_response_and_so_does_the_cap():
    game = two_seats(max_response=3)
    turns = []
    for token in (1, 9, 1, 1, 1):  # pioneer stops at the EOS 9, observer at 3 tokens
        turns.append(game.turn)
        game.play(token)
    assert turns == ["pioneer_0"] * 2 + ["observer_1"] * 3
    assert game.turn is None
    assert game.responses == {"pioneer_0": (1, 9), "observer_1": (1, 1, 1)}


def test_observer_prompt_holds_the_pioneers_ids_without_eos():
    game = two_seats()
    game.play(5)
    game.play(8)
    assert game.prompt("observer_1") == (7, 1, 2, 5)
    assert game.prompt("pioneer_0") == (1, 2)


def test_each_seat_can_have_its_own_cap():
    game = two_seats(max_response=(1, 2))
    for token in (1, 1, 1):
        game.play(token)
    assert game.turn is None


def test_acting_after_the_end_is_refused():
    game = two_seats(max_response=1)
    game.play(1)
    game.play(1)
    with pytest.raises(ValueError, match="the game is over"):
        game.play(1)
    with pytest.raises(ValueError, match="the game is over"):
        game.respond([1])


@pytest.mark.parametrize(
    ("ids", "fault"),
    [
        ([1, 8, 1], "wrote 3 tokens; its response ended after 2"),
        ([1, 1, 1, 1], "wrote 4 tokens; its response ended after 3"),
        ([1, 1], "wrote 2 tokens without EOS; go on to EOS or to its cap of 3"),
        ([], "wrote 0 tokens without EOS"),
    ],
)
def test_a_whole_response_follows_the_rules_of_single_tokens(ids, fault):
    game = two_seats(max_response=3)
    with pytest.raises(ValueError, match=f"pioneer_0 {fault}"):
        game.respond(ids)
    assert game.responses["pioneer_0"] == ()


@pytest.mark.parametrize("ids", [[8], [1, 9], [1, 1, 9], [1, 1, 1]])
def test_a_whole_response_is_accepted_if_its_last_token_ends_it(ids):
    game = two_seats(max_response=3)
    game.respond(ids)
    assert game.responses["pioneer_0"] == tuple(ids)
    assert game.turn == "observer_1"


def test_the_flat_row_lays_out_the_whole_game():
    game = two_seats(max_response=(3, 2))
    for token in (5, 8, 6):
        game.play(token)
    # query padded to 3 | pioneer, observer padded to 3 | query length | lengths | caps | observer_1 acts
    want = [*(1, 2, 0), *(5, 8, 0), *(6, 0, 0), 2, *(2, 1), *(3, 2), 1]
    assert game.flat(max_query=3, max_response=3, pad=0) == want
    game.play(6)
    assert game.flat(max_query=3, max_response=3, pad=0)[-1] == 2  # no seat acts


def test_a_state_resumes_in_the_middle_of_a_response():
    game = two_seats()
    game.play(5)
    twin = Game.from_state(game.get_state(), views=game.views, eos=EOS)
    game.play(6)
    assert twin.responses == {"pioneer_0": (5,), "observer_1": ()}
    assert (twin.turn, twin.caps, twin.query) == ("pioneer_0", (3, 3), Query("ab", (1, 2)))


def test_a_query_needs_a_token_and_every_seat_a_cap():
    with pytest.raises(ValueError, match="the query '' has no tokens"):
        Game(Query("", ()), views=(PIONEER,), eos=EOS, max_response=1)
    with pytest.raises(
        ValueError, match=r"max_response is \(1, 2\); give one cap from 1 for each of 1 seats"
    ):
        Game(Query("a", (1,)), views=(PIONEER,), eos=EOS, max_response=(1, 2))


def test_max_response_is_a_number_or_a_range():
    assert response_range(5) == (5, 5)
    assert response_range((4, 16)) == (4, 16)
    for wrong in (
        0,
        (3, 2),
        (0, 4),
        2.5,
        "4",
        (1, 2, 3),
        {"pioneer_0": 2, "observer_1": 5},
        [[2, 2], [3, 5]],
    ):
        with pytest.raises(ValueError, match="max_response is"):
            response_range(wrong)


@pytest.mark.parametrize("seats", ["3", 2.0, 0])
def test_seats_are_a_whole_number(seats):
    with pytest.raises(ValueError, match=f"seats is {seats!r}; a game has 1 to 16"):
        seat_names(seats)


def test_what_is_no_task_and_no_payoff_function_is_refused_with_what_to_give():
    with pytest.raises(ValueError, match=r"the task is the class Task; make one of it: Task\(\.\.\.\)"):
        cory_env.env(Echo)
    with pytest.raises(ValueError, match=r"cannot be called with \(scores, iteration\): too many positional"):
        cory_env.env("echo", payoff=lambda scores: scores)


def test_a_query_that_is_a_text_is_refused():
    with pytest.raises(ValueError, match=r"the query 'abc' is no cory_env\.Query"):
        cory_env.env("echo").reset(options={"query": "abc"})


@pytest.mark.parametrize("ids", [(0, 1.5), ("a",), "ab", [None]])
def test_ids_of_a_query_are_whole_numbers(ids):
    with pytest.raises(ValueError, match=r"the query 'abc' has ids .*; give whole numbers"):
        Query("abc", ids)


def test_ids_of_a_query_may_be_an_array():
    assert Query("abc", np.array([0, 1])) == Query("abc", (0, 1))


def test_a_response_has_eos_in_its_ids_and_not_in_its_text():
    assert Response.of([0, 1, 2], CharTokenizer("ab")) == Response((0, 1, 2), "ab")
