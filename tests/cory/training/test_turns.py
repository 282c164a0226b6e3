"""Turns: policies that sit in several seats of a game, each with one update on all its rows."""

from dataclasses import replace

import pytest
import torch

from cory.config.schema import Config
from cory.config.values import flat
from cory.evaluation.evaluator import evaluate_in_game
from cory.rollout.role_exchange import ExchangeConfig, seating_at
from cory.training.players import seatings
from cory.training.trainer import Trainer
from tests.helpers.tables import TABLES, flagged

SEATS = ("pioneer_0", "observer_1", "observer_2")


def config(*turns: str, **changes) -> Config:
    few = replace(TABLES, batch=16, evaluation=replace(TABLES.evaluation, queries=8))
    return replace(few, turns=turns, seats=len(turns), **changes)


def test_the_number_of_seats_follows_from_the_turns():
    for given in ("llm_1,llm_2,llm_1", ["llm_1", "llm_2", "llm_1"]):
        found = Config.from_flat({"turns": given})
        assert (found.seats, found.policy_names) == (3, ("llm_1", "llm_2", "llm_1"))
        assert Config.from_flat(flat(found)) == found
    assert flagged("--turns", "llm_1,llm_2,llm_1").seats == 3
    assert Config.from_flat({"turns": "llm_1,llm_2", "seats": 2}).turns == ("llm_1", "llm_2")


def test_players_sit_beside_the_turns_by_flags_too():
    flags = ("--turns", "llm_1,llm_2", "--players.observer_2", "frozen", "--payoff", "independent")
    config = flagged(*flags)
    assert (config.seats, config.learning_seats) == (3, ("pioneer_0", "observer_1"))


def test_exchange_permutes_policies_and_keeps_the_pattern_of_turns():
    turns = ("llm_1", "llm_2", "llm_1")
    seatings_ = [tuple(seating_at(i, every=1, seats=SEATS, first=turns).values()) for i in range(3)]
    assert seatings_ == [turns, ("llm_2", "llm_1", "llm_2"), turns]
    drawn = {
        tuple(seating_at(i, every=1, seats=SEATS, first=turns, random_key=(0,)).values())
        for i in range(1, 40)
    }
    assert drawn == {turns, ("llm_2", "llm_1", "llm_2")}


def test_a_policy_with_two_turns_gets_one_update_on_the_rows_of_both():
    trainer = Trainer(config("llm_1", "llm_2", "llm_1"))
    rows = {}
    for name, learner in trainer.learners.items():
        update = learner.update

        def noted(data, *rest, name=name, update=update):
            rows[name] = len(data)
            return update(data, *rest)

        learner.update = noted
    found = trainer.iterate(0)
    assert rows == {"llm_1": 32, "llm_2": 16}
    assert found["pioneer_0/llm_1/steps"] == found["observer_2/llm_1/steps"]
    assert trainer.learners["llm_1"].policy.version == trainer.learners["llm_2"].policy.version
    assert list(trainer.names(0).values()) == ["llm_1", "llm_2", "llm_1"]


@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "happo", "coma", "vdac_mix", "seq", "grpo", "trpo"])
def test_every_kind_of_algorithm_learns_from_three_turns(algorithm):
    flags = [
        "--algorithm",
        algorithm,
        "--turns",
        "llm_1,llm_2,llm_1",
        "--batch",
        "16",
        "--exchange.every",
        "1",
    ]
    trainer = Trainer(flagged(*flags))
    before = {name: policy.logits_SV.clone() for name, policy in trainer.policies.items()}
    for iteration in range(2):
        trainer.iterate(iteration)
    assert all(not torch.equal(policy.logits_SV, before[name]) for name, policy in trainer.policies.items())


def test_evaluation_seats_policies_by_the_pattern_of_turns():
    trainer = Trainer(config("llm_1", "llm_2", "llm_1", exchange=ExchangeConfig(every=1)))
    found = [
        {seat: policy.name for seat, policy in one.items()}
        for one in seatings(trainer.config, trainer.policies, {})
    ]
    assert found == [dict(trainer.seating(i)) for i in range(2)]
    responses = evaluate_in_game(
        trainer.game, trainer.team(0).policies, trainer.config.evaluation, measures={}
    )
    assert list(responses) == list(SEATS)


def test_views_by_seat_hold_in_a_game_of_three_turns():
    """The last turn reads its own first attempt alone, the second nothing but the query."""
    by_seat = {"observer_1": "none", "observer_2": "pioneer"}
    trainer = Trainer(replace(config("llm_1", "llm_2", "llm_1"), sees=by_seat))
    assert [view.segments.count(0) for view in trainer.game.views] == [0, 0, 1]
    assert [1 in view.segments for view in trainer.game.views] == [False, False, False]
    given = Config.from_flat({"task": "echo", "turns": "llm_1,llm_2,llm_1", "sees": by_seat})
    assert given.sees == by_seat
    assert flagged("--seats", "3", "--sees.observer_2", "pioneer").sees == {"observer_2": "pioneer"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"turns": "llm_1,llm_3"}, "call the policies llm_1, llm_2"),
        ({"turns": "llm_1,llm_2", "seats": 3}, "3 seats have no player"),
        ({"turns": "llm_1,llm_2,llm_1", "sharing.same_view": True}, "sharing needs two policies"),
        ({"sees": {"observer_7": "none"}}, "observer_7"),
        ({"sees": {"observer_1": "some"}}, "sees is 'some'"),
    ],
)
def test_wrong_turns_and_views_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Config.from_flat(settings)
