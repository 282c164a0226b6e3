"""Measures of a probe with scripted tables, whose effects on each other are known."""

import math

import numpy as np
import pytest
import torch

from cory.api.probe import advantages
from cory.batch import Batch
from cory.config.parsing import read
from cory.evaluation import probe
from cory.evaluation.config import EvaluationConfig
from cory.evaluation.evaluator import evaluate_standalone
from cory.evaluation.probe_games import OBSERVER, PIONEER, READ, ProbeConfig, play_probe
from cory.functional.advantage import Advantage
from cory.policies.table import TablePolicy
from cory_env.tasks import relay
from cory_env.tasks.echo import Task as Echo
from cory_env.vector import VectorGame
from tests.helpers.tables import TABLES

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


def play(pioneer, observer, *, game=None, **sizes):
    game = game or relay_game()
    made = {
        seat: table(game.task, seat, cap=game.cap_range[1], **script)
        for seat, script in ((PIONEER, pioneer), (OBSERVER, observer))
    }
    return play_probe(game, made, ProbeConfig(**sizes))


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
    """Own: the secret. Unrelated: another secret. One token cannot be shuffled. None: a, one of four."""
    games = play(COPIES, COPIES, pioneers=4, observers=2)
    assert value(probe.reading(games)) == {
        "own": 1,
        "unrelated": 0,
        "corrupted": 1,
        "none": 0.25,
        "own minus unrelated": 1,
        "own minus corrupted": 0,
        "own minus none": 0.75,
        "shuffled": 0,
    }
    influence = probe.influence(games)
    assert influence["pioneer"].value == influence["observer"].value == 0
    assert math.isnan(influence["pioneer_share"].value)  # a certain pioneer varies nothing given the query
    assert math.isnan(influence["slope"].value)
    copying = value(probe.copying(games))
    assert [copying[f"equal_{name}"] for name in ("read", "same_query", "other_query")] == [1, 1, 0]
    assert copying["overlap_read minus same_query"] == 0


def test_copying_is_distinguished_from_what_the_query_explains():
    """The pioneer draws: another response to the query equals the copied one in one case of four."""
    copying = value(probe.copying(play(DRAWS, COPIES, pioneers=64, observers=2)))
    assert copying["equal_read"] == copying["overlap_read"] == 1
    assert copying["equal_same_query"] == pytest.approx(0.25, abs=0.12)
    assert copying["overlap_read minus same_query"] == pytest.approx(0.75, abs=0.12)


def test_slope_of_the_observers_score_by_hand():
    """Query 0: x = -1, 1 and y = 0, 2 less their mean: 2 of 2. Query 1: x = -2, 2, y constant: 0 of 8."""
    pioneer_QP = np.array([[1.0, 3.0], [0.0, 4.0]])
    observer_QPR = np.array([[[0, 2], [2, 4]], [[5, 5], [4, 6]]], dtype=float)
    assert probe.slope(pioneer_QP, observer_QPR).value == pytest.approx(0.2)


class Hidden(Echo):
    """echo whose observer reads only the pioneer's response."""

    def template(self, seat):
        return "{query}" if seat == PIONEER else "{response_0}a"


def test_shuffled_tokens_cost_what_the_order_was_worth():
    """The observer repeats what it reads: shuffled, each place holds any of the query's letters."""
    task = Hidden()
    game = VectorGame(task, seats=2, max_response=3)
    copies = {"copies": "abcdef", "letters": "a"}
    games = play(copies, copies, game=game, queries=100, pioneers=4, observers=2)
    texts = [query.text for query in task.queries("test")[:100]]
    found = value(probe.reading(games))
    assert found["own"] == 1
    assert found["none"] == pytest.approx(np.mean([text.count("a") / 3 for text in texts]))
    expected = np.mean([sum(text.count(letter) / 9 for letter in text) for text in texts])
    assert found["corrupted"] == pytest.approx(expected, abs=0.06)
    # Of six orders one is the query's own; more if letters repeat.
    same = np.mean([{3: 1 / 6, 2: 1 / 3, 1: 1.0}[len(set(text))] for text in texts])
    assert found["shuffled"] == pytest.approx(1 - same, abs=0.08)
    assert found["unrelated"] < 0.4


def test_responses_do_not_depend_on_the_batch_size():
    task = Echo()
    game = VectorGame(task, seats=2, max_response=(1, 4))
    first, second = (
        play({"letters": "abc"}, {"letters": "abcd"}, game=game, queries=9, observers=3, batch=batch)
        for batch in (7, 500)
    )
    assert first.observer_texts == second.observer_texts
    assert first.pioneer_texts == second.pioneer_texts
    assert {len(text) for row in first.pioneer_texts for text in row} == {1, 2, 3, 4}
    for read_ in READ:
        np.testing.assert_array_equal(first.observer_scores[read_], second.observer_scores[read_])
    for seat in (PIONEER, OBSERVER):
        torch.testing.assert_close(first.batches[seat].payoff_B, second.batches[seat].payoff_B)


def test_batches_hold_the_games_with_the_own_pioneer():
    games = play(DRAWS, DRAWS, pioneers=3, observers=2)
    pioneer, observer = games.batches[PIONEER], games.batches[OBSERVER]
    assert len(pioneer) == len(observer) == 4 * 3 * 2
    np.testing.assert_allclose(
        observer.score_B.reshape(4, 3, 2), games.observer_scores["own"].astype(np.float32)
    )
    np.testing.assert_allclose(pioneer.payoff_B, pioneer.score_B + observer.score_B)
    assert torch.equal(observer.prompt_BP[:, 0], pioneer.response_BT[:, 0])  # it reads that very response
    assert torch.equal(pioneer.response_BT[0::2], pioneer.response_BT[1::2])


def test_skill_by_place_with_kl_to_the_reference():
    """Two policies in both seats: one copies, the other always writes a."""
    game = relay_game()
    teller, ignorant = (
        table(game.task, name, cap=1, **s) for name, s in (("t", COPIES), ("i", {"letters": "a"}))
    )
    uniform = table(game.task, "reference", cap=1, **DRAWS)
    teller.set_reference(uniform)
    ignorant.set_reference(uniform)
    config = ProbeConfig(pioneers=2, observers=2)
    standalone = {
        policy.name: evaluate_standalone(
            policy, game.task, EvaluationConfig(queries=4, samples=4), max_response=(1, 1), measures={}
        )
        for policy in (teller, ignorant, uniform)
    }
    pairs = [
        ({PIONEER: a.name, OBSERVER: b.name}, play_probe(game, {PIONEER: a, OBSERVER: b}, config))
        for a, b in ((teller, ignorant), (ignorant, teller), (uniform, uniform))
    ]
    found = probe.skill(standalone, pairs, {"t": "reference"})
    # The teller scores 1, 0.8, 1, 0.8 as the pioneer of a, b, c, d. As the observer of one that always writes
    # a, both score 1 for the secret a only. Writing a costs the ignorant pioneer 0.2 for c and d.
    assert value(found["t"]["task_reward"]) == pytest.approx({
        "standalone": 0.9,
        PIONEER: 0.9,
        OBSERVER: 0.25,
        "observer_1 minus standalone": -0.65,
        "pioneer_0 minus standalone": 0,
        "observer_1 minus pioneer_0": -0.65,
        "free-riding": -0.65 - value(found["reference"]["task_reward"])["observer_1 minus standalone"],
    })  # fmt: skip
    assert "free-riding" not in found["i"]["task_reward"]
    assert "free-riding" not in found["t"]["kl"]
    assert found["i"]["task_reward"][PIONEER].value == pytest.approx(0.9)
    assert found["i"]["task_reward"][OBSERVER].value == pytest.approx(0.25)
    for place in ("standalone", PIONEER, OBSERVER):
        assert found["t"]["kl"][place].value == pytest.approx(math.log(4), abs=1e-4)  # one of four letters
    different = value(probe.specialisation(standalone["t"], standalone["i"]))
    assert different["differing"] == 0.75  # all but the secret a


def test_correlation_of_expected_scores_is_not_that_of_shared_chance():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(600, 6))
    ours, theirs = rng.normal(size=(2, 600, 1))
    assert probe.expected_correlation(ours + shared, theirs + shared).value == pytest.approx(0, abs=0.15)
    noisy = (2 * ours + 3 + 2 * rng.normal(size=(600, 6)) for _ in range(2))
    assert probe.expected_correlation(*noisy).value == pytest.approx(1, abs=0.1)
    assert probe.expected_correlation(ours + shared, -ours + shared).value == pytest.approx(-1, abs=0.15)
    with pytest.raises(ValueError, match="2 or more"):
        probe.expected_correlation(ours, theirs)


def batch_of(values, scores, *, length=2):
    """Games of one seat with these values [H, T] and scores [H]; padding is poisoned."""
    H = len(scores)
    values_BT = torch.tensor(values).float()
    other_BT = torch.zeros_like(values_BT)
    return Batch(
        prompt_BP=torch.ones(H, 1, dtype=torch.long),
        prompt_length_B=torch.ones(H, dtype=torch.long),
        response_BT=torch.ones(*values_BT.shape, dtype=torch.long),
        response_length_B=torch.full((H,), length),
        behaviour_logprobs_BT=other_BT,
        old_logprobs_BT=other_BT,
        ref_logprobs_BT=other_BT,
        exact_kl_BT=other_BT,
        values_BT=values_BT,
        score_B=torch.tensor(scores).float(),
        payoff_B=torch.tensor(scores).float(),
    )


def test_explained_variance_by_hand():
    """Returns 1, 3, 5, 7 of variance 5; errors 0, 1, 0, 1 of variance 1/4: 1 - 1/20. Padding is left out."""
    batch = batch_of([[1, 2, 99], [5, 6, 99]], [0, 0])
    found = probe.values(batch, Advantage(batch.values_BT, torch.tensor([[1.0, 3, -50], [5, 7, -50]])), 2)
    assert value(found) == pytest.approx({"explained_variance": 0.95, "value_first": 3, "return_first": 3})
    silent = batch_of([[0, 0, 0], [0, 0, 0]], [0, 0])
    assert probe.values(silent, Advantage(batch.values_BT, batch.values_BT), 2) == {}


def test_signal_of_the_advantage_by_hand():
    """Means over the tokens 0 2 4 6, 1 1 1 3: the components are -1, 3.5 and 1.5 (test_probe_variance)."""
    mean_B = torch.tensor([0, 2, 4, 6, 1, 1, 1, 3]).float()
    advantage = Advantage(*[torch.stack([mean_B - 1, mean_B + 1, mean_B + 77], dim=1)] * 2)
    batch = batch_of(np.zeros((8, 3)), [0] * 8)
    assert value(probe.signal(advantage, batch, PIONEER, (2, 2, 2))) == pytest.approx(
        {"signal_share": 0.875, "signal_to_noise": 7}
    )
    assert probe.signal(advantage, batch, OBSERVER, (2, 2, 2))["signal_share"].value == pytest.approx(0.375)


def rloo(group):
    flags = ["--algorithm", "rloo", "--algorithm.group", str(group), "--kl.coef", "0"]
    return read(flags, default=TABLES, about="", command="cory train")


def test_advantages_are_those_of_the_runs_algorithm_with_groups_of_different_pioneer_responses():
    """Of two pioneer responses one scores 1 in both its games: leave-one-out gives it +1, the other -1."""
    scores = [1, 1, 0, 0, 5, 5, 5, 5]
    batches = {seat: batch_of(np.zeros((8, 2)), scores) for seat in (PIONEER, OBSERVER)}
    found = advantages(rloo(2), batches, (2, 2, 2))
    for seat in (PIONEER, OBSERVER):
        assert found[seat].advantage_BT[:, 0].tolist() == [1, 1, -1, -1, 0, 0, 0, 0]


def test_no_advantages_where_groups_do_not_divide_the_games_of_a_query():
    batches = {seat: batch_of(np.zeros((12, 2)), [0] * 12) for seat in (PIONEER, OBSERVER)}
    assert advantages(rloo(4), batches, (2, 2, 3)) is None
    assert advantages(rloo(2), batches, (2, 2, 3)) is not None


def test_games_of_three_seats_and_too_few_queries_are_refused():
    task = relay.Task()
    policies = dict.fromkeys((PIONEER, OBSERVER), table(task, "p", cap=1, letters="a"))
    with pytest.raises(ValueError, match="observer_2; a probe needs a game of two seats"):
        play_probe(VectorGame(task, seats=3, max_response=1), policies, ProbeConfig())
    task._queries["test"] = task._queries["test"][:1]
    with pytest.raises(ValueError, match="1 held-out queries; a probe needs 2 or more"):
        play_probe(VectorGame(task, seats=2, max_response=1), policies, ProbeConfig())


@pytest.mark.parametrize("size", ["queries", "pioneers", "observers"])
def test_sizes_below_two_are_refused(size):
    with pytest.raises(ValueError, match=f"{size} is 1; a variance needs 2 or more"):
        ProbeConfig(**{size: 1})


def test_estimates_become_json_without_nan():
    games = play(COPIES, COPIES, pioneers=2, observers=2)
    found = probe.as_json({"influence": probe.influence(games), "seed": 3})
    assert found["influence"]["pioneer_share"] == {"value": None, "low": None, "high": None}
    assert found["influence"]["pioneer"]["value"] == 0
    assert found["seed"] == 3
