"""VDAC: advantages and value targets by hand, the mixer by hand, and the optimum of relay."""

import math

import pytest
import torch

from cory.algorithms import vdac, vdac_mix
from cory.algorithms.vdac_mix import Mixer, TeamMixer, Turn
from cory.training.trainer import Trainer
from tests.helpers.games import made_up_games, relay_sums
from tests.helpers.tables import flagged

SCORES = [[1.0, 0], [0, 4]]
VALUES = [[[0.5], [2, 3]], [[0.25], [-1, 1.5]]]
REWARDS = {
    "pioneer_0": torch.tensor([[1.0, 0], [-0.5, 4]]),
    "observer_1": torch.tensor([[0.75, 0], [0, 4]]),
}
"""Payoffs of 1 and 4 at the last token. KL penalties: the pioneer 0.5 on the first token of game 1, the
observer 0.25 on its token in game 0."""


def unwhitened(lam: float) -> vdac.Config:
    return vdac.Config(whiten=False, lam=lam)


def test_advantages_and_targets_by_hand():
    """The pioneer's whole is its own value. The observer's adds the pioneer's first ones, 0.5 and 2:
    V_tot = 0.75 in game 0; 1, 3.5 in game 1. With lambda 1, A = rewards to go - V_tot.
    """
    batches = made_up_games(SCORES, VALUES)
    found = vdac.advantage(batches, REWARDS, unwhitened(1.0), {})
    assert found["pioneer_0"].advantage_BT.tolist() == [[0.5, 0], [3.5 - 2, 4 - 3]]
    assert found["pioneer_0"].return_BT.tolist() == [[1, 0], [3.5, 4]]
    assert found["observer_1"].advantage_BT.tolist() == [[0.75 - 0.75, 0], [4 - 1, 4 - 3.5]]
    assert found["observer_1"].return_BT.tolist() == [[0.75 - 0.5, 0], [4 - 2, 4 - 2]]


def test_lambda_bootstraps_on_the_whole():
    """Game 1 of the observer: deltas 0 + 3.5 - 1 and 4 - 3.5; A = 2.5 + 0.5 * 0.5."""
    found = vdac.advantage(made_up_games(SCORES, VALUES), REWARDS, unwhitened(0.5), {})["observer_1"]
    assert found.advantage_BT[1].tolist() == [2.75, 0.5]
    assert found.return_BT[1].tolist() == [2.75 + 1 - 2, 2]


def test_of_three_seats_each_adds_the_values_of_those_before_it():
    batches = made_up_games([[1.0], [1], [1]], [[[0.5]], [[0.25]], [[4.0]]])
    rewards = {seat: batch.payoff_B[:, None] for seat, batch in batches.items()}
    found = vdac.advantage(batches, rewards, unwhitened(1.0), {})
    assert [of.advantage_BT.item() for of in found.values()] == [3 - 0.5, 3 - 0.75, 3 - 4.75]
    assert [of.return_BT.item() for of in found.values()] == [3.0, 3 - 0.5, 3 - 0.75]


def test_an_observer_that_foresees_the_pioneers_effect_does_not_take_it_from_the_pioneer():
    """The value of the observer's prompt, which holds the pioneer's response, is the whole payoff here."""
    found = [
        vdac.advantage(made_up_games(SCORES, values), REWARDS, unwhitened(1.0), {})["pioneer_0"]
        for values in ([VALUES[0], [[1.0], [4, 4]]], [VALUES[0], [[0.0], [0, 0]]])
    ]
    assert torch.equal(found[0].advantage_BT, found[1].advantage_BT)
    assert found[0].advantage_BT.any()


def test_vdac_with_one_seat_is_ppo():
    weights = {}
    for name in ("vdac", "ppo"):
        trainer = Trainer(flagged("--algorithm", name, "--seats", "1", "--exchange.every", "0"))
        trainer.iterate(0)
        trainer.iterate(1)
        weights[name] = trainer.policies["llm_1"].logits_SV
    assert torch.equal(weights["vdac"], weights["ppo"])


@pytest.mark.parametrize("name", ["vdac", "vdac_mix"])
def test_seats_that_are_paid_differently_later_are_refused_then(name):
    """Settings are checked at the ends of a run, batches always: a payoff may be any function of both."""
    trainer = Trainer(flagged("--algorithm", name))
    trainer.game.set_payoff("independent")
    trainer.set_game = lambda iteration: None
    with pytest.raises(ValueError, match="pioneer_0 and observer_1 are paid differently; play it with --pay"):
        trainer.iterate(0)


def test_a_schedule_away_from_one_payoff_is_refused_before_a_run():
    schedule = ["--payoff", "cooperative", "--payoff.to", "independent", "--payoff.over", "2"]
    with pytest.raises(ValueError, match="'vdac' shares out another payoff"):
        flagged("--algorithm", "vdac", *schedule)


@pytest.mark.parametrize("name", ["vdac", "vdac_mix"])
def test_vdac_refuses_a_central_critic_before_a_run(name):
    with pytest.raises(ValueError, match=f"'{name}' has a critic of its own, the kind own; leave out"):
        flagged("--algorithm", name, "--critic.kind", "central")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vdac", "vdac_mix"])
def test_cooperation_is_learned_on_relay(name):
    """A pioneer that maximises its own score leaves the sum at 1.5 or below; the best is 1.9."""
    sums = relay_sums("--algorithm", name)
    assert sums[0] < 1.1
    assert math.fsum(sums[-5:]) / 5 > 1.75


def constant_mixer(weight: float, shift: float, out: float, bias: float) -> Mixer:
    """One hidden unit whose weights are the same in every state."""
    mixer = Mixer(1)
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.zero_()
        mixer.weight.bias.fill_(weight)
        mixer.shift.bias.fill_(shift)
        mixer.out.bias.fill_(out)
        mixer.outer.bias.fill_(bias)
    return mixer


STATE = torch.zeros(1, vdac_mix.WIDTH)


def test_the_mix_and_its_slope_by_hand():
    """V_tot = 3 elu(2 V_i + 2 V_0 + 1) - 1; weights of -2 and -3 count with their absolute values.

    Own values 0.5 and -1: 3 elu(2) - 1 = 5, slope 6; 3 (e^-1 - 1) - 1, slope 6 e^-1. With an earlier value of
    0.5 and an own value of 1: 3 elu(2 + 1 + 1) - 1 = 11.
    """
    team = TeamMixer(vdac_mix.Config(mixer_hidden=1), torch.device("cpu"))
    team.mixer = constant_mixer(-2, 1, -3, -1)
    turns = {
        "pioneer_0": Turn(torch.tensor([[0.5, -1]]), STATE, ()),
        "observer_1": Turn(torch.tensor([[1.0]]), STATE, ((torch.tensor([0.5]), STATE),)),
    }
    found = team.totals(turns)
    total, slope = found["pioneer_0"]
    assert total[0].tolist() == pytest.approx([5, 3 * math.exp(-1) - 4])
    assert slope[0].tolist() == pytest.approx([6, 6 * math.exp(-1)])
    assert [one.item() for one in found["observer_1"]] == pytest.approx([11, 6])


def test_targets_of_value_heads_follow_the_slope_of_the_mix():
    """Game 0, pioneer: V 0.5, V_tot 0.25, slope 2, R 1: A = 0.75, target = 0.5 + 2 * 0.75 = 2."""
    batches = made_up_games([[1.0], [0.0]], [[[0.5]], [[0.0]]])
    one = torch.ones(1, 1)
    totals = {"pioneer_0": (0.25 * one, 2 * one), "observer_1": (-one, 0.5 * one)}
    rewards = dict.fromkeys(batches, one)
    found, returns = vdac_mix.mixed_advantages(
        batches, rewards, totals, vdac_mix.Config(whiten=False, lam=1.0)
    )
    assert [of.advantage_BT.item() for of in found.values()] == [0.75, 2.0]
    assert [of.return_BT.item() for of in found.values()] == [2.0, 0 + 0.5 * 2]
    assert [of.item() for of in returns.values()] == [1.0, 1.0]


def drawn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_logged_returns_are_the_targets_that_value_heads_learn():
    trainer = Trainer(flagged("--task", "relay", "--algorithm", "vdac_mix", "--batch", "8"))
    learned = {}
    for name, learner in trainer.learners.items():
        update = learner.update

        def recorded(batch, advantage, orders, own_rows, name=name, update=update):
            learned[name] = float(advantage.return_BT[:, 0].mean())
            return update(batch, advantage, orders, own_rows)

        learner.update = recorded
    logged = {}
    for iteration in range(3):  # from the second on the mix is no sum
        logged = trainer.iterate(iteration)
    for seat, name in trainer.seating(2).items():
        assert logged[f"{seat}/{name}/return_first"] == pytest.approx(learned[name])


def test_no_value_that_rises_lowers_the_mix():
    mixer = Mixer(8)
    with torch.no_grad():
        for i, parameter in enumerate(mixer.parameters()):
            parameter.copy_(drawn(*parameter.shape, seed=i))
    states = drawn(2, 500, vdac_mix.WIDTH, seed=20)
    own_BT, earlier_B = drawn(500, 3, seed=21), drawn(500, seed=22)

    def mixed(own_BT, earlier_B):
        with torch.no_grad():
            return mixer(Turn(own_BT, states[1], ((earlier_B, states[0]),)))

    base_BT = mixed(own_BT, earlier_B)
    assert (mixed(own_BT + 0.5, earlier_B) >= base_BT).all()
    assert (mixed(own_BT, earlier_B + 0.5) >= base_BT).all()
    assert (mixed(own_BT, earlier_B + 0.5) > base_BT).any()


def test_a_new_mixer_is_nearly_the_sum_and_0_for_values_of_0():
    mixer, state_BW = Mixer(32), drawn(4, vdac_mix.WIDTH, seed=0)
    turn = Turn(torch.tensor([[0.0], [1], [0.5], [2]]), state_BW, ((torch.tensor([0, 1, 1.5, 0]), state_BW),))
    with torch.no_grad():
        assert mixer(turn)[:, 0].tolist() == pytest.approx([0, 2, 2, 2], rel=0.2)


def test_the_mixer_learns_weights_that_depend_on_the_state():
    """R = V in one state and 4 V in the other, V from 0 to 1: the best single weight is 2.5, whose error is
    the mean of (1.5 V)^2, which is 0.75."""
    team = TeamMixer(vdac_mix.Config(mixer_lr=0.01), torch.device("cpu"))
    own_BT = torch.linspace(0, 1, 64)[:, None]
    state_2W = drawn(2, vdac_mix.WIDTH, seed=0)
    turns = {
        seat: Turn(own_BT, state_2W[i].expand(64, -1), ())
        for i, seat in enumerate(("pioneer_0", "observer_1"))
    }
    returns = {"pioneer_0": own_BT, "observer_1": 4 * own_BT}
    masks = dict.fromkeys(turns, torch.ones(64, 1, dtype=torch.bool))
    first = team.fit(turns, returns, masks, epochs=300)
    last = team.fit(turns, returns, masks, epochs=1)
    assert first["mixer_loss"] > 0.75
    assert last["mixer_loss"] < 0.01
    assert last["mixer_explained_variance"] > 0.99


def test_states_of_any_width_are_projected_alike():
    state_BD = drawn(3, 20, seed=0)
    wider_BD = torch.cat([state_BD, torch.zeros(3, 30)], dim=1)
    assert torch.equal(vdac_mix.projected(state_BD), vdac_mix.projected(wider_BD))
    assert not torch.allclose(*vdac_mix.projected(state_BD)[:2], atol=0.1)


def learned(metrics: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in metrics.items() if not key.startswith(("time/", "speed/"))}


def test_a_resumed_run_with_a_mixer_is_the_run_in_one(tmp_path):
    config = flagged("--algorithm", "vdac_mix", "--exchange.every", "2")
    whole, first, second = (Trainer(config) for _ in range(3))
    want = [learned(whole.iterate(i)) for i in range(4)]
    for i in range(2):
        first.iterate(i)
    second.load(first.save(tmp_path, 2))
    assert [learned(second.iterate(i)) for i in (2, 3)] == want[2:]
    fresh = Mixer(32).state_dict()
    assert any(not torch.equal(fresh[k], v) for k, v in second.state.of_team.mixer.state_dict().items())


def test_a_mixer_that_diverges_is_named():
    team = TeamMixer(vdac_mix.Config(), torch.device("cpu"))
    returns, mask = torch.full((1, 1), float("inf")), torch.ones(1, 1, dtype=torch.bool)
    with pytest.raises(
        FloatingPointError, match=r"the loss of values is not finite; lower algorithm\.mixer_lr"
    ):
        team.fit({"a": Turn(torch.ones(1, 1), STATE, ())}, {"a": returns}, {"a": mask}, epochs=1)


@pytest.mark.parametrize("wrong", [{"mixer_lr": 0.0}, {"mixer_epochs": 0}, {"mixer_hidden": 0}])
def test_vdac_settings_out_of_range_are_refused(wrong):
    ((field, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"algorithm\.{field} is {value};"):
        vdac_mix.Config(**wrong)
