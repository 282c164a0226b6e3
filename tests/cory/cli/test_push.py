"""`cory push`: real uploads to a hub on this machine, and what is refused."""

import json
import shutil

import pytest
import yaml
from huggingface_hub import ModelCard, constants
from transformers import AutoModelForCausalLM

import cory
from cory.api import hub_push
from cory.cli.main import main
from cory.evaluation import records
from cory.evaluation.summary import write as write_summary
from cory.runtime import hub as hub_client
from tests.helpers.fake_hub import serve

REVIEWS = ["--judge", "tests.helpers.scorers:judge", "--batch", "4", "--iterations", "1", "--quiet"]
REVIEWS += ["--max-response", "2", "3", "--evaluation.queries", "9", "--threads", "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_folder):
    """A run of two seats on made-up reviews, and an evaluation of it with intervals."""
    from tests.helpers.tables import made_up_reviews

    folder = tmp_path_factory.mktemp("push")
    (folder / "reviews.jsonl").write_text(made_up_reviews())
    flags = [*REVIEWS, "--task.data", str(folder / "reviews.jsonl"), "--policy.model", str(tiny_folder)]
    assert main(["train", *flags, "--run", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def hub(monkeypatch):
    with serve() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # files go by Git LFS, which is plain HTTP
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        hub_client._reachable.cache_clear()
        yield server
    hub_client._reachable.cache_clear()


def test_policies_arrive_whole_in_one_commit_each_in_its_subfolder(run, hub, tmp_path, capsys):
    assert main(["push", str(run), "me/films"]) == 0
    assert capsys.readouterr().out == f"uploaded: {hub.address}/me/films\n"
    assert (hub.made["organization"], hub.made["name"]) == ("me", "films")
    assert hub.made["visibility"] == "private"
    assert hub.commits == 1
    assert hub.tokens == {"Bearer hf_secret"}
    local = {
        f"{name}/{path.name}": path.read_bytes()
        for name in ("llm_1", "llm_2")
        for path in (run / "policies" / name).iterdir()
        if path.name != "README.md"
    }
    assert hub.files.keys() == local.keys() | {"README.md", "config.yaml"}
    assert {name: hub.files[name] for name in local} == local
    for name, content in hub.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    AutoModelForCausalLM.from_pretrained(tmp_path, subfolder="llm_2")


def test_the_card_has_what_the_run_measured_and_the_prompts_of_the_game(run, hub):
    assert cory.load(run).push_to_hub("me/films") == f"{hub.address}/me/films"
    card = ModelCard(hub.files["README.md"].decode())
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert {"cory", "ppo"} <= set(card.data.tags)
    assert 'I can make this sentence "{query}{response_0}" more positive: {query}' in card.text
    assert 'AutoModelForCausalLM.from_pretrained("me/films", subfolder="llm_1")' in card.text
    rewards = [f"{last[f'eval/{name}/task_reward']:.3f}" for name in ("reference", "llm_1", "llm_2")]
    assert f"| task reward (judge's units) | {' | '.join(rewards)} |" in card.text


def test_one_policy_lies_at_the_root_and_an_evaluation_brings_its_intervals(run, hub, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    assert main(["evaluate", str(copy), "--queries", "9", "--no-game"]) == 0
    (path,) = (path for path in (copy / "evaluations").glob("*.json"))
    measured = json.loads(path.read_text())
    low, high = measured["intervals"]["llm_2"]["task_reward"]
    assert main(["push", str(copy), "me/one", "--policies", "llm_2"]) == 0
    assert "model.safetensors" in hub.files
    assert "llm_2/model.safetensors" not in hub.files
    text = hub.files["README.md"].decode()
    assert f"{measured['metrics']['llm_2']['task_reward']:.3f} [{low:.3f}, {high:.3f}]" in text
    assert "9 test queries" in text


ECHO = {"task": "echo", "policy": {"kind": "table"}, "max_response": (3, 3), "learner": {"lr": 0.1}}
ECHO |= {"kl": {"coef": 0.02}, "batch": 16, "evaluation": {"every": 2, "queries": 8}, "quiet": True}


def rewards_on_card(folder) -> list[str]:
    """Task reward of llm_1 on the card, as it is written."""
    card = hub_push.prepare(folder, "me/echo")["README.md"].decode()
    head, row = (
        next(line for line in card.splitlines() if line.startswith(start)).split(" | ")
        for start in ("| | ", "| task reward")
    )
    return row[head.index("llm_1")].split()[:1]


def evaluated(run, **settings) -> float:
    result = cory.evaluate(run, game=False, **settings)
    write_summary(records.path_of(run.path, result["measured"]), result)
    return result["metrics"]["llm_1"]["task_reward"]


@pytest.mark.slow
def test_the_card_has_no_evaluation_of_other_weights_or_settings(tmp_path):
    run = cory.train(run=tmp_path / "run", iterations=2, **ECHO)
    before = evaluated(run)
    run = cory.train(run=tmp_path / "run", resume="must", iterations=12, quiet=True)
    evaluated(run, payoff="independent")
    assert rewards_on_card(run.path) == [f"{run.metrics['eval/llm_1/task_reward'].dropna().iloc[-1]:.3f}"]
    after = evaluated(run)
    assert rewards_on_card(run.path) == [f"{after:.3f}"] != [f"{before:.3f}"]


def test_the_card_of_the_best_checkpoint_has_its_evaluation(tmp_path):
    run = cory.train(run=tmp_path / "run", iterations=6, export_best=True, checkpoint_every=2, **ECHO)
    (run.path / records.EXPORTED).write_text('{"iterations": 6, "after": 2}')
    metrics = run.metrics["eval/llm_1/task_reward"].dropna()
    assert rewards_on_card(run.path) == [f"{metrics.iloc[1]:.3f}"] != [f"{metrics.iloc[-1]:.3f}"]


def test_the_card_has_the_evaluation_of_what_was_exported_where_the_best_could_not_be(tmp_path):
    run = cory.train(run=tmp_path / "run", iterations=6, checkpoint_every=2, **ECHO)
    (run.path / "checkpoints/best.json").write_text('{"iteration": 2, "score": 1.0}')
    with pytest.raises(ValueError, match="the best checkpoint cannot be exported"):
        cory.train(run=run.path, resume="must", export_best=True, quiet=True)
    metrics = run.metrics["eval/llm_1/task_reward"].dropna()
    assert rewards_on_card(run.path) == [f"{metrics.iloc[-1]:.3f}"] != [f"{metrics.iloc[1]:.3f}"]
    assert "6 iterations" in hub_push.prepare(run.path, "me/echo")["README.md"].decode()


def test_policies_of_an_earlier_end_of_the_run_are_not_pushed(tmp_path):
    run = cory.train(run=tmp_path / "run", iterations=2, checkpoint_every=2, **ECHO)
    path = run.path / "config.yaml"
    path.write_text(path.read_text().replace("iterations: 2", "iterations: 9"))
    with pytest.raises(ValueError, match="went on after its policies were exported"):
        hub_push.prepare(run.path, "me/echo")


def test_a_dry_run_prints_the_files_and_the_card_and_asks_nobody(run, hub, capsys):
    assert main(["push", str(run), "me/films", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "llm_1/model.safetensors" in printed
    assert "cory" in yaml.safe_load(printed.split("---\n")[1])["tags"]
    assert (hub.commits, hub.made) == (0, {})


def test_a_hub_that_cannot_be_reached_is_one_error(run, monkeypatch, capsys):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    hub_client._reachable.cache_clear()
    assert main(["push", str(run), "me/films"]) == 2
    assert "the hub (http://127.0.0.1:9) cannot be reached" in capsys.readouterr().err
    hub_client._reachable.cache_clear()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{run}", "films"], "'films' is no name of a repository; give owner/name"),
        (["{run}/policies", "me/films"], "holds no exported policies"),
        (["{run}", "me/films", "--policies", "llm_3"], "has no policy 'llm_3'; it has llm_1, llm_2"),
    ],
)
def test_push_refuses_a_run_without_policies_or_a_malformed_name(run, words, message, capsys):
    assert main(["push", *(word.format(run=run) for word in words)]) == 2
    assert message in capsys.readouterr().err


def test_an_adapter_on_a_base_of_this_machine_is_refused(run, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "run")
    adapter = copy / "policies/llm_1/adapter_config.json"
    adapter.write_text(json.dumps({"base_model_name_or_path": str(tmp_path)}))
    assert main(["push", str(copy), "me/films"]) == 2
    error = capsys.readouterr().err
    assert "which is not on the hub; export whole models first" in error
    assert f"cory train --run {copy} --resume must --export merged" in error


def test_a_repository_is_public_only_when_that_is_said(run, hub):
    assert main(["push", str(run), "me/films", "--public"]) == 0
    assert hub.made["visibility"] == "public"


def test_only_files_that_make_a_policy_are_uploaded_and_no_folder_is_named(run, hub, tmp_path):
    copy = shutil.copytree(run, tmp_path / "secret-place/run")
    for name in (".env", "notes.txt", "model.safetensors.bak", "id_rsa", "training_args.bin", ".netrc"):
        (copy / "policies/llm_1" / name).write_text("TOKEN=hf_secret")
    (copy / "policies/llm_1/private").mkdir()
    (copy / "policies/llm_1/private/model.safetensors").write_text("TOKEN=hf_secret")
    assert main(["push", str(copy), "me/films"]) == 0
    assert b"hf_secret" not in b"".join(hub.files.values())
    texts = {name: hub.files[name].decode() for name in ("README.md", "config.yaml")}
    settings = yaml.safe_load(texts["config.yaml"])
    assert settings["task.data"] == "reviews.jsonl"
    assert "/" not in settings["policy.model"]
    for text in texts.values():
        assert str(run.parent) not in text
        assert str(tmp_path) not in text


def test_a_link_among_the_files_of_a_policy_is_refused(run, hub, tmp_path, capsys):
    copy = shutil.copytree(run, tmp_path / "run")
    file = copy / "policies/llm_2/tokenizer_config.json"
    file.unlink()
    (tmp_path / "passwords").write_text("secret")
    file.symlink_to(tmp_path / "passwords")
    assert main(["push", str(copy), "me/films"]) == 2
    assert "tokenizer_config.json is a link or no file" in capsys.readouterr().err
    assert hub.commits == 0


def test_the_card_of_a_collapsed_policy_says_so(run, hub, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    rows = [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()]
    rows[-1] |= {"eval/llm_1/distinct_2": 0.01, "eval/reference/distinct_2": 0.9}
    (copy / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["push", str(copy), "me/films"]) == 0
    card = hub.files["README.md"].decode()
    assert "**Signs of collapse** in the last evaluation: llm_1: distinct_2 is below half of the" in card


def test_push_imports_no_file_that_the_settings_name(run, hub, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    evil = tmp_path / "evil.py"
    evil.write_text(f"from pathlib import Path\nPath({str(tmp_path / 'canary')!r}).touch()\n")
    settings = yaml.safe_load((copy / "config.yaml").read_text())
    settings |= {"algorithm": str(evil), "task": f"{evil}:Task", "judge": f"{evil}:f", "payoff": f"{evil}:f"}
    settings |= {"kl.kind": f"{evil}:f", "critic.kind": f"{evil}:f", "exchange.order": f"{evil}:f"}
    (copy / "config.yaml").write_text(yaml.safe_dump(settings))
    assert main(["push", str(copy), "me/films"]) == 0
    assert not (tmp_path / "canary").exists()
    assert str(tmp_path) not in hub.files["README.md"].decode()
