"""Operations and memory of an iteration, counted: no clock, no noise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from benchmarks.speed import operator_profile, roofline, throughput
from benchmarks.speed.workloads import Work  # noqa: E402
from cory.batch import Rows  # noqa: E402
from cory.config.schema import Config, PolicyConfig  # noqa: E402
from cory.config.task_options import task_options  # noqa: E402
from cory.policies.causal_lm import CausalLMPolicy  # noqa: E402
from cory.training.trainer import Trainer  # noqa: E402

SMALL = {"layers": 2, "width": 128, "heads": 2, "vocab_size": 4000, "batch": 24, "query": (6, 6)}


def trainer_of(work: Work, folder: Path, *, seats: int = 2) -> Trainer:
    shortest, longest = work.query
    config = Config(
        task="works:Task",
        task_options=task_options("works:Task")(shortest=shortest, longest=longest),
        seats=seats,
        batch=work.batch,
        max_response=(work.response, work.response),
        policy=PolicyConfig(model=str(work.write(folder))),
    )
    return Trainer(config)


def test_the_floor_by_hand():
    """GPT-2 of 2 layers x 128: 12 x 128^2 weights a layer. One row of 3 + 2 tokens, the last of which decides
    nothing: 4 tokens, 4 x 5 / 2 = 10 pairs, 2 responses."""
    policy = CausalLMPolicy.__new__(CausalLMPolicy)
    torch.nn.Module.__init__(policy)
    policy.name, policy.model = "llm_1", Work(**SMALL).model()
    rows = Rows(
        prompt_BP=torch.ones(1, 3, dtype=torch.long),
        prompt_length_B=torch.tensor([3]),
        response_BT=torch.ones(1, 2, dtype=torch.long),
        response_length_B=torch.tensor([2]),
    )
    unit = 2 * 4 * (2 * 12 * 128**2) + 4 * 128 * 2 * 10 + 2 * 2 * 128 * 4000
    assert roofline.floor(policy, rows, epochs=4) == 14 * unit
    assert roofline.floor(policy, rows, epochs=4, untaught=3) == 14 * unit - 3 * 2 * (2 * 128 * 4000)


@pytest.mark.parametrize("architecture", ["gpt2", "llama"])
def test_an_iteration_does_few_more_operations_than_the_floor(tmp_path, architecture):
    """Attention to both sides of the diagonal and to padding; against them, the last of two layers reads less
    (narrow.py)."""
    work = Work(architecture=architecture, **SMALL | {"query": (2, 7)})
    trainer = trainer_of(work, tmp_path)
    trainer.iterate(0)
    with roofline.Counted() as counted, roofline.counting_untaught() as told:
        trainer.iterate(1)
    (first, one), (second, other) = trainer.seating(1).items()
    least = roofline.floor(trainer.policies[one], trainer.batches[first], epochs=4, untaught=told["untaught"])
    least += roofline.floor(trainer.policies[other], trainer.batches[second], epochs=4)
    assert told["untaught"] > 0
    assert 0.8 < counted.flops / least < 0.9


def test_no_tensor_holds_the_logits_of_a_batch(tmp_path, monkeypatch):
    """Those of 24 x 10 positions would be 960,000 numbers, a chunk of 100 is 400,000."""
    from cory.policies import chunked_loss

    monkeypatch.setattr(chunked_loss, "CHUNK", 100 * SMALL["vocab_size"])
    trainer = trainer_of(Work(**SMALL), tmp_path)
    with roofline.Counted() as counted:
        trainer.iterate(0)
    assert counted.largest == 4000 * 128  # the embedding, and its gradient


def test_nor_does_one_where_the_first_pass_is_kept(tmp_path):
    """L = 16 tokens of prompt and response, of which 10 have logits, in one chunk."""
    trainer = trainer_of(work := Work(**SMALL), tmp_path)
    with roofline.Counted() as counted:
        trainer.iterate(0)
    assert all(batch.live is not None for batch in trainer.batches.values())
    assert counted.largest == work.batch * work.response * work.vocab_size
    assert counted.largest < work.batch * 16 * work.vocab_size


def test_an_operator_that_the_counter_does_not_know_fails_it():
    with (
        pytest.raises(RuntimeError, match=r"does not know aten\.cdist|aten\._cdist_forward"),
        roofline.Counted(),
    ):
        torch.cdist(torch.ones(2, 3), torch.ones(2, 3))


def test_attention_of_either_kind_is_counted():
    """q k' and p v are 2 x 2 x 300^2 x 8 each for two heads; backward there are five such products."""
    q, k, v = (torch.randn(1, 2, 300, 8, requires_grad=True) for _ in range(3))
    with roofline.Counted() as batched:
        (q @ k.transpose(2, 3)).softmax(-1) @ v
    with roofline.Counted() as fused:
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert batched.flops == fused.flops == 2 * 2 * 2 * 300**2 * 8
    with roofline.Counted() as backward:
        out.sum().backward()
    assert backward.flops == 5 * 2 * 2 * 300**2 * 8


def test_neither_garbage_is_collected_nor_a_cache_flushed(tmp_path, monkeypatch):
    import gc

    def never(*_):
        raise AssertionError("flushed")

    trainer = trainer_of(Work(**SMALL), tmp_path)
    monkeypatch.setattr(gc, "collect", never)
    monkeypatch.setattr(torch.cuda, "empty_cache", never)
    trainer.iterate(0)


PEAK = """
import json, sys
sys.path.insert(0, "benchmarks")
from pathlib import Path
from tempfile import TemporaryDirectory
from memory import resident
from works import Work
from cory.config.schema import Config, PolicyConfig
from cory.policies import chunks, trunk
from cory.training.trainer import Trainer
batch = int(sys.argv[1])
work = Work(layers=4, width=128, heads=2, vocab_size=8_000, batch=batch)
trunk.ACTIVATIONS["cpu"] = 32 * 44 * 128 * 4
chunked_loss.CHUNK = 32 * 8_000
with TemporaryDirectory() as folder:
    trainer = Trainer(Config(task="works:Task", batch=batch, max_response=(10, 10),
                             policy=PolicyConfig(model=str(work.write(Path(folder))))))
before = resident("VmRSS")
trainer.iterate(0)
print(json.dumps(resident("VmHWM") - before))
"""


def test_four_times_the_batch_peaks_at_no_more_than_a_fifth_more():
    """Passes and chunked_loss take 32 rows of either batch. Peaks above the weights, with gradients and Adam."""
    peaks = []
    for batch in (128, 512):
        command = [sys.executable, "-c", PEAK, str(batch)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        peaks.append(json.loads(done.stdout.splitlines()[-1]))
    assert peaks[1] < 1.2 * peaks[0]


def told(**figures: float) -> dict[str, dict[str, float]]:
    return {"phases": {"exchange": 0.0001}, "peak_bytes": 1.0, "moved_bytes": 0, **figures}


def test_what_falls_short_of_its_promise_is_said():
    contenders = {
        "ours fp32": told(seconds=2.0),
        "ours bf16": told(seconds=1.4),
        "plain fp32": told(seconds=8.2),
    }
    lines = throughput.check({"W1": {"contenders": contenders}})
    assert [line[:5] + line.rsplit(":", 1)[1] for line in lines if "plain way" in line] == [
        "ok    4.1, at least 4 is promised",
        "SHORT 5.86, at least 6 is promised",
    ]
    trl = [line for line in lines if "TRL" in line]
    assert len(trl) == 3  # two speeds and the memory: what is not measured is not kept
    assert all(line.startswith("SHORT") and "not measured" in line for line in trl)
    assert [line[:5] for line in lines if "exchange" in line] == ["ok   ", "ok   "]


def test_operators_are_told_apart_by_what_they_work_on_and_products_are_counted():
    state_KD, weight_VD, grad_KV = torch.randn(6, 4), torch.randn(11, 4), torch.randn(6, 11)
    with operator_profile.Clocked(11) as clocked:
        for _ in range(3):
            logits_KV = state_KD @ weight_VD.t()
        grad_KV.t() @ state_KD
        logits_KV.softmax(-1)
        weight_VD.add_(1)
        state_KD.relu()
    assert {kind: seconds > 0 for kind, seconds in clocked.seconds.items()} == {
        "products": True,
        "logits: softmax, entropy, KL, choice": True,
        "weights: Adam, norms, sums of gradients": True,
        "everything else of the trunk": True,
    }
    by_operands = {operands: count for (_, operands), count in clocked.products.items()}
    assert by_operands == {
        (((6, 4), (4, 1), torch.float32), ((4, 11), (1, 4), torch.float32)): 3,
        (((11, 6), (1, 11), torch.float32), ((6, 4), (4, 1), torch.float32)): 1,
    }
    assert all(operator_profile.alone(*product) > 0 for product in clocked.products)
