import copy
import pickle

import numpy as np
import pytest

from cory_env import Query, env, one_hot, parallel_env, seat_env, turn_env
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer

AB = Echo(CharTokenizer("ab"), length=1)  # a b = 0 1, EOS 2, pad 3
OPTIONS = {"max_response": 1, "views": "none"}
ONLY = {"query": Query("b", (1,))}
B_THEN_PAD = [0, 1, 0, 0, 0, 0, 0, 1]
"""The prompt b and room for one token: ids 1 and 3 of four."""


@pytest.mark.parametrize("make", [env, turn_env])
def test_ids_become_ones_among_zeros(make):
    made = one_hot(make(AB, **OPTIONS))
    made.reset(options=ONLY)
    seen = made.last()[0]
    assert (seen.tolist(), seen.dtype) == (B_THEN_PAD, np.float32)
    assert made.observation_space("pioneer_0").contains(seen)
    assert made.observation_space("pioneer_0") is made.observation_space("pioneer_0")


def test_parallel_and_seat_views_too():
    together = one_hot(parallel_env(AB, **OPTIONS))
    assert together.reset(options=ONLY)[0]["observer_1"].tolist() == B_THEN_PAD
    seen = together.step({"pioneer_0": 0, "observer_1": 3})[0]
    assert seen["pioneer_0"].tolist() == [0, 1, 0, 0, 1, 0, 0, 0]
    alone = one_hot(seat_env("pioneer_0", AB, **OPTIONS))
    assert alone.reset(options=ONLY)[0].tolist() == B_THEN_PAD
    assert alone.observation_space.contains(alone.reset()[0])


def test_masks_stay_and_state_is_encoded():
    made = one_hot(env(AB, action_mask="obs", **OPTIONS))
    made.reset(options=ONLY)
    seen = made.observe("observer_1")
    assert (seen["observation"].tolist(), seen["action_mask"].tolist()) == (B_THEN_PAD, [0, 0, 0, 1])
    assert made.observation_space("observer_1").contains(seen)
    # query 1; responses pad, pad; lengths 1, 0, 0; caps 1, 1; seat 0 acts
    rows = made.state().reshape(9, 4)
    assert rows.argmax(axis=1).tolist() == [1, 3, 3, 1, 0, 0, 1, 1, 0]
    assert (rows.sum(axis=1) == 1).all()
    assert made.state_space.contains(made.state())


def test_a_wrapped_game_can_be_copied_and_pickled():
    made = one_hot(env(AB, **OPTIONS))
    made.reset(options=ONLY)
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert twin.observe("pioneer_0").tolist() == B_THEN_PAD


def test_other_things_are_refused():
    with pytest.raises(ValueError, match="is no view of the game"):
        one_hot(AB)
