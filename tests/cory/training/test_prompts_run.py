"""A user's own data and reward in one command, with a tiny Qwen3 and chats."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from cory.cli.main import main
from cory.tracking.tracker import read, read_lines
from tests.helpers.runs import same, traces, without_report
from tests.helpers.tables import letters

REWARDS = '''
def kind(prompts, completions, answer, **columns):
    """How often the completion holds the right letter."""
    assert all(prompt[-1]["role"] == "user" for prompt in prompts)
    assert sorted(columns) == ["level"]
    texts = [messages[0]["content"] for messages in completions]
    return [text.count(right) * 1.0 for text, right in zip(texts, answer, strict=True)]


def sometimes(completions, **columns):
    """Fails on completions of 0 or 9 characters."""
    return [1 / (len(messages[0]["content"]) % 9) for messages in completions]


def never(completions, **columns):
    raise RuntimeError("no reward today")
'''


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    """A random Qwen3 whose tokenizer has an id per byte and renders chats as role: content."""
    folder, tokenizer = tmp_path_factory.mktemp("qwen3"), letters()
    torch.manual_seed(0)
    shape = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, head_dim=8,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=400, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    Qwen3ForCausalLM(shape).save_pretrained(folder)
    return folder


@pytest.fixture
def flags(qwen, tmp_path, monkeypatch):
    """Chats and rewards in the working directory, and a run that takes seconds."""
    chats = [
        {"prompt": [{"role": "user", "content": f"Say {c}{n}!"}], "answer": c, "level": n}
        for c in "abcd"
        for n in range(8)
    ]
    (tmp_path / "my.jsonl").write_text("\n".join(map(json.dumps, chats)))
    (tmp_path / "my_rewards.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cory.report.plots.draw", lambda *_: [])  # most of the time of so short a run
    return [
        *("train", "--task", "prompts", "--task.data", "my.jsonl", "--policy.model", str(qwen)),
        *("--policy.device", "cpu", "--iterations", "2", "--batch", "8", "--max-response", "4", "9"),
        *("--evaluation.queries", "4", "--evaluation.every", "0", "--run", "run"),
        *("--learner.minibatch", "8", "--judge.timeout", "20", "--checkpoint-every", "0"),
    ]


@pytest.mark.slow
def test_a_users_chats_and_rewards_train_in_one_command(flags, capsys):
    spec = "my_rewards:kind + 0.5*regex:[aeiou] + 2*my_rewards:sometimes"
    judge = ["--judge", spec, "--judge.max-failures", "1", "--judge.failed-score", "-1"]
    assert main([*flags, *judge]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert workers() == set()
    assert (Path("run/policies/llm_2/config.json")).is_file()
    rows = read(Path("run"))
    played = [row for row in rows if "pioneer_0/llm_1/task_reward" in row]
    assert len(played) == 2
    for row in played:  # both seats play as many games
        both = (row["pioneer_0/llm_1/task_reward"] + row["observer_1/llm_2/task_reward"]) / 2
        kind, regex, sometimes = (
            row[f"judge/{name}/score"] for name in ("my_rewards:kind", "regex", "my_rewards:sometimes")
        )
        assert both == pytest.approx(kind + 0.5 * regex + 2 * sometimes)
        assert row["judge/regex/failures"] == row["judge/my_rewards:kind/failures"] == 0
    last = rows[-1]  # of 4 test queries and 1 of validation, and of no sample game, which each rank plays
    kind, regex, sometimes = (
        last[f"judge/{name}/evaluation_score"]
        for name in ("my_rewards:kind", "regex", "my_rewards:sometimes")
    )
    test, validation = (
        (last[f"{place}/llm_1/task_reward"] + last[f"{place}/llm_2/task_reward"]) / 2
        for place in ("eval", "validation")
    )
    assert (4 * test + validation) / 5 == pytest.approx(kind + 0.5 * regex + 2 * sometimes)
    failed = sum(
        row.get(f"judge/my_rewards:sometimes/{name}failures", 0)
        for row in rows
        for name in ("", "evaluation_")
    )
    samples = read_lines(Path("run/samples.jsonl"))
    assert samples[0]["query"].startswith("user: Say ")
    shown = [row for row in samples if "failure" in row]
    assert 0 < len(shown) <= failed
    for row in shown:
        assert row["failure"] == "ZeroDivisionError: division by zero"
        assert len(row["response"]) % 9 == 0
    assert "warning: judge 'my_rewards:sometimes': ZeroDivisionError" in printed
    assert "Responses that a judge failed on" in Path("run/report.html").read_text()


@pytest.mark.slow
def test_a_resumed_run_counts_what_a_judge_said_of_the_reference_once(flags, monkeypatch):
    without_report(monkeypatch)
    judge = ("--judge", "my_rewards:kind + 2*my_rewards:sometimes", "--judge.max-failures", "1")
    assert main([*flags, *judge, "--checkpoint-every", "1"]) == 0
    whole = traces(Path("run"), 2)
    shutil.rmtree("run/checkpoints/step-000002")
    assert main(["train", "--run", "run", "--resume", "must"]) == 0
    assert same(traces(Path("run"), 2), whole)


def test_a_reward_that_always_fails_stops_the_run_and_leaves_its_failures(flags, capsys):
    assert main([*flags, "--judge", "my_rewards:never"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "error: judge 'my_rewards:never' failed on 4 of 4 responses, above judge.max_failures 0.1" in error
    assert "RuntimeError: no reward today" in error
    assert [row["failure"] for row in read_lines(Path("run/samples.jsonl"))] == [
        "RuntimeError: no reward today"
    ] * 4


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ([], "the prompts task has no reward of its own; name one with --judge: module:function"),
        (["--judge", "my_rewards:absent"], "judge 'my_rewards:absent' cannot be imported"),
        (["--judge", "math-verify:"], "names no column"),
        (
            ["--judge", "my_rewards:kind", "--task.column", "ask"],
            "its columns are 'prompt', 'answer', 'level'",
        ),
    ],
)
def test_prompts_run_that_cannot_work_is_refused_before_anything_is_written(flags, judge, message, capsys):
    assert main([*flags, *judge]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not Path("run").exists()


def workers():
    """Worker processes of judges that were started in this directory."""
    here = str(Path.cwd())
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command, directory = (folder / "cmdline").read_bytes(), os.readlink(folder / "cwd")
        except OSError:
            continue
        if b"cory.judges.worker" in command and directory == here:
            found.add(folder.name)
    return found
