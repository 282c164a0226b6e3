"""The central critic: what it reads, what it learns, which weights it leaves as they are.

Shapes: B games, P prompt tokens, T response tokens.
"""

import math
from dataclasses import replace

import pytest
import torch

from cory.batch import Batch
from cory.config.schema import Config, PolicyConfig
from cory.config.task_options import task_options
from cory.evaluation.config import EvaluationConfig
from cory.functional.kl import KLConfig
from cory.learner.central_critic import CentralCritic, transcripts
from cory.learner.critic_config import CriticConfig
from cory.learner.optimizer import LearnerConfig
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.table import TablePolicy
from cory.rollout.role_exchange import ExchangeConfig
from cory.rollout.rollout import play_shared
from cory.runtime.clock import Clock
from cory.training.held_out import HeldOut
from cory.training.trainer import Trainer
from tests.helpers.models import make_model, make_tokenizer

CENTRAL = Config.from_flat(
    {
        "task": "echo",
        "policy": PolicyConfig(kind="table"),
        "critic": CriticConfig(kind="central"),
        "batch": 64,
        "max_response": (3, 3),
        "iterations": 40,
        "exchange": ExchangeConfig(every=5),
        "kl": KLConfig(coef=0.01),
        "learner": LearnerConfig(lr=0.1),
        "evaluation": EvaluationConfig(queries=64, every=0),
    }
)


def batch(prompts: list[list[int]], responses: list[list[int]]) -> Batch:
    """Both padded with 9s, which would show if they were read."""
    P, T = (max(map(len, rows)) for rows in (prompts, responses))
    shape, B = (len(responses), T), len(responses)
    zeros = ("behaviour_logprobs_BT", "old_logprobs_BT", "ref_logprobs_BT", "exact_kl_BT", "values_BT")
    return Batch(
        prompt_BP=torch.tensor([row + [9] * (P - len(row)) for row in prompts]),
        prompt_length_B=torch.tensor([len(row) for row in prompts]),
        response_BT=torch.tensor([row + [9] * (T - len(row)) for row in responses]),
        response_length_B=torch.tensor([len(row) for row in responses]),
        **{name: torch.zeros(shape) for name in zeros},
        score_B=torch.zeros(B),
        payoff_B=torch.zeros(B),
    )


def games() -> dict[str, Batch]:
    """Two games of three seats; no observer sees what the pioneer wrote. EOS is 7."""
    return {
        "pioneer_0": batch([[1, 2], [3]], [[4, 7], [5, 6, 5]]),
        "observer_1": batch([[1, 2], [3]], [[6], [4, 7]]),
        "observer_2": batch([[1], [3]], [[5, 7], [7]]),
    }


def table(longest_response: int = 3) -> TablePolicy:
    return TablePolicy("reference", vocab_size=10, eos=frozenset({7}), pad=8, max_response=longest_response)


def small(reference, **options) -> CentralCritic:
    seats = ("pioneer_0", "observer_1", "observer_2")
    options = {"max_length": 11, "seed": 0, **options}
    return CentralCritic(reference, seats, CriticConfig(kind="central"), **options)


def test_a_transcript_is_the_query_and_every_earlier_response_with_its_eos():
    found = transcripts(games())
    rows = {
        seat: [r[:n].tolist() for r, n in zip(t.prompt_BP, t.prompt_length_B, strict=True)]
        for seat, t in found.items()
    }
    assert rows == {
        "pioneer_0": [[1, 2], [3]],
        "observer_1": [[1, 2, 4, 7], [3, 5, 6, 5]],
        "observer_2": [[1, 2, 4, 7, 6], [3, 5, 6, 5, 4, 7]],
    }
    assert torch.equal(found["observer_2"].response_BT, games()["observer_2"].response_BT)


def test_a_transcript_holds_the_annotations_that_later_seats_read():
    annotation = {
        "annotation_BA": torch.tensor([[8, 8], [0, 9]]),
        "annotation_length_B": torch.tensor([2, 0]),
    }
    played = games()
    found = transcripts({**played, "pioneer_0": replace(played["pioneer_0"], **annotation)})["observer_1"]
    rows = [r[:n].tolist() for r, n in zip(found.prompt_BP, found.prompt_length_B, strict=True)]
    assert rows == [[1, 2, 4, 7, 8, 8], [3, 5, 6, 5]]


def test_the_critic_reads_the_verdict_of_a_task_that_gives_one():
    settings = {"task": "arithmetic", "policy.kind": "table", "critic.kind": "central", "batch": 8}
    config = Config.from_flat({**settings, "max_response": (8, 8), "task.worked": True, "task.verdict": True})
    trainer = Trainer(config)
    played = play_shared(trainer.game, trainer.team(0).policies, trainer.spec(0), clock=Clock())
    read = transcripts(played)["observer_1"]
    text = trainer.task.tokenizer.decode(read.prompt_BP[0, : read.prompt_length_B[0]].tolist())
    assert text.rstrip().endswith(("wrong", "right"))
    without = Trainer(replace(config, task_options=replace(config.task_options, verdict=False)))
    assert trainer.critic.max_length == without.critic.max_length + 2 * trainer.task.max_annotation


def test_tables_show_it_all_tokens_before_the_chosen_one_and_no_later_ones():
    """Of game 0 the observer's only token comes after 1 2 4 7: four ones, at position * 10 + id."""
    states = table().critic_states(transcripts(games())["observer_1"], 11)
    assert states.shape == (3, 110)
    assert states[0].nonzero().flatten().tolist() == [1, 12, 24, 37]
    assert states[1].nonzero().flatten().tolist() == [3, 15, 26, 35]
    assert states[2].nonzero().flatten().tolist() == [3, 15, 26, 35, 44]


def test_values_stand_where_tokens_were_chosen_and_all_else_is_as_it_was():
    critic, before = small(table()), games()
    for head in critic.heads.values():
        torch.nn.init.ones_(head.outer.bias)
    after = critic.value(before)
    assert list(after) == list(before)
    for seat in before:
        assert torch.equal(after[seat].values_BT, before[seat].mask_BT.float())
        assert after[seat].response_BT is before[seat].response_BT
        assert not before[seat].values_BT.any()


@pytest.mark.slow
def test_central_critic_starts_at_zero_and_learns_the_returns_of_every_seat():
    """The first loss is the mean of squared returns over 5 + 3 + 3 chosen tokens: (5 + 3 * 4 + 0) / 11."""
    critic, played = small(table()), games()
    returns = {
        seat: torch.where(played[seat].mask_BT, value, float("nan"))
        for seat, value in {"pioneer_0": 1.0, "observer_1": -2.0, "observer_2": 0.0}.items()
    }
    critic.value(played)
    first = critic.update(returns)
    assert first["value_loss"] == pytest.approx(17 / 11)
    assert first["explained_variance"] == pytest.approx(0)
    for _ in range(100):
        last = critic.update(returns)
    assert last["value_loss"] < 1e-3
    assert last["explained_variance"] > 0.999
    assert critic.value(played)["observer_1"].values_BT[0, 0] == pytest.approx(-2, abs=0.1)


def test_equal_returns_leave_nothing_to_explain_and_infinite_ones_are_an_error():
    critic, played = small(table()), games()
    critic.value(played)
    returns = {seat: torch.full(batch.mask_BT.shape, 2.0) for seat, batch in played.items()}
    found = critic.update(returns)
    assert found["value_loss"] == 4.0
    assert math.isnan(found["explained_variance"])
    returns["observer_1"] += torch.inf
    with pytest.raises(FloatingPointError, match=r"is not finite; lower critic\.lr"):
        critic.update(returns)


def test_no_gradient_reaches_the_policies_or_the_reference():
    trainer = Trainer(CENTRAL)
    critic = trainer.critic
    own = {name: policy.values_S.clone() for name, policy in trainer.policies.items()}
    before = [p.clone() for p in trainer.references["llm_1"].parameters()]
    for iteration in range(3):
        trainer.iterate(iteration)
    assert all(p.grad is None for p in trainer.references["llm_1"].parameters())
    assert all(
        torch.equal(a, b) for a, b in zip(before, trainer.references["llm_1"].parameters(), strict=True)
    )
    for name, policy in trainer.policies.items():
        assert torch.equal(policy.values_S, own[name])
        assert policy.logits_SV.any()
    mine = {id(p) for p in critic.heads.parameters()}
    assert not mine & {id(p) for policy in trainer.policies.values() for p in policy.parameters()}
    assert all(torch.any(p != 0) for p in critic.heads.parameters())


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "knows"), [("own", False), ("central", True)])
def test_only_the_central_critic_knows_the_pioneers_score_when_observers_see_nothing(kind, knows):
    """Echo of one letter with policies that stay random.

    What varies in the observer's payoff before its token is the pioneer's score, of which its own prompt
    holds nothing. By hand: 1 - Var(s - V) / Var(s).
    """
    config = replace(
        CENTRAL,
        critic=CriticConfig(kind=kind),
        sees="none",
        task_options=task_options("echo")(length=1),
        max_response=(1, 1),
        batch=256,
        kl=KLConfig(coef=0.0),
        learner=LearnerConfig(lr=1e-9, value_lr=0.05),
        exchange=ExchangeConfig(every=0),
    )
    trainer = Trainer(config)
    seen = watch(trainer)
    for iteration in range(20):
        trainer.iterate(iteration)
    score_B, value_B = seen["pioneer_0"].score_B, seen["observer_1"].values_BT[:, 0]
    explained = 1 - (score_B - value_B).var() / score_B.var()
    assert explained > 0.8 if knows else explained < 0.1


def watch(trainer: Trainer) -> dict[str, Batch]:
    """The batches that the trainer's algorithm received in the last iteration."""
    seen: dict[str, Batch] = {}
    plain = trainer.algorithm.advantage

    def advantage(batches, *others):
        seen.update(batches)
        return plain(batches, *others)

    trainer.algorithm = replace(trainer.algorithm, advantage=advantage)
    return seen


@pytest.mark.slow
def test_tables_learn_to_echo_with_it_and_its_metrics_have_keys_of_their_own():
    trainer = Trainer(CENTRAL)
    before = HeldOut(trainer).evaluate()["llm_1"].metrics(kl_coef=0)["task_reward"]
    for iteration in range(CENTRAL.iterations):
        metrics = trainer.iterate(iteration)
    after = {
        name: found.metrics(kl_coef=0)["task_reward"] for name, found in HeldOut(trainer).evaluate().items()
    }
    assert all(after[name] > before + 0.5 * (1 - before) for name in trainer.policies)
    assert {key for key in metrics if key.startswith("all/")} == {
        "all/critic/value_loss",
        "all/critic/explained_variance",
    }


def test_advantages_differ_with_it_once_it_has_learned():
    logits = {}
    for kind in ("own", "central"):
        trainer = Trainer(replace(CENTRAL, critic=CriticConfig(kind=kind)))
        for iteration in range(2):
            trainer.iterate(iteration)
            logits[kind, iteration] = trainer.policies["llm_1"].logits_SV.detach().clone()
    assert torch.allclose(logits["own", 0], logits["central", 0], atol=1e-5)  # both expect 0 at first
    assert not torch.allclose(logits["own", 1], logits["central", 1], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("cut", [4, 5])
def test_a_checkpoint_goes_on_with_it_bit_for_bit(tmp_path, cut):
    whole, first, second = (Trainer(CENTRAL) for _ in range(3))
    want = [learned(whole.iterate(iteration)) for iteration in range(8)]
    for iteration in range(cut):
        first.iterate(iteration)
    folder = first.save(tmp_path, cut)
    second.load(folder)
    assert [learned(second.iterate(iteration)) for iteration in range(cut, 8)] == want[cut:]
    pairs = zip(whole.critic.heads.parameters(), second.critic.heads.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def learned(metrics: dict[str, float]) -> dict[str, float]:
    """All metrics but those of wall-clock time."""
    return {key: value for key, value in metrics.items() if not key.startswith(("time/", "speed/"))}


def test_a_checkpoint_without_the_critics_optimiser_does_not_go_on_the_same(tmp_path):
    trainer, other = Trainer(CENTRAL), Trainer(CENTRAL)
    for iteration in range(3):
        trainer.iterate(iteration)
    folder = trainer.save(tmp_path, 3)
    other.load(folder)
    other.critic.optimizer = torch.optim.Adam(other.critic.heads.parameters(), lr=CENTRAL.critic.lr)
    losses = [[one.iterate(i)["all/critic/value_loss"] for one in (trainer, other)] for i in (3, 4)]
    assert losses[0][0] == losses[0][1]
    assert losses[1][0] != losses[1][1]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_language_models_critic_reads_the_references_states_before_each_token(kind):
    tokenizer = make_tokenizer()
    reference = CausalLMPolicy("reference", make_model(kind, len(tokenizer)), tokenizer)
    rows = transcripts(games())["observer_2"]
    states = reference.critic_states(rows, 11)
    state_D = reference.model.base_model(input_ids=torch.tensor([[1, 2, 4, 7, 6]])).last_hidden_state[0, -1]
    assert torch.allclose(states[0], state_D, atol=1e-5)  # game 0, first token: after 1 2 4 7 6
    critic, played = small(reference), games()
    returns = {seat: of.mask_BT * 2.0 for seat, of in played.items()}
    for _ in range(30):
        critic.value(played)
        metrics = critic.update(returns)
    assert metrics["value_loss"] < 0.1
    assert all(p.grad is None for p in reference.parameters())


def test_a_transcript_that_outgrows_the_window_is_refused():
    tokenizer = make_tokenizer()
    reference = CausalLMPolicy("reference", make_model("gpt2", len(tokenizer), window=10), tokenizer)
    small(reference, max_length=10)
    with pytest.raises(ValueError, match="up to 11 tokens; the model's window is 10"):
        small(reference, max_length=11)


def test_max_length_counts_every_seat_and_its_cap():
    """Echo: 3 tokens of query and 4 seats of at most 3."""
    assert Trainer(replace(CENTRAL, seats=4)).critic.max_length == 15


def test_an_algorithm_without_values_refuses_it():
    with pytest.raises(ValueError, match=r"'rloo' uses no values; leave out --critic\.kind central"):
        Config.from_flat({"algorithm": "rloo"}, CENTRAL)


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "trpo"])
def test_no_algorithm_trains_value_heads_beside_it(algorithm):
    trainer = Trainer(Config.from_flat({"algorithm": algorithm}, CENTRAL))
    for iteration in range(2):
        trainer.iterate(iteration)
    assert all(policy.logits_SV.any() and not policy.values_S.any() for policy in trainer.policies.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "shared"}, "critic.kind is 'shared'; there are own, central"),
        ({"lr": 0.0}, "critic.lr is 0.0; give a finite number above 0"),
        ({"epochs": 0}, "critic.epochs is 0; give 1 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        CriticConfig(**options)
