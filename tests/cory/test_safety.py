"""Checkpoints, model folders and settings from others are data, never code.

That model text is escaped in reports is tested in `report/test_page.py`.
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
from cory.evaluation.config import EvaluationConfig
from cory.judges.classifier import Classifier
from cory.policies.loading import load_model
from cory.training import checkpoint
from cory.training.trainer import Trainer
from tests.helpers.models import make_tokenizer
from tests.helpers.runs import without_report

PACKAGES = [Path(package.__file__ or "").parent for package in (cory, cory_env)]
SOURCES = sorted(path for folder in PACKAGES for path in folder.rglob("*.py"))
READERS_OF_CODE = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code", "runpy"}
CALLS = {
    *("torch.load", "np.load", "numpy.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "os.system"),
    *("eval", "exec", "compile", "__import__", "os.popen"),
}
PIPE = {"cory/judges/supervisor.py": {"dumps"}, "cory/judges/worker.py": {"loads"}}
"""Pickled jobs go from the run to worker processes it started itself; replies are not pickled."""


def name_of(path: Path) -> str:
    """The file as it is named in the wheel: cory/..., cory_env/..."""
    folder = next(folder for folder in PACKAGES if path.is_relative_to(folder))
    return path.relative_to(folder.parent).as_posix()


def test_the_files_of_both_packages_are_covered():
    names = {name_of(path) for path in SOURCES}
    assert {"cory/training/checkpoint.py", "cory_env/data/tables.py", *PIPE} <= names


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_source_file_can_turn_a_file_into_code(path):
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
    """Every call of an Auto class."""
    seen = 0
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("Auto"):
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert given["trust_remote_code"] == "False", f"{path} line {node.lineno}"
                if "Model" in ast.unparse(node.func):
                    assert given["use_safetensors"] == "True", f"{path} line {node.lineno}"
                seen += 1
    assert seen >= 5


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
    """A pickle that creates the canary when it is loaded, which is checked here."""
    content = pickle.dumps(Payload(canary))
    pickle.loads(content)
    assert canary.exists()
    canary.unlink()
    return content


def trainer_of(kind: str, folder: Path) -> Trainer:
    policy = PolicyConfig(kind=kind, model=str(folder), device="cpu", precision="float32")
    return Trainer(
        Config.from_flat(
            {
                "task": "echo",
                "policy": policy,
                "batch": 4,
                "evaluation": EvaluationConfig(queries=4),
            }
        )
    )


@pytest.mark.parametrize("kind", ["table", "causal_lm", "lora_team"])
def test_a_pickle_in_place_of_any_file_of_a_checkpoint_never_runs(
    kind, tmp_path, tiny_folder, payload, canary
):
    """The manifest agrees with it."""
    trainer = trainer_of(kind, tiny_folder)
    folder = trainer.save(tmp_path, 0)
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


def request_code(folder: Path, **changes: str) -> None:
    """Make the configurations name the classes of those files."""
    names = {"AutoConfig": "configuration_evil.C", "AutoModelForCausalLM": "modeling_evil.M"}
    names |= {"AutoModelForSequenceClassification": "modeling_evil.M"}
    tokenizers = {"AutoTokenizer": ["tokenization_evil.T", "tokenization_evil.T"]}
    for name, auto in {"config.json": names, "tokenizer_config.json": tokenizers}.items():
        config = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(config | {"auto_map": auto} | changes))


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


def test_a_model_folder_that_requests_code_of_its_own_does_not_get_it(tmp_path, tiny_folder, payload, canary):
    """A known architecture is loaded by the library's classes; an unknown one is refused."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    plant(folder, payload, canary)
    request_code(folder)
    model, tokenizer = load_model(folder)
    assert all(type(part).__module__.startswith("transformers.") for part in (model, tokenizer))
    assert not canary.exists()
    request_code(folder, model_type="evil")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_model(folder)
    assert not canary.exists()


def test_a_judge_folder_that_requests_code_of_its_own_does_not_get_it(tmp_path, payload, canary):
    folder, tokenizer = tmp_path / "judge", make_tokenizer()
    shape = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_head=4, n_layer=1, id2label={0: "a", 1: "b"})
    GPT2ForSequenceClassification(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    plant(folder, payload, canary)
    assert len(Classifier(folder, label="b")(["text"])) == 1
    request_code(folder, model_type="evil")
    with pytest.raises(ValueError, match="no sequence classifier could be read"):
        Classifier(folder, label="b")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="no sequence classifier could be read"):
        Classifier(folder, label="b")
    assert not canary.exists()


def test_whatever_names_the_settings_hold_files_stay_in_the_run_directory(tmp_path, monkeypatch, tiny_folder):
    """Names of a judge and of a model lead out of the directory; everything written is under --run."""
    without_report(monkeypatch)
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
