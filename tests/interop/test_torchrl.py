"""TorchRL on `relay`: who is paid, what is learned, and what lambda does to it.

Against which the gap is measured: a random masked policy says one of seven ids (four letters, `?`, EOS, pad).
The pioneer's favourite is one of them and worth 0.2 more than the rest; so is the observer's secret, worth 1:
4/5 + 1/35 and 1/7, together 34/35. The optimum of cooperation is 9/10 + 1.
"""

import pytest
import torch

pytest.importorskip("torchrl", reason="needs TorchRL (pip install 'cory[interop]')")
pytestmark = pytest.mark.interop

RANDOM = 34 / 35
BEST = 1.9
GAMES = 500


@pytest.fixture(scope="module")
def relay(example):
    return example("torchrl_relay")


@pytest.fixture(scope="module")
def batch(relay):
    torch.manual_seed(0)
    env = relay.make_env(1.0)
    return relay.collect(env, relay.make_actor(env), games=GAMES)


def scores(batch):
    """[game, seat], worked out from the query that was dealt and the ids that were said."""
    rows = batch.reshape(GAMES, 2)  # a game is two steps: the pioneer speaks, the observer speaks
    # Seven ids per one-hot vector; the pioneer's prompt opens with the secret.
    secret = rows["agents", "observation"][:, 0, 0].reshape(GAMES, -1, 7)[:, 0].argmax(-1)
    said = rows["agents", "action"]
    # a (0) is the favourite of a and b, c (2) of c and d; anything else costs 0.2.
    pioneer = torch.where(said[:, 0, 0] == secret // 2 * 2, 1.0, 0.8)
    return torch.stack([pioneer, (said[:, 1, 1] == secret).float()], dim=1)


def test_pioneers_rows_carry_its_payoff(relay, batch):
    paid = batch.reshape(GAMES, 2)["next", "agents", "reward"].squeeze(-1)
    assert not paid[:, 0].any()
    expected = scores(batch).sum(1, keepdim=True).expand(GAMES, 2)
    torch.testing.assert_close(paid[:, 1], expected)
    assert expected.min() > 0.79


def test_each_seat_is_paid_its_own_score_and_lambda_times_the_others(relay):
    torch.manual_seed(0)
    env = relay.make_env(-1.0)
    batch = relay.collect(env, relay.make_actor(env), games=GAMES)
    own = scores(batch)
    paid = batch.reshape(GAMES, 2)["next", "agents", "reward"].squeeze(-1)[:, 1]
    torch.testing.assert_close(paid, own - own.flip(1))


def test_a_waiting_seat_has_one_legal_action_and_plays_it(batch):
    rows = batch.reshape(GAMES, 2)
    for step, waiting in ((0, 1), (1, 0)):
        assert (rows["agents", "action_mask"][:, step, waiting].sum(-1) == 1).all()
        assert (rows["agents", "action"][:, step, waiting] == 6).all()  # pad


def test_an_untrained_policy_scores_as_derived(relay):
    """The derived 34/35 by play: 500 games of uniformly chosen legal ids."""
    env = relay.make_env(1.0)
    env.set_seed(0)
    torch.manual_seed(0)
    batch = env.rollout(2 * GAMES, break_when_any_done=False)
    assert scores(batch).sum(1).mean() == pytest.approx(RANDOM, abs=0.06)  # three standard errors


@pytest.mark.parametrize("algorithm", ["ippo", "mappo", "qmix"])
def test_learns_to_cooperate(relay, algorithm):
    """QMIX may miss one of six letters with a seed."""
    together = [sum(relay.train(algorithm, others=1.0, seed=seed).greedy) for seed in range(3)]
    learned = [(score - RANDOM) / (BEST - RANDOM) for score in together]
    assert sum(learned) / len(learned) >= 0.9
    assert min(learned) >= 0.75


@pytest.mark.parametrize("algorithm", ["ippo", "mappo"])
def test_a_pioneer_that_looks_after_itself_says_the_favourite(relay, algorithm):
    got = relay.train(algorithm, others=0.0, seed=0).greedy
    assert got.pioneer == pytest.approx(1.0)
    assert got.observer == pytest.approx(0.5)  # the pair is known, the secret within it is not


@pytest.mark.parametrize("algorithm", ["ippo", "mappo"])
def test_a_pioneer_that_competes_gives_less_away(relay, algorithm):
    """Derived: hiding leaves the pioneer 0.9 and the observer 1/4, where lambda = 0 gives it 1/2."""
    late = relay.train(algorithm, others=-1.0, seed=0).late
    assert late.observer < 0.4
    assert 0.8 < late.pioneer < 0.97
