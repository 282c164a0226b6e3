"""CORY, single-agent PPO and a LoRA team on the pocket task: three seeds, held-out evaluation.

    python -m benchmarks.learning.pocket            # about 30 minutes on 2 cores; resumable
    python -m benchmarks.learning.pocket --table    # only the table of the committed results

CORY and PPO are the presets unchanged: the same model, judge, settings, queries and number of updates per
policy. The LoRA team differs in what is trained and in its learning rate. Each policy is evaluated
standalone. Results go to benchmarks/results/learning/pocket_study.json.
"""

import argparse
import json
import statistics
from typing import Any

from benchmarks import ROOT
from benchmarks.learning.runs import COLUMNS, RESULTS, commit_of, first_and_last_evaluation, train_all
from benchmarks.output import provenance

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
        of_preset = [run for run in runs if run["preset"] == preset]
        for policy in (policy for policy in of_preset[0]["after"] if policy != "reference"):
            cells = [_cell([run["after"][policy][column] for run in of_preset]) for column in COLUMNS]
            rows.append(f"| {name}, `{policy}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(values: list[float]) -> str:
    return f"{statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Train what is missing, write the figures, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="only print the table of the committed results")
    path = RESULTS / "pocket_study.json"
    if parser.parse_args().table:
        print(table(json.loads(path.read_text())["runs"]))
        return
    folders = {ROOT / f"runs/study/{preset}-{seed}": (preset, seed) for seed in SEEDS for preset in FLAGS}
    train_all(
        {
            folder: [*FLAGS[preset], "--seed", str(seed), "--checkpoint-every", "0"]
            for folder, (preset, seed) in folders.items()
        }
    )
    runs = [
        {
            "preset": preset,
            "seed": seed,
            "commit": commit_of(folder),
            **first_and_last_evaluation(folder),
        }
        for folder, (preset, seed) in folders.items()
    ]
    origin = provenance()
    del origin["commit"]  # each run has its own
    path.write_text(json.dumps({**origin, "seeds": SEEDS, "runs": runs}, indent=1))
    print(table(runs))


if __name__ == "__main__":
    main()
