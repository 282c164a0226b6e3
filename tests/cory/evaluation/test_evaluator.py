"""Held-out responses, standalone and in the game: the same for all batch sizes; metrics by float64 loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cory.evaluation import evaluator
from cory.evaluation.config import EvaluationConfig
from cory.evaluation.evaluator import evaluate_in_game, evaluate_standalone
from cory.training.metrics import evaluation_metrics
from cory_env.tokenizer import HFTokenizer
from cory_env.types import Query
from cory_env.vector import VectorGame
from tests.helpers.models import make_policy, pair

FEW = EvaluationConfig(queries=9, samples=2)
CAPS = (2, 6)


class Letters:
    """Openings of one to three tokens; a response of an even number of tokens scores 1, any other 0."""

    max_query = 3

    def __init__(self, policy, score_of=lambda response: float(len(response.ids) % 2 == 0)):
        self.tokenizer = HFTokenizer(policy.tokenizer, eos=policy.eos, vocab_size=policy.vocab_size)
        self.score_of = score_of
        ids = np.random.default_rng(0).integers(1, policy.vocab_size, (20, 3)).tolist()
        rows = [tuple(row[: 1 + i % 3]) for i, row in enumerate(ids)]
        self._queries = [Query(self.tokenizer.decode(row), row, {}) for row in rows]

    def queries(self, split):
        return {"test": self._queries, "train": self._queries[:1]}[split]

    def score(self, queries, responses):
        return [self.score_of(response) for response in responses]

    def template(self, seat):
        return "{query}" if seat == "pioneer_0" else "{query}{response_0}"


@pytest.fixture(scope="module")
def policy():
    policy = pair("gpt2")
    policy.reference.set_reference(policy.reference)
    return policy


def responses_of(policy, config=FEW, task=None):
    return evaluate_standalone(policy, task or Letters(policy), config, max_response=CAPS, measures={})


def in_game(policy, config=FEW):
    game = VectorGame(Letters(policy), seats=2, max_response=CAPS, window=policy.window)
    return evaluate_in_game(game, {"pioneer_0": policy, "observer_1": policy.reference}, config, measures={})


@pytest.mark.slow
def test_responses_do_not_depend_on_the_batch_size_or_on_earlier_evaluations(policy, monkeypatch):
    config = replace(FEW, queries=10, samples=3)
    first = {}
    for batch in (7, 7, 1, 64):
        monkeypatch.setattr(evaluator, "BATCH", batch)
        now = {"standalone": responses_of(policy, config), **in_game(policy, config)}
        for place, responses in now.items():
            before = first.setdefault(place, responses)
            assert responses.ids == before.ids
            assert responses.texts == before.texts
            metrics = responses.metrics(kl_coef=0.3)
            assert metrics == pytest.approx(before.metrics(kl_coef=0.3), rel=1e-6, abs=1e-5)
            for name, values_QS in responses.arrays.items():
                assert values_QS.shape == (10, 3)
                np.testing.assert_allclose(values_QS, before.arrays[name], atol=1e-5)


def test_samples_are_other_responses_and_the_first_is_that_of_one_sample(policy):
    several, one = (
        responses_of(policy, replace(FEW, samples=4)),
        responses_of(policy, replace(FEW, samples=1)),
    )
    assert [ids[0] for ids in several.ids] == [ids[0] for ids in one.ids]
    assert all(len(set(ids)) > 1 for ids in several.ids)


def test_kl_and_perplexity_equal_those_of_a_float64_loop(policy):
    found = responses_of(policy)
    task = Letters(policy)
    kl, nats, tokens = [], 0.0, 0
    ours, theirs = policy.model.double(), policy.reference.model.double()
    try:
        for query, responses in zip(task.queries("test"), found.ids, strict=False):
            for response in responses:
                ids, start = torch.tensor([[*query.ids, *response]]), len(query.ids) - 1
                with torch.no_grad():
                    p, q = (
                        model(ids).logits[0, start:-1].double().log_softmax(-1) for model in (ours, theirs)
                    )
                kl.append(sum(float(a.exp() * (a - b)) for t in range(len(response))
                              for a, b in zip(p[t], q[t], strict=True)))  # fmt: skip
                nats -= sum(float(q[t, token]) for t, token in enumerate(response))
                tokens += len(response)
    finally:
        policy.model.float(), policy.reference.model.float()
    assert found.arrays["kl"].flatten() == pytest.approx(kl, abs=1e-4)
    metrics = found.metrics(kl_coef=0.3)
    assert metrics["kl"] == pytest.approx(np.mean(kl), abs=1e-5)
    assert metrics["kl_per_token"] == pytest.approx(sum(kl) / tokens, abs=1e-5)
    assert metrics["reference_perplexity"] == pytest.approx(np.exp(nats / tokens), rel=1e-5)
    assert metrics["length"] == tokens / 18
    assert metrics["combined_reward"] == pytest.approx(metrics["task_reward"] - 0.3 * np.mean(kl), abs=1e-5)


def test_a_reference_has_no_kl_to_itself(policy):
    metrics = responses_of(policy.reference).metrics(kl_coef=0.3)
    assert metrics["kl"] == metrics["kl_per_token"] == 0
    assert metrics["combined_reward"] == metrics["task_reward"]


def test_the_pioneer_responds_in_the_game_as_it_does_standalone(policy):
    by_seat = in_game(policy)
    assert by_seat["pioneer_0"].ids == responses_of(policy).ids
    assert by_seat["observer_1"].ids != by_seat["pioneer_0"].ids
    both = by_seat["pioneer_0"].arrays["task_reward"] + by_seat["observer_1"].arrays["task_reward"]
    for responses in by_seat.values():
        np.testing.assert_array_equal(responses.arrays["payoff"], both)
    assert by_seat["observer_1"].metrics(kl_coef=0)["kl"] == 0


def test_accuracy_and_pass_at_k_count_the_scores_from_the_threshold(policy):
    """2 of 3 right: pass@1 = 2/3, pass@2 = 1."""
    found = responses_of(policy, replace(FEW, samples=3))
    correct = [[len(ids) % 2 == 0 for ids in of_query] for of_query in found.ids]
    assert {sum(of_query) for of_query in correct} >= {1, 2}
    metrics = replace(found, threshold=1).metrics(kl_coef=0)
    assert metrics["accuracy"] == pytest.approx(np.mean(correct))
    assert metrics["pass_at_1"] == pytest.approx(np.mean(correct))
    hits = {0: 0.0, 1: 2 / 3, 2: 1.0, 3: 1.0}
    assert metrics["pass_at_2"] == pytest.approx(np.mean([hits[sum(row)] for row in correct]))
    assert metrics["pass_at_3"] == pytest.approx(np.mean([any(row) for row in correct]))


def test_other_scores_have_an_accuracy_only_with_a_threshold(policy):
    found = responses_of(policy, task=Letters(policy, score_of=lambda response: len(response.ids) / 10))
    assert "accuracy" not in found.metrics(kl_coef=0)
    share = np.mean([len(ids) >= 4 for of_query in found.ids for ids in of_query])
    assert replace(found, threshold=0.4).metrics(kl_coef=0)["accuracy"] == pytest.approx(share)


def test_greedy_responses_are_the_likeliest_tokens_and_their_kl_is_the_policys_own(policy):
    found = responses_of(policy, replace(FEW, samples=1, sampling="greedy"))
    for query, (response,) in zip(Letters(policy).queries("test"), found.ids, strict=False):
        with torch.no_grad():
            logits = policy.model(torch.tensor([[*query.ids, *response]])).logits[0, len(query.ids) - 1 : -1]
        assert list(response) == logits.argmax(-1).tolist()
    assert found.arrays["kl"].min() > 0


def test_the_papers_sampling_differs_from_the_policys_own(policy):
    own, paper = (responses_of(policy, replace(FEW, sampling=strategy)) for strategy in ("own", "paper"))
    assert own.ids != paper.ids
    assert paper.metrics(kl_coef=0)["reference_perplexity"] < own.metrics(kl_coef=0)["reference_perplexity"]


def test_training_logs_standalone_metrics(policy):
    own = responses_of(policy)
    metrics = evaluation_metrics({"reference": own, "llm_1": own, "llm_2": own}, kl_coef=0)
    assert metrics["eval/llm_1/repetition"] == metrics["eval/reference/repetition"]
    assert all(key.count("/") == 2 for key in metrics)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 0}, "evaluation.samples is 0"),
        ({"sampling": "beam"}, "'beam'; there are own, paper, greedy"),
        ({"sampling": "greedy", "samples": 4}, "gives the same response each time"),
    ],
)
def test_invalid_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        EvaluationConfig(**changes)


def test_a_task_without_held_out_queries_is_refused():
    policy = make_policy("gpt2")
    task = Letters(policy)
    task._queries = []
    with pytest.raises(ValueError, match="no held-out queries"):
        responses_of(policy, task=task)
