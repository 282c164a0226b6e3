"""`cory evaluate`: targets, options, results and refusals."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from peft import LoraConfig, get_peft_model

from cory import pocket
from cory.cli.evaluate import Options
from cory.cli.main import main
from cory.config.command_line import split_arguments
from cory.config.schema import PolicyConfig
from cory.evaluation.bootstrap import interval
from cory.evaluation.config import EvaluationConfig
from cory.learner.optimizer import LearnerConfig
from cory.policies.loading import load_model
from cory.report.page import write_report
from cory.training.run import train
from cory.training.targets import find, labels
from tests.helpers.runs import contents, without_report
from tests.helpers.tables import made_up_reviews, tiny_reviews

pytestmark = pytest.mark.slow

TABLES = ["--task", "echo", "--policy.kind", "table", "--max-response", "3", "3", "--learner.lr", "0.1"]
TABLES += ["--iterations", "4", "--batch", "16", "--evaluation.queries", "12", "--checkpoint-every", "2"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of tables, `a` with two seats and `b` with one."""
    folder = tmp_path_factory.mktemp("runs")
    for name, seats in (("a", "2"), ("b", "1")):
        assert main(["train", *TABLES, "--seats", seats, "--run", str(folder / name)]) == 0
    return folder


@pytest.fixture
def place(runs, tmp_path, monkeypatch):
    shutil.copytree(runs, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def evaluated(place, *argv):
    assert main(["evaluate", *argv, "--out", str(place / "summary.json")]) == 0
    return json.loads((place / "summary.json").read_text())


def kept(place, run="runs/a"):
    """The evaluations in a run directory, by file name."""
    return [json.loads(path.read_text()) for path in sorted((place / run / "evaluations").glob("*.json"))]


def samples(place):
    return [json.loads(line) for line in (place / "summary.samples.jsonl").read_text().splitlines()]


def test_a_run_that_cannot_be_written_to_is_evaluated_and_its_result_goes_elsewhere(place, capsys):
    """As on a disk that is read-only: a file is where the folder of evaluations would be."""
    (place / "runs/a/evaluations").write_text("no folder")
    before = contents(place / "runs")
    assert main(["evaluate", "runs/a", "--no-game", "--queries", "4"]) == 0
    printed = capsys.readouterr()
    assert "llm_1" in printed.out
    assert "cannot be written" in printed.err
    assert "--out FILE writes elsewhere" in printed.err
    result = evaluated(place, "runs/a", "--no-game", "--queries", "4")
    assert result["queries"] == 4
    assert contents(place / "runs") == before
    for _ in range(2):  # its own result is replaced
        assert evaluated(place, "runs/a", "--no-game", "--queries", "4") == result


@pytest.mark.parametrize("name", ["summary.json", "summary.samples.jsonl"])
def test_an_evaluation_does_not_replace_a_file_of_somebody_else(place, capsys, name):
    (place / name).write_text('{"thesis": 1}\n')
    assert main(["evaluate", "runs/a", "--out", "summary.json"]) == 2
    assert f"{name} holds something else and is not replaced" in capsys.readouterr().err
    assert (place / name).read_text() == '{"thesis": 1}\n'


def test_a_run_is_evaluated_as_it_was_at_its_end_standalone_and_in_every_seat(place, capsys):
    assert main(["evaluate", "runs/a"]) == 0
    (result,) = kept(place)
    last = json.loads((place / "runs/a/metrics.jsonl").read_text().splitlines()[-1])
    for name in ("reference", "llm_1", "llm_2"):
        for quantity, value in result["metrics"][name].items():
            assert last[f"eval/{name}/{quantity}"] == value
            low, high = result["intervals"][name][quantity]
            assert low is None or low <= value <= high
        assert result["intervals"][name]["task_reward"] != [None, None]
    seats = [f"{seat}/{name}" for seat in ("pioneer_0", "observer_1") for name in ("llm_1", "llm_2")]
    assert {*seats, "pioneer_0/reference", "observer_1/reference"} == set(result["in_game"])
    assert result["in_game"]["observer_1/llm_1"]["seating"] == {"pioneer_0": "llm_2", "observer_1": "llm_1"}
    shown = capsys.readouterr().out
    assert f"standalone: 12 of {result['data']['test']} held-out queries, own sampling" in shown
    assert result["data"]["test"] > 12
    assert result["data"]["left_out"] == []
    assert "observer_1/llm_2" in shown
    assert "Signs of collapse: distinct_2 below half" in shown


def test_a_run_of_adapters_in_bfloat16_is_evaluated_as_it_was_at_its_end(tmp_path, tiny_folder, monkeypatch):
    """An adapter that is merged into its base is rounded with it, which a run does not do."""
    without_report(monkeypatch)
    policy = PolicyConfig(model=str(tiny_folder), kind="lora_team", precision="bfloat16")
    config = tiny_reviews(
        tmp_path,
        tiny_folder,
        policy=policy,
        learner=LearnerConfig(lr=0.01),
        evaluation=EvaluationConfig(queries=8, every=2),
    )
    train(config, tmp_path / "run")
    last = json.loads((tmp_path / "run/metrics.jsonl").read_text().splitlines()[-1])
    result = evaluated(tmp_path, str(tmp_path / "run"))
    for name in ("reference", "llm_1", "llm_2"):
        for quantity, value in result["metrics"][name].items():
            assert last[f"eval/{name}/{quantity}"] == value, quantity
    assert result["metrics"]["llm_1"]["kl"] > 0.01
    adapter = evaluated(tmp_path, str(tmp_path / "run/policies/llm_1"))["metrics"]["llm_1"]
    assert adapter == result["metrics"]["llm_1"]


OTHER = ("--task", "cory_env.tasks.echo:Task", "--task.length", "2")
"""Another task by name, which the same tables can play."""


def test_another_task_does_not_replace_the_runs_own_evaluation(place, capsys):
    """One file per measurement; only the same measurement, whatever its batch size, replaces a file."""
    assert main(["evaluate", "runs/a"]) == 0
    shown = "Evaluated: task echo, its own score, 12 test queries, 1 sample each, own sampling."
    assert shown in capsys.readouterr().out
    (own,) = (place / "runs/a/evaluations").glob("*.json")
    before = json.loads(own.read_text())
    for options in (OTHER, ("--queries", "10", "--samples", "2"), ("--kl.coef", "2"), ("--no-game",)):
        assert main(["evaluate", "runs/a", *options]) == 0
    assert json.loads(own.read_text()) == before
    own.write_text("replaced by the same measurement")
    assert main(["evaluate", "runs/a", "--queries", "12", "--evaluation.samples", "1"]) == 0
    assert json.loads(own.read_text())["measured"] == before["measured"]
    measured = [result["measured"] for result in kept(place)]
    parts = ("task", "queries", "samples", "kl_coef", "game")
    assert sorted(tuple(one[part] for part in parts) for one in measured) == [
        ("cory_env.tasks.echo:Task", 7, 1, 0.2, True),
        ("echo", 10, 2, 0.2, True),
        ("echo", 12, 1, 0.2, False),
        ("echo", 12, 1, 0.2, True),
        ("echo", 12, 1, 2.0, True),
    ]
    assert {(one["judge"], one["split"]) for one in measured} == {(None, "test")}
    assert len(list((place / "runs/a/evaluations").glob("*.samples.jsonl"))) == 5


def test_other_weights_are_another_measurement(place):
    assert main(["evaluate", "runs/a", "--no-game"]) == 0
    shutil.copytree("runs/a/policies/llm_1", "runs/a/policies/llm_2", dirs_exist_ok=True)
    assert main(["evaluate", "runs/a", "--no-game"]) == 0
    weights = [result["measured"]["weights"] for result in kept(place)]
    assert [one["llm_2"]["folder"] for one in weights] == ["policies/llm_2"] * 2
    assert weights[0]["llm_1"] == weights[1]["llm_1"]
    assert len({one["llm_2"]["sha256"] for one in weights}) == 2


def test_the_page_shows_every_evaluation_of_a_run(place):
    assert main(["evaluate", "runs/a", *OTHER, "--sampling", "greedy"]) == 0
    assert main(["evaluate", "runs/a"]) == 0
    page = write_report(place / "runs/a").read_text(encoding="utf-8")
    own = page.index("Held-out evaluation with intervals: task echo, its own score, 12 test queries")
    other = page.index("Held-out evaluation with intervals: task cory_env.tasks.echo:Task, its own score")
    assert own < other
    assert page.count("Held-out evaluation with intervals:") == 2
    assert "Measured with the run&#39;s own settings." in page[own:other]
    for text in ("task cory_env.tasks.echo:Task (run: echo)", "evaluation.sampling greedy (run: own)"):
        assert text in page[other:]


def test_a_judge_is_named_where_the_task_takes_one(models, tiny_folder):
    measured = evaluated(models, str(tiny_folder), *REVIEWS, "--no-game")["measured"]
    assert (measured["task"], measured["judge"]) == ("reviews", "tests.helpers.scorers:judge")
    assert measured["settings"]["policy.model"] == str(tiny_folder)
    assert len(measured["weights"][tiny_folder.name]["sha256"]) == 64


def test_every_seat_is_named_in_a_terminal_of_80_columns(place, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")  # without colours
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    result = evaluated(place, "runs/a")
    lines = [line for line in capsys.readouterr().out.splitlines() if line[:1] in set("┃│┏└├┡")]
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    for name in result["in_game"]:
        assert any(name in line.split() for line in lines)


def test_a_checkpoint_and_a_policys_folder_are_evaluated_with_the_settings_of_their_run(place):
    whole = evaluated(place, "runs/a")
    saved = evaluated(place, "runs/a/checkpoints/step-000004")
    assert saved["metrics"] == whole["metrics"]
    assert evaluated(place, "runs/a/checkpoints/step-000002")["metrics"]["llm_1"] != whole["metrics"]["llm_1"]
    for one in ("runs/a/policies/llm_2", "runs/a/checkpoints/step-000004/llm_2"):
        assert evaluated(place, one)["metrics"]["llm_2"] == whole["metrics"]["llm_2"]
    with_itself = evaluated(place, "runs/a/policies/llm_2")["in_game"]
    assert {"pioneer_0/llm_2", "observer_1/llm_2"} <= set(with_itself)


def test_what_only_training_checks_stands_in_no_evaluations_way(place):
    """Credit by sequence has no other payoff than the sum; a KL target needs a coefficient above 0."""
    whole = evaluated(place, "runs/a")
    path = Path("runs/a/config.yaml")
    settings = yaml.safe_load(path.read_text()) | {"algorithm": "seq", "payoff": "cooperative"}
    path.write_text(yaml.safe_dump({k: v for k, v in settings.items() if not k.startswith("algorithm.")}))
    assert evaluated(place, "runs/a", "--payoff", "independent")["metrics"] == whole["metrics"]
    settings |= {"algorithm": "ppo", "kl.target": 1.0, "kl.coef": 0.0}
    path.write_text(yaml.safe_dump({k: v for k, v in settings.items() if not k.startswith("algorithm.")}))
    found = evaluated(place, "runs/a")["metrics"]["llm_1"]
    assert found["task_reward"] == found["combined_reward"] == whole["metrics"]["llm_1"]["task_reward"]


def test_an_unfinished_run_is_evaluated_at_its_newest_checkpoint(place):
    whole = evaluated(place, "runs/a")
    shutil.rmtree("runs/a/policies")
    assert evaluated(place, "runs/a")["metrics"] == whole["metrics"]


def test_a_checkpoint_is_left_as_it_was(place):
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert main(["evaluate", "runs/a/checkpoints/step-000004"]) == 0
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_several_targets_are_compared_query_by_query(place):
    result = evaluated(place, "runs/a", "runs/b", "--no-game")
    assert set(result["metrics"]) == {"reference", "a:llm_1", "a:llm_2", "b:llm_1"}
    assert list(result["comparison"]) == ["b:llm_1 minus a:llm_1", "b:llm_1 minus a:llm_2"]
    one, other = (
        np.array([row["targets"][run]["eval"]["llm_1"]["task_reward"] for row in samples(place)])
        for run in ("b", "a")
    )
    difference = result["comparison"]["b:llm_1 minus a:llm_1"]["task_reward"]
    assert difference["value"] == pytest.approx(np.mean(one - other))
    assert (difference["low"], difference["high"]) == pytest.approx(interval(one - other))
    assert result["in_game"] == {}


def test_what_was_edited_since_training_is_said_of_every_target(place, monkeypatch, capsys):
    for module in ("training.evaluate", "training.cross_play", "api.probe"):
        monkeypatch.setattr(f"cory.{module}.edited", lambda target: [f"r.py has changed since {target.name}"])
    left_out = evaluated(place, "runs/a", "runs/b", "--no-game")["data"]["left_out"]
    assert left_out[-2:] == ["r.py has changed since runs/a", "r.py has changed since runs/b"]
    sizes = ["--queries", "8", "--pioneers", "2", "--observers", "2"]
    for command in (["evaluate", "runs/a", "--cross-play", "--queries", "4"], ["probe", "runs/a", *sizes]):
        assert main(command) == 0
        assert "r.py has changed since runs/a." in capsys.readouterr().out


def test_samples_are_every_response_with_its_metrics(place):
    result = evaluated(place, "runs/a", "--queries", "5", "--samples", "3")
    rows = samples(place)
    assert [row["sample"] for row in rows] == [0, 1, 2] * 5
    scores = [row["targets"]["a"]["eval"]["llm_2"]["task_reward"] for row in rows]
    assert np.mean(scores) == pytest.approx(result["metrics"]["llm_2"]["task_reward"])
    assert [list(game) for game in rows[0]["targets"]["a"]["games"]] == [
        ["pioneer_0/reference", "observer_1/reference"],
        ["pioneer_0/llm_1", "observer_1/llm_2"],
        ["pioneer_0/llm_2", "observer_1/llm_1"],
    ]
    assert (result["queries"], result["samples"]) == (5, 3)


def test_a_run_is_evaluated_with_its_own_threads_and_matmul_library(place, monkeypatch):
    calls = []
    monkeypatch.setattr("cory.runtime.cpu.configure_runtime", lambda **options: calls.append(options))
    settings = place / "runs/a/config.yaml"
    text = settings.read_text()
    assert "\nthreads: 0\n" in text
    settings.write_text(text.replace("\nthreads: 0\n", "\nthreads: 2\n"))
    evaluated(place, "runs/a", "--no-game")
    evaluated(place, "runs/a", "--no-game", "--threads", "1")
    assert calls == [{"threads": 2}, {"threads": 1}]


def test_options_of_the_evaluation_and_settings_of_the_run_follow_the_targets(place):
    argv = ["x", "y", "--samples", "4", "--task", "echo", "--threshold", "-0.5", "--kl.coef=2", "--no-game"]
    ours, settings = split_arguments(argv, Options)
    assert ours == ["x", "y", "--samples", "4", "--threshold", "-0.5", "--no-game"]
    assert settings == ["--task", "echo", "--kl.coef=2"]
    result = evaluated(place, "runs/a", "--samples", "4", "--threshold", "0.5", "--kl.coef", "2", "--no-game")
    of = result["metrics"]["llm_1"]
    assert of["combined_reward"] == pytest.approx(of["task_reward"] - 2 * of["kl"])
    assert of["accuracy"] == of["pass_at_1"] <= of["pass_at_2"] <= of["pass_at_4"]
    assert result["threshold"] == 0.5
    assert "pass_at_5" not in of


def test_greedy_tables_choose_the_likeliest_tokens(place):
    """The reference's table is flat: of equally likely tokens the first, so all its responses are alike."""
    evaluated(place, "runs/a", "--sampling", "greedy")
    responses = {row["targets"]["a"]["eval"]["reference"]["response"] for row in samples(place)}
    assert len(responses) == 1


@pytest.fixture
def models(tiny_folder, tmp_path, monkeypatch):
    """A model and an adapter on it that belong to no run, and reviews."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.jsonl").write_text(made_up_reviews())
    model, tokenizer = load_model(tiny_folder)
    adapted = get_peft_model(model, LoraConfig(r=2, init_lora_weights=False, fan_in_fan_out=True))
    adapted.peft_config["default"].base_model_name_or_path = str(tiny_folder)
    adapted.save_pretrained(tmp_path / "adapter")
    tokenizer.save_pretrained(tmp_path / "adapter")
    return tmp_path


REVIEWS = ["--task.data", "reviews.jsonl", "--judge", "tests.helpers.scorers:judge"]
REVIEWS += ["--max-response", "2", "4", "--queries", "6"]


def test_a_bare_model_is_its_own_reference_and_an_adapter_has_its_base(models, tiny_folder):
    result = evaluated(models, str(tiny_folder), *REVIEWS)
    assert result["metrics"][tiny_folder.name]["kl"] == 0
    assert result["metrics"]["reference"] == result["metrics"][tiny_folder.name]
    assert f"observer_1/{tiny_folder.name}" in result["in_game"]
    adapted = evaluated(models, "adapter", *REVIEWS, "--no-game")
    assert adapted["metrics"]["adapter"]["kl"] > 0.01
    assert adapted["metrics"]["reference"] == result["metrics"]["reference"]
    beside = evaluated(models, "adapter", *REVIEWS, "--no-game", "--policy.model", "adapter")
    assert beside["metrics"]["adapter"]["kl"] == 0


def test_bare_models_have_the_reference_of_a_preset():
    assert find("gpt2", preset="imdb").config.policy.model == "gpt2-large"
    assert find("gpt2").config.policy.model == "gpt2"
    assert find("gpt2", settings={"policy.model": "distilgpt2"}).config.policy.model == "distilgpt2"
    assert find("owner/name").folders == {"name": "owner/name"}


def test_labels_are_the_shortest_that_distinguish_targets():
    assert labels(["runs/x/a", "runs/y/b"]) == ["a", "b"]
    assert labels(["runs/x/a", "runs/y/a"]) == ["x/a", "y/a"]
    with pytest.raises(ValueError, match="named twice"):
        labels(["a", "./a"])


BAD = {
    "nothing": ([], "name one or more"),
    "an empty name": ([""], "a target is empty"),
    "a folder that is neither": (["runs"], "neither a run directory with policies nor a model folder"),
    "no folder": (["runs/c"], "there is no folder runs/c"),
    "an unknown setting": (["runs/a", "--kl.coeff", "1"], "--kl.coef"),
    "an unknown option": (["runs/a", "--sample", "1"], "--samples"),
    "a misspelt option": (["runs/a", "--quries", "5"], "--queries"),
    "a wrong value": (["runs/a", "--sampling", "beam"], "beam"),
    "no samples": (["runs/a", "--samples", "0"], "evaluation.samples is 0"),
    "an unknown preset": (["runs/a", "--preset", "poket"], "there are pocket"),
    "one run twice": (["runs/a", "runs/a"], "named twice"),
    "other queries": (["runs/a", "{lm}"], "are not evaluated alike: task is echo and reviews; give --task"),
    "nowhere to write": (["runs/a", "--out", "nowhere/summary.json"], "there is no folder nowhere"),
    "settings of another version": (["runs/b"], "runs/b/config.yaml cannot be read: "),
    "a damaged checkpoint": (["runs/a/checkpoints/step-000002"], "use an older checkpoint"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_error_line_and_writes_nothing(case, place, capsys):
    argv, message = BAD[case]
    (place / "runs/a/checkpoints/step-000002/llm_1/table.safetensors").unlink()
    with (place / "runs/b/config.yaml").open("a") as settings:
        settings.write("ppo.epochs: 4\n")
    before = sorted(place.rglob("*"))
    assert main(["evaluate", *(word.replace("{lm}", str(pocket.LM)) for word in argv)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert sorted(place.rglob("*")) == before


def test_help_lists_the_options(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", "--help"])
    assert not stopped.value.code
    assert "--sampling" in capsys.readouterr().out
