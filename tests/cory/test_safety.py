"""INVARIANTS 17: what a stranger puts into a checkpoint, a model folder or settings is data, never code.

That model text is escaped in reports is tested in `test_report.py`.
"""

import ast
import json
import pickle
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from transformers import GPT2Config, GPT2ForSequenceClassification

import cory
import cory_env
from cory.cli.main import main
from cory.config.schema import Config, PolicyConfig
from cory.evaluation.evaluator import EvaluationConfig
from cory.judges.classifier import Classifier
from cory.policies.loading import load_model
from cory.training import checkpoint
from cory.training.trainer import Trainer
from tests.cory.conftest import make_tokenizer

SOURCES = sorted(
    path for package in (cory, cory_env) for path in Path(package.__file__ or "").parent.rglob("*.py")
)
READERS_OF_CODE = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code", "runpy"}
CALLS = {
    *("torch.load", "np.load", "numpy.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system"),
    *("eval", "exec", "compile", "__import__", "os.popen"),
}
PIPE = {"agents/cory/judges/process_pool.py": {"dumps"}, "agents/cory/judges/worker.py": {"loads"}}
"""Pickled jobs go from the run to the processes it started itself; nothing comes back that way."""


def name_of(path: Path) -> str:
    return path.relative_to(Path(cory.__file__ or "").parents[1]).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_on_our_paths_can_turn_a_file_into_code(path):
    allowed = PIPE.get(name_of(path), set())
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [getattr(node, "module", None), *(alias.name for alias in node.names)]
            found = READERS_OF_CODE & {str(module).split(".")[0] for module in modules}
            assert not found or allowed, f"line {node.lineno} imports {found}"
        if isinstance(node, ast.Call):
            call = ast.unparse(node.func)
            assert call not in CALLS, f"line {node.lineno} calls {call}"
            if call.startswith("pickle."):
                assert call.removeprefix("pickle.") in allowed, f"line {node.lineno} calls {call}"
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert given.get("shell", "False") == "False", f"line {node.lineno} starts a shell"
            assert given.get("trust_remote_code", "False") == "False", f"line {node.lineno} trusts"


def test_models_from_outside_are_read_without_their_code_and_from_safetensors_only():
    """Every call of an Auto class in what a run imports; the makers of the pocket models read their own."""
    seen = 0
    for path in SOURCES:
        if name_of(path).startswith("agents/cory/pocket/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("Auto"):
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert given["trust_remote_code"] == "False", f"{path} line {node.lineno}"
                if "Model" in ast.unparse(node.func):
                    assert given["use_safetensors"] == "True", f"{path} line {node.lineno}"
                seen += 1
    assert seen >= 6


class Payload:
    """Unpickled, it creates a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self):
        return Path.touch, (self.canary,)


@pytest.fixture
def canary(tmp_path) -> Path:
    return tmp_path / "canary"


@pytest.fixture
def payload(canary) -> bytes:
    """A pickle that gives itself away; that it would is seen first."""
    told = pickle.dumps(Payload(canary))
    pickle.loads(told)
    assert canary.exists()
    canary.unlink()
    return told


def trainer_of(kind: str, folder: Path) -> Trainer:
    policy = PolicyConfig(kind=kind, model=str(folder), device="cpu", precision="float32")
    return Trainer(Config(task="echo", policy=policy, batch=4, evaluation=EvaluationConfig(queries=4)))


@pytest.mark.parametrize("kind", ["table", "causal_lm", "lora_team"])
def test_a_pickle_in_place_of_any_file_of_a_checkpoint_never_runs(
    kind, tmp_path, tiny_folder, payload, canary
):
    """Its author also vouches for it in the manifest."""
    trainer = trainer_of(kind, tiny_folder)
    folder = checkpoint.save(tmp_path, 0, trainer.learners, trainer.state())
    manifest = folder / checkpoint.MANIFEST
    sound = manifest.read_text()
    victims = [folder / name for name in json.loads(sound)]
    assert len(victims) >= 5
    for victim in victims:
        content = victim.read_bytes()
        victim.write_bytes(payload)
        entries = json.loads(sound) | {str(victim.relative_to(folder)): checkpoint._entry(victim)}
        manifest.write_text(json.dumps(entries))
        with suppress(Exception):  # most are refused; a model card is not read at all
            checkpoint.load(folder, trainer.learners)
        assert not canary.exists(), victim
        victim.write_bytes(content)
    manifest.write_bytes(payload)
    with pytest.raises(ValueError, match="is damaged"):
        checkpoint.load(folder, trainer.learners)
    assert not canary.exists()


PLANTED = (
    *("pytorch_model.bin", "training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "model.pt"),
    *("adapter_model.bin", "tokenizer.pkl", "vocab.pkl", "data.pkl", "value_head.pt", "flax_model.msgpack"),
    *("tf_model.h5", "model.ckpt", "spiece.model", "tokenizer.model"),
)
MODULE = "from pathlib import Path\nPath({canary!r}).touch()\n"


def plant(folder: Path, payload: bytes, canary: Path) -> None:
    """Files that other programs would unpickle or import."""
    for name in PLANTED:
        (folder / name).write_bytes(payload)
    for name in (
        "modeling_evil.py",
        "configuration_evil.py",
        "tokenization_evil.py",
        "__init__.py",
        "setup.py",
    ):
        (folder / name).write_text(MODULE.format(canary=str(canary)))


def call_for_code(folder: Path, **changes: str) -> None:
    """The configurations ask for the classes of those files."""
    names = {"AutoConfig": "configuration_evil.C", "AutoModelForCausalLM": "modeling_evil.M"}
    names |= {"AutoModelForSequenceClassification": "modeling_evil.M"}
    tokenizers = {"AutoTokenizer": ["tokenization_evil.T", "tokenization_evil.T"]}
    for name, auto in {"config.json": names, "tokenizer_config.json": tokenizers}.items():
        told = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(told | {"auto_map": auto} | changes))


def test_files_planted_in_a_model_folder_never_run(tmp_path, tiny_folder, payload, canary):
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    plant(folder, payload, canary)
    load_model(folder)
    assert not canary.exists()
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="holds no weights"):
        load_model(folder)
    assert not canary.exists()


def test_a_model_folder_that_asks_for_code_of_its_own_does_not_get_it(tmp_path, tiny_folder, payload, canary):
    """Of a known architecture the library's classes are taken; another one is refused."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    plant(folder, payload, canary)
    call_for_code(folder)
    model, tokenizer = load_model(folder)
    assert all(type(part).__module__.startswith("transformers.") for part in (model, tokenizer))
    assert not canary.exists()
    call_for_code(folder, model_type="evil")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_model(folder)
    assert not canary.exists()


def test_nor_does_a_judge(tmp_path, payload, canary):
    folder, tokenizer = tmp_path / "judge", make_tokenizer()
    shape = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_head=4, n_layer=1, id2label={0: "a", 1: "b"})
    GPT2ForSequenceClassification(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    plant(folder, payload, canary)
    assert len(Classifier(folder, label="b")(["text"])) == 1
    call_for_code(folder, model_type="evil")
    with pytest.raises(ValueError, match="no sequence classifier could be read"):
        Classifier(folder, label="b")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="no sequence classifier could be read"):
        Classifier(folder, label="b")
    assert not canary.exists()


def test_whatever_the_settings_are_called_files_stay_in_the_run_directory(tmp_path, monkeypatch, tiny_folder):
    """A judge, an adapter's and a model's name that lead elsewhere; what is written is under --run."""
    monkeypatch.setattr("cory.training.run.write_report", lambda run: run / "report.html")
    work = tmp_path / "a/b/work"
    work.mkdir(parents=True)
    (tmp_path / "a/data.jsonl").write_text("\n".join(json.dumps({"prompt": f"say {n}"}) for n in range(40)))
    shutil.copytree(tiny_folder, tmp_path / "a/model")
    monkeypatch.chdir(work)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    flags = ["--task", "prompts", "--task.data", "../../data.jsonl", "--policy.model", "../../model"]
    flags += ["--judge", "2*regex:../../../x + regex:'/tmp/y/../z'", "--batch", "4", "--iterations", "1"]
    flags += ["--max-response", "2", "3", "--evaluation.queries", "4", "--policy.device", "cpu"]
    assert main(["train", *flags, "--run", "run"]) == 0
    written = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert written
    assert all(path.is_relative_to(work / "run") for path in written)
    assert {path.name for path in (work / "run/policies").iterdir()} == {"llm_1", "llm_2"}
