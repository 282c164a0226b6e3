"""`VectorGame`: prompts, responses, scores and payoffs of a batch."""

import numpy as np
import pytest

from cory_env import Query, VectorGame, make_views
from cory_env.tasks.echo import Task as Echo
from cory_env.tokenizer import CharTokenizer

ABC = CharTokenizer("abcd", stops=2)  # a b c d = 0 1 2 3, EOS 4 and 5, pad 6
ECHO = Echo(ABC, length=3)
QUERIES = [Query("abc", (0, 1, 2)), Query("d", (3,))]


def game(**options):
    g = VectorGame(ECHO, **{"max_response": 3, **options})
    g.reset(QUERIES)
    return g


def ragged(*rows, poison=99):
    """Rows as [B, T] with the invalid id `poison` past their lengths, and the lengths."""
    ids = np.full((len(rows), max(map(len, rows))), poison)
    for padded, row in zip(ids, rows, strict=True):
        padded[: len(row)] = row
    return ids, np.array([len(row) for row in rows])


def prompts(game, seat):
    ids, lengths = game.prompts(seat)
    return [row[:n].tolist() for row, n in zip(ids, lengths, strict=True)]


def test_two_games_by_hand():
    g = game()
    assert prompts(g, "pioneer_0") == [[0, 1, 2], [3]]
    g.respond("pioneer_0", *ragged([0, 1, 2], [3, 4]))
    assert prompts(g, "observer_1") == [[0, 1, 2, 0, 1, 2], [3, 3]]  # the EOS 4 is not shown
    g.respond("observer_1", *ragged([0, 5], [1, 1, 1]))
    assert g.turn is None
    assert g.texts("pioneer_0") == ["abc", "d"]
    assert [response.ids for response in g.responses("observer_1")] == [(0, 5), (1, 1, 1)]
    # abc and d are perfect echoes, a is a third of abc, bbb has no token of d in place
    assert g.scores().tolist() == [[1.0, 1 / 3], [1.0, 0.0]]
    assert g.payoffs().tolist() == [[4 / 3, 4 / 3], [1.0, 1.0]]


def test_prompts_are_padded_on_the_right_with_pad_and_never_with_the_callers_tail():
    g = game()
    ids, lengths = g.prompts("pioneer_0")
    assert (ids.tolist(), lengths.tolist(), ids.dtype) == ([[0, 1, 2], [3, 6, 6]], [3, 1], np.int64)
    g.respond("pioneer_0", *ragged([0, 1, 2], [3, 4], poison=-7))
    assert g.prompts("observer_1")[0].tolist() == [[0, 1, 2, 0, 1, 2], [3, 3, 6, 6, 6, 6]]


def test_literals_stand_before_between_and_behind_the_placeholders():
    templates = {"observer_1": "a{query}bb{response_0}c"}
    g = game(views=make_views(ECHO, seats=2, templates=templates))
    g.respond("pioneer_0", *ragged([3, 3, 3], [4]))
    assert prompts(g, "observer_1") == [[0, 0, 1, 2, 1, 1, 3, 3, 3, 2], [0, 3, 1, 1, 2]]


def test_returned_arrays_can_be_overwritten_without_harm():
    g = game(seats=1)
    g.prompts("pioneer_0")[0][:] = 99
    g.respond("pioneer_0", *ragged([4], [4]))
    g.scores()[:] = 99
    assert prompts(g, "pioneer_0") == [[0, 1, 2], [3]]
    assert g.scores().tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (([0, 4, 0], [4]), "game 0 goes on after EOS"),
        (([4], [0, 0]), "game 1 stops before its cap without EOS"),
        (([4], [0, 0, 0, 0]), "game 1 has a length outside 1 to its cap"),
        (([4], []), "game 1 has a length outside 1 to its cap"),
        (([4], [7]), "game 1 holds an id outside 0 to 6"),
        (([-1], [4]), "game 0 holds an id outside 0 to 6"),
        (
            ([4],),
            r"wrote ids of shape \(1, 1\) with lengths of shape \(1,\); 2 games need \(2, T\) and \(2,\)",
        ),
    ],
)
def test_an_illegal_response_is_refused_and_changes_nothing(rows, fault):
    g = game()
    with pytest.raises(ValueError, match=f"pioneer_0.* {fault}"):
        g.respond("pioneer_0", *ragged(*rows))
    assert g.turn == "pioneer_0"


def test_ids_that_are_no_whole_numbers_are_refused():
    ids, lengths = ragged([4], [4])
    with pytest.raises(ValueError, match="wrote ids of type float64 with lengths of type int64; give whole"):
        game().respond("pioneer_0", ids + 0.9, lengths)


def test_each_response_has_its_own_cap():
    g = game(max_response=(1, 3))
    g.reset(QUERIES, np.array([[1, 2], [3, 1]]))
    g.respond("pioneer_0", *ragged([0], [0, 0, 0]))
    g.respond("observer_1", *ragged([0, 0], [0]))
    assert g.turn is None
    for caps in (np.array([[1, 2], [4, 1]]), 2.5, float("nan"), [1, 2, 3]):
        with pytest.raises(
            ValueError, match=r"(?s)caps are .*; give whole numbers from 1 to max_response, 3"
        ):
            g.reset(QUERIES, caps)


def test_a_call_out_of_turn_is_refused():
    g = game()
    for early, fault in [
        (lambda: g.prompts("observer_1"), "observer_1 has nothing to read yet; it is the turn of pioneer_0"),
        (
            lambda: g.respond("observer_1", *ragged([4], [4])),
            "observer_1 cannot respond: .* turn of pioneer_0",
        ),
        (lambda: g.texts("pioneer_0"), "pioneer_0 has not responded yet"),
        (g.scores, "the games are not over; it is the turn of pioneer_0"),
        (lambda: g.prompts("pioneer_7"), "no seat called 'pioneer_7'; there are pioneer_0, observer_1"),
    ]:
        with pytest.raises(ValueError, match=fault):
            early()
    g.respond("pioneer_0", *ragged([4], [4]))
    g.respond("observer_1", *ragged([4], [4]))
    with pytest.raises(ValueError, match="observer_1 cannot respond: the games are over"):
        g.respond("observer_1", *ragged([4], [4]))


@pytest.mark.parametrize(
    ("queries", "fault"),
    [
        ([], "there are no queries"),
        ([Query("abcd", (0, 1, 2, 3))], "'abcd' has 4 tokens; this game takes 1 to 3: raise max_query"),
        ([Query("", ())], "'' has 0 tokens"),
        ([Query("?", (7,))], "ids 7 to 7; the vocabulary has 0 to 6"),
    ],
)
def test_a_wrong_query_is_refused(queries, fault):
    with pytest.raises(ValueError, match=fault):
        VectorGame(ECHO).reset(queries)


class FixedScores(Echo):
    """echo with given scores, and a count of the calls."""

    def __init__(self, scores):
        super().__init__(ABC)
        self.scores, self.calls = scores, 0

    def score(self, _queries, _responses):
        self.calls += 1
        return self.scores


def played(scores):
    """A finished batch that is scored `scores`."""
    g = VectorGame(FixedScores(scores), max_response=3)
    g.reset(QUERIES)
    for seat in g.seats:
        g.respond(seat, *ragged([4], [4]))
    return g


def test_the_whole_batch_is_scored_once():
    g = played([1, 2, 3, 4])  # both games of the pioneer, then both of the observer
    assert g.scores().tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert g.payoffs().tolist() == [[4.0, 4.0], [6.0, 6.0]]
    assert g.task.calls == 1


@pytest.mark.parametrize(
    ("scores", "fault"),
    [
        ([1, 2, 3], r"scored 4 responses with shape \(3,\); return one number each"),
        ([1, float("nan"), 3, 4], "scored nan for the response '' to 'd'; a score must be a finite number"),
        ([1, 2, float("inf"), 4], "scored inf for the response '' to 'abc'"),
    ],
)
def test_a_wrong_scorer_is_named(scores, fault):
    with pytest.raises(ValueError, match=fault):
        played(scores).scores()


def test_a_game_that_may_outgrow_the_window_is_refused():
    with pytest.raises(
        ValueError, match="observer_1 may read 6 tokens and write 3, together 9; the model's window is 8"
    ):
        VectorGame(ECHO, max_response=3, window=8)
