import pytest
import torch

from cory.functional import token_rewards
from cory.functional.token_rewards import PayoffScalingConfig

MASK = torch.tensor([[True, True, False], [True, True, True]])


def test_the_payoff_falls_on_the_last_chosen_token_and_the_kl_penalty_on_each():
    kl = torch.tensor([[1.0, 2.0, 9.0], [0.5, 0.0, 1.0]])
    got = token_rewards.token_rewards(torch.tensor([10.0, 20.0]), kl, MASK, kl_coef=0.1)
    torch.testing.assert_close(got, torch.tensor([[-0.1, 9.8, 0.0], [-0.05, 0.0, 19.9]]))


def test_nan_in_the_padding_stays_there():
    kl = torch.tensor([[1.0, 2.0, float("nan")], [0.5, 0.0, 1.0]])
    assert torch.isfinite(token_rewards.token_rewards(torch.zeros(2), kl, MASK, kl_coef=0.1)).all()


def test_running_moments_equal_those_of_all_payoffs_at_once():
    first, second = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.0, 8.0])
    moments = token_rewards.Moments().after(first).after(second)
    both = torch.cat([first, second])
    assert moments.mean == pytest.approx(both.mean().item())
    assert moments.std == pytest.approx(both.std().item())


def test_a_single_payoff_has_no_spread_to_divide_by():
    moments = token_rewards.Moments().after(torch.tensor([5.0]))
    normal = token_rewards.scaled(torch.tensor([5.0]), moments, PayoffScalingConfig(scaling="normalise"))
    assert normal.tolist() == [0.0]
    assert token_rewards.Moments(mean=5.0, var=0.0).after(torch.tensor([5.0])).std == 1.0


def test_payoffs_are_scaled_and_normalised():
    moments = token_rewards.Moments(mean=2.0, var=3.0, count=4.0)  # sample std = sqrt(3 * 4 / 3) = 2
    payoff = torch.tensor([0.0, 4.0, 100.0])
    scale = token_rewards.scaled(payoff, moments, PayoffScalingConfig(scaling="scale"))
    normal = token_rewards.scaled(payoff, moments, PayoffScalingConfig(scaling="normalise"))
    torch.testing.assert_close(scale, torch.tensor([0.0, 2.0, 50.0]))
    torch.testing.assert_close(normal, torch.tensor([-1.0, 1.0, 49.0]))
    assert token_rewards.scaled(payoff, moments, PayoffScalingConfig()).tolist() == [0.0, 4.0, 100.0]
