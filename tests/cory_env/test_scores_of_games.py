"""Scores that depend on the whole game: in every view, standalone, and what is refused."""

import numpy as np
import pytest

import cory_env
from cory_env import Query, VectorGame
from cory_env.envs.seat import seat_env
from cory_env.grading.reward_functions import CaseJudge
from cory_env.tasks.echo import Task as Echo
from cory_env.tasks.prompts import Task as Prompts
from cory_env.tokenizer import CharTokenizer

ABC = CharTokenizer("abcd", stops=1)
QUERY = Query("abc", (0, 1, 2))
SEATS = ("pioneer_0", "observer_1")
PAID = {"pioneer_0": 10.0, "observer_1": 20.0}
"""What `Longer` scores where both seats write three tokens."""


class Longer(Echo):
    """In a game a seat scores ten times its place for its tokens less one if it wrote the most of all."""

    def score_games(self, queries, responses):
        lengths = np.array([[len(response.ids) for response in of_seat] for of_seat in responses.values()]).T
        return 10 * np.arange(1, 1 + lengths.shape[1]) * (lengths == lengths.max(1, keepdims=True))


def played(task, seats=2, texts=("ab", "abc"), **options):
    """A batch of two games: every seat writes its text, and in the second game all write the first text."""
    game = VectorGame(task, seats=seats, payoff="independent", max_response=3, **options)
    game.reset([QUERY, QUERY], np.array([[len(text) for text in texts[:seats]], [len(texts[0])] * seats]))
    for seat, text in zip(game.seats, texts, strict=False):
        rows = [ABC.encode(text), ABC.encode(texts[0])]
        ids = np.full((2, max(map(len, rows))), 0)
        for b, row in enumerate(rows):
            ids[b, : len(row)] = row
        game.respond(seat, ids, np.array([len(row) for row in rows]))
    return game


def test_a_batch_is_scored_by_whole_games_and_standalone_by_response():
    assert played(Longer(ABC, length=3)).scores().tolist() == [
        [0, 20],
        [10, 20],
    ]  # 2 < 3 tokens; 2 = 2 tokens
    alone = played(Longer(ABC, length=3), seats=1)
    assert alone.scores().tolist() == [[pytest.approx(2 / 3)], [pytest.approx(2 / 3)]]  # echo's share


@pytest.mark.parametrize("payout", ["end", "settle"])
def test_the_token_level_env_pays_the_score_of_the_game(payout):
    env = cory_env.raw_env(Longer(ABC, length=3), max_response=3, payoff="independent", payout=payout)
    assert paid(env, dict.fromkeys(SEATS, "abb")) == PAID


def test_the_turn_level_env_pays_it_too():
    env = cory_env.turn_env(Longer(ABC, length=3), max_response=3, payoff="independent")
    env.reset(options={"query": QUERY})
    for text in ("abb", "abc"):
        env.step(np.array(ABC.encode(text)))
    assert env.unwrapped.rewards == PAID


def test_parallel_and_one_hot_views_pay_it_too():
    for wrap in (lambda env: env, cory_env.one_hot):
        env = wrap(cory_env.parallel_env(Longer(ABC, length=3), max_response=3, payoff="independent"))
        env.reset(options={"query": QUERY})
        for token in ABC.encode("abbabb"):
            _, rewards, *_ = env.step(dict.fromkeys(SEATS, token))
        assert rewards == PAID


def test_the_view_of_one_seat_is_paid_for_its_partners_response():
    options = {"max_response": 3, "payoff": "independent"}
    for text, reward in (("abb", 10.0), ("ab", 10.0), ("", 0.0)):
        ids = [*ABC.encode(text), *ABC.eos]
        env = seat_env(task=Longer(ABC, length=3), partners=lambda *_: [0, min(ABC.eos), 0], **options)
        env.reset(options={"query": QUERY})
        for token in ids[:3]:
            _, got, over, *_ = env.step(token)
        assert (got, over) == (reward, True)


def paid(env, texts):
    env.reset(options={"query": QUERY, "caps": [len(text) for text in texts.values()]})
    for text in texts.values():
        for token in ABC.encode(text):
            env.step(token)
    if env.payout == "settle":
        for _ in texts:
            env.last()
        env.step(0)
    received = {}
    for seat in env.agent_iter():
        received[seat] = env.last()[1]
        env.step(None)
    return received


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        ([1.0, 2.0], r"scored 2 games of 2 seats with shape \(2,\); return a row for each game"),
        ([[1.0, 2.0], [1.0]], r"scored 2 games of 2 seats with \[\[1.0, 2.0\], \[1.0\]\]; return a row"),
        ({"pioneer_0": [1.0]}, "with {'pioneer_0': .1.0.}; return a row for each game"),
        ([[1.0, 2.0], [1.0, float("nan")]], "scored nan for the response 'ab' to 'abc'"),
        ([[float("inf"), 2.0], [1.0, 1.0]], "scored inf for the response 'ab' to 'abc'"),
    ],
)
def test_scores_of_another_form_are_refused_with_what_to_return(returned, what):
    task = Longer(ABC, length=3)
    task.score_games = lambda queries, responses: returned
    with pytest.raises(ValueError, match=what):
        played(task).scores()


def test_a_task_that_scores_teams_only_refuses_one_seat_and_says_why():
    task = Longer(ABC, length=3)
    task.team_only = "nobody to be longer than"
    with pytest.raises(
        ValueError, match="scores no response alone: nobody to be longer than; play games of 2"
    ):
        played(task, seats=1).scores()
    for make in (
        cory_env.env,
        cory_env.turn_env,
        cory_env.parallel_env,
        lambda *a, **k: seat_env(task=a[0], **k),
    ):
        with pytest.raises(ValueError, match="scores no response alone: nobody to be longer than"):
            make(task, seats=1)
    assert cory_env.tasks.base.counted(task)["left_out"][-1].endswith(
        "none standalone: nobody to be longer than"
    )


def prompts_of(judge, tmp_path):
    (tmp_path / "rows.jsonl").write_text("\n".join(f'{{"prompt": "{n * "a"}b"}}' for n in range(20)))
    return Prompts(
        ABC, judge, data=tmp_path / "rows.jsonl", observer="{query}{references}", reference="{response}"
    )


def test_a_reward_function_gets_the_seat_and_the_texts_of_each_completions_game(tmp_path):
    calls = []

    def reward(completions, seat, responses):
        calls.append((completions, seat, responses))
        return range(len(completions))

    game = played(prompts_of(reward, tmp_path))
    assert game.scores().tolist() == [[0, 2], [1, 3]]
    first, second = {"pioneer_0": "ab", "observer_1": "abc"}, {"pioneer_0": "ab", "observer_1": "ab"}
    seats = ["pioneer_0", "pioneer_0", "observer_1", "observer_1"]
    assert calls == [(["ab", "ab", "abc", "ab"], seats, [first, second, first, second])]
    played(prompts_of(reward, tmp_path), seats=1).scores()
    assert calls[1] == (["ab", "ab"], ["pioneer_0"] * 2, [{"pioneer_0": "ab"}] * 2)


def test_a_class_of_judges_reads_games_where_it_says_so(tmp_path):
    class Agreement(CaseJudge):
        reads_games = True

        def judge(self, cases):
            return [float(len(set(game.values())) == 1) for game in cases.games or [{}] * len(cases)]

    assert played(prompts_of(Agreement(), tmp_path)).scores().tolist() == [[0, 0], [1, 1]]


def test_the_score_of_a_subclass_is_used_unless_the_judge_reads_games(tmp_path):
    class Own(Prompts):
        def score(self, queries, responses):
            return [7.0] * len(responses)

    task = prompts_of(lambda texts: [0.0] * len(texts), tmp_path)
    task.__class__ = Own
    assert played(task).scores().tolist() == [[7, 7], [7, 7]]


class Halves(Echo):
    """Measures the pioneer's share of the tokens."""

    measured: object = None

    def measure_games(self, queries, responses):
        if self.measured is not None:
            return self.measured
        first, second = ([len(response.ids) for response in of_seat] for of_seat in responses.values())
        return {"pioneer_0": {"share": [a / (a + b) for a, b in zip(first, second, strict=True)]}}


def test_what_a_task_measures_of_games_is_by_seat_and_game():
    found = played(Halves(ABC, length=3)).measures()
    assert found["pioneer_0"]["share"].tolist() == [0.4, 0.5]
    assert played(Halves(ABC, length=3), seats=1).measures() == played(Echo(ABC, length=3)).measures() == {}


@pytest.mark.parametrize(
    "measured",
    [
        {"pioneer_0": {"share": [0.5]}},
        {"observer_7": {"share": [0.5, 0.5]}},
        {"pioneer_0": {"share": [0, np.nan]}},
    ],
)
def test_a_measure_without_a_number_for_each_game_of_a_seat_is_refused(measured):
    task = Halves(ABC, length=3)
    task.measured = measured
    with pytest.raises(
        ValueError, match=r"measured 'share' of .* as .*; return one finite number for each of 2 games"
    ):
        played(task).measures()


def test_a_task_that_sorts_the_responses_it_scores_leaves_the_game_as_it_was_played():
    class Sorts(Echo):
        def score_games(self, queries, responses):
            queries.clear()
            for of_seat in responses.values():
                of_seat.sort(key=lambda response: response.text)
            return [[0.0, 0.0], [0.0, 0.0]]

    game = played(Sorts(ABC, length=3), texts=("ab", "abc"))
    before = game.responses("observer_1")
    assert [response.text for response in before] == ["abc", "ab"]
    game.scores()
    assert game.responses("observer_1") == before
    assert game.queries == [QUERY, QUERY]
