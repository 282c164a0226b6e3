"""Policies, critics and KL estimators of a user, by module:Class and module:function, in runs of tables."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cory.cli.main import main
from cory.learner.central_critic import CentralCritic
from cory.learner.critic_config import CriticConfig
from cory.policies.table import TablePolicy
from cory.training.trainer import Trainer
from cory_env.tasks.echo import Task as Echo
from tests.helpers.runs import FLAGS, same, traces, train, without_report
from tests.helpers.tables import TABLES


@pytest.fixture(scope="module", autouse=True)
def no_report():
    with pytest.MonkeyPatch.context() as patch:
        without_report(patch)
        yield


def task_rewards(run: Path) -> list[dict[str, float]]:
    """The task rewards of every iteration and evaluation."""
    return [
        {key: value for key, value in row.items() if key.endswith("/task_reward")}
        for row in traces(run, 4)["metrics"]
    ]


class OwnTable(TablePolicy):
    """A lookup table for echo that is loaded as a language model is."""

    @classmethod
    def load(cls, name, path, *, device, **options):
        assert {"temperature", "precision", "gradient_checkpointing"} == options.keys()
        letters = Echo().tokenizer
        policy = cls(
            name, vocab_size=letters.vocab_size, eos=letters.eos, pad=letters.pad, max_response=3
        ).to(device)
        if (Path(path) / "table.safetensors").exists():
            policy.restore(path)
        return policy


class NoLoad(TablePolicy):
    """A policy class that cannot be loaded."""


OWN = ("--policy.kind", f"{__name__}:OwnTable")


@pytest.mark.slow
def test_a_policy_class_of_a_user_trains_as_the_table_it_is(tmp_path):
    assert train(tmp_path / "own", 4, *OWN) == 0
    assert train(tmp_path / "table", 4) == 0
    assert same(traces(tmp_path / "own", 4), traces(tmp_path / "table", 4))


@pytest.mark.slow
def test_a_run_of_such_policies_is_resumed_evaluated_and_played(tmp_path, capsys):
    run = tmp_path / "run"
    assert train(tmp_path / "whole", 4, *OWN) == 0
    assert train(run, 2, *OWN) == 0
    assert train(run, 4, *OWN, "--resume", "must") == 0
    assert same(traces(run, 4), traces(tmp_path / "whole", 4))
    assert main(["evaluate", str(run), "--no-game"]) == 0
    capsys.readouterr()
    assert main(["play", str(run), "--games", "1"]) == 0
    assert "pioneer_0: llm_1" in capsys.readouterr().out


class OwnCritic(CentralCritic):
    """The central critic under another name."""


class LastSeatCritic:
    """Not a `CentralCritic`: one learned value per seat; called as one."""

    def __init__(self, reference, seats, config, *, max_length, seed):
        assert max_length == 3 + 2 * 3  # the query and two responses
        self.values = {seat: torch.zeros((), requires_grad=True) for seat in seats}
        self.config = config
        self.reset()

    def reset(self):
        self.optimizer = torch.optim.Adam(self.values.values(), lr=self.config.lr)

    def value(self, batches):
        self.masks = {seat: batch.mask_BT for seat, batch in batches.items()}
        return {
            seat: replace(batch, values_BT=batch.mask_BT * self.values[seat].detach())
            for seat, batch in batches.items()
        }

    def update(self, returns):
        loss = sum(
            (self.values[seat] - return_BT[self.masks[seat]]).square().mean()
            for seat, return_BT in returns.items()
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"value_loss": loss.item()}

    def save(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {seat: value.detach() for seat, value in self.values.items()}
        save_file(tensors, folder / "values.safetensors")

    def restore(self, folder):
        for seat, saved in load_file(folder / "values.safetensors").items():
            with torch.no_grad():
                self.values[seat].copy_(saved)


@pytest.mark.slow
def test_a_subclass_of_the_central_critic_trains_as_the_central_critic(tmp_path):
    assert train(tmp_path / "own", 4, "--critic.kind", f"{__name__}:OwnCritic") == 0
    assert train(tmp_path / "central", 4, "--critic.kind", "central") == 0
    assert same(traces(tmp_path / "own", 4), traces(tmp_path / "central", 4))


class ForgetsASeat(CentralCritic):
    """Its values are those of the first seat only."""

    def value(self, batches):
        return dict([*super().value(batches).items()][:1])


class ReportsNothing(CentralCritic):
    """Its `update` returns None."""

    def update(self, returns):
        super().update(returns)


@pytest.mark.parametrize(
    ("critic", "message"),
    [
        (
            ForgetsASeat,
            r"value of critic\.kind '.*ForgetsASeat' returned no batch of observer_1; return those",
        ),
        (
            ReportsNothing,
            r"update of critic\.kind '.*ReportsNothing' returned None; return its metrics by name",
        ),
    ],
)
def test_what_a_critic_returns_is_checked(critic, message):
    kind = CriticConfig(kind=f"{__name__}:{critic.__name__}")
    with pytest.raises(ValueError, match=message):
        Trainer(replace(TABLES, critic=kind)).iterate(0)


@pytest.mark.slow
def test_any_class_with_the_methods_of_a_critic_is_trained_saved_and_resumed(tmp_path):
    flags = ("--critic.kind", f"{__name__}:LastSeatCritic", "--critic.lr", "0.1")
    assert train(tmp_path / "whole", 4, *flags) == 0
    whole = traces(tmp_path / "whole", 4)
    assert any("all/critic/value_loss" in row for row in whole["metrics"])
    values = whole["tensors"]["critic/values.safetensors"]
    assert all(value != 0 for value in values.values())
    run = tmp_path / "run"
    assert train(run, 2, *flags) == 0
    assert train(run, 4, *flags, "--resume", "must") == 0
    assert same(traces(run, 4), whole)


def double_k1(logprobs, ref_logprobs, exact_kl):
    """Twice k1."""
    return 2 * (logprobs - ref_logprobs)


@pytest.mark.slow
def test_a_kl_estimator_of_a_user_is_used_in_the_rewards(tmp_path):
    """Twice k1 with half the coefficient is k1: factors of two change no digit."""
    fixed = ("--kl.target", "None")
    assert train(tmp_path / "own", 4, *fixed, "--kl.kind", f"{__name__}:double_k1", "--kl.coef", "0.25") == 0
    assert train(tmp_path / "k1", 4, *fixed, "--kl.kind", "k1", "--kl.coef", "0.5") == 0
    assert train(tmp_path / "weaker", 4, *fixed, "--kl.kind", "k1", "--kl.coef", "0.25") == 0
    assert task_rewards(tmp_path / "own") == task_rewards(tmp_path / "k1")
    assert task_rewards(tmp_path / "own") != task_rewards(tmp_path / "weaker")
    tables = [
        load_file(tmp_path / run / "policies/llm_1/table.safetensors")["logits_SV"] for run in ("own", "k1")
    ]
    assert torch.equal(*tables)


@pytest.mark.parametrize(
    ("flag", "name", "message"),
    [
        ("--policy.kind", f"{__name__}:Nope", "policy.kind '{name}' cannot be imported"),
        ("--policy.kind", "no_such_module:Policy", "write module:Class"),
        ("--policy.kind", f"{__name__}:NoLoad", "has no classmethod load(name, path, *, device, **options)"),
        ("--policy.kind", "tables", "there are causal_lm, lora_team, table, module:Class"),
        ("--critic.kind", f"{__name__}:Nope", "critic.kind '{name}' cannot be imported"),
        ("--critic.kind", "shared", "critic.kind is 'shared'; there are own, central"),
        ("--kl.kind", f"{__name__}:nope", "kl.kind '{name}' cannot be imported"),
        ("--kl.kind", "k4", "there are k1, k2, k3, abs, full"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_by_its_setting(tmp_path, capsys, flag, name, message):
    run = tmp_path / "run"
    assert main(["train", *FLAGS, "--iterations", "1", flag, name, "--run", str(run)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message.format(name=name) in error
    assert not run.exists()
