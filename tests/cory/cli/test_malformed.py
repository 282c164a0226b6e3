"""Malformed flags, settings files and data files: exit code 2, one error line, nothing written or changed.

`test_main.py` has more cases of this kind.
"""

import pytest

from tests.helpers.runs import ECHO, PROMPTS, assert_refused

pytestmark = pytest.mark.slow

FLAGS = {
    "two values for one": ((*ECHO, "--iterations", "3", "4"), "Unrecognized options: 4"),
    "a value less": ((*ECHO, "--max-response", "3"), "Expected 2 values"),
    "a flag without a value": ((*ECHO, "--batch"), "Missing value for argument '--batch'"),
    "a stray word": ((*ECHO, "train"), "Unrecognized options: train"),
    "a negative count": ((*ECHO, "--iterations", "-1"), "iterations is -1"),
    "an empty batch": ((*ECHO, "--batch", "0"), "batch is 0"),
    "half a game": ((*ECHO, "--batch", "2.5"), "--batch: invalid literal"),
    "a KL coefficient that is no number": ((*ECHO, "--kl.coef", "nan"), "kl.coef is nan"),
    "an infinite KL coefficient": ((*ECHO, "--kl.coef", "inf"), "kl.coef is inf"),
    "a target below zero": ((*ECHO, "--kl.target", "-1"), "kl.target is -1.0"),
    "no learning rate": ((*ECHO, "--learner.lr", "0"), "learner.lr is 0.0"),
    "a learning rate that is no number": ((*ECHO, "--learner.lr", "nan"), "learner.lr is nan"),
    "no temperature": ((*ECHO, "--policy.temperature", "0"), "policy.temperature is 0.0"),
    "caps in the wrong order": ((*ECHO, "--max-response", "5", "2"), "max_response is (5, 2)"),
    "a seed of letters": ((*ECHO, "--seed", "zero"), "zero"),
    "too many seats": ((*ECHO, "--seats", "17"), "seats is 17"),
    "a negative exchange interval": ((*ECHO, "--exchange.every", "-1"), "exchange.every is -1"),
    "no held-out queries": ((*ECHO, "--evaluation.queries", "0"), "evaluation.queries is 0"),
    "a negative evaluation interval": ((*ECHO, "--evaluation.every", "-1"), "evaluation.every is -1"),
    "a negative number of threads": ((*ECHO, "--threads", "-1"), "threads is -1"),
    "a negative checkpoint interval": ((*ECHO, "--checkpoint-every", "-2"), "checkpoint_every is -2"),
    "a payoff of null": ((*ECHO, "--payoff", "[[1, null], [0, 1]]"), "must be a finite number"),
    "a payoff by name": ((*ECHO, "--payoff", '{"a": 1}'), "no payoff called"),
    "an empty payoff": ((*ECHO, "--payoff", "[]"), "has shape (0,)"),
    "a payoff that is true": ((*ECHO, "--payoff", "true"), "no payoff called 'true'"),
    "an infinite payoff": ((*ECHO, "--payoff", "Infinity"), "payoff is inf"),
    "a schedule without an end": ((*ECHO, "--payoff.over", "5"), "payoff.to None over 5"),
    "no such algorithm": ((*ECHO, "--algorithm", "pppo"), "there are a2c, coma, grpo"),
    "an option of another algorithm": (
        (*ECHO, "--algorithm", "rloo", "--algorithm.lam", "0.9"),
        "--algorithm.lam",
    ),
    "groups that do not fit": ((*ECHO, "--algorithm", "grpo", "--batch", "7"), "groups of 4"),
    "a critic for what has no values": (
        (*ECHO, "--algorithm", "rloo", "--critic.kind", "central"),
        "leave out --critic.kind central",
    ),
    "no such device": (
        (*PROMPTS, "good.jsonl", "--policy.device", "cuda:9"),
        "device 'cuda:9' cannot be used here",
    ),
    "a model too many": ((*ECHO, "--policy.models", "a", "b", "c"), "policy.models"),
    "an adapter of rank 0": ((*ECHO, "--lora.rank", "0"), "lora.rank is 0"),
    "a class that is none": (("train", "--task", "json:Nope"), "json has no 'Nope'"),
    "a class that is no task": (
        ("train", "--task", "json:JSONDecoder", "--policy.kind", "table"),
        "JSONDecoder has no tokenizer",
    ),
    "a task option out of range": ((*ECHO, "--task.length", "0"), "echo of length 0"),
    "a judge for a task without one": ((*ECHO, "--judge", "regex:a"), "takes no judge"),
    "half a pattern": ((*PROMPTS[:6], "regex:(", "--task.data", "good.jsonl"), "is not a regular expression"),
    "half a sum of judges": ((*PROMPTS[:6], "2*", "--task.data", "good.jsonl"), "no judge called '2*'"),
    "a judge of infinite weight": (
        (*PROMPTS[:6], "1e999*regex:a", "--task.data", "good.jsonl"),
        "a weight of inf",
    ),
    "a column that no row has": (
        (*PROMPTS[:6], "math-verify:nothing", "--task.data", "good.jsonl"),
        "math-verify:nothing",
    ),
    "a judge without time": ((*PROMPTS, "good.jsonl", "--judge.timeout", "0"), "judge.timeout is 0.0"),
    "a failed score of nan": (
        (*PROMPTS, "good.jsonl", "--judge.failed-score", "nan"),
        "judge.failed_score is nan",
    ),
    "no such preset": (("train", "--preset", "../pocket"), "no preset called '../pocket'"),
}

SETTINGS = {
    "bytes": (b"\x00\xff\xfe", "cannot be read"),
    "another encoding": ("batch: 4 # größer".encode("latin-1"), "cannot be read"),
    "nothing": (b"", "does not hold `name: value` lines"),
    "a list": (b"- batch\n- 4\n", "does not hold `name: value` lines"),
    "a word": (b"batch", "does not hold `name: value` lines"),
    "tabs": (b"kl:\n\tcoef: 1\n", "cannot be read"),
    "half a file": (b'payoff: "coop', "cannot be read"),
    "a tree where a number belongs": (b"batch: {a: 1}\n", "no setting 'batch.a'"),
    "null where a number belongs": (b"batch: null\n", "batch is None; give a whole number"),
    "a key that is a number": (b"7: 4\n", "no setting '7'"),
    "a key that is a list": (b"[1, 2]: 4\n", "unhashable key"),
    "a call": (b"seed: !!python/object/apply:os.system ['touch canary']\n", "python/object/apply"),
    "two documents": (b"batch: 4\n---\nbatch: 8\n", "single document"),
    "a tree that holds itself": (b"a: &a\n  b: *a\n", "cannot be read"),
    "an unknown key deep down": (b"learner:\n  adam:\n    lr: 1\n", "no setting 'learner.adam'"),
}

DATA = {
    "empty.jsonl": (b"", "empty.jsonl is empty"),
    "blank.jsonl": (b"\n\n\n", "blank.jsonl is empty"),
    "half.jsonl": (b'{"prompt": "a"}\n{"prom', "cannot be read as .jsonl"),
    "column.jsonl": (b'{"colour": "a"}\n', "its columns are 'colour'"),
    "null.jsonl": (b'{"prompt": null}\n{"prompt": "a"}\n', "row 1 of null.jsonl has no prompt"),
    "numbers.jsonl": (b"1\n2\n", "each line must be a JSON object"),
    "lists.jsonl": (b'{"prompt": [[1]]}\n', "row 1 of lists.jsonl"),
    "nothing-in-it.jsonl": (b'{"prompt": ""}\n' * 9, "row 1 of nothing-in-it.jsonl"),
    "one-row.jsonl": (b'{"prompt": "a"}\n', "has no rows for train"),
    "latin.jsonl": ('{"prompt": "größer"}\n'.encode("latin-1"), "cannot be read as .jsonl"),
    "nul.csv": (b"prompt\n\x00\x00\n", "nul.csv"),
    "head.csv": (b"prompt\n", "has no rows for train"),
    "ragged.csv": (b"prompt,b\na\nb,c,d,e\n", "row 2 has more fields"),
    "noise.parquet": (b"PAR1 nothing PAR1", "cannot be read as .parquet"),
    "empty.parquet": (b"", "cannot be read as .parquet"),
    "scalar.json": (b"7", "must hold one list"),
    "noise.json": (b"{{{", "cannot be read as .json"),
    "data.pickle": (b"\x80\x04N.", "is not a .parquet, .csv"),
}


@pytest.mark.parametrize("case", FLAGS)
def test_flags(case, workspace, capsys):
    assert_refused(FLAGS[case][0], workspace, capsys, FLAGS[case][1])


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_files(case, workspace, capsys):
    content, message = SETTINGS[case]
    (workspace / "mine.yaml").write_bytes(content)
    assert_refused(("train", "--config", "mine.yaml"), workspace, capsys, message)


@pytest.mark.parametrize("case", DATA)
def test_data_files(case, workspace, capsys):
    content, message = DATA[case]
    (workspace / case).write_bytes(content)
    assert_refused((*PROMPTS, case), workspace, capsys, message)
