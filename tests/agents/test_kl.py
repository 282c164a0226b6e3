import math

import pytest
import torch

from agents import kl

LOGP = torch.tensor([[-1.0, -2.0]])
REF = torch.tensor([[-2.0, -1.0]])


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        # x = log pi - log ref = 1, -1
        ("k1", [1.0, -1.0]),
        ("k2", [0.5, 0.5]),
        ("k3", [math.exp(-1), math.exp(1) - 2]),  # exp(-x) - 1 + x
        ("abs", [1.0, 1.0]),
        ("full", [7.0, 8.0]),
    ],
)
def test_estimators_by_hand(kind, want):
    got = kl.estimate(kind, LOGP, REF, torch.tensor([[7.0, 8.0]]))
    assert got[0].tolist() == pytest.approx(want)


def test_k1_and_k3_have_the_mean_of_the_exact_kl():
    p, q = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]
    exact = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    logp, logq = torch.tensor([p], dtype=torch.float64).log(), torch.tensor([q], dtype=torch.float64).log()
    for kind in ("k1", "k3"):
        mean = (torch.tensor(p, dtype=torch.float64) * kl.estimate(kind, logp, logq, logp)).sum().item()
        assert mean == pytest.approx(exact)


def test_the_adaptive_coefficient_moves_towards_its_target_and_never_by_more_than_a_fifth():
    # kl 12 of target 6: error clipped to .2; 100 of 1000 responses: factor 1.02
    assert kl.next_coefficient(0.5, 12.0, target=6.0, horizon=1000, responses=100) == pytest.approx(0.51)
    # kl 5.4: error -.1, factor .99
    assert kl.next_coefficient(0.5, 5.4, target=6.0, horizon=1000, responses=100) == pytest.approx(0.495)


@pytest.mark.parametrize("wrong", [{"kind": "k9"}, {"coef": -0.1}, {"target": 0.0}, {"horizon": 0}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match=f"kl.{next(iter(wrong))} is "):
        kl.Config(**wrong)
