"""What every view of every task keeps, beyond what the stock tests look at."""

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
PRINTED = CharTokenizer("\n" + "".join(map(chr, range(32, 127))))
ABC = CharTokenizer("abcd", stops=2)  # a b c d = 0 1 2 3, EOS 4 and 5, pad 6
ALLOWED = {"Action space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete"}


def counted(prompts, completions, last):
    """A reward function as others write them."""
    return [float(str(number) in said) for said, number in zip(completions, last, strict=True)]


@pytest.fixture(params=tasks.names())
def task(request, tmp_path):
    """Every task there is; reviews with a judge that counts letters, word problems made here."""
    if request.param in ("gsm8k", "svamp", "wordproblems"):
        rows = [{"body": "", "question": f"{n} times {n}?", "answer": f"#### {n * n}"} for n in range(20)]
        (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return tasks.load(request.param, tokenizer=PRINTED, data=tmp_path / "problems.jsonl")
    if request.param == "prompts":
        rows = [{"prompt": f"Count to {n}:", "last": n} for n in range(20)]
        (tmp_path / "counts.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return tasks.load("prompts", tokenizer=PRINTED, judge=counted, data=tmp_path / "counts.jsonl")
    if request.param != "reviews":
        return tasks.load(request.param)
    openings = {"train": [LETTERS.encode("a film"), LETTERS.encode("so")], "test": [LETTERS.encode("the")]}
    (tmp_path / "openings.json").write_text(json.dumps(openings))
    return Reviews(LETTERS, lambda texts: [len(text) for text in texts], tmp_path / "openings.json")


@pytest.mark.parametrize("payout", ["end", "settle"])
@pytest.mark.parametrize("make", [env, turn_env])
def test_stock_tests_pass_for_every_view_and_task(make, payout, task):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(make(task, payout=payout), num_cycles=20)
        seed_test(lambda: make(task, payout=payout), num_cycles=20)
        render_test(lambda **options: make(task, payout=payout, **options))
    assert {str(w.message) for w in caught} <= (ALLOWED if make is turn_env else set())


@pytest.mark.parametrize(
    "options", [{}, {"action_mask": "info"}, {"action_mask": "obs"}, {"seats": 1}], ids=str
)
def test_the_stock_parallel_test_passes_for_every_task(options, task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(parallel_env(task, **options), num_cycles=30)
        parallel_api_test(one_hot(parallel_env(task, **options)), num_cycles=30)


def record(made, episodes, seed):
    """What `episodes` games begun from `seed` show and pay; actions are drawn from a generator of our own."""
    chance, told = np.random.default_rng(0), []
    for episode in range(episodes):
        made.reset(seed=seed if episode == 0 else None)
        for seat in made.agent_iter():
            seen, reward, over, _, info = made.last()
            told.append([seat, seen.tolist(), round(reward, 12), info["cap"]])
            space = made.action_space(seat)
            made.step(None if over else (chance.random(space.shape) * getattr(space, "nvec", 8)).astype(int))
    return told


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
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == first


def test_unknown_reset_options_are_accepted():
    for made in (env(), turn_env(), parallel_env()):
        made.reset(seed=0, options={"nobody": "knows", "what": [1]})


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
EXAMPLES = 500
"""10,000 games in all."""


@settings(deadline=None, max_examples=EXAMPLES)
@given(options=any_game(), stops=st.sampled_from([1, 2, 4]), seed=st.integers(0, 2**32 - 1))
def test_ten_thousand_games_of_random_tokens(options, stops, seed):
    tokenizer = CharTokenizer("abc", stops=stops)
    made = env(Echo(tokenizer, length=2), **options)
    chance = np.random.default_rng(seed)
    made.reset(seed=seed)
    for _ in range(GAMES):
        play_and_check(made, chance, tokenizer, options)
        made.reset()


def play_and_check(made, chance, tokenizer, options):
    """One game of random tokens, followed by rules written anew: by hand, from what was played alone."""
    game = made.unwrapped.game
    query, caps, seats = game.query.ids, dict(zip(made.agents, game.caps, strict=True)), list(made.agents)
    said = {seat: [] for seat in seats}
    received = dict.fromkeys(seats, 0.0)
    keys = {seat: set(info) for seat, info in made.infos.items()}
    for seat in seats:
        while not (len(said[seat]) == caps[seat] or (said[seat] and said[seat][-1] in tokenizer.eos)):
            assert made.agent_selection == seat
            seen, reward, ended, cut, info = made.last()
            assert (reward, ended, cut) == (0, False, False)
            assert made.observation_space(seat).contains(seen)
            check_seen(seen, info, query, said, seat, seats, tokenizer, options)
            said[seat].append(int(chance.integers(tokenizer.vocab_size)))
            made.step(said[seat][-1])
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
    scores = [sum(a == b for a, b in zip(query, said[seat], strict=False)) / len(query) for seat in seats]
    owed = [paid(options["payoff"], scores, k) for k in range(len(seats))]
    assert list(received.values()) == pytest.approx(owed)


def check_seen(seen, info, query, said, seat, seats, tokenizer, options):
    """The observation is query, earlier responses without EOS, own response, pad; a mask allows any id."""
    if options["action_mask"] is not None:
        mask = (seen if options["action_mask"] == "obs" else info)["action_mask"]
        assert mask.all()
    row = seen["observation"] if options["action_mask"] == "obs" else seen
    earlier = seats[: seats.index(seat)] if options["views"] == "all" else []
    shown = [token for one in earlier for token in said[one] if token not in tokenizer.eos]
    ids = [*query, *shown, *said[seat]]
    assert row.tolist() == ids + [tokenizer.pad] * (len(row) - len(ids))


def paid(payoff, scores, k):
    own, others = scores[k], sum(scores) - scores[k]
    weight = {"cooperative": 1, "independent": 0, "competitive": -1 / max(1, len(scores) - 1)}
    return own + weight.get(payoff, payoff if not isinstance(payoff, str) else 0) * others


@pytest.mark.parametrize("make", [env, turn_env])
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_of_a_game_in_progress_goes_on_alike_and_apart(make, clone):
    made = make(Echo(ABC, length=3), max_response=(2, 4), payout="settle")
    made.reset(seed=5)
    made.step(made.action_space("pioneer_0").sample() * 0)
    twin = clone(made)
    before = made.state().tolist()
    rest = [finish(one) for one in (twin, twin)]
    assert made.state().tolist() == before  # the copy has finished its game; the original has not moved
    assert [finish(made), finish(made)] == rest


def finish(made):
    """What is left of this game, then the beginning of the next."""
    told = []
    for seat in made.agent_iter():
        told.append((seat, made.last()[1], made.state().tolist()))
        over = made.terminations[seat]
        made.step(None if over else made.action_space(seat).sample() * 0 + 1)
    made.reset()
    return [*told, made.state().tolist()]


class Fails(Echo):
    """echo whose scorer returns what it is told to."""

    scores: list[float]

    def score(self, queries, responses):
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
        say_a(made)
    task.scores = [0.5, 0.25]
    say_a(made)
    infos = made.aec.infos if make is parallel_env else made.infos
    assert [info["score"] for info in infos.values()] == [0.5, 0.25]


def say_a(made):
    """A game of two responses, a each."""
    made.reset(options={"query": Query("abc", (0, 1, 2))})
    for seat in made.possible_agents:
        a = made.action_space(seat).sample() * 0
        made.step(dict.fromkeys(made.agents, a) if isinstance(made, parallel_env) else a)
