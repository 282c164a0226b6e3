"""The Gymnasium environment of one seat: partners, rewards, seeds, options."""

import copy
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
import scipy.stats
from gymnasium.utils.env_checker import check_env

from cory_env import Query, seat_env
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer

ABC = CharTokenizer("abcd", stops=2)  # a b c d = 0 1 2 3, EOS 4 and 5, pad 6
ECHO = Echo(ABC, length=3)
QUERY = Query("abc", (0, 1, 2))


def fixed(*ids):
    """A partner that always responds with `ids`."""
    return lambda _prompt, _cap, _rng: ids


def begin(seat, **options):
    """A game on the query abc, and the first observation."""
    env = seat_env(seat, ECHO, **{"max_response": 3, "payoff": "independent", **options})
    return env, env.reset(seed=0, options={"query": QUERY})[0].tolist()


@pytest.mark.parametrize("seat", ["pioneer_0", "observer_1", "observer_2"])
def test_seat_env_passes_the_checks_of_gymnasium_and_stable_baselines(seat):
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker")
    env = gymnasium.make("cory/Seat-v0", seat=seat, seats=3, render_mode="ansi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
        sb3.check_env(seat_env(seat, seats=3))


def test_the_observer_reads_the_response_of_its_partner_and_is_paid_on_its_last_token():
    env, observation = begin("observer_1", partners=fixed(3, 4, 0))
    assert observation == [0, 1, 2, 3, 6, 6, 6, 6, 6]  # the partner's EOS ends it and is not shown
    assert env.step(0)[1:4] == (0.0, False, False)
    observation, reward, ended, _, info = env.step(5)
    assert (reward, ended, info["score"]) == (pytest.approx(1 / 3), True, pytest.approx(1 / 3))
    assert observation.tolist() == [0, 1, 2, 3, 0, 5, 6, 6, 6]


def test_the_pioneer_is_paid_once_its_partners_have_responded():
    calls = []

    def partner(prompt, cap, _rng):
        calls.append((prompt, cap))
        return prompt[:3]

    env, _ = begin("pioneer_0", partners=partner, payoff="cooperative", seats=3)
    env.step(1)
    reward, ended = env.step(4)[1:3]
    # b scores 0, abc twice 1; the partners read b, then b and abc
    assert (reward, ended) == (2.0, True)
    assert calls == [((0, 1, 2, 1), 3), ((0, 1, 2, 1, 0, 1, 2), 3)]


def test_a_game_that_is_over_is_not_played_on():
    env, _ = begin("pioneer_0", partners={"observer_1": fixed(0, 1, 2)})
    env.step(4)
    with pytest.raises(ValueError, match="the game is over; call reset"):
        env.step(4)


def test_token_rewards_of_the_seat_are_paid_at_their_tokens():
    env, _ = begin("observer_1", partners=fixed(0, 1, 2), token_reward=lambda *_: -1.0)
    assert [env.step(token)[1] for token in (0, 1, 2)] == [-1, -1, 0]  # the last: payoff 1, token reward -1


def test_a_seed_fixes_the_random_partners_too():
    def game(seed):
        env = seat_env("observer_2", ECHO, seats=3, max_response=(1, 5))
        return [env.reset(seed=seed)[0].tolist(), *(env.reset()[0].tolist() for _ in range(3))]

    assert game(1) == game(1)
    assert game(1) != game(2)


@pytest.mark.parametrize("seeded", ["once", "every episode"])
def test_random_partners_tell_nothing_of_the_query(seeded):
    env = seat_env("observer_1", "relay", max_response=1)
    counts = np.zeros((4, 7))
    for i in range(1200):
        row, info = env.reset(seed=i if seeded == "every episode" or i == 0 else None)
        secret = env.aec.game.query.ids[0]
        counts[secret, int(row[info["prompt_length"] - 1]) % 7] += 1
    assert scipy.stats.chi2_contingency(counts[counts.sum(1) > 0][:, counts.sum(0) > 0]).pvalue > 1e-3


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_of_an_episode_in_progress_continues_identically_and_independently(clone):
    env = seat_env("pioneer_0", ECHO, max_response=(2, 4))
    env.reset(seed=3)
    env.step(1)
    twin = clone(env)
    assert twin.step(5)[0].tolist() == env.step(5)[0].tolist()
    assert [twin.reset()[0].tolist() for _ in range(3)] == [env.reset()[0].tolist() for _ in range(3)]


def test_a_single_seat_needs_no_partner():
    env, _ = begin("pioneer_0", seats=1)
    assert [env.step(token)[1] for token in (0, 1, 2)] == [0, 0, 1]


@pytest.mark.parametrize("options", [{}, {"action_mask": "obs"}])
def test_masks_have_the_form_that_maskable_ppo_needs(options):
    env = seat_env("observer_1", ECHO, max_response=3, **options)
    env.reset()
    assert env.action_masks().tolist() == [True] * 7


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"seat": "observer_2"}, "seat is 'observer_2'; choose one of 'pioneer_0', 'observer_1'"),
        ({"payout": "settle"}, "payout is 'settle'; choose one of 'end'"),
        ({"partners": {}}, "partners are given for no seat; pioneer_0 plays with observer_1"),
    ],
)
def test_wrong_options_are_refused(options, fault):
    with pytest.raises(ValueError, match=fault):
        seat_env(**options)


def test_a_partner_that_stops_without_eos_is_named():
    with pytest.raises(
        ValueError, match="pioneer_0 wrote 1 tokens without EOS; go on to EOS or to its cap of 3"
    ):
        begin("observer_1", partners=fixed(0))
    with pytest.raises(ValueError, match="pioneer_0 played 9; it must play an id from 0 to 6"):
        begin("observer_1", partners=fixed(9, 9, 9))
