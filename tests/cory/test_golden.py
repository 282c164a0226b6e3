"""Numbers of the released code's PPO on small inputs, case by case, against the code the trainer runs.

`CORY_GOLDEN` names the folder of cases; by default it is the copy beside this file.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from cory.algorithms import load, ppo
from cory.batch import Batch, Rows
from cory.functional import kl, token_rewards
from cory.learner.learner import Learner
from cory.learner.optimizer import LearnerConfig
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.scoring import make_batch
from cory.token_loss import combine

GOLDEN = Path(os.environ.get("CORY_GOLDEN", Path(__file__).parents[1] / "golden"))
CASES = sorted(path.stem for path in GOLDEN.glob("*.json"))
KINDS = {"full": "full", "kl": "k1", "abs": "abs", "mse": "k2"}
SHAPE = GPT2Config(
    vocab_size=61, n_embd=32, n_head=4, n_layer=2, n_positions=64, bos_token_id=60, eos_token_id=60
)


class Sixty(SimpleNamespace):
    """The part of a tokenizer a policy uses: 61 ids, the last of which is EOS and pad at once."""

    def get_vocab(self) -> dict[str, int]:
        return {str(i): i for i in range(61)}


def policy_of(tensors: dict[str, torch.Tensor], prefix: str) -> CausalLMPolicy:
    model = GPT2LMHeadModel._from_config(SHAPE, attn_implementation="eager")
    weights = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    missing = model.load_state_dict(weights, strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"lm_head.weight"}
    return CausalLMPolicy("llm_1", model, Sixty(eos_token_id=60, pad_token_id=60))


def rows_of(queries: list[list[int]], responses: list[list[int]]) -> Rows:
    def padded(lists):
        width = max(map(len, lists))
        return torch.tensor([ids + [60] * (width - len(ids)) for ids in lists]), torch.tensor(
            [*map(len, lists)]
        )

    (prompt, prompt_length), (response, response_length) = padded(queries), padded(responses)
    return Rows(
        prompt_BP=prompt,
        prompt_length_B=prompt_length,
        response_BT=response,
        response_length_B=response_length,
    )


def chosen(stored: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Values at response tokens, row by row, as our `mask_BT` lists them."""
    return stored[mask.bool()]


def learner_of(policy: CausalLMPolicy, case: dict) -> Learner:
    config = case["config"]
    algorithm_config = ppo.Config(
        epochs=case["ppo_epochs"],
        clip=case["cliprange"],
        value_clip=case["cliprange_value"],
        value_coef=case["vf_coef"],
        gamma=case["gamma"],
        lam=case["lam"],
        whiten_rewards="released" if config.get("whiten_rewards") else "none",
    )
    scaling = "none"
    if config.get("use_score_scaling"):
        scaling = "normalise" if config.get("use_score_norm") else "scale"
    assert case["horizon"] == kl.HORIZON
    assert "score_clip" not in config
    accumulate = config.get("gradient_accumulation_steps", 1)
    return Learner(
        policy,
        load("ppo"),
        algorithm_config,
        config=LearnerConfig(
            lr=config["learning_rate"],
            minibatch=config["mini_batch_size"] * accumulate,
            microbatches=accumulate,
            accumulation_mean="microbatch",
        ),
        kl_config=kl.KLConfig(
            kind=KINDS[config["kl_penalty"]],
            coef=config["init_kl_coef"],
            target=case["target"],
        ),
        payoff_config=token_rewards.PayoffScalingConfig(scaling=scaling),
    )


@contextmanager
def noted(learner: Learner) -> Iterator[list[dict[str, float]]]:
    """The metrics of every micro-batch that the learner passes inside."""
    losses: list[dict[str, float]] = []

    def step(*args):
        parts, verdict = Learner.step(learner, *args)
        losses.extend(combine([part]) for part in parts)
        return parts, verdict

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "step", step)
        yield losses


@pytest.mark.parametrize("name", CASES)
def test_every_number_of_the_released_step_is_reproduced(name):
    case = json.loads((GOLDEN / f"{name}.json").read_text())
    tensors = load_file(GOLDEN / f"{name}.safetensors")
    policy = policy_of(tensors, "init.policy.")
    policy.value_head.load_state_dict({k: tensors[f"init.value_head.{k}"] for k in ("weight", "bias")})
    policy.set_reference(policy_of(tensors, "ref."))
    learner = learner_of(policy, case)
    close = lambda got, want, tol: torch.testing.assert_close(got, want, rtol=tol, atol=tol)  # noqa: E731

    for k, step in enumerate(case["steps"]):
        at = {n.removeprefix(f"step{k}."): t for n, t in tensors.items() if n.startswith(f"step{k}.")}
        rows = rows_of(step["queries"], step["responses"])
        score_B = torch.tensor(step["scores"])
        empty_BT = torch.zeros(rows.response_BT.shape)
        batch = make_batch(policy, rows, empty_BT, score_B, score_B)
        assert at["mask"].sum(1).long().tolist() == rows.response_length_B.tolist()

        def ours(values_BT, batch=batch):
            return values_BT[batch.mask_BT]

        close(ours(batch.old_logprobs_BT), chosen(at["old_logprobs"], at["mask"]), 1e-5)
        close(ours(batch.ref_logprobs_BT), chosen(at["ref_logprobs"], at["mask"]), 1e-5)
        close(ours(batch.values_BT), chosen(at["values"], at["mask"]), 1e-5)
        close(ours(learner.kl(batch)), chosen(at["kl"], at["mask"]), 1e-5)

        assert learner.kl_coef == pytest.approx(step["kl_coef_before"], rel=1e-6)
        (rewards_BT,) = learner.rewards([batch])
        close(ours(-learner.kl_coef * learner.kl(batch)), chosen(at["non_score"], at["mask"]), 1e-5)
        close(ours(rewards_BT), chosen(at["rewards"], at["mask"]), 1e-5)
        if "score_after_scaling" in at:
            close(
                token_rewards.scaled(score_B, learner.moments, learner.payoff_config),
                at["score_after_scaling"],
                1e-5,
            )

        seat = "pioneer_0"
        advantage = learner.algorithm.advantage(
            {seat: batch}, {seat: rewards_BT}, learner.algorithm_config, {seat: learner.algorithm_state}
        )[seat]
        close(ours(advantage.advantage_BT), chosen(at["advantages"], at["mask"]), 1e-5)
        close(ours(advantage.return_BT), chosen(at["returns"], at["mask"]), 1e-5)

        orders = [torch.tensor(p) for p in step["permutations"]]
        with noted(learner) as losses:
            learner.update(batch, advantage, orders)
        assert len(losses) == len(step["minibatch_losses"])
        for got, want in zip(losses, step["minibatch_losses"], strict=True):
            pairs = {"policy_loss": "policy", "value_loss": "value", "loss": "total"}
            for mine, theirs in pairs.items():
                assert got[mine] == pytest.approx(want[f"loss/{theirs}"], rel=1e-4, abs=1e-4), mine
            for mine, theirs in {
                "entropy": "entropy",
                "approx_kl": "approxkl",
                "clip_share": "clipfrac",
            }.items():
                assert got[mine] == pytest.approx(want[f"policy/{theirs}"], rel=1e-4, abs=1e-4), mine
        assert learner.kl_coef == pytest.approx(step["kl_coef_after"], rel=1e-6)

        weights = dict(policy.model.state_dict())
        for full, want in at.items():
            if full.startswith("after.policy."):
                close(weights[full.removeprefix("after.policy.")], want, 1e-5)
        close(policy.value_head.weight.detach(), at["after.value_head.weight"], 1e-5)


def test_there_are_cases():
    assert CASES, f"{GOLDEN} holds no case; set CORY_GOLDEN to a folder of NAME.json + NAME.safetensors"


def test_the_batch_is_the_trainers():
    assert make_batch.__annotations__["return"] is Batch
