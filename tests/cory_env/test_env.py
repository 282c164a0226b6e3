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


def table(tokens=(), *, caps=(3, 3), **options):
    """A game on the query abc in which `tokens` have been played."""
    made = raw_env(ECHO, **{"max_response": 3, **options})
    made.reset(seed=0, options={"query": QUERY, "caps": caps})
    for token in tokens:
        made.step(token)
    return made


PERFECT_THEN_A = (0, 1, 2, 0, 4)
"""The pioneer echoes abc and scores 1; the observer says a, then EOS, and scores 1/3."""


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
def test_keeps_the_pettingzoo_contract_without_a_warning(options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        api_test(env("echo", **options), num_cycles=30)
        seed_test(lambda: env("echo", **options), num_cycles=30)


def test_a_mask_in_the_observation_only_warns_that_the_space_is_a_dict():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(env("echo", action_mask="obs"), num_cycles=30)
    assert {str(w.message)[:39] for w in caught} <= {
        "Observation space for each agent probab",
        "Observation is not a NumPy array",
    }


def test_it_is_in_pettingzoos_registry():
    made = pettingzoo.make("aec", "cory/token-v0", seats=3)
    made.reset(seed=0)
    assert made.agents == ["pioneer_0", "observer_1", "observer_2"]
    assert str(made) == "cory_v0"
    assert cory_env.cory_v0.raw_env is raw_env


def test_both_seats_are_paid_the_sum_in_the_step_that_ends_the_game():
    made = table(PERFECT_THEN_A)
    assert made.rewards == pytest.approx({"pioneer_0": 4 / 3, "observer_1": 4 / 3})
    assert made.terminations == {"pioneer_0": True, "observer_1": True}
    assert made.truncations == {"pioneer_0": False, "observer_1": False}


def test_settling_pays_each_earlier_seat_on_a_turn_of_its_own():
    made = table(PERFECT_THEN_A, payout="settle", payoff="independent")
    assert made.rewards == pytest.approx({"pioneer_0": 0, "observer_1": 1 / 3})
    assert made.terminations == {"pioneer_0": False, "observer_1": True}
    assert made.agent_selection == "pioneer_0"
    made.step(3)  # ignored
    assert made.rewards == pytest.approx({"pioneer_0": 1, "observer_1": 0})
    assert made.terminations == {"pioneer_0": True, "observer_1": True}
    assert made.text("pioneer_0") == "abc"


@pytest.mark.parametrize("payout", ["end", "settle"])
@pytest.mark.parametrize("seats", [1, 2, 5])
def test_the_sum_of_last_is_the_payoff_and_the_dead_are_paid_once(payout, seats):
    made = env(ECHO, seats=seats, payout=payout, payoff="independent", max_response=3)
    made.reset(options={"query": QUERY})
    paid = dict.fromkeys(made.agents, 0.0)
    for t, seat in enumerate(made.agent_iter()):
        _, reward, over, _, _ = made.last()
        paid[seat] += reward
        made.step(None if over else t % 3)  # each of the responses of three tokens is abc
    assert paid == dict.fromkeys(paid, 1.0)


def test_the_payoff_can_be_changed_between_games():
    made = env(ECHO, max_response=3)
    made.reset(options={"query": QUERY})
    made.set_payoff("competitive")
    for token in PERFECT_THEN_A:
        made.step(token)
    assert made.rewards == pytest.approx({"pioneer_0": 2 / 3, "observer_1": -2 / 3})


def test_token_rewards_are_paid_at_their_token_with_what_the_seat_had_read():
    calls = []

    def price(seat, prompt, token):
        calls.append((seat, prompt, token))
        return -0.5 * token

    made = table((1, 4), token_reward=price)
    assert calls == [("pioneer_0", (0, 1, 2), 1), ("pioneer_0", (0, 1, 2, 1), 4)]
    assert made.rewards == {"pioneer_0": -2.0, "observer_1": 0.0}
    assert made._cumulative_rewards["pioneer_0"] == -2.0
    made.step(0)
    made.step(4)
    assert calls[-1] == ("observer_1", (0, 1, 2, 1, 0), 4)
    assert made.rewards["observer_1"] == pytest.approx(1 / 3 - 2.0)


def test_a_token_reward_must_be_finite():
    with pytest.raises(ValueError, match="token_reward gave nan for token 1 of pioneer_0; it must be finite"):
        table((1,), token_reward=lambda *_: float("nan"))


def test_any_seat_can_look_at_any_time_and_observations_are_its_own():
    made = table((1,))
    pad = [6] * 6
    assert made.observe("pioneer_0").tolist() == [0, 1, 2, 1, *pad[:5]]
    assert made.observe("observer_1").tolist() == [0, 1, 2, 1, *pad[:5]]  # what the pioneer has said so far
    made.observe("observer_1")[:] = 99
    made.step(4)
    assert made.observe("pioneer_0").tolist() == [0, 1, 2, 1, 4, *pad[:4]]
    assert made.observe("observer_1").tolist() == [0, 1, 2, 1, *pad[:5]]


def test_spaces_are_made_once_and_equal_for_all_seats():
    made = table(seats=3, caps=(3, 3, 3))
    # 3 of query, 2 responses of 3 to read, 3 to write
    assert {made.observation_space(seat).shape for seat in made.agents} == {(12,)}
    assert made.observation_space("pioneer_0") is made.observation_space("pioneer_0")
    assert made.observation_space("pioneer_0") is not made.observation_space("observer_1")
    assert made.observation_space("pioneer_0") == made.observation_space("observer_2")
    assert made.action_space("observer_1").n == 7


def test_infos_hold_numbers_under_the_same_keys_from_reset_on():
    made = table()
    assert made.infos["observer_1"] == {"prompt_length": 3, "response_length": 0, "cap": 3, "score": 0.0}
    for token in PERFECT_THEN_A:
        made.step(token)
    assert made.infos["observer_1"] == {"prompt_length": 6, "response_length": 2, "cap": 3, "score": 1 / 3}


def test_masks_allow_every_id_in_turn_and_pad_alone_otherwise():
    every, pad = [1] * 7, [0] * 6 + [1]
    made = table(action_mask="obs")
    assert made.observe("pioneer_0")["action_mask"].tolist() == every
    assert made.observe("observer_1")["action_mask"].tolist() == pad
    assert made.observation_space("pioneer_0").contains(made.observe("pioneer_0"))
    for token in PERFECT_THEN_A:
        made.step(token)
    made.step(None)
    assert made.observe("pioneer_0")["action_mask"].tolist() == pad  # it has left
    settling = table(PERFECT_THEN_A, action_mask="info", payout="settle")
    assert settling.infos["pioneer_0"]["action_mask"].tolist() == pad
    assert settling.infos["pioneer_0"]["action_mask"].dtype == np.int8


def test_state_is_the_whole_game_and_lies_in_its_space():
    made = table((1, 4, 3), caps=(3, 2))
    # query | responses padded to 3 | query length | lengths | caps | observer_1 acts
    assert made.state().tolist() == [*(0, 1, 2), *(1, 4, 6), *(3, 6, 6), 3, *(2, 1), *(3, 2), 1]
    assert made.state_space.contains(made.state())


def test_a_seed_fixes_every_game_that_follows_and_caps_are_drawn():
    def games(seed):
        made = raw_env(ECHO, max_response=(2, 9))
        made.reset(seed=seed)
        first = (made.game.query.ids, made.game.caps)
        others = []
        for _ in range(4):
            made.reset()
            others.append((made.game.query.ids, made.game.caps))
        return [first, *others]

    assert games(7) == games(7)
    assert games(7) != games(8)
    caps = [cap for seed in range(30) for _, caps in games(seed) for cap in caps]
    assert set(caps) == set(range(2, 10))


def test_a_game_in_progress_is_resumed_at_its_token_and_goes_on_the_same():
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
        table(seats=3, caps=(3, 3, 3)).set_state(table().get_state())


@pytest.mark.parametrize("action", [None, -1, 7, 1.5, "a", np.array([1])])
def test_a_wrong_action_is_refused_and_changes_nothing(action):
    made = table((1,))
    with pytest.raises(ValueError, match=r"pioneer_0 played .*; it must play an id from 0 to 6"):
        made.step(action)
    assert made.game.responses["pioneer_0"] == (1,)
    made.step(np.int32(1))
    assert made.game.responses["pioneer_0"] == (1, 1)


def test_after_the_end_only_none_then_only_reset():
    made = table(PERFECT_THEN_A)
    with pytest.raises(ValueError, match="when an agent is dead, the only valid action is None"):
        made.step(1)
    made.step(None)
    made.step(None)
    with pytest.raises(ValueError, match="every seat has left; call reset"):
        made.step(None)
    made.reset()
    made.step(1)


def test_a_reset_in_the_middle_of_the_dead_visits_leaves_nothing_behind():
    made = table(PERFECT_THEN_A, seats=2)
    made.step(None)
    made.reset()
    assert (made.agents, made.agent_selection) == (["pioneer_0", "observer_1"], "pioneer_0")
    assert made._skip_agent_selection is None


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"seats": 0}, "seats is 0; a game has 1 to 16"),
        ({"payout": "later"}, "payout is 'later'; choose one of 'end', 'settle'"),
        ({"action_mask": "yes"}, "action_mask is 'yes'; choose one of None, 'info', 'obs'"),
        ({"render_mode": "rgb"}, "render_mode is 'rgb'; choose one of None, 'ansi', 'human'"),
        ({"views": "mine"}, "no view called 'mine'"),
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
    made = table()
    with pytest.raises(ValueError, match="'abcd' has 4 tokens; this game takes 1 to 3"):
        made.reset(options={"query": Query("abcd", (0, 1, 2, 3))})
    with pytest.raises(ValueError, match="'' has 0 tokens; this game takes 1 to 3"):
        made.reset(options={"query": Query("", ())})
    with pytest.raises(ValueError, match=r"caps \[3, 4\] go beyond max_response 3"):
        made.reset(options={"caps": (3, 4)})
    made.reset()
    made.step(0)


def test_the_table_is_shown_as_text_with_scores_at_the_end():
    made = table((0, 4), render_mode="ansi")
    assert made.render() == "  query       abc\n  pioneer_0   a\n> observer_1  "
    made.step(1)
    made.step(4)
    assert made.render() == "  query       abc\n  pioneer_0   a  (score 0.333)\n  observer_1  b  (score 0)"


def test_human_mode_prints_whenever_a_turn_ends_and_without_colours_off_a_terminal(capsys):
    table((0, 4), render_mode="human")
    assert capsys.readouterr().out == "  query       abc\n  pioneer_0   a\n> observer_1  \n\n"


def test_what_a_model_writes_cannot_steer_the_terminal():
    assert render.printable("a\x1b[2J\nb") == r"a\x1b[2J\nb"
    lines = render.table(table((0,)).game, ABC, scores={}, colour=True).split("\n")
    assert lines[1] == "\x1b[1m> pioneer_0   a\x1b[0m"
