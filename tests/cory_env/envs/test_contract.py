"""The contract of every environment and task, by the tests of PettingZoo and beyond them."""

import copy
import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo.test import api_test, parallel_api_test, render_test, seed_test

from cory_env import Query, env, one_hot, parallel_env, tasks, turn_env
from cory_env.tasks.echo import Task as Echo
from cory_env.tasks.reviews import Task as Reviews
from cory_env.tokenizer import CharTokenizer

LETTERS = CharTokenizer('abcdefghijklmnopqrstuvwxyzI ".:')
PRINTABLE = CharTokenizer("\n" + "".join(map(chr, range(32, 127))))
ABC = CharTokenizer("abcd", stops=2)  # a b c d = 0 1 2 3, EOS 4 and 5, pad 6
ALLOWED = {"Action space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete"}


def counts_to(prompts, completions, last):
    """A reward function in the convention of TRL."""
    assert len(prompts) == len(completions)
    return [float(str(number) in text) for text, number in zip(completions, last, strict=True)]


@pytest.fixture(params=tasks.names())
def task(request, tmp_path):
    """Every task; reviews with a judge that counts letters, word problems and prompts with data made here."""
    if request.param in ("gsm8k", "svamp", "wordproblems"):
        rows = [{"body": "", "question": f"{n} times {n}?", "answer": f"#### {n * n}"} for n in range(20)]
        (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return tasks.load(request.param, tokenizer=PRINTABLE, data=tmp_path / "problems.jsonl")
    if request.param == "prompts":
        rows = [{"prompt": f"Count to {n}:", "last": n} for n in range(20)]
        (tmp_path / "counts.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return tasks.load("prompts", tokenizer=PRINTABLE, judge=counts_to, data=tmp_path / "counts.jsonl")
    if request.param != "reviews":
        return tasks.load(request.param)
    openings = {"train": ["a film", "so"], "test": ["the"]}
    (tmp_path / "openings.json").write_text(json.dumps(openings))
    return Reviews(LETTERS, lambda texts: [len(text) for text in texts], tmp_path / "openings.json")


@pytest.mark.slow
@pytest.mark.parametrize("payout", ["end", "settle"])
@pytest.mark.parametrize("make", [env, turn_env])
def test_the_pettingzoo_tests_pass_for_every_level_payout_and_task(make, payout, task):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(make(task, payout=payout), num_cycles=20)
        seed_test(lambda: make(task, payout=payout), num_cycles=20)
        render_test(lambda **options: make(task, payout=payout, **options))
    assert {str(w.message) for w in caught} <= (ALLOWED if make is turn_env else set())


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"action_mask": "info"}, {"action_mask": "obs"}, {"seats": 1}], ids=str
)
def test_the_pettingzoo_parallel_test_passes_for_every_task(options, task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(parallel_env(task, **options), num_cycles=30)
        parallel_api_test(one_hot(parallel_env(task, **options)), num_cycles=30)


def record(made, episodes, seed):
    """Observations and rewards of `episodes` games begun from `seed`, under actions of a fixed generator."""
    rng, steps = np.random.default_rng(0), []
    for episode in range(episodes):
        made.reset(seed=seed if episode == 0 else None)
        for seat in made.agent_iter():
            observation, reward, over, _, info = made.last()
            steps.append([seat, observation.tolist(), round(reward, 12), info["cap"]])
            space = made.action_space(seat)
            made.step(None if over else (rng.random(space.shape) * getattr(space, "nvec", 8)).astype(int))
    return steps


AGAIN = """
import json, sys
sys.path.insert(0, sys.argv[1])
from test_contract import MAKERS, record
print(json.dumps(record(MAKERS[sys.argv[2]](), 3, seed=11)))
"""
MAKERS = {
    "token": lambda: env("echo", seats=3, max_response=(2, 6)),
    "turn": lambda: turn_env("echo", seats=3, max_response=(2, 6)),
}


@pytest.mark.parametrize("level", MAKERS)
def test_three_episodes_reseeded_and_in_a_fresh_process_are_the_same_games(level):
    made = MAKERS[level]()
    first = record(made, 3, seed=11)
    assert record(made, 3, seed=11) == first
    assert record(made, 3, seed=12) != first
    command = [sys.executable, "-c", AGAIN, str(Path(__file__).parent), level]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(process.stdout) == first


def test_unknown_reset_options_are_accepted():
    for made in (env(), turn_env(), parallel_env()):
        made.reset(seed=0, options={"unknown": "option", "another": [1]})


@st.composite
def any_game(draw):
    seats = draw(st.integers(1, 5))
    low = draw(st.integers(1, 4))
    names = ["cooperative", "independent"] + ["competitive"] * (seats > 1)
    return {
        "seats": seats,
        "payoff": draw(st.sampled_from(names) | st.floats(-3, 3)),
        "payout": draw(st.sampled_from(["end", "settle"])),
        "max_response": (low, draw(st.integers(low, 5))),
        "action_mask": draw(st.sampled_from([None, "info", "obs"])),
        "views": draw(st.sampled_from(["all", "none"])),
    }


GAMES = 20
EXAMPLES = 167
"""With three tokenizers, 10,020 games in all."""
TASKS = {stops: Echo(CharTokenizer("abc", stops=stops), length=2) for stops in (1, 2, 4)}


@pytest.mark.slow
@pytest.mark.parametrize("stops", TASKS)
@settings(deadline=None, max_examples=EXAMPLES)
@given(options=any_game(), seed=st.integers(0, 2**32 - 1))
def test_ten_thousand_games_of_random_tokens(stops, options, seed):
    tokenizer = TASKS[stops].tokenizer
    made = env(TASKS[stops], **options)
    rng = np.random.default_rng(seed)
    made.reset(seed=seed)
    for _ in range(GAMES):
        play_and_check(made, rng, tokenizer, options)
        made.reset()


def play_and_check(made, rng, tokenizer, options):
    """Play one game of random tokens and check it by rules written here, from the played tokens only."""
    game = made.unwrapped.game
    query, caps, seats = game.query.ids, dict(zip(made.agents, game.caps, strict=True)), list(made.agents)
    played = {seat: [] for seat in seats}
    received = dict.fromkeys(seats, 0.0)
    keys = {seat: set(info) for seat, info in made.infos.items()}
    for seat in seats:
        ids = played[seat]
        while not (len(ids) == caps[seat] or (ids and ids[-1] in tokenizer.eos)):
            assert made.agent_selection == seat
            observation, reward, ended, cut, info = made.last()
            assert (reward, ended, cut) == (0, False, False)
            assert made.observation_space(seat).contains(observation)
            check_observation(observation, info, query, played, seat, tokenizer, options)
            ids.append(int(rng.integers(tokenizer.vocab_size)))
            made.step(ids[-1])
    if options["payout"] == "settle":
        assert made.terminations == {seat: seat == seats[-1] for seat in seats}
        for seat in seats[:-1]:
            assert (made.agent_selection, made.last()[1:3]) == (seat, (0, False))
            made.step(0)
    assert all(made.terminations.values())
    assert {seat: set(info) for seat, info in made.infos.items()} == keys
    for seat in made.agent_iter():
        received[seat] += made.last()[1]
        made.step(None)
    scores = [sum(a == b for a, b in zip(query, played[seat], strict=False)) / len(query) for seat in seats]
    payoffs = [payoff_of(options["payoff"], scores, k) for k in range(len(seats))]
    assert list(received.values()) == pytest.approx(payoffs)


def check_observation(observation, info, query, played, seat, tokenizer, options):
    """The observation is query, earlier responses without EOS, own response, pad; a mask allows any id."""
    if options["action_mask"] is not None:
        mask = (observation if options["action_mask"] == "obs" else info)["action_mask"]
        assert mask.all()
    row = observation["observation"] if options["action_mask"] == "obs" else observation
    seats = list(played)
    earlier = seats[: seats.index(seat)] if options["views"] == "all" else []
    visible = [token for one in earlier for token in played[one] if token not in tokenizer.eos]
    ids = [*query, *visible, *played[seat]]
    assert row.tolist() == ids + [tokenizer.pad] * (len(row) - len(ids))


def payoff_of(payoff, scores, k):
    own, others = scores[k], sum(scores) - scores[k]
    weight = {"cooperative": 1, "independent": 0, "competitive": -1 / max(1, len(scores) - 1)}
    return own + weight.get(payoff, payoff if not isinstance(payoff, str) else 0) * others


@pytest.mark.parametrize("make", [env, turn_env])
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_of_a_game_in_progress_continues_identically_and_independently(make, clone):
    made = make(Echo(ABC, length=3), max_response=(2, 4), payout="settle")
    made.reset(seed=5)
    made.step(made.action_space("pioneer_0").sample() * 0)
    twin = clone(made)
    before = made.state().tolist()
    rest = [finish(twin), finish(twin)]
    assert made.state().tolist() == before  # the copy has finished its game; the original has not moved
    assert [finish(made), finish(made)] == rest


def finish(made):
    """Play the rest of this game; return its rewards and states, and the first state of the next game."""
    steps = []
    for seat in made.agent_iter():
        steps.append((seat, made.last()[1], made.state().tolist()))
        over = made.terminations[seat]
        made.step(None if over else made.action_space(seat).sample() * 0 + 1)
    made.reset()
    return [*steps, made.state().tolist()]


class Fails(Echo):
    """echo whose scorer returns `scores`."""

    scores: list[float]

    def score(self, _queries, _responses):
        return self.scores


@pytest.mark.parametrize(
    ("scores", "fault"),
    [
        ([1.0], r"scored 2 responses with shape \(1,\); return one number each"),
        ([1.0, float("nan")], "scored nan for the response 'a' to 'abc'; a score must be a finite number"),
        ([float("-inf"), 1.0], "scored -inf"),
    ],
)
@pytest.mark.parametrize("make", [env, turn_env, parallel_env])
def test_a_scorer_that_fails_is_named_and_the_env_is_usable_after_reset(make, scores, fault):
    task = Fails(ABC, length=3)
    made = make(task, max_response=1)
    task.scores = scores
    with pytest.raises(ValueError, match=fault):
        play_a(made)
    task.scores = [0.5, 0.25]
    play_a(made)
    infos = made.aec.infos if make is parallel_env else made.infos
    assert [info["score"] for info in infos.values()] == [0.5, 0.25]


def play_a(made):
    """Play a game of two responses, each of them a."""
    made.reset(options={"query": Query("abc", (0, 1, 2))})
    for seat in made.possible_agents:
        a = made.action_space(seat).sample() * 0
        made.step(dict.fromkeys(made.agents, a) if isinstance(made, parallel_env) else a)
