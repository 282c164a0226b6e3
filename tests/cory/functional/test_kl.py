import math

import pytest
import torch

from cory.functional import kl
from cory.functional.advantage import Advantage
from tests.helpers.batches import make_batch, make_table_batch
from tests.helpers.learners import gradients_used, make_learner_of
from tests.helpers.models import make_table_policy, pair

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
    # kl 12 of target 6: error clipped to .2; 1000 responses, a tenth of the horizon: factor 1.02
    assert kl.next_coefficient(0.5, 12.0, target=6.0, responses=1000) == pytest.approx(0.51)
    # kl 5.4: error -.1, factor .99
    assert kl.next_coefficient(0.5, 5.4, target=6.0, responses=1000) == pytest.approx(0.495)


@pytest.mark.parametrize(("iteration", "want"), [(0, 0.4), (1, 0.3), (2, 0.2), (3, 0.1)])
def test_the_scheduled_coefficient_moves_in_equal_steps_over_the_run(iteration, want):
    config = kl.KLConfig(coef=0.4, final=0.1)
    assert kl.coefficient_at(config, iteration, 3) == pytest.approx(want)
    assert kl.coefficient_at(kl.KLConfig(coef=0.4), iteration, 3) == 0.4
    learner = make_learner_of("reinforce", make_table_policy(), kl_config=config)
    learner.begin_iteration(iteration, 3)
    assert learner.kl_coef == pytest.approx(want)


def float64_logps(policy, batch, row: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities [T, V] of one response under the policy and its reference, from the plain model."""
    p, r = int(batch.prompt_length_B[row]), int(batch.response_length_B[row])
    ids = torch.cat([batch.prompt_BP[row, :p], batch.response_BT[row, :r]])[None]
    ours, theirs = (m(ids).logits[0, p - 1 : -1] for m in (policy.model, policy.reference.model))
    return ours.double().log_softmax(-1), theirs.double().log_softmax(-1)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "abs", "full"])
def test_every_estimate_of_a_language_model_is_that_of_a_float64_loop(kind):
    policy = pair("gpt2")
    batch = make_batch(policy)
    got_BT = make_learner_of("reinforce", policy, kl_config=kl.KLConfig(kind=kind)).kl(batch)
    for row in range(len(batch)):
        logp_TV, ref_logp_TV = float64_logps(policy, batch, row)
        for t in range(int(batch.response_length_B[row])):
            at = t, int(batch.response_BT[row, t])
            x = (logp_TV[at] - ref_logp_TV[at]).item()
            pairs = zip(logp_TV[t].tolist(), ref_logp_TV[t].tolist(), strict=True)
            want = {
                "k1": x,
                "k2": x * x / 2,
                "k3": math.exp(-x) - 1 + x,
                "abs": abs(x),
                "full": sum(math.exp(a) * (a - b) for a, b in pairs),
            }[kind]
            assert got_BT[row, t].item() == pytest.approx(want, abs=1e-5)
        assert (got_BT[row, int(batch.response_length_B[row]) :] == 0).all()


def plain_kl(kind: str, logp_V: torch.Tensor, ref_logp_V: torch.Tensor, token: int) -> torch.Tensor:
    """KL of one token by the formula."""
    x = logp_V[token] - ref_logp_V[token].detach()
    exact = (logp_V.exp() * (logp_V - ref_logp_V.detach())).sum()
    return {"k2": x**2 / 2, "k3": torch.exp(-x) - 1 + x, "abs": x.abs(), "full": exact}[kind]


@pytest.mark.parametrize("kind", ["k2", "k3", "abs", "full"])
@pytest.mark.parametrize("of", ["table", "gpt2"])
def test_in_the_loss_kl_has_the_gradient_of_the_plain_formula(kind, of):
    """Advantages are 0: the loss is `coef` times the mean KL. Unequal lengths, two micro-batches."""
    policy = make_table_policy() if of == "table" else pair("gpt2")
    batch = make_table_batch(policy) if of == "table" else make_batch(policy)
    learner = make_learner_of(
        "reinforce", policy, kl_config=kl.KLConfig(kind=kind, place="loss", coef=0.7), microbatches=2
    )
    nothing = Advantage(torch.zeros(batch.response_BT.shape), torch.zeros(batch.response_BT.shape))
    parameters = dict(policy.named_parameters())
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(batch)):
        r = int(batch.response_length_B[row])
        if of == "gpt2":
            logp_TV, ref_logp_TV = float64_logps(policy, batch, row)
        else:
            one = batch.take(torch.tensor([row]))
            cells_T = policy.hidden_states(one)
            logp_TV = policy.logits_SV.double().log_softmax(-1)[cells_T]
            ref_logp_TV = policy.reference.logits_SV.double().log_softmax(-1)[cells_T]
        for t in range(r):
            total = total + plain_kl(kind, logp_TV[t], ref_logp_TV[t], int(batch.response_BT[row, t]))
    (0.7 * total / int(batch.response_length_B.sum())).backward()
    want = {name: p.grad.clone() for name, p in parameters.items() if p.grad is not None}
    used = gradients_used(learner)
    history, _ = learner.step(batch, nothing, torch.arange(len(batch)))
    assert len(history) == 2
    assert all(p.grad is None for p in parameters.values())
    assert max(grad.abs().max() for grad in want.values()) > 1e-3
    for name, grad in want.items():
        torch.testing.assert_close(used[0][name], grad, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "k9"},
        {"coef": -0.1},
        {"target": 0.0},
        {"place": "nowhere"},
        {"final": -0.1},
    ],
)
def test_kl_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=f"kl.{next(iter(wrong))} is "):
        kl.KLConfig(**wrong)


def test_k1_in_the_loss_and_two_coefficient_controllers_are_refused():
    with pytest.raises(ValueError, match="take k2, k3 or full"):
        kl.KLConfig(kind="k1", place="loss")
    with pytest.raises(ValueError, match="both change the coefficient"):
        kl.KLConfig(final=0.1, target=6.0)


def squared_difference(logprobs, ref_logprobs, exact_kl):
    return (logprobs - ref_logprobs) ** 2


def test_an_estimator_may_be_a_function_of_a_module():
    kind = "tests.cory.functional.test_kl:squared_difference"
    assert kl.estimate(kind, LOGP, REF, LOGP).tolist() == [[1.0, 1.0]]
    assert kl.KLConfig(kind=kind).kind == kind
    with pytest.raises(ValueError, match="has no 'missing'"):
        kl.KLConfig(kind="tests.cory.functional.test_kl:missing")


def in_place(logprobs, ref_logprobs, exact_kl):
    return logprobs.sub_(ref_logprobs).square()


def test_an_estimator_that_writes_into_its_arguments_changes_no_batch():
    logprobs = LOGP.clone()
    kind = "tests.cory.functional.test_kl:in_place"
    assert kl.estimate(kind, logprobs, REF, LOGP).tolist() == [[1.0, 1.0]]
    assert logprobs.equal(LOGP)


def test_a_coefficient_of_0_cannot_be_steered_to_a_target():
    with pytest.raises(ValueError, match=r"kl\.target multiplies kl\.coef, which is 0"):
        kl.KLConfig(coef=0.0, target=6.0)


def of_one(logprobs):
    return logprobs


def test_an_estimator_that_cannot_be_called_is_refused_in_the_settings():
    with pytest.raises(
        ValueError, match=r"of_one' cannot be called with \(logprobs, ref_logprobs, exact_kl\)"
    ):
        kl.KLConfig(kind=f"{__name__}:of_one")
