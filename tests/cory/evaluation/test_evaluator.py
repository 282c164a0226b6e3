"""What policies answer on held-out queries, evaluate_standalone and in the game: the same whatever the batch, and worth
what a float64 loop says."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cory.evaluation.evaluator import EvaluationConfig, evaluate_in_game, evaluate_standalone
from cory.training.metrics import evaluation_metrics
from cory_env.tokenizer import wrap
from cory_env.types import Query
from cory_env.vector import VectorGame
from tests.cory.policies.test_policies import make_policy, pair

FEW = EvaluationConfig(queries=9, samples=2, batch=4)
CAPS = (2, 6)


class Letters:
    """Openings of one to three tokens; a response of an even number of tokens is worth 1, another 0."""

    max_query = 3

    def __init__(self, policy, worth=lambda response: float(len(response.ids) % 2 == 0)):
        self.tokenizer = wrap(policy.tokenizer, eos=policy.eos, vocab_size=policy.vocab_size)
        self.worth = worth
        ids = np.random.default_rng(0).integers(1, policy.vocab_size, (20, 3)).tolist()
        rows = [tuple(row[: 1 + i % 3]) for i, row in enumerate(ids)]
        self._queries = [Query(self.tokenizer.decode(row), row, {}) for row in rows]

    def queries(self, split):
        return {"test": self._queries, "train": self._queries[:1]}[split]

    def score(self, queries, responses):
        return [self.worth(response) for response in responses]

    def template(self, seat):
        return "{query}" if seat == "pioneer_0" else "{query}{response_0}"


@pytest.fixture(scope="module")
def policy():
    told = pair("gpt2")
    told.reference.set_reference(told.reference)
    return told


def answers_of(policy, config=FEW, task=None):
    return evaluate_standalone(policy, task or Letters(policy), config, max_response=CAPS, measures={})


def in_game(policy, config=FEW):
    game = VectorGame(Letters(policy), seats=2, max_response=CAPS, window=policy.window)
    return evaluate_in_game(game, {"pioneer_0": policy, "observer_1": policy.reference}, config, measures={})


def test_answers_are_the_same_whatever_the_batch_and_whenever(policy):
    config = replace(FEW, queries=20, samples=3)
    told = {}
    for batch in (7, 7, 1, 64):
        now = {"alone": answers_of(policy, replace(config, batch=batch))}
        now |= in_game(policy, replace(config, batch=batch))
        for place, answers in now.items():
            before = told.setdefault(place, answers)
            assert answers.ids == before.ids
            assert answers.texts == before.texts
            numbers = answers.numbers(kl_coef=0.3)
            assert numbers == pytest.approx(before.numbers(kl_coef=0.3), abs=1e-5)
            for name, values_QS in answers.arrays.items():
                assert values_QS.shape == (20, 3)
                np.testing.assert_allclose(values_QS, before.arrays[name], atol=1e-5)


def test_samples_are_other_responses_and_the_first_is_that_of_one_sample(policy):
    several, one = answers_of(policy, replace(FEW, samples=4)), answers_of(policy, replace(FEW, samples=1))
    assert [ids[0] for ids in several.ids] == [ids[0] for ids in one.ids]
    assert all(len(set(ids)) > 1 for ids in several.ids)


def test_kl_and_perplexity_are_those_of_a_float64_loop(policy):
    told = answers_of(policy)
    task = Letters(policy)
    kl, nats, tokens = [], 0.0, 0
    ours, theirs = policy.model.double(), policy.reference.model.double()
    try:
        for query, responses in zip(task.queries("test"), told.ids, strict=False):
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
    assert told.arrays["kl"].flatten() == pytest.approx(kl, abs=1e-4)
    numbers = told.numbers(kl_coef=0.3)
    assert numbers["kl"] == pytest.approx(np.mean(kl), abs=1e-5)
    assert numbers["kl_per_token"] == pytest.approx(sum(kl) / tokens, abs=1e-5)
    assert numbers["reference_perplexity"] == pytest.approx(np.exp(nats / tokens), rel=1e-5)
    assert numbers["length"] == tokens / 18
    assert numbers["combined_reward"] == pytest.approx(numbers["task_reward"] - 0.3 * np.mean(kl), abs=1e-5)


def test_a_reference_is_at_no_distance_from_itself(policy):
    numbers = answers_of(policy.reference).numbers(kl_coef=0.3)
    assert numbers["kl"] == numbers["kl_per_token"] == 0
    assert numbers["combined_reward"] == numbers["task_reward"]


def test_the_pioneer_reads_and_says_in_the_game_what_it_does_alone(policy):
    told = in_game(policy)
    assert told["pioneer_0"].ids == answers_of(policy).ids
    assert told["observer_1"].ids != told["pioneer_0"].ids
    both = told["pioneer_0"].arrays["task_reward"] + told["observer_1"].arrays["task_reward"]
    for answers in told.values():
        np.testing.assert_array_equal(answers.arrays["payoff"], both)
    assert told["observer_1"].numbers(kl_coef=0)["kl"] == 0


def test_accuracy_and_pass_at_k_count_the_scores_of_1(policy):
    """2 of 3 right: pass@1 = 2/3, pass@2 = 1."""
    told = answers_of(policy, replace(FEW, samples=3))
    correct = [[len(ids) % 2 == 0 for ids in of_query] for of_query in told.ids]
    assert {sum(of_query) for of_query in correct} >= {1, 2}
    numbers = told.numbers(kl_coef=0)
    assert numbers["accuracy"] == pytest.approx(np.mean(correct))
    assert numbers["pass_at_1"] == pytest.approx(np.mean(correct))
    hits = {0: 0.0, 1: 2 / 3, 2: 1.0, 3: 1.0}
    assert numbers["pass_at_2"] == pytest.approx(np.mean([hits[sum(row)] for row in correct]))
    assert numbers["pass_at_3"] == pytest.approx(np.mean([any(row) for row in correct]))


def test_other_scores_have_an_accuracy_only_from_a_threshold_on(policy):
    told = answers_of(policy, task=Letters(policy, worth=lambda response: len(response.ids) / 10))
    assert "accuracy" not in told.numbers(kl_coef=0)
    share = np.mean([len(ids) >= 4 for of_query in told.ids for ids in of_query])
    assert told.numbers(kl_coef=0, threshold=0.4)["accuracy"] == pytest.approx(share)


def test_greedy_answers_are_the_likeliest_tokens_and_their_kl_is_the_policys_own(policy):
    told = answers_of(policy, replace(FEW, samples=1, sampling="greedy"))
    for query, (response,) in zip(Letters(policy).queries("test"), told.ids, strict=False):
        with torch.no_grad():
            logits = policy.model(torch.tensor([[*query.ids, *response]])).logits[0, len(query.ids) - 1 : -1]
        assert list(response) == logits.argmax(-1).tolist()
    assert told.arrays["kl"].min() > 0


def test_the_papers_sampling_says_other_things_than_the_policys_own(policy):
    own, paper = (answers_of(policy, replace(FEW, sampling=manner)) for manner in ("own", "paper"))
    assert own.ids != paper.ids
    assert paper.numbers(kl_coef=0)["reference_perplexity"] < own.numbers(kl_coef=0)["reference_perplexity"]


def test_training_logs_who_is_what_alone_and_how_much_policies_differ(policy):
    own = answers_of(policy)
    told = evaluation_metrics(
        {"reference": own, "llm_1": own, "llm_2": own}, ["llm_1", "llm_2"], kl_coef=0, threshold=None
    )
    assert told["eval/llm_1/repetition"] == told["eval/reference/repetition"]
    assert told["all/policies/differing"] == told["all/policies/ngram_distance"] == 0
    assert all(key.count("/") == 2 for key in told)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"samples": 0}, "evaluation.samples is 0"),
        ({"sampling": "beam"}, "'beam'; there are own, paper, greedy"),
        ({"sampling": "greedy", "samples": 4}, "says the same each time"),
    ],
)
def test_settings_without_sense_are_refused(wrong, says):
    with pytest.raises(ValueError, match=says):
        EvaluationConfig(**wrong)


def test_a_task_without_held_out_queries_is_refused():
    policy = make_policy("gpt2")
    task = Letters(policy)
    task._queries = []
    with pytest.raises(ValueError, match="no held-out queries"):
        answers_of(policy, task=task)
