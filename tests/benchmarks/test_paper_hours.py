"""Hours of the paper's runs: the smaller arms worked by hand, and the table in docs/paper.md."""

from pathlib import Path

import pytest

from benchmarks.speed.memory_table import FLOPS, HOST_SECONDS, count
from benchmarks.speed.paper_hours import ARMS, line_of, markdown
from cory.config.presets import PRESETS

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"


def test_minutes_of_the_smallest_single_agent_run_by_hand():
    """gpt2-medium, one seat of 256 games: decoding is bound by launches."""
    arm = ARMS[4]
    assert arm.preset == "imdb-released-ppo"
    line, weights = line_of(arm), count(arm.config, lora=False).all
    decode = 15 * 24 * HOST_SECONDS["full"]
    products = weights * 256 * (7 + 15) * (2 * 2 + 4 * 6) / FLOPS
    assert line["iteration"] == pytest.approx(decode + products)
    settings = PRESETS[arm.preset].config.evaluation
    assert (settings.queries, settings.samples, settings.every) == (512, 1, 10)
    scoring = 4 * weights * 512 * (7 + 15) / FLOPS
    evaluations = 2 * (1 + 11) * (2 * decode + scoring)  # 512 rows in two passes of 256
    assert line["evaluations"] == pytest.approx(evaluations)
    assert line["run"] == pytest.approx(102 * line["iteration"] + evaluations)


def test_page_has_the_computed_lines():
    arms = [arm for arm in ARMS if arm.preset.startswith("imdb-released")]
    _, _, *lines = markdown([line_of(arm) for arm in arms]).splitlines()
    assert len(lines) == 2
    assert set(lines) <= set(PAGE.read_text(encoding="utf-8").splitlines())
