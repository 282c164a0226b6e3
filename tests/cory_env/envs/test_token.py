"""The token-level environment: rewards, turns, observations, state, options."""

import copy
import json
import pickle
import warnings

import numpy as np
import pettingzoo
import pytest
from pettingzoo.test import api_test, seed_test

import cory_env
from cory_env import Query, env, raw_env, render
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer

ABC = CharTokenizer("abcd", stops=2)  # a b c d = 0 1 2 3, EOS 4 and 5, pad 6
ECHO = Echo(ABC, length=3)
QUERY = Query("abc", (0, 1, 2))


def played(tokens=(), *, caps=(3, 3), **options):
    """A game on the query abc in which `tokens` have been played."""
    game = raw_env(ECHO, **{"max_response": 3, **options})
    game.reset(seed=0, options={"query": QUERY, "caps": caps})
    for token in tokens:
        game.step(token)
    return game


PERFECT_THEN_A = (0, 1, 2, 0, 4)
"""The pioneer echoes abc and scores 1; the observer plays a, then EOS, and scores 1/3."""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"seats": 1},
        {"seats": 4, "views": "previous"},
        {"payout": "settle", "seats": 3},
        {"max_response": (1, 5)},
        {"action_mask": "info", "payout": "settle"},
    ],
    ids=str,
)
def test_token_env_passes_the_pettingzoo_tests_without_a_warning(options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        api_test(env("echo", **options), num_cycles=30)
        seed_test(lambda: env("echo", **options), num_cycles=30)


def test_with_a_mask_in_the_observation_they_warn_only_that_the_space_is_a_dict():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(env("echo", action_mask="obs"), num_cycles=30)
    assert {str(w.message)[:39] for w in caught} <= {
        "Observation space for each agent probab",
        "Observation is not a NumPy array",
    }


def test_token_env_is_in_the_registry_of_pettingzoo():
    game = pettingzoo.make("aec", "cory/token-v0", seats=3)
    game.reset(seed=0)
    assert game.agents == ["pioneer_0", "observer_1", "observer_2"]
    assert str(game) == "cory_v0"
    assert cory_env.cory_v0.raw_env is raw_env


def test_both_seats_are_paid_the_sum_in_the_step_that_ends_the_game():
    game = played(PERFECT_THEN_A)
    assert game.rewards == pytest.approx({"pioneer_0": 4 / 3, "observer_1": 4 / 3})
    assert game.terminations == {"pioneer_0": True, "observer_1": True}
    assert game.truncations == {"pioneer_0": False, "observer_1": False}


def test_payout_settle_pays_each_earlier_seat_on_a_turn_of_its_own():
    game = played(PERFECT_THEN_A, payout="settle", payoff="independent")
    assert game.rewards == pytest.approx({"pioneer_0": 0, "observer_1": 1 / 3})
    assert game.terminations == {"pioneer_0": False, "observer_1": True}
    assert game.agent_selection == "pioneer_0"
    game.step(3)  # ignored
    assert game.rewards == pytest.approx({"pioneer_0": 1, "observer_1": 0})
    assert game.terminations == {"pioneer_0": True, "observer_1": True}
    assert game.text("pioneer_0") == "abc"


@pytest.mark.parametrize("payout", ["end", "settle"])
@pytest.mark.parametrize("seats", [1, 2, 5])
def test_rewards_of_last_sum_to_the_payoff_and_terminated_seats_are_paid_once(payout, seats):
    game = env(ECHO, seats=seats, payout=payout, payoff="independent", max_response=3)
    game.reset(options={"query": QUERY})
    totals = dict.fromkeys(game.agents, 0.0)
    for t, seat in enumerate(game.agent_iter()):
        _, reward, over, _, _ = game.last()
        totals[seat] += reward
        game.step(None if over else t % 3)  # each of the responses of three tokens is abc
    assert totals == dict.fromkeys(totals, 1.0)


def test_the_payoff_can_be_changed_between_games():
    game = env(ECHO, max_response=3)
    game.reset(options={"query": QUERY})
    game.set_payoff("competitive")
    for token in PERFECT_THEN_A:
        game.step(token)
    assert game.rewards == pytest.approx({"pioneer_0": 2 / 3, "observer_1": -2 / 3})


def test_token_rewards_are_paid_at_their_token_and_depend_on_the_ids_before_it():
    calls = []

    def token_reward(seat, prompt, token):
        calls.append((seat, prompt, token))
        return -0.5 * token

    game = played((1, 4), token_reward=token_reward)
    assert calls == [("pioneer_0", (0, 1, 2), 1), ("pioneer_0", (0, 1, 2, 1), 4)]
    assert game.rewards == {"pioneer_0": -2.0, "observer_1": 0.0}
    assert game._cumulative_rewards["pioneer_0"] == -2.0
    game.step(0)
    game.step(4)
    assert calls[-1] == ("observer_1", (0, 1, 2, 1, 0), 4)
    assert game.rewards["observer_1"] == pytest.approx(1 / 3 - 2.0)


def test_a_token_reward_must_be_finite():
    with pytest.raises(ValueError, match="token_reward gave nan for token 1 of pioneer_0; it must be finite"):
        played((1,), token_reward=lambda *_: float("nan"))


def test_any_seat_can_be_observed_at_any_time_and_observations_are_copies():
    game = played((1,))
    pad = [6] * 6
    assert game.observe("pioneer_0").tolist() == [0, 1, 2, 1, *pad[:5]]
    assert game.observe("observer_1").tolist() == [0, 1, 2, 1, *pad[:5]]  # the pioneer's response so far
    game.observe("observer_1")[:] = 99
    game.step(4)
    assert game.observe("pioneer_0").tolist() == [0, 1, 2, 1, 4, *pad[:4]]
    assert game.observe("observer_1").tolist() == [0, 1, 2, 1, *pad[:5]]


def test_spaces_are_made_once_and_equal_for_all_seats():
    game = played(seats=3, caps=(3, 3, 3))
    # 3 of query, 2 responses of 3 to read, 3 to write
    assert {game.observation_space(seat).shape for seat in game.agents} == {(12,)}
    assert game.observation_space("pioneer_0") is game.observation_space("pioneer_0")
    assert game.observation_space("pioneer_0") is not game.observation_space("observer_1")
    assert game.observation_space("pioneer_0") == game.observation_space("observer_2")
    assert game.action_space("observer_1").n == 7


def test_infos_hold_numbers_under_the_same_keys_from_reset_on():
    game = played()
    assert game.infos["observer_1"] == {"prompt_length": 3, "response_length": 0, "cap": 3, "score": 0.0}
    for token in PERFECT_THEN_A:
        game.step(token)
    assert game.infos["observer_1"] == {"prompt_length": 6, "response_length": 2, "cap": 3, "score": 1 / 3}


def test_masks_allow_every_id_in_turn_and_only_pad_otherwise():
    every, pad = [1] * 7, [0] * 6 + [1]
    game = played(action_mask="obs")
    assert game.observe("pioneer_0")["action_mask"].tolist() == every
    assert game.observe("observer_1")["action_mask"].tolist() == pad
    assert game.observation_space("pioneer_0").contains(game.observe("pioneer_0"))
    for token in PERFECT_THEN_A:
        game.step(token)
    game.step(None)
    assert game.observe("pioneer_0")["action_mask"].tolist() == pad  # it has left
    settling = played(PERFECT_THEN_A, action_mask="info", payout="settle")
    assert settling.infos["pioneer_0"]["action_mask"].tolist() == pad
    assert settling.infos["pioneer_0"]["action_mask"].dtype == np.int8


def test_state_is_the_whole_game_and_lies_in_its_space():
    game = played((1, 4, 3), caps=(3, 2))
    # query | responses padded to 3 | query length | lengths | caps | observer_1 acts
    assert game.state().tolist() == [*(0, 1, 2), *(1, 4, 6), *(3, 6, 6), 3, *(2, 1), *(3, 2), 1]
    assert game.state_space.contains(game.state())


def test_a_seed_fixes_every_game_that_follows_and_caps_are_drawn():
    def games(seed):
        game = raw_env(ECHO, max_response=(2, 9))
        game.reset(seed=seed)
        first = (game.game.query.ids, game.game.caps)
        others = []
        for _ in range(4):
            game.reset()
            others.append((game.game.query.ids, game.game.caps))
        return [first, *others]

    assert games(7) == games(7)
    assert games(7) != games(8)
    caps = [cap for seed in range(30) for _, caps in games(seed) for cap in caps]
    assert set(caps) == set(range(2, 10))


def test_a_game_in_progress_is_resumed_at_its_token_and_continues_identically():
    first = raw_env(ECHO, max_response=(2, 4), payout="settle")
    first.reset(seed=3)
    first.step(1)
    saved = json.loads(json.dumps(first.get_state()))
    second = raw_env(ECHO, max_response=(2, 4), payout="settle")
    second.reset(seed=99)
    second.set_state(saved)
    for twin in (second, copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        original = raw_env(ECHO, max_response=(2, 4), payout="settle")
        original.set_state(saved)
        while original.agents:
            assert twin.agent_selection == original.agent_selection
            assert twin.state().tolist() == original.state().tolist()
            assert twin.last()[1:] == original.last()[1:]
            token = None if original.terminations[original.agent_selection] else 2
            twin.step(token)
            original.step(token)
        twin.reset()
        original.reset()
        assert twin.state().tolist() == original.state().tolist()


def test_a_state_of_other_seats_is_refused():
    with pytest.raises(ValueError, match="give one cap from 1 for each of 3 seats"):
        played(seats=3, caps=(3, 3, 3)).set_state(played().get_state())


@pytest.mark.parametrize("action", [None, -1, 7, 1.5, "a", np.array([1])])
def test_a_wrong_action_is_refused_and_changes_nothing(action):
    game = played((1,))
    with pytest.raises(ValueError, match=r"pioneer_0 played .*; it must play an id from 0 to 6"):
        game.step(action)
    assert game.game.responses["pioneer_0"] == (1,)
    game.step(np.int32(1))
    assert game.game.responses["pioneer_0"] == (1, 1)


def test_after_the_end_only_none_is_legal_and_then_only_reset():
    game = played(PERFECT_THEN_A)
    with pytest.raises(ValueError, match="when an agent is dead, the only valid action is None"):
        game.step(1)
    game.step(None)
    game.step(None)
    with pytest.raises(ValueError, match="every seat has left; call reset"):
        game.step(None)
    game.reset()
    game.step(1)


def test_a_reset_before_all_seats_have_left_starts_afresh():
    game = played(PERFECT_THEN_A, seats=2)
    game.step(None)
    game.reset()
    assert (game.agents, game.agent_selection) == (["pioneer_0", "observer_1"], "pioneer_0")
    assert game._skip_agent_selection is None


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"seats": 0}, "seats is 0; a game has 1 to 16"),
        ({"payout": "later"}, "payout is 'later'; choose one of 'end', 'settle'"),
        ({"action_mask": "yes"}, "action_mask is 'yes'; choose one of None, 'info', 'obs'"),
        ({"render_mode": "rgb"}, "render_mode is 'rgb'; choose one of None, 'ansi', 'human'"),
        ({"views": "mine"}, "no view called 'mine'"),
        ({"payoff": "shuffled"}, "an environment plays one game; use it in training or in a VectorGame"),
        ({"payoff": [[1]]}, r"has shape \(1, 1\); 2 seats need \(2, 2\)"),
        ({"max_response": 0}, "max_response is 0"),
        ({"window": 8}, "observer_1 may read 6 tokens and write 3"),
        ({"task": "ecko"}, "no task called 'ecko'; there are arithmetic, echo"),
    ],
)
def test_wrong_options_are_refused(options, fault):
    with pytest.raises(ValueError, match=fault):
        raw_env(**{"task": ECHO, "max_response": 3, **options})


def test_wrong_queries_and_caps_are_refused_and_the_env_stays_usable():
    game = played()
    with pytest.raises(ValueError, match="'abcd' has 4 tokens; this game takes 1 to 3"):
        game.reset(options={"query": Query("abcd", (0, 1, 2, 3))})
    with pytest.raises(ValueError, match="'' has 0 tokens; this game takes 1 to 3"):
        game.reset(options={"query": Query("", ())})
    for caps in ((3, 4), (0, 1), (2.5, 3), (1, 2, 3), (), None, "ab", 2.5, True):
        with pytest.raises(ValueError, match=r"caps are .*; give whole numbers from 1 to max_response, 3"):
            game.reset(options={"caps": caps})
    game.reset()
    game.step(0)


def test_one_cap_holds_for_every_seat():
    game = played()
    game.reset(options={"caps": 2})
    assert game.game.caps == (2, 2)


def test_the_game_is_rendered_as_text_with_scores_at_the_end():
    game = played((0, 4), render_mode="ansi")
    assert game.render() == "  query       abc\n  pioneer_0   a\n> observer_1  "
    game.step(1)
    game.step(4)
    assert game.render() == "  query       abc\n  pioneer_0   a  (score 0.333)\n  observer_1  b  (score 0)"


def test_human_mode_prints_at_the_end_of_a_turn_and_without_colours_outside_a_terminal(capsys):
    played((0, 4), render_mode="human")
    assert capsys.readouterr().out == "  query       abc\n  pioneer_0   a\n> observer_1  \n\n"
    played((0, 4), caps=(3,), seats=1, render_mode="human")
    assert capsys.readouterr().out == "  query      abc\n  pioneer_0  a  (score 0.333)\n\n"


def test_control_characters_of_a_response_cannot_steer_the_terminal():
    assert render.printable("a\x1b[2J\nb") == r"a\x1b[2J\nb"
    game = played((0,)).game
    text = render.game_text(game.query, game.responses, turn=game.turn, tokenizer=ABC, scores={}, colour=True)
    lines = text.split("\n")
    assert lines[1] == "\x1b[1m> pioneer_0   a\x1b[0m"
