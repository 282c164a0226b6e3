"""The Python face: the same runs as by the command line, with objects where it takes names."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch
import yaml
from transformers import GPT2LMHeadModel

import cory
from cory.api.datasets import _is_splits
from cory.api.rewards import name_of
from cory.cli.main import main
from cory.config import presets
from cory.functional.kl import KLConfig
from cory.judges import parsing
from cory.policies.table import TablePolicy
from cory.training import checkpoint
from cory.training.factory import check_judge_used
from cory_env import tasks
from cory_env.tasks.echo import Task as Echo
from tests.helpers.models import make_model
from tests.helpers.tables import letters

ROWS = [
    {"prompt": f"say {word}", "answer": word} for word in ("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
]
TINY = {
    "policy": {"kind": "table"},
    "iterations": 2,
    "batch": 4,
    "max_response": (2, 2),
    "evaluation": {"queries": 4, "every": 0},
    "checkpoint_every": 0,
}


@pytest.fixture(autouse=True)
def without_report(monkeypatch):
    monkeypatch.setattr("cory.training.run.write_report", lambda run: run / "report.html")


@pytest.fixture
def model_folder(tmp_path):
    make_model("gpt2", vocab_size=len(letters()), window=64).save_pretrained(tmp_path / "model")
    letters().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def metrics_of(folder: Path) -> list[dict]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "speed/"))} for row in rows]


@pytest.mark.slow
def test_python_command_line_and_yaml_give_the_same_run(tmp_path):
    run = cory.train(task="echo", run=tmp_path / "python", kl={"coef": 0.1}, seed=3, **TINY)
    words = [
        *("train", "--task", "echo", "--policy.kind", "table", "--iterations", "2", "--batch", "4"),
        *("--max-response", "2", "2", "--evaluation.queries", "4", "--evaluation.every", "0"),
        *("--checkpoint-every", "0", "--kl.coef", "0.1", "--seed", "3"),
    ]
    assert main([*words, "--run", str(tmp_path / "cli")]) == 0
    settings = {
        "task": "echo",
        **TINY,
        "max_response": [2, 2],
        "kl": {"coef": 0.1},
        "seed": 3,
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings))
    assert main(["train", "--config", str(tmp_path / "c.yaml"), "--run", str(tmp_path / "yaml")]) == 0
    assert metrics_of(run.path) == metrics_of(tmp_path / "cli") == metrics_of(tmp_path / "yaml")


def test_metrics_are_a_frame_with_a_row_per_iteration(tmp_path):
    run = cory.train(task="echo", run=tmp_path / "run", **TINY)
    frame = run.metrics
    assert frame.index.name == "iteration"
    assert frame.index.tolist() == [0, 1, 2]
    written = metrics_of(run.path)
    assert frame.loc[1, "pioneer_0/llm_1/task_reward"] == written[-2]["pioneer_0/llm_1/task_reward"]
    assert frame.loc[2, "eval/llm_2/task_reward"] == written[-1]["eval/llm_2/task_reward"]
    assert run.samples["query"].iloc[0]
    assert "task_reward" in run._repr_html_()


def test_a_loaded_run_has_the_policies_of_the_trained_one(tmp_path):
    run = cory.train(task="echo", run=tmp_path / "run", **TINY)
    loaded = cory.load(run.path)
    assert loaded.config.kl == KLConfig()
    for name, policy in run.policies.items():
        for ours, theirs in zip(policy.parameters(), loaded.policies[name].parameters(), strict=True):
            assert ours.equal(theirs)


def test_settings_may_be_dataclasses_and_wrong_ones_are_named(tmp_path):
    run = cory.train(task="echo", run=tmp_path / "run", kl=KLConfig(kind="k3", coef=0.5), **TINY)
    assert run.config.kl == KLConfig(kind="k3", coef=0.5)
    with pytest.raises(ValueError, match="iterashuns"):
        cory.train(task="echo", run=tmp_path / "other", iterashuns=3)
    with pytest.raises(ValueError, match=r"the run directory .* is not empty"):
        cory.train(task="echo", run=tmp_path / "run", **TINY)
    with pytest.raises(ValueError, match="holds no metrics"):
        cory.load(tmp_path)


@pytest.mark.slow
def test_a_list_of_dicts_and_a_function_train_a_language_model(tmp_path, model_folder):
    seen = []

    def reward(prompts, completions, answer, **columns):
        seen.append((list(prompts), list(answer)))
        return [float(len(text)) for text in completions]

    run = cory.train(
        model=model_folder,
        dataset=ROWS,
        reward=reward,
        run=tmp_path / "run",
        **{**TINY, "policy": {}, "max_response": (2, 4)},
    )
    assert all(
        prompt == f"say {word}"
        for prompts, words in seen
        for prompt, word in zip(prompts, words, strict=True)
    )
    data = Path(run.config.task_options.data)
    assert data.parent == tmp_path / "data"
    assert [json.loads(line) for line in data.read_text().splitlines()] == ROWS
    assert run.config.judge.partition("@")[0].endswith("reward")
    found = cory.evaluate(run, game=False, evaluation={"queries": 2})
    assert found["measured"]["judge"] == run.config.judge
    short = cory.evaluate(run, game=False, evaluation={"queries": 2}, reward=lambda texts: [7.0] * len(texts))
    assert short["metrics"]["llm_1"]["task_reward"] == 7.0


TAUGHT = "a"


def taught(prompts, completions, **columns):
    """What this session says scores 1."""
    return [float(TAUGHT in text) for text in completions]


@pytest.mark.slow
def test_a_function_is_that_of_this_session_when_training_and_after(tmp_path, model_folder, monkeypatch):
    """A worker process would import it with what the file says."""
    monkeypatch.setattr(f"{__name__}.TAUGHT", "")
    settings = {**TINY, "policy": {}}
    run = cory.train(model=model_folder, dataset=ROWS, reward=taught, run=tmp_path / "run", **settings)
    found = cory.evaluate(run, reward=taught, game=False, evaluation={"queries": 2})
    assert found["metrics"]["llm_1"]["task_reward"] == 1.0
    name = f"{__name__}:taught"
    assert found["measured"]["judge"] == run.config.judge == name
    assert name not in parsing.REGISTRY.items  # a text is what worker processes import


def test_a_model_of_a_class_of_ones_own_is_refused_and_not_loaded_as_its_base(tmp_path):
    class Halved(GPT2LMHeadModel):
        pass

    model = Halved(make_model("gpt2", vocab_size=len(letters()), window=64).config)
    with pytest.raises(ValueError, match=r"Halved, and a run loads models from files, as classes of"):
        cory.train(model=(model, letters()), dataset=ROWS, reward=taught, run=tmp_path / "run", **TINY)


class Words:
    """A reward that holds a set."""

    def __init__(self, words: set[str]) -> None:
        self.words = {"lists": [words]}

    def __call__(self, texts: list[str]) -> list[float]:
        return [0.0 for _ in texts]

    @classmethod
    def zero(cls, texts: list[str]) -> list[float]:
        return [0.0 for _ in texts]


@pytest.mark.slow
def test_the_name_of_a_reward_is_the_same_in_every_process():
    script = (
        "from cory.api.rewards import name_of; from tests.cory.test_api import Words; "
        "print(name_of(Words({'good', 'bad', 'fine', 'dull'})))"
    )
    names = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(names) == 1
    assert name_of(Words({"good"})) != name_of(Words({"bad"}))
    assert name_of(Words.zero) == f"{__name__}:Words.zero"


def in_a_script(words="good", factor=1, calls=0):
    """A reward as a script holds it: it reads a constant, calls a function and counts in a global."""
    text = f"""
WORDS, CALLS = ({words!r},), {calls}

def score(text):
    return {factor} * (text in WORDS)

def praises(texts):
    global CALLS
    CALLS += 1
    return [score(text) for text in texts]
"""
    held = {"__name__": "__main__"}
    exec(text, held)
    return held["praises"]


def test_the_name_of_a_reward_changes_with_the_constants_and_functions_that_it_uses():
    name = name_of(in_a_script())
    assert name == name_of(in_a_script(calls=5))
    assert len({name, name_of(in_a_script("bad")), name_of(in_a_script(factor=2))}) == 3


def test_the_name_of_an_instance_changes_with_the_class_that_a_script_holds():
    def made(factor):
        held = {"__name__": "__main__"}
        exec(
            f"class Score:\n def __init__(self): self.on = 1\n def __call__(self, texts): return {factor}",
            held,
        )
        return held["Score"]()

    assert name_of(made(1)) == name_of(made(1))
    assert name_of(made(1)) != name_of(made(2))


def test_a_home_folder_is_known_wherever_a_file_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    run = cory.train(task="echo", run=tmp_path / "run", **TINY)
    cory.evaluate(run, game=False, out="~/evaluated.json")
    cory.cross_play(run, out="~/played.json")
    assert (tmp_path / "evaluated.json").is_file()
    assert (tmp_path / "played.json").is_file()


def test_samples_are_games_and_no_responses_that_a_judge_failed_on(tmp_path):
    run = cory.train(task="echo", run=tmp_path / "run", **TINY)
    games = len(run.samples)
    failure = {"iteration": 1, "judge": "mine", "failure": "boom", "query": "a", "response": "b"}
    with (run.path / "samples.jsonl").open("a") as file:
        file.write(json.dumps(failure) + "\n")
    assert len(run.samples) == games > 0


@pytest.mark.slow
def test_a_model_in_memory_is_written_beside_the_run_and_is_the_reference_ever_after(tmp_path):
    model = make_model("gpt2", vocab_size=len(letters()), window=64)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run = cory.train(
        model=(model, letters()),
        dataset=ROWS,
        reward=lambda texts: [float(len(text)) for text in texts],
        run=tmp_path / "run",
        **{**TINY, "policy": {}, "max_response": (2, 4)},
    )
    assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())
    first, second = run.policies.values()
    assert not first.model.transformer.wte.weight.equal(second.model.transformer.wte.weight)
    assert first.reference.model.transformer.wte.weight.equal(before["transformer.wte.weight"])
    (folder,) = (tmp_path / "models").iterdir()
    assert run.config.policy.model == str(folder)
    evaluated = cory.evaluate(run, game=False, evaluation={"queries": 2})["metrics"]
    assert 0 < evaluated["llm_1"]["kl"] < 1
    reference = cory.load(run.path).policies["llm_1"].reference
    assert reference.model.transformer.wte.weight.equal(before["transformer.wte.weight"])


class Weighted:
    """A reward with an attribute."""

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, texts):
        return [self.weight] * len(texts)

    def score(self, texts):
        return [10 * self.weight] * len(texts)


class Model(torch.nn.Linear):
    """A reward model: what it scores is in its weights."""

    def __init__(self, weight):
        super().__init__(1, 1)
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.constant_(self.bias, weight)

    def forward(self, texts):
        return super().forward(torch.zeros(len(texts), 1))[:, 0].tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda weight: lambda texts: [weight] * len(texts),
        Weighted,
        lambda weight: Weighted(weight / 10).score,
        lambda weight: functools.partial(lambda texts, by: [by] * len(texts), by=weight),
        lambda weight: lambda texts, *, by=weight: [by] * len(texts),
        lambda weight: functools.wraps(one)(lambda completions, **columns: [weight] * len(completions)),
        Model,
    ],
    ids=["lambda", "instance", "method", "partial", "default", "wrapped", "model"],
)
def test_each_reward_of_a_session_scores_its_own_run(tmp_path, model_folder, make):
    settings = {**TINY, "policy": {}, "max_response": (2, 2), "iterations": 1}
    runs = [
        cory.train(
            model=model_folder, dataset=ROWS, reward=make(weight), run=tmp_path / f"{weight}", **settings
        )
        for weight in (1.0, 2.0)
    ]
    found = [cory.evaluate(run, game=False, evaluation={"queries": 2}) for run in runs]
    assert [one["metrics"]["llm_1"]["task_reward"] for one in found] == [1.0, 2.0]
    assert name_of(make(1.0)) == name_of(make(1.0)) == runs[0].config.judge  # in the next session too


@pytest.mark.slow
def test_several_rewards_are_summed(tmp_path):
    run = cory.train(
        model=(make_model("gpt2", vocab_size=len(letters()), window=64), letters()),
        dataset=ROWS,
        reward=[one, two],
        run=tmp_path / "run",
        **{**TINY, "policy": {}, "max_response": (2, 4), "iterations": 1},
    )
    assert run.metrics.loc[0, "pioneer_0/llm_1/task_reward"] == 3.0
    assert run.metrics.loc[0, "judge/tests.cory.test_api:two/score"] == 2.0


def test_a_function_may_be_summed_with_itself(tmp_path, model_folder):
    settings = {**TINY, "policy": {}, "max_response": (2, 4), "iterations": 1}
    run = cory.train(
        model_folder,
        ROWS,
        [two, two, lambda completions: [1.0 for _ in completions]],
        run=tmp_path / "run",
        **settings,
    )
    assert run.metrics.loc[0, "pioneer_0/llm_1/task_reward"] == 5.0
    assert run.metrics.loc[0, "judge/tests.cory.test_api:two#2/score"] == 2.0


def test_a_reward_of_a_script_is_named_by_what_it_does():
    """Its module is `__main__`, which says nothing in another session."""

    def made(source):
        scope = {"__name__": "__main__"}
        exec(source, scope)
        return name_of(scope["praises"])

    first = made("def praises(completions): return [1.0 for _ in completions]")
    assert first.startswith("__main__:praises@")
    assert first == made("def praises(completions): return [1.0 for _ in completions]")
    assert first != made("def praises(completions): return [2.0 for _ in completions]")


@pytest.mark.slow
def test_a_wrong_reward_saves_the_run_and_is_named(tmp_path, model_folder):
    calls = []

    def fails(completions):
        calls.append(1)
        return [{}["x"] for _ in completions] if len(calls) > 12 else [1.0 for _ in completions]

    settings = {**TINY, "policy": {}, "iterations": 30, "checkpoint_every": 30}
    with pytest.raises(ValueError, match=r"fails@.* raised KeyError: 'x'"):
        cory.train(model_folder, ROWS, fails, run=tmp_path / "run", **settings)
    newest = checkpoint.finished(tmp_path / "run")[-1]
    assert checkpoint.iteration_of(newest) > 0


def test_resume_needs_a_folder_and_a_plug_in_that_was_not_edited(tmp_path):
    with pytest.raises(ValueError, match="resume auto needs the run directory; name it with --run"):
        cory.train(task="echo", resume="auto", **TINY)
    payoff = tmp_path / "pay.py"
    payoff.write_text("def mine(scores_BN, iteration):\n    return scores_BN\n")
    cory.train(task="echo", run=tmp_path / "run", payoff=f"{payoff}:mine", **TINY)
    payoff.write_text("def mine(scores_BN, iteration):\n    return 2 * scores_BN\n")
    with pytest.raises(ValueError, match=r"pay\.py has changed since this session loaded it"):
        cory.train(task="echo", run=tmp_path / "again", payoff=f"{payoff}:mine", **TINY)


def test_columns_may_be_called_like_splits():
    assert not _is_splits({"prompt": ["a"], "test": ["assert a"]})
    assert _is_splits({"train": [], "test": [], "unsupervised": []})


@pytest.mark.slow
def test_an_edited_data_file_is_said_in_an_evaluation(tmp_path, model_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "films.jsonl"
    data.write_text("\n".join(map(json.dumps, ROWS)))
    settings = {**TINY, "policy": {}, "iterations": 1}
    run = cory.train(model_folder, "films.jsonl", "cory.rewards:brevity", run=tmp_path / "run", **settings)
    lines = cory.evaluate(run, game=False)["data"]["left_out"]
    assert not [line for line in lines if "changed" in line]
    data.write_text("\n".join(json.dumps({**row, "prompt": row["prompt"][::-1]}) for row in ROWS))
    lines = cory.evaluate(run, game=False)["data"]["left_out"]
    assert [line for line in lines if "films.jsonl has changed since" in line]


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (lambda texts: [1.0], "returned 1 scores for 4 responses"),
        (lambda texts: ["good"] * len(texts), "returned 'good'"),
    ],
)
def test_a_reward_that_returns_no_numbers_is_named(tmp_path, model_folder, reward, message):
    settings = {**TINY, "policy": {}, "max_response": (2, 4)}
    with pytest.raises(ValueError, match=f"<lambda>@[0-9a-f]{{8}}' {message}; return one number for each"):
        cory.train(model=model_folder, dataset=ROWS, reward=reward, run=tmp_path / "run", **settings)


def test_names_of_arguments_are_suggested(tmp_path):
    with pytest.raises(ValueError, match=r"'rewards'; write reward=\.\.\."):
        cory.train(task="echo", run=tmp_path / "run", rewards=len)


def one(completions, **columns):
    return [1.0 for _ in completions]


def two(completions, **columns):
    return [2.0 for _ in completions]


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ([], "the dataset is empty"),
        ([{"prompt": "a"}, 7], "row 2 of the dataset is 7; give texts, or dicts"),
        ([{"prompt": "a", "answer": object()}], "cannot be written as JSON: column 'answer'"),
    ],
)
def test_a_bad_dataset_is_refused_before_anything_is_written(tmp_path, dataset, message):
    with pytest.raises(ValueError, match=message):
        cory.train(dataset=dataset, reward=one, run=tmp_path / "run")
    assert not any(tmp_path.iterdir())


class Recorder:
    calls: ClassVar[list] = []

    def on_iteration(self, trainer, iteration, metrics):
        self.calls.append(("iteration", iteration, trainer.seating(iteration)["pioneer_0"]))

    def on_exchange(self, trainer, iteration, seating):
        self.calls.append(("exchange", iteration, seating["pioneer_0"]))


def test_a_task_object_and_callbacks(tmp_path):
    task = Echo()
    cory.train(task=task, run=tmp_path / "run", callbacks=[Recorder()], exchange={"every": 1}, **TINY)
    assert Recorder.calls == [
        ("iteration", 0, "llm_1"),
        ("exchange", 1, "llm_2"),
        ("iteration", 1, "llm_2"),
    ]


@pytest.mark.slow
def test_a_task_object_stays_the_task_of_its_run(tmp_path, monkeypatch):
    class Zeros(Echo):
        def score(self, queries, responses):
            return [0.25] * len(queries)

    run = cory.train(task=Zeros(), run=tmp_path / "run", **TINY)
    assert run.config.task.startswith(f"{__name__}:test_a_task_object_stays")
    assert cory.evaluate(run, game=False)["metrics"]["llm_1"]["task_reward"] == 0.25
    assert run.env().task.score([1], [1]) == [0.25]
    again = {**TINY, "iterations": 3, "checkpoint_every": 1}
    cory.train(task=Zeros(), run=tmp_path / "long", **{**again, "iterations": 2})
    cory.train(task=Zeros(), run=tmp_path / "long", resume="must", **again)
    monkeypatch.delitem(tasks.REGISTRY.items, run.config.task)  # as in another session
    with pytest.raises(ValueError, match="was an object of another session; pass it again"):
        cory.evaluate(run.path)
    assert cory.evaluate(run.path, task="echo", game=False)["metrics"]["llm_1"]["task_reward"] != 0.25


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": Echo(), "reward": len}, "takes no judge; leave out the judge or reward"),
        ({"task": "echo", "judge.label": "negative"}, r"takes no judge; leave out judge\.label"),
        ({"judge": "regex:a", "judge.label": "negative"}, r"judge\.label is for classifiers, and 'regex:a'"),
        ({"judge": "pocket", "judge.timeout": 3}, r"judge\.timeout is for functions in worker processes"),
    ],
)
def test_a_reward_or_an_option_of_it_that_would_change_nothing_is_refused(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        cory.train(run=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_options_of_a_preset_and_of_any_term_of_a_sum_are_accepted():
    imdb = presets.get("imdb")
    check_judge_used(cory.Config.from_flat({"judge": "regex:a"}, imdb), {"judge": "regex:a"})
    several = {"judge": "pocket + regex:a", "judge.label": "negative", "judge.timeout": 3}
    check_judge_used(cory.Config.from_flat(several), several)


def test_evaluate_gives_what_the_command_writes(tmp_path):
    run = cory.train(task="echo", run=tmp_path / "run", **TINY)
    result = cory.evaluate(run, game=False)
    assert main(["evaluate", str(run.path), "--no-game", "--out", str(tmp_path / "e.json")]) == 0
    written = json.loads((tmp_path / "e.json").read_text())
    assert written["metrics"] == json.loads(json.dumps(result["metrics"]))


def test_registered_plug_ins_are_settings_like_any_other(tmp_path):
    from cory.algorithms import a2c

    cory.register("algorithm", "my-a2c", a2c)
    cory.register("task", "my-echo", Echo)
    cory.register(
        "kl.kind", "double-k1", lambda logprobs, ref_logprobs, exact_kl: 2 * (logprobs - ref_logprobs)
    )
    run = cory.train(
        task="my-echo", algorithm="my-a2c", kl={"kind": "double-k1"}, run=tmp_path / "run", **TINY
    )
    assert (run.config.algorithm, run.config.task, run.config.kl.kind) == ("my-a2c", "my-echo", "double-k1")
    with pytest.raises(ValueError, match="already"):
        cory.register("algorithm", "ppo", a2c)
    with pytest.raises(ValueError, match="setting is 'kl'; choose one of 'algorithm', "):
        cory.register("kl", "mine", len)


def test_importing_cory_loads_nothing_heavy():
    code = "import cory, sys; print(cory.__version__, {'torch', 'transformers', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1)[1].strip() == "set()"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"reward": len, "judge": "pocket"}, "judge"),
        ({"model": "pocket", "policy": {"model": "own"}}, "policy.model"),
    ],
)
def test_an_argument_and_a_setting_for_the_same_are_refused(arguments, name, tmp_path):
    with pytest.raises(ValueError, match=f"{name} is given, and an argument that stands for it"):
        cory.train(run=tmp_path / "run", **arguments)


def test_a_group_of_settings_is_no_setting():
    with pytest.raises(ValueError, match=r"no setting 'kl': it is a group, with kl\.kind, kl\.place"):
        cory.Config.from_flat({"kl": 0.1})


def test_a_damaged_table_is_named(tmp_path):
    table = TablePolicy("llm_1", vocab_size=4, eos=frozenset({0}), pad=0, max_response=2)
    (tmp_path / "table.safetensors").write_bytes(b"torn")
    with pytest.raises(ValueError, match=r"no table could be read from .*table\.safetensors"):
        table.restore(tmp_path)
