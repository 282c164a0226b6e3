"""CORY beside single-agent PPO on the pocket task, and CORY with two adapters on one frozen model.

Three seeds, each policy alone on held-out queries.

    python -m benchmarks.learning.pocket            # about 30 minutes on 2 cores; started again, it goes on
    python -m benchmarks.learning.pocket --table    # only the table of the committed results

CORY and PPO are the presets as they are: the same model, judge, settings, queries and number of updates per
policy. The LoRA team differs in what learns and in its learning rate. Results go to
benchmarks/results/learning/pocket_study.json.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from benchmarks.learning.runs import COLUMNS, RESULTS, ROOT, held_out, provenance, train_all

SEEDS = (0, 1, 2)
NAMES = {"pocket": "CORY", "pocket-ppo": "single-agent PPO", "lora-team": "CORY, LoRA team"}
FLAGS = {
    "pocket": ["--preset", "pocket"],
    "pocket-ppo": ["--preset", "pocket-ppo"],
    "lora-team": ["--preset", "pocket", "--policy.kind", "lora_team", "--learner.lr", "1e-3"],
}


def table(runs: list[dict[str, Any]]) -> str:
    """Markdown: the reference, then each policy of each preset, mean over seeds and (lowest to highest)."""
    rows = [f"| | {' | '.join(COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    first = runs[0]["before"]["reference"]
    rows.append(f"| reference | {' | '.join(f'{first[name]:.2f}' for name in COLUMNS)} |")
    for preset, name in NAMES.items():
        mine = [run for run in runs if run["preset"] == preset]
        for policy in (policy for policy in mine[0]["after"] if policy != "reference"):
            cells = [_cell([run["after"][policy][column] for run in mine]) for column in COLUMNS]
            rows.append(f"| {name}, `{policy}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(values: list[float]) -> str:
    return f"{statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def ends(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """The first and the last evaluation of a run, by policy and quantity."""
    curves = held_out(folder)
    return {
        when: {policy: {name: values[at] for name, values in of.items()} for policy, of in curves.items()}
        for when, at in {"before": 0, "after": -1}.items()
    }


def main() -> None:
    """Train what is missing, write the figures, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="only print the table of the committed results")
    results = RESULTS / "pocket_study.json"
    if parser.parse_args().table:
        print(table(json.loads(results.read_text())["runs"]))
        return
    runs = {
        ROOT / f"runs/study/{preset}-{seed}": [
            *FLAGS[preset],
            "--seed",
            str(seed),
            "--checkpoint-every",
            "0",
        ]
        for seed in SEEDS
        for preset in FLAGS
    }
    train_all(runs)
    told = [
        {
            "preset": folder.name.rsplit("-", 1)[0],
            "seed": int(folder.name.rsplit("-", 1)[1]),
            "commit": json.loads((folder / "environment.json").read_text())["commit"],
            **ends(folder),
        }
        for folder in runs
    ]
    provided = provenance("python -m benchmarks.learning.pocket")
    del provided["commit"]  # each run has its own
    results.write_text(json.dumps({**provided, "seeds": SEEDS, "runs": told}, indent=1))
    print(table(told))


if __name__ == "__main__":
    main()
