"""The benchmark of ranks: a process that fails, and ratios of medians."""

import pytest

from benchmarks.speed import ranks


def test_a_contender_that_fails_is_named():
    with pytest.raises(RuntimeError, match=r"a process of .*'shard': True.* failed"):
        ranks.run("pocket", {"ranks": 1, "threads": 1, "shard": True})


def test_ratios_are_of_medians_to_one_process_with_all_threads(monkeypatch):
    answers = {1: [9.0, 7.0], 2: [4.0, 2.0]}
    monkeypatch.setattr(ranks, "run", lambda preset, contender: answers[contender["threads"]])
    found = ranks.measure("pocket", rounds=2)
    assert found["one process, 2 threads"]["seconds"] == 3.0
    assert found["two ranks, 1 thread each"]["times_as_fast"] == 3 / 8
    assert len(found["two ranks, --shard"]["all"]) == 4
