"""One-hot observations of every environment."""

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
"""The prompt b and one padded position: ids 1 and 3 of four."""


@pytest.mark.parametrize("make", [env, turn_env])
def test_ids_become_ones_among_zeros(make):
    game = one_hot(make(AB, **OPTIONS))
    game.reset(options=ONLY)
    observation = game.last()[0]
    assert (observation.tolist(), observation.dtype) == (B_THEN_PAD, np.float32)
    assert game.observation_space("pioneer_0").contains(observation)
    assert game.observation_space("pioneer_0") is game.observation_space("pioneer_0")


def test_parallel_and_seat_environments_too():
    parallel = one_hot(parallel_env(AB, **OPTIONS))
    assert parallel.reset(options=ONLY)[0]["observer_1"].tolist() == B_THEN_PAD
    observations = parallel.step({"pioneer_0": 0, "observer_1": 3})[0]
    assert observations["pioneer_0"].tolist() == [0, 1, 0, 0, 1, 0, 0, 0]
    single = one_hot(seat_env("pioneer_0", AB, **OPTIONS))
    assert single.reset(options=ONLY)[0].tolist() == B_THEN_PAD
    assert single.observation_space.contains(single.reset()[0])


def test_masks_stay_and_state_is_encoded():
    game = one_hot(env(AB, action_mask="obs", **OPTIONS))
    game.reset(options=ONLY)
    observation = game.observe("observer_1")
    assert observation["observation"].tolist() == B_THEN_PAD
    assert observation["action_mask"].tolist() == [0, 0, 0, 1]
    assert game.observation_space("observer_1").contains(observation)
    # query 1; responses pad, pad; lengths 1, 0, 0; caps 1, 1; seat 0 acts
    rows = game.state().reshape(9, 4)
    assert rows.argmax(axis=1).tolist() == [1, 3, 3, 1, 0, 0, 1, 1, 0]
    assert (rows.sum(axis=1) == 1).all()
    assert game.state_space.contains(game.state())


def test_a_wrapped_game_can_be_copied_and_pickled():
    game = one_hot(env(AB, **OPTIONS))
    game.reset(options=ONLY)
    for twin in (copy.deepcopy(game), pickle.loads(pickle.dumps(game))):
        assert twin.observe("pioneer_0").tolist() == B_THEN_PAD


def test_other_objects_are_refused():
    with pytest.raises(ValueError, match="is no environment; give an AECEnv"):
        one_hot(AB)
