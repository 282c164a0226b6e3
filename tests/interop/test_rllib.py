"""RLlib has a virtual environment of its own: run by `make interop` where examples/setup_rllib.sh made it."""

import pytest

ray = pytest.importorskip("ray", reason="needs RLlib (sh examples/setup_rllib.sh)")
pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def rllib(example):
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield example("rllib_exchange")
    ray.shutdown()


@pytest.fixture
def algorithm(rllib):
    algorithm = rllib.make_algorithm(seed=0, every=2)
    yield algorithm
    algorithm.stop()


def test_pioneers_rows_carry_its_payoff(rllib, algorithm):
    paid = 0.0
    for game in rllib.play(algorithm, 50):
        rows = {seat: game.agent_episodes[seat] for seat in ("pioneer_0", "observer_1")}
        # Eight ids per one-hot vector; the one letter of the query comes first.
        query = rows["pioneer_0"].get_observations(0)[:8].argmax()
        payoff = sum(float(row.get_actions(0) == query) for row in rows.values())
        for row in rows.values():
            assert len(row) == 1
            assert row.is_terminated
            assert row.get_rewards(0) == payoff
        paid += payoff
    assert paid > 5


def test_policies_change_seats_every_second_iteration(rllib, algorithm):
    seen = []
    for iteration in range(6):
        rllib.seat(algorithm, iteration, every=2)
        begun, *games = rllib.play(algorithm, 4)
        assert len(begun) == 2  # it was on the table before, in the old seating
        seats = {(game.module_for("pioneer_0"), game.module_for("observer_1")) for game in games}
        assert len(seats) == 1
        seen += seats
    assert seen == [("llm_1", "llm_2")] * 2 + [("llm_2", "llm_1")] * 2 + [("llm_1", "llm_2")] * 2


def test_both_policies_learn_both_seats(rllib, algorithm):
    paid, updated = [rllib.payoff(algorithm)], set()
    for iteration in range(12):
        rllib.seat(algorithm, iteration, every=2)
        updated |= set(algorithm.train()["learners"])
        paid.append(rllib.payoff(algorithm))
    assert updated >= {"llm_1", "llm_2"}
    # Two random seats are right once in eight each; the last two iterations of each seating are looked at.
    assert paid[0] < 0.7
    assert min(paid[-4:]) > paid[0] + 0.5 * (2 - paid[0])
