"""Whatever is in a settings file or a data file is taken or refused with a ValueError; and a judge that fails
in every way costs no more than the scores it failed on."""

import json
import string
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents import presets
from agents.cli import main
from agents.flags import read
from agents.metrics import read as read_metrics
from agents.metrics import read_lines
from agents.settings import flags_of
from cory_env import tasks
from cory_env.rows import read_rows

SLOW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
QUICK = settings(SLOW, max_examples=60)

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.dates()
    | st.sampled_from(["pocket", "echo", "table", "nan", "1e400", "--seats", "!!python/name:os.system"])
)  # fmt: skip
NAMES = st.sampled_from(
    [
        "batch",
        "seats",
        "kl",
        "coef",
        "policy",
        "kind",
        "task",
        "payoff",
        "max_response",
        "learner",
        "lr",
        "judge",
    ]
) | st.text(string.printable, max_size=6)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=9,
)


def refusal(call: Callable[[], object]) -> str:
    """What the ValueError of a call says; empty where it is taken. Any other error is a fault."""
    try:
        call()
    except ValueError as error:
        return str(error) or repr(error)
    return ""


@pytest.mark.faults
@SLOW
@given(tree=st.dictionaries(NAMES, TREES, min_size=1, max_size=4))
def test_any_tree_of_settings_is_taken_or_refused(tree, tmp_path):
    import yaml

    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    refusal(lambda: read(flags_of(path), default=presets.get("pocket"), about="", command="cory train"))


@QUICK
@given(content=st.binary(max_size=60) | st.text("{}[]:-&*!#|>\n\t '\"ab01", max_size=40).map(str.encode))
def test_any_bytes_are_settings_or_refused_by_name(content, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    told = refusal(lambda: flags_of(path))
    assert not told or "mine.yaml" in told


@QUICK
@given(
    suffix=st.sampled_from([".jsonl", ".json", ".csv", ".parquet"]),
    content=st.binary(max_size=60)
    | st.lists(st.dictionaries(st.sampled_from(["text", "prompt"]), TREES, max_size=2), max_size=4).map(
        lambda rows: "\n".join(json.dumps(row, default=str) for row in rows).encode()
    )
    | st.text('{}[]:,"\n\r\0 ab01', max_size=40).map(str.encode),
)
def test_any_bytes_are_rows_or_refused_by_name(suffix, content, tmp_path):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(content)
    told = refusal(lambda: read_rows(path, {"prompt": ("prompt", "text")}))
    assert not told or path.name in told
    for name in ("prompts", "reviews"):
        refusal(partial(tasks.load, name, data=path))


@pytest.mark.faults
def test_a_judge_that_hangs_dies_raises_and_scores_nan_ends_no_run(tmp_path, tiny_folder, monkeypatch):
    """INVARIANTS 14, from the flag to the rows: each failure costs one score and is told."""
    monkeypatch.setattr("agents.run.write_report", lambda run: run / "report.html")
    data, run = tmp_path / "data.jsonl", tmp_path / "run"
    data.write_text("\n".join(json.dumps({"prompt": f"say {n}"}) for n in range(40)))
    flags = ["--task", "prompts", "--task.data", str(data), "--policy.model", str(tiny_folder)]
    flags += ["--judge", "tests.faults.sick:judge", "--judge.timeout", "1", "--judge.max-failures", "1"]
    flags += ["--judge.failed-score", "-1", "--batch", "32", "--iterations", "2", "--max-response", "2", "6"]
    flags += ["--evaluation.queries", "4", "--policy.device", "cpu", "--threads", "1"]
    assert main(["train", *flags, "--run", str(run)]) == 0
    failed = [row["failure"] for row in read_lines(run / "samples.jsonl") if "failure" in row]
    for word in ("1 s", "exit", "a fault of mine", "nan"):
        assert any(word in reason for reason in failed), (word, failed)
    rows = [row for row in read_metrics(run) if "time/update/seconds" in row]
    for row in rows:
        failures = sum(value for key, value in row.items() if key.endswith("/failures"))
        # of 32 responses of each seat those that failed score -1, the others 1
        lost = sum(32 * (1 - value) / 2 for key, value in row.items() if key.endswith("/task_reward"))
        assert failures == pytest.approx(lost, abs=1e-3)
        assert failures > 0


@pytest.fixture
def tiny_folder(tmp_path):
    from tests.agents.conftest import make_model, make_tokenizer

    folder, tokenizer = tmp_path / "tiny", make_tokenizer()
    tokenizer.save_pretrained(folder)
    make_model("gpt2", len(tokenizer)).save_pretrained(folder)
    return folder
