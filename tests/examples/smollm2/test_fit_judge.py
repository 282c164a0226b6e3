"""The fit of the judge's head: features of prefixes, the solution, and what is written."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from cory import pocket
from cory.judges.classifier import Classifier
from cory.judges.linear_head import LinearHead
from examples.smollm2 import fit_judge
from tests.helpers.models import make_tokenizer, save_backbone


@pytest.fixture
def config(tmp_path):
    """Reviews whose label is one word, and a tiny Llama in place of SmolLM2."""
    rows = [
        {
            "text": f"film {n} I liked it, you did {'good' if n % 2 else 'bad'} " * 4,
            "label": n % 2,
            "movie": f"m{n}",
        }
        for n in range(240)
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "reviews.parquet")
    model = str(save_backbone("llama", tmp_path / "llama"))
    return fit_judge.Config(
        data=tmp_path / "reviews.parquet", model=model, layers=1, out=tmp_path / "judge",
        work=tmp_path / "work", reviews=200, held_out=20, chunk=64, test=tmp_path / "reviews.parquet",
        test_every=4,
    )  # fmt: skip


def test_the_states_of_a_snippets_beginning_are_those_of_a_shorter_snippet(config):
    judge, tokenizer = LinearHead.of_layers(config.model, 1), make_tokenizer()
    tokenizer.padding_side = "right"
    text = "this was the best of all bad films, I liked it, you did not"
    ids = tokenizer(text)["input_ids"]
    states = fit_judge.mean_states(judge, tokenizer, ["a good film", text])[1]
    for share, state_D in zip(fit_judge.LENGTHS, states, strict=True):
        part = torch.tensor([ids[: max(fit_judge.SHORTEST, round(share * len(ids)))]])
        expected_D = judge.states(part, torch.ones_like(part))[0].mean(0)
        torch.testing.assert_close(state_D, expected_D, atol=1e-5, rtol=0)


def test_the_weights_are_the_minimum_of_the_penalised_loss():
    rng = np.random.default_rng(0)
    states_ND = rng.normal(3, 2, (400, 3))
    label_N = (states_ND[:, 0] + rng.normal(0, 2, 400) > 3).astype(int)
    solution = fit_judge.logistic((states_ND, label_N), 0.1)
    mean_D, spread_D = states_ND.mean(0), states_ND.std(0)

    def objective(weights_D, bias):
        margin_N = (2 * label_N - 1) * (states_ND @ weights_D + bias)
        return np.logaddexp(0, -margin_N).mean() + 0.05 * ((weights_D * spread_D) ** 2).sum()

    least = objective(solution[:-1], solution[-1])
    for k in range(3):
        for step in (-0.02, 0.02):
            moved_D = solution[:-1] + step * np.eye(3)[k] / spread_D
            assert objective(moved_D, solution[-1] - step * mean_D[k] / spread_D[k]) > least
    assert objective(solution[:-1], solution[-1] + 0.02) > least


@pytest.mark.slow
def test_a_fit_writes_a_judge_that_finds_the_word_and_goes_on_from_what_it_has_read(config):
    figures = fit_judge.fit(config)
    good, bad = Classifier(config.out)(["film 7 I liked it, you did good", "film 7 I liked it, you did bad"])
    assert good > bad
    assert figures["test"]["40 words"]["smollm2"]["accuracy"] > 0.7  # chance: 0.5
    assert set(figures["test"]["8 words"]) == {"smollm2", "pocket", "correlation"}
    written = {path: path.stat().st_mtime_ns for path in config.work.glob("*.npy")}
    assert fit_judge.fit(config)["temperature"] == figures["temperature"]
    assert {path: path.stat().st_mtime_ns for path in config.work.glob("*.npy")} == written


def test_the_bundled_head_fits_smollm2_and_its_card_has_its_figures():
    settings = json.loads((pocket.SMOLLM2_JUDGE / "config.json").read_text())
    figures = json.loads((pocket.SMOLLM2_JUDGE / "figures.json").read_text())
    card = (pocket.SMOLLM2_JUDGE / "README.md").read_text()
    assert settings == {"kind": "linear_head", "model": "smollm2", "layers": 16}
    for words in (8, 16, 40):
        of_judge = figures["test"][f"{words} words"]
        row = next(line for line in card.splitlines() if line.startswith(f"| first {words} words"))
        assert f"{of_judge['smollm2']['accuracy']:.1%}".replace("%", " %") in row
        assert f"{of_judge['pocket']['accuracy']:.1%}".replace("%", " %") in row
    assert sum(path.stat().st_size for path in pocket.SMOLLM2_JUDGE.iterdir()) < 20_000
