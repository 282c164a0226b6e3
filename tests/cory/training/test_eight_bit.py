"""An 8-bit optimizer is saved and resumed bit for bit, in the same process and in another one."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cory.cli.main import main
from cory.learner.optimizer import LearnerConfig, make_optimizer
from cory.policies.lora_config import LoRAConfig
from cory.policies.table import TablePolicy
from cory.training import checkpoint
from tests.helpers.models import make_team
from tests.helpers.runs import same, traces, without_report

pytest.importorskip("bitsandbytes", reason="needs bitsandbytes (pip install 'cory[quant]')")
ROOT = Path(__file__).parents[3]


@pytest.fixture
def command(tiny_folder, tmp_path, monkeypatch):
    """A run of full fine-tuning whose embedding (9,000 weights) is large enough for moments in 8 bits."""
    rows = [{"prompt": f"a good film {n}"} for n in range(16)]
    (tmp_path / "my.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.chdir(tmp_path)
    without_report(monkeypatch)
    return [
        *("train", "--task", "prompts", "--task.data", "my.jsonl", "--judge", "regex:[aeiou]"),
        *("--policy.model", str(tiny_folder), "--policy.device", "cpu", "--batch", "4", "--threads", "1"),
        *("--max-response", "3", "4", "--evaluation.every", "0", "--evaluation.queries", "2"),
        *("--learner.optimizer", "adam8bit", "--learner.lr", "0.01", "--algorithm.epochs", "2"),
        *("--checkpoint-every", "1", "--keep-checkpoints", "9"),
    ]


def test_a_run_in_two_halves_is_the_run_in_one(command):
    """The second half runs in these objects made anew, and once more in a fresh process."""
    assert main([*command, "--iterations", "3", "--run", "whole"]) == 0
    want = traces(Path("whole"), 3)
    moments = want["tensors"]["optimizer_llm_1.safetensors"]
    assert moments["0.state1"].dtype == torch.uint8
    assert moments["0.state1"].any()
    assert main([*command, "--iterations", "2", "--run", "here"]) == 0
    shutil.copytree("here", "there")
    rest = ["--iterations", "3", "--resume", "must", "--run"]
    assert main([*command, *rest, "here"]) == 0
    assert same(traces(Path("here"), 3), want)
    paths = f"import sys; sys.path[:0] = [{str(ROOT / 'agents')!r}, {str(ROOT)!r}]; "
    script = paths + "from cory.cli.main import main; sys.exit(main(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", script, *command, *rest, "there"], check=True, timeout=300)
    assert same(traces(Path("there"), 3), want)


def test_adapters_of_a_team_save_every_tensor_of_their_moments(tiny_folder, tmp_path):
    """The tables of the 8-bit code are one tensor for all parameters, which safetensors refuses to write."""
    policy = make_team(tiny_folder, config=LoRAConfig(rank=64)).policies["llm_1"]
    optimizer = make_optimizer(policy, LearnerConfig(optimizer="adam8bit", lr=0.1))
    for parameter in policy.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    shared = [state["qmap1"].data_ptr() for state in optimizer.state.values() if "qmap1" in state]
    assert len(shared) > 1
    assert len(set(shared)) == 1
    tensors = checkpoint.optimizer_tensors(optimizer)
    checkpoint.save_tensors(tmp_path / "optimizer.safetensors", tensors)
    saved = load_file(tmp_path / "optimizer.safetensors")
    assert saved.keys() == tensors.keys()
    for i, state in enumerate(optimizer.state.values()):
        for key, value in state.items():
            assert torch.equal(saved[f"{i}.{key}"], torch.as_tensor(value)), f"{i}.{key}"


def test_a_restored_optimizer_takes_the_step_the_first_one_would_have_taken():
    def policy_with_optimizer():
        table = TablePolicy("llm_1", vocab_size=64, eos=frozenset({0}), pad=0, max_response=2)
        return table, make_optimizer(table, LearnerConfig(optimizer="adam8bit", lr=0.1))

    def step(table, optimizer):
        (table.logits_SV.square() - table.logits_SV).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    first, first_optimizer = policy_with_optimizer()
    for _ in range(3):
        step(first, first_optimizer)
    second, second_optimizer = policy_with_optimizer()
    second.load_state_dict(first.state_dict())
    copies = {name: tensor.clone() for name, tensor in checkpoint.optimizer_tensors(first_optimizer).items()}
    checkpoint.restore_optimizer(second_optimizer, copies)
    for _ in range(2):
        step(first, first_optimizer)
        step(second, second_optimizer)
        assert torch.equal(first.logits_SV, second.logits_SV)


def test_tensors_that_share_memory_are_saved_one_by_one(tmp_path):
    """A dump holds what is in memory, also two names of one tensor or parts of one."""
    base = torch.arange(6.0)
    tensors = {"a": base, "b": base, "start": base[:2], "turned": base.view(2, 3).T}
    checkpoint.save_tensors(tmp_path / "dump.safetensors", tensors)
    saved = load_file(tmp_path / "dump.safetensors")
    assert {name: tensor.tolist() for name, tensor in saved.items()} == {
        "a": [0, 1, 2, 3, 4, 5],
        "b": [0, 1, 2, 3, 4, 5],
        "start": [0, 1],
        "turned": [[0, 3], [1, 4], [2, 5]],
    }
