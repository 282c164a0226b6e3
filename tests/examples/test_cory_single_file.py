"""The single-file example computes what the released code's PPO computes on the golden cases."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from examples.cory_single_file import PPO, Policy, Rollout, Settings

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden"
CASES = sorted(path.stem for path in GOLDEN.glob("*.json"))
KINDS = {"full": "full", "kl": "k1", "abs": "abs", "mse": "k2"}
SHAPE = GPT2Config(
    vocab_size=61, n_embd=32, n_head=4, n_layer=2, n_positions=64, bos_token_id=60, eos_token_id=60
)


def policy_of(tensors, prefix):
    model = GPT2LMHeadModel._from_config(SHAPE, attn_implementation="eager")
    weights = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    assert not model.load_state_dict(weights, strict=False).unexpected_keys
    return Policy(model)


def rollout_of(step):
    queries, responses = step["queries"], step["responses"]
    P, T = max(map(len, queries)), max(map(len, responses))
    return Rollout(
        prompt_BP=torch.tensor([[7] * (P - len(q)) + q for q in queries]),
        real_BP=torch.tensor([[False] * (P - len(q)) + [True] * len(q) for q in queries]),
        response_BT=torch.tensor([r + [7] * (T - len(r)) for r in responses]),
        mask_BT=torch.tensor([[True] * len(r) + [False] * (T - len(r)) for r in responses]),
        payoff_B=torch.tensor(step["scores"]),
    )


def settings_of(case):
    config = case["config"]
    accumulate = config.get("gradient_accumulation_steps", 1)
    scale = "none"
    if config.get("use_score_scaling"):
        scale = "normalise" if config.get("use_score_norm") else "scale"
    return Settings(
        lr=config["learning_rate"],
        epochs=case["ppo_epochs"],
        minibatch=config["mini_batch_size"],
        accumulate=accumulate,
        gamma=case["gamma"],
        lam=case["lam"],
        clip=case["cliprange"],
        value_clip=case["cliprange_value"],
        value_coef=case["vf_coef"],
        kl=KINDS[config["kl_penalty"]],
        kl_coef=config["init_kl_coef"],
        kl_target=case["target"],
        kl_horizon=case["horizon"],
        scale=scale,
        payoff_clip=config.get("score_clip"),
        whiten_rewards=bool(config.get("whiten_rewards")),
    )


@pytest.mark.parametrize("name", CASES)
def test_the_single_file_reproduces_the_released_step(name):
    case = json.loads((GOLDEN / f"{name}.json").read_text())
    tensors = load_file(GOLDEN / f"{name}.safetensors")
    policy = policy_of(tensors, "init.policy.")
    policy.value_head.load_state_dict({k: tensors[f"init.value_head.{k}"] for k in ("weight", "bias")})
    learner = PPO(policy, policy_of(tensors, "ref."), settings_of(case))
    for k, step in enumerate(case["steps"]):
        at = {n.removeprefix(f"step{k}."): t for n, t in tensors.items() if n.startswith(f"step{k}.")}
        rollout, mask = rollout_of(step), at["mask"].bool()
        history = learner.update(rollout, [torch.tensor(order) for order in step["permutations"]])
        for ours, theirs, tolerance in (
            (rollout.old_BT, "old_logprobs", 1e-5),
            (rollout.values_BT, "values", 1e-5),
            (rollout.kl_BT, "kl", 1e-5),
            (rollout.rewards_BT, "rewards", 1e-5),
            (rollout.advantages_BT, "advantages", 1e-5),
            (rollout.returns_BT, "returns", 1e-5),
        ):
            torch.testing.assert_close(
                ours[rollout.mask_BT], at[theirs][mask], rtol=tolerance, atol=tolerance, msg=theirs
            )
        assert len(history) == len(step["minibatch_losses"])
        for ours, theirs in zip(history, step["minibatch_losses"], strict=True):
            for loss in ("policy", "value", "total"):
                assert ours[loss] == pytest.approx(theirs[f"loss/{loss}"], rel=1e-4, abs=1e-4), loss
        assert learner.kl_coef == pytest.approx(step["kl_coef_after"], rel=1e-6)
        weights = policy.model.state_dict()
        for name_, want in at.items():
            if name_.startswith("after.policy."):
                torch.testing.assert_close(
                    weights[name_.removeprefix("after.policy.")], want, rtol=1e-5, atol=1e-5
                )
        torch.testing.assert_close(
            policy.value_head.weight.detach(), at["after.value_head.weight"], rtol=1e-5, atol=1e-5
        )


def test_the_file_has_at_most_300_lines():
    assert len((ROOT / "examples/cory_single_file.py").read_text().splitlines()) <= 300


@pytest.mark.slow
def test_single_file_trains(capsys, monkeypatch):
    from examples import cory_single_file

    monkeypatch.setattr("sys.argv", ["x", "--iterations", "2", "--batch", "4", "--exchange-every", "1"])
    cory_single_file.main()
    first, second = capsys.readouterr().out.splitlines()
    assert "pioneer_0 llm_1" in first
    assert "KL 0.0" in first  # both start at the reference
    assert "pioneer_0 llm_2" in second
