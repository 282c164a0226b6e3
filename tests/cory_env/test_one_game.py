"""`VectorGame` and the AEC env play the same game: batches are replayed token by token through the env."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cory_env import VectorGame, raw_env
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer
from cory_env.views import SEES

STOPS = (1, 3)


class Apart(Echo):
    """Standalone the score of echo; in a game every token that no other seat has written counts, by seat."""

    def score_games(self, queries, responses):
        games = zip(*([response.ids for response in of_seat] for of_seat in responses.values()), strict=True)
        return [
            [
                (k + 1)
                * sum(token not in [i for j in range(len(game)) if j != k for i in game[j]] for token in ids)
                for k, ids in enumerate(game)
            ]
            for game in games
        ]


TASKS = [kind(CharTokenizer("abcde", stops=stops), length=3) for stops in STOPS for kind in (Echo, Apart)]


@st.composite
def game_options(draw):
    seats = draw(st.integers(1, 4))
    low = draw(st.integers(1, 5))
    square = st.lists(
        st.lists(st.integers(-3, 3), min_size=seats, max_size=seats), min_size=seats, max_size=seats
    )
    names = st.sampled_from(["cooperative", "independent"] + ["competitive"] * (seats > 1))
    return {
        "task": draw(st.sampled_from(TASKS)),
        "seats": seats,
        "payoff": draw(names | st.floats(-5, 5) | square),
        "max_response": (low, draw(st.integers(low, 6))),
        "views": draw(st.sampled_from([None, *SEES])),
    }


def write(rng, caps_B, eos, vocab_size):
    """Random legal responses of one seat: tokens to the first EOS or the cap, and invalid ids behind it."""
    ids_BT = rng.integers(0, vocab_size, size=(len(caps_B), caps_B.max()))
    ends = [[t + 1 for t in range(cap) if row[t] in eos] for row, cap in zip(ids_BT, caps_B, strict=True)]
    lengths_B = np.array([min([*end, cap]) for end, cap in zip(ends, caps_B, strict=True)])
    ids_BT[np.arange(ids_BT.shape[1]) >= lengths_B[:, None]] = 99
    return ids_BT, lengths_B


def play(options, rng, games):
    """A batch of random games: the VectorGame, its caps, and (prompts, responses) of every seat."""
    low, high = options["max_response"]
    vector = VectorGame(**options)
    caps_BN = rng.integers(low, high + 1, size=(games, options["seats"]))
    train = options["task"].queries("train")
    vector.reset([train[i] for i in rng.integers(len(train), size=games)], caps_BN)
    by_seat = {}
    tokenizer = options["task"].tokenizer
    for k, seat in enumerate(vector.seats):
        prompts = vector.prompts(seat)
        ids, lengths = write(rng, caps_BN[:, k], tokenizer.eos, tokenizer.vocab_size)
        vector.respond(seat, ids, lengths)
        by_seat[seat] = (*prompts, ids, lengths)
    return vector, caps_BN, by_seat


def replay(env, seat, b, by_seat):
    """Play game `b`'s response of `seat` through the env and check the observation before every token."""
    prompt_ids, prompt_lengths, ids, lengths = by_seat[seat]
    prompt = prompt_ids[b, : prompt_lengths[b]].tolist()
    response = ids[b, : lengths[b]].tolist()
    for t, token in enumerate(response):
        assert env.agent_selection == seat
        observation, reward, terminated, truncated, info = env.last()
        assert observation[: len(prompt) + t].tolist() == prompt + response[:t]
        assert (observation[len(prompt) + t :] == env.task.tokenizer.pad).all()
        assert (info["prompt_length"], info["response_length"]) == (len(prompt), t)
        assert (reward, terminated, truncated) == (0, False, False)
        env.step(token)
        assert sum(env.terminations.values()) == 0 or (
            seat == env.possible_agents[-1] and t + 1 == len(response)
        )


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(options=game_options(), payout=st.sampled_from(["end", "settle"]), seed=st.integers(0, 2**32 - 1))
def test_a_batch_replayed_token_by_token_is_the_same_game(options, payout, seed):
    vector, caps_BN, by_seat = play(options, np.random.default_rng(seed), games=3)
    scores_BN, payoffs_BN = vector.scores(), vector.payoffs()
    env = raw_env(payout=payout, **options)
    for b, query in enumerate(vector.queries):
        env.reset(options={"query": query, "caps": caps_BN[b]})
        for seat in vector.seats:
            replay(env, seat, b, by_seat)
        *earlier, last = vector.seats
        if payout == "settle":
            assert env.rewards == pytest.approx({**dict.fromkeys(earlier, 0), last: payoffs_BN[b, -1]})
            for k, seat in enumerate(earlier):
                assert (env.agent_selection, env.terminations[seat]) == (seat, False)
                env.step(env.task.tokenizer.pad)
                assert env.rewards == pytest.approx(
                    {**dict.fromkeys(vector.seats, 0), seat: payoffs_BN[b, k]}
                )
        else:
            assert env.rewards == pytest.approx(dict(zip(vector.seats, payoffs_BN[b], strict=True)))
        assert all(env.terminations.values())
        assert [env.infos[seat]["score"] for seat in vector.seats] == pytest.approx(scores_BN[b].tolist())
        assert [env.text(seat) for seat in vector.seats] == [vector.texts(seat)[b] for seat in vector.seats]
        payoffs = {}
        for seat in env.agent_iter():
            payoffs[seat] = env.last()[1]
            env.step(None)
        assert payoffs == pytest.approx(dict(zip(vector.seats, payoffs_BN[b], strict=True)))
