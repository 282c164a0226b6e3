"""Without a network a model is found in the cache, or refused in seconds with one line."""

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from huggingface_hub import constants

from cory.judges.classifier import Classifier
from cory.policies.causal_lm import CausalLMPolicy
from cory.runtime import hub
from cory.training.targets import find

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
COMMANDS = [
    ["play", "nosuch"],
    ["train", "--policy.model", "nosuch", "--run", "run"],
    ["train", "--judge", "owner/nosuch", "--run", "run"],
]
SCRIPT = f"""
import sys, time
sys.path[:0] = [{str(ROOT / "agents")!r}, {str(ROOT)!r}]
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
from cory.cli.main import main
from cory.training import run
for command in {COMMANDS!r}:
    began = time.monotonic()
    code = main(command)
    print(code, time.monotonic() - began, flush=True)
"""


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """An empty cache, and a hub at a port where nothing listens."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


def test_a_bare_word_that_is_no_folder_is_refused_in_seconds_with_one_line(tmp_path):
    """The hub's client by itself asks 15 times, for two minutes, and prints 33 lines."""
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    results = [line.split() for line in done.stdout.splitlines()]
    assert [code for code, _ in results] == ["2"] * len(COMMANDS), done.stderr
    assert max(float(seconds) for _, seconds in results) < 10
    lines = done.stderr.splitlines()
    assert len(lines) == len(COMMANDS), done.stderr
    for line in lines:
        assert "nosuch is neither a folder nor a model in the hub's cache" in line
        assert "the hub (http://127.0.0.1:9) cannot be reached" in line
    assert not (tmp_path / "run").exists()


def test_a_model_in_the_cache_loads_without_a_hub(offline, tiny_folder, tmp_path):
    repository = tmp_path / "cache/models--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs/main").write_text("1" * 40)
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / ("1" * 40)).symlink_to(tiny_folder)
    policy = CausalLMPolicy.load("llm_1", "owner/name")
    assert policy.vocab_size == CausalLMPolicy.load("llm_1", tiny_folder).vocab_size


@pytest.fixture(autouse=True)
def not_asked_yet():
    """The hub is asked again in every test: responses are kept for a minute."""
    hub._reachable.cache_clear()


def test_the_hub_is_asked_once_for_several_models(monkeypatch):
    asked = []
    monkeypatch.setattr(hub, "_responds", lambda: asked.append(1) is None)
    monkeypatch.setattr(hub.time, "monotonic", lambda: 5.0)
    assert [hub.located(f"owner/{i}") for i in range(3)] == ["owner/0", "owner/1", "owner/2"]
    assert len(asked) == 1


@pytest.mark.parametrize("name", ["no such name", "a/b"])
def test_a_name_that_is_nowhere_is_refused(offline, name):
    for load in (hub.located, Classifier):
        with pytest.raises(ValueError, match=f"{name} is neither a folder nor a model in the hub's cache"):
            load(name)


@pytest.mark.parametrize("name", ["./a", "~/a", "a/b/c", "models/typo", "owner/model.gguf"])
def test_a_missing_folder_is_said_without_a_request(name, monkeypatch, tmp_path):
    """`models` is a folder here, and so no owner on the hub."""
    monkeypatch.setattr(hub, "is_reachable", lambda: pytest.fail("a request"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    with pytest.raises(ValueError, match="there is no folder"):
        find(name)
    with pytest.raises(ValueError, match="there is no model folder"):
        CausalLMPolicy.load("llm_1", name)
    with pytest.raises(ValueError, match=r"the judge folder .* has no config\.json"):
        Classifier(name)


def test_a_folder_needs_no_request(monkeypatch, tmp_path):
    monkeypatch.setattr(hub, "is_reachable", lambda: pytest.fail("a request"))
    assert hub.located(tmp_path) == tmp_path


def test_a_hub_that_accepts_and_never_responds_costs_a_few_seconds(monkeypatch):
    monkeypatch.setattr(hub, "TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        began = time.monotonic()
        assert not hub.is_reachable()
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "503 Service Unavailable"])
def test_a_hub_that_responds_is_reachable_whatever_it_says(monkeypatch, status):
    def respond():
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        thread = threading.Thread(target=respond)
        thread.start()
        assert hub.located("owner/name") == "owner/name"
        thread.join()


def test_the_hubs_warnings_are_silent_in_the_block_only(caplog):
    logger = logging.getLogger("huggingface_hub.utils._http")
    with hub.quiet():
        logger.warning("Retrying in 1s [Retry 1/5]")
        logger.error("it broke")
    logger.warning("afterwards")
    assert [record.message for record in caplog.records] == ["it broke", "afterwards"]
