"""Measures of a probe with scripted tables, whose effects on each other are known."""

import math

import numpy as np
import pytest

from cory.evaluation import probe
from cory.evaluation.bootstrap import as_json
from cory.evaluation.config import EvaluationConfig, ProbeConfig
from cory.evaluation.evaluator import evaluate_standalone
from cory.evaluation.probe_games import OBSERVER, PIONEER, READ, play_probe
from cory.policies.table import TablePolicy
from cory_env.tasks import echo, relay
from cory_env.vector import VectorGame

SURE = 40.0
"""A logit that makes one token certain."""


def table(task, name, *, cap, copies=False, letters=()):
    """A policy that copies the prompt's token at its position, or draws from `letters` uniformly."""
    tokenizer = task.tokenizer
    policy = TablePolicy(
        name, vocab_size=tokenizer.vocab_size, eos=tokenizer.eos, pad=tokenizer.pad, max_response=cap
    )
    cells_TVV = policy.logits_SV.data.view(cap, tokenizer.vocab_size, -1)
    if letters:
        cells_TVV[..., tokenizer.encode(letters)] = SURE
    if copies:
        for i in tokenizer.encode(copies):
            cells_TVV[:, i] = 0
            cells_TVV[:, i, i] = SURE
    policy.requires_grad_(False)
    policy.set_reference(policy)
    return policy


def relay_game():
    return VectorGame(relay.Task(), seats=2, max_response=1)


def play(pioneer, observer, *, game=None, batch=256, **sizes):
    game = game or relay_game()
    made = {
        seat: table(game.task, seat, cap=game.cap_range[1], **script)
        for seat, script in ((PIONEER, pioneer), (OBSERVER, observer))
    }
    return play_probe(game, made, ProbeConfig(**sizes), batch=batch)


def value(estimates):
    return {name: estimate.value for name, estimate in estimates.items()}


COPIES = {"copies": "abcd", "letters": "a"}
"""Copies a letter; without one in its prompt it writes a."""
DRAWS = {"letters": "abcd"}


def test_all_variance_of_an_observer_that_copies_is_caused_by_the_pioneer():
    """Its score is 1 where the pioneer has drawn the secret, one in four: a variance of 3/16."""
    found = probe.influence(play(DRAWS, COPIES, pioneers=64, observers=3))
    assert found["observer"].value == 0
    assert found["pioneer_share"].value == 1
    assert found["pioneer"].value == pytest.approx(3 / 16, abs=0.05)


def test_an_observer_that_ignores_the_pioneer_has_chance_of_its_own_only():
    found = probe.influence(play(DRAWS, DRAWS, pioneers=32, observers=32))
    assert found["observer"].value == pytest.approx(3 / 16, abs=0.02)
    assert found["pioneer"].value == pytest.approx(0, abs=0.004)  # the standard error is 0.001
    assert found["slope"].value == pytest.approx(0, abs=0.25)


def test_reading_a_pioneer_that_tells_and_an_observer_that_copies():
    """Own: the secret. Unrelated: another secret. None: a, one of four."""
    games = play(COPIES, COPIES, pioneers=4, observers=2)
    assert value(probe.reading(games)) == {
        "own": 1,
        "unrelated": 0,
        "none": 0.25,
        "own minus unrelated": 1,
        "own minus none": 0.75,
    }
    influence = probe.influence(games)
    assert influence["pioneer"].value == influence["observer"].value == 0
    assert math.isnan(influence["pioneer_share"].value)  # a certain pioneer varies nothing given the query
    assert math.isnan(influence["slope"].value)
    assert value(probe.copying(games)) == {"read": 1, "same_query": 1, "read minus same_query": 0}


class Agrees(relay.Task):
    """The observer scores 1 where both wrote the same, the pioneer a half of that."""

    def score_games(self, queries, responses):
        games = zip(*([response.ids for response in of_seat] for of_seat in responses.values()), strict=True)
        return [[(first == second) / 2, first == second] for first, second in games]


def test_scores_of_games_are_of_the_response_that_the_observer_was_shown():
    """It copies what it reads, also of another query, and writes a where it reads none: right one in four."""
    games = play(COPIES, COPIES, game=VectorGame(Agrees(), seats=2, max_response=1), pioneers=4, observers=2)
    reading = value(probe.reading(games))
    assert (reading["own"], reading["unrelated"], reading["none"]) == (1, 1, 0.25)


def test_copying_is_distinguished_from_what_the_query_explains():
    """The pioneer draws: another response to the query equals the copied one in one case of four."""
    copying = value(probe.copying(play(DRAWS, COPIES, pioneers=64, observers=2)))
    assert copying["read"] == 1
    assert copying["same_query"] == pytest.approx(0.25, abs=0.12)
    assert copying["read minus same_query"] == 1 - copying["same_query"]


def test_slope_of_the_observers_score_by_hand():
    """Query 0: x = -1, 1 and y = 0, 2 less their mean: 2 of 2. Query 1: x = -2, 2, y constant: 0 of 8."""
    pioneer_QP = np.array([[1.0, 3.0], [0.0, 4.0]])
    observer_QPR = np.array([[[0, 2], [2, 4]], [[5, 5], [4, 6]]], dtype=float)
    assert probe.slope(pioneer_QP, observer_QPR).value == pytest.approx(0.2)


def test_responses_do_not_depend_on_the_batch_size():
    game = VectorGame(echo.Task(), seats=2, max_response=(1, 4))
    first, second = (
        play({"letters": "abc"}, {"letters": "abcd"}, game=game, queries=9, observers=3, batch=batch)
        for batch in (7, 500)
    )
    assert first.observer_texts == second.observer_texts
    assert first.pioneer_texts == second.pioneer_texts
    assert {len(text) for row in first.pioneer_texts for text in row} == {1, 2, 3, 4}
    for read_ in READ:
        np.testing.assert_array_equal(first.observer_scores[read_], second.observer_scores[read_])


def test_gap_of_an_observer_and_what_of_it_training_added():
    """Two policies in both seats: one copies, the other always writes a."""
    game = relay_game()
    scripts = {"t": COPIES, "i": {"letters": "a"}, "reference": DRAWS}
    made = {name: table(game.task, name, cap=1, **script) for name, script in scripts.items()}
    standalone = {
        name: evaluate_standalone(
            policy, game.task, EvaluationConfig(queries=4, samples=4), max_response=(1, 1), measures={}
        ).arrays["task_reward"].mean(1)
        for name, policy in made.items()
    }  # fmt: skip
    config = ProbeConfig(pioneers=2, observers=2)
    pairs = [
        ({PIONEER: a, OBSERVER: b}, play_probe(game, {PIONEER: made[a], OBSERVER: made[b]}, config))
        for a, b in (("t", "i"), ("i", "t"), ("reference", "reference"))
    ]
    measured = probe.free_riding(standalone, pairs, {"t": "reference"})
    # The teller scores 1, 0.8, 1, 0.8 as the pioneer of a, b, c, d. As the observer of one that always writes
    # a, both score 1 for the secret a only. Writing a costs the ignorant pioneer 0.2 for c and d.
    of_reference = value(measured["reference"])
    assert value(measured["t"]) == pytest.approx({
        "standalone": 0.9,
        "observer": 0.25,
        "gap": -0.65,
        "free-riding": -0.65 - of_reference["gap"],
    })  # fmt: skip
    assert of_reference["gap"] == pytest.approx(of_reference["observer"] - of_reference["standalone"])
    assert value(measured["i"]) == pytest.approx({"standalone": 0.9, "observer": 0.25, "gap": -0.65})


def test_too_few_queries_are_refused():
    task = relay.Task()
    policies = dict.fromkeys((PIONEER, OBSERVER), table(task, "p", cap=1, letters="a"))
    task._queries["test"] = task._queries["test"][:1]
    with pytest.raises(ValueError, match="1 held-out queries; a probe needs 2 or more"):
        play_probe(VectorGame(task, seats=2, max_response=1), policies, ProbeConfig())


@pytest.mark.parametrize("size", ["queries", "pioneers", "observers"])
def test_sizes_below_two_are_refused(size):
    with pytest.raises(ValueError, match=f"{size} is 1; a variance needs 2 or more"):
        ProbeConfig(**{size: 1})


def test_estimates_become_json_without_nan():
    games = play(COPIES, COPIES, pioneers=2, observers=2)
    found = as_json(probe.influence(games))
    assert found["pioneer_share"] == {"value": None, "low": None, "high": None}
    assert found["pioneer"]["value"] == 0
