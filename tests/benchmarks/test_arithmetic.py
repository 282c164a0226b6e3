"""Tables and gains of the arithmetic study."""

import json

import pytest

from benchmarks.learning import arithmetic as study


def figures(first):
    """pass@k that rises by a point with k."""
    return {f"pass_at_{k}": first + (k - 1) / 100 for k in range(1, 9)} | {
        "combined_reward": first - 0.1,
        "kl": 1.5,
        "length": 20.0,
    }


def run(preset, seed, **after):
    evaluated = {policy: figures(first) for policy, first in after.items()}
    return {"preset": preset, "seed": seed, "before": {"reference": figures(0.3)}, "after": evaluated}


RUNS = [
    run("pocket-arithmetic", 0, reference=0.3, llm_1=0.5, llm_2=0.4),
    run("pocket-arithmetic", 1, reference=0.3, llm_1=0.7, llm_2=0.4),
    run("pocket-arithmetic-ppo", 0, reference=0.3, llm_1=0.35),
]


def test_gains_are_those_of_each_standalone_policy_over_what_it_started_from():
    assert study.gains(RUNS) == pytest.approx(
        {
            "CORY, seed 0, llm_1": 0.2,
            "CORY, seed 0, llm_2": 0.1,
            "CORY, seed 1, llm_1": 0.4,
            "CORY, seed 1, llm_2": 0.1,
            "single-agent PPO, seed 0, llm_1": 0.05,
        }
    )


def test_rows_are_the_reference_and_means_over_seeds():
    first = {name: cells["pass@1"] for name, cells in study.rows_of(RUNS)}
    assert first == {
        "reference": "30 %",
        "CORY, `llm_1`": "60 %",  # of 50 and 70
        "CORY, `llm_2`": "40 %",
        "single-agent PPO, `llm_1`": "35 %",
    }
    assert (
        study.markdown(study.rows_of(RUNS))
        .splitlines()[2]
        .startswith("| reference | 0.20 | 30 % | 31 % | 32 % |")
    )


def test_the_committed_results_meet_the_target():
    results = json.loads((study.RESULTS / "arithmetic_study.json").read_text())
    gained = study.gains(results["runs"])
    assert len(gained) == 3 * 2 + 3  # three seeds: two policies of CORY and the single one
    assert min(gained.values()) >= 0.10
    assert {run["seed"] for run in results["runs"]} == {0, 1, 2}
