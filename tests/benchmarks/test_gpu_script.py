"""benchmarks/gpu.sh: its command line. `sh benchmarks/gpu.sh --dry` rehearses its parts."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks/gpu.sh"

pytestmark = pytest.mark.skipif(shutil.which("sh") is None, reason="needs a POSIX shell")


def run(*words, python="false", out: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["sh", str(SCRIPT), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHON": python, "OUT": str(out)},
    )


def test_an_unknown_part_is_refused(tmp_path):
    done = run("--dry", "trhoughput", out=tmp_path)
    assert done.returncode == 2
    assert "there is no part trhoughput" in done.stderr


def test_a_part_that_fails_is_named_and_the_next_one_runs(tmp_path):
    done = run("--dry", "tests", "large", out=tmp_path)
    assert done.returncode == 1
    assert done.stdout.rstrip().endswith("failed: tests large")


def test_every_part_asks_for_the_device_it_was_given(tmp_path):
    echo = tmp_path / "echo.sh"
    echo.write_text('#!/bin/sh\necho "$CORY_TEST_DEVICE $@"\n')
    echo.chmod(0o755)
    for words, device in ((("--dry",), "cpu"), ((), "cuda")):
        out = tmp_path / device
        parts = ("tests", "throughput", "large", "learn")
        assert run(*words, *parts, python=str(echo), out=out).returncode == 0
        logs = {part: (out / f"{part}.log").read_text() for part in parts}
        assert logs["tests"].startswith(f"{device} -m pytest -q -m gpu")
        assert f"--device {device}" in logs["throughput"]
        assert f"--device {device}" in logs["large"]
        assert ("smollm2_batch.yaml" in logs["learn"]) == (device == "cuda")
