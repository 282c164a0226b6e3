"""Which policy sits in which seat at every iteration."""

import pytest

from cory.rollout.role_exchange import ExchangeConfig, seating_at

SEATS = ("pioneer_0", "observer_1", "observer_2")


def test_two_policies_swap_every_two_iterations():
    pioneers = [seating_at(i, every=2, seats=SEATS[:2], first=("a", "b"))["pioneer_0"] for i in range(6)]
    assert pioneers == ["a", "a", "b", "b", "a", "a"]


def test_the_policy_in_seat_i_moves_to_seat_i_plus_one():
    assert seating_at(0, every=1, seats=SEATS, first=("a", "b", "c")) == dict(zip(SEATS, "abc", strict=True))
    assert seating_at(1, every=1, seats=SEATS, first=("a", "b", "c")) == dict(zip(SEATS, "cab", strict=True))


def test_as_many_rotations_as_seats_restore_the_first_seating():
    start = seating_at(0, every=5, seats=SEATS, first=("a", "b", "c"))
    assert seating_at(15, every=5, seats=SEATS, first=("a", "b", "c")) == start


def test_zero_never_exchanges_and_one_policy_may_hold_all_seats():
    assert seating_at(99, every=0, seats=SEATS[:2], first=("a", "b"))["pioneer_0"] == "a"
    assert set(seating_at(7, every=1, seats=SEATS, first=("a", "a", "a")).values()) == {"a"}


def test_random_seatings_are_permutations_that_change_only_at_exchanges():
    first = ("a", "b", "c")
    seatings = [seating_at(i, every=2, seats=SEATS, first=first, random_key=(0,)) for i in range(60)]
    assert all(sorted(seating.values()) == ["a", "b", "c"] for seating in seatings)
    assert seatings[::2] == seatings[1::2]
    # 30 draws of 6 orders: one of them is missing with probability 6 (5/6)^30 = 0.025 for a fair draw
    assert len({tuple(seating.values()) for seating in seatings}) == 6
    assert seatings[0] == dict(zip(SEATS, first, strict=True))
    again = seating_at(41, every=2, seats=SEATS, first=first, random_key=(0,))
    assert again == seatings[41]
    other = [seating_at(i, every=2, seats=SEATS, first=first, random_key=(1,)) for i in range(60)]
    assert other != seatings


def test_invalid_settings_are_refused():
    with pytest.raises(ValueError, match="1 policies for 3 seats"):
        seating_at(0, every=1, seats=SEATS, first=("a",))
    with pytest.raises(ValueError, match=r"exchange\.every is -1"):
        ExchangeConfig(every=-1)
    with pytest.raises(ValueError, match="there are rotate, random"):
        ExchangeConfig(order="shuffle")


def coin(iteration, seats, policies):
    """Another seating at every call: no pure function."""
    coin.calls += 1
    return dict(zip(seats, policies[:: (-1) ** coin.calls], strict=True))


coin.calls = 0


def nothing(iteration, seats, policies):
    """Forgets to return a seating."""


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (coin, "for iteration 2; make it a pure function"),
        (nothing, "returned None; return a dict of policies"),
    ],
)
def test_an_order_of_ones_own_is_a_pure_function_to_a_seating(order, message):
    place = f"{__name__}:{order.__name__}"
    with pytest.raises(ValueError, match=f"exchange.order '{place}' .*{message}"):
        seating_at(3, every=2, seats=("a", "b"), first=("llm_1", "llm_2"), order=place)


def of_one(iteration):
    return {}


def test_an_order_that_cannot_be_called_is_refused_by_name():
    with pytest.raises(ValueError, match=r"of_one' cannot be called with \(iteration, seats, policies\)"):
        seating_at(0, seats=("pioneer_0",), first=("llm_1",), every=1, order=f"{__name__}:of_one")
