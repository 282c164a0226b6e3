"""Compiled blocks: which they are, when a run has them, and that they compute what the model computes."""

import pytest
import torch
from torch._inductor.utils import fresh_cache
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaPreTrainedModel

from cory.cli.main import main
from cory.config.schema import Config, PolicyConfig
from cory.policies import causal_lm, compiled_blocks
from cory.policies.base import Policy
from cory.policies.compiled_blocks import missing, repeated_blocks
from cory.policies.scoring import evaluate
from cory.training.factory import Players, resolved
from tests.helpers.batches import B, make_batch, make_rows
from tests.helpers.learners import advantage_of, gradients_used, make_learner
from tests.helpers.models import make_model, make_table_policy, make_team, pair, save_backbone, stir
from tests.helpers.runs import same, traces, without_report

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_repeated_blocks_of_a_model_are_its_layers(kind):
    model = make_model(kind, 50)
    layers = model.transformer.h if kind == "gpt2" else model.model.layers
    assert repeated_blocks(model) == list(layers)


def test_a_block_within_a_block_is_not_compiled_by_itself():
    """transformers marks both the blocks of a Mamba and the mixers inside them."""
    shape = AutoConfig.for_model("mamba", vocab_size=50, hidden_size=16, num_hidden_layers=2, state_size=4)
    model = AutoModelForCausalLM.from_config(shape)
    assert repeated_blocks(model) == list(model.backbone.layers)


def test_a_model_that_marks_no_blocks_is_refused():
    policy = pair("llama")
    policy.model._no_split_modules = None
    with pytest.raises(ValueError, match="LlamaForCausalLM marks no repeated blocks"):
        policy.compile_blocks()


def decided(monkeypatch, kind: str = "llama", *, large: int = 1, lacks: str | None = None, **settings) -> str:
    """What `policy.compile` becomes where models of `large` weights or more are worth compiling."""
    monkeypatch.setattr(compiled_blocks, "LARGE", large)
    monkeypatch.setattr(compiled_blocks, "missing", lambda device: lacks)
    policy = make_table_policy() if kind == "table" else pair(kind)
    shard = settings.pop("shard", False)
    if "gradient_checkpointing" in settings:
        policy.gradient_checkpointing = True
    players = Players(None, {"llm_1": policy.reference}, {"llm_1": policy})
    config = Config(shard=shard, policy=PolicyConfig(kind="causal_lm", **settings))
    return resolved(config, players).policy.compile


def test_auto_compiles_large_language_models_where_a_compiler_is(monkeypatch):
    size = pair("llama").model.num_parameters()
    assert decided(monkeypatch, large=size) == "yes"
    assert decided(monkeypatch, large=size + 1) == "no"
    assert decided(monkeypatch, lacks="a C++ compiler (g++)") == "no"
    assert decided(monkeypatch, "table") == "no"
    assert decided(monkeypatch, gradient_checkpointing=True) == "no"
    assert decided(monkeypatch, shard=True) == "no"
    assert decided(monkeypatch, compile="no") == "no"
    assert decided(monkeypatch, compile="yes", large=size + 1) == "yes"


def test_auto_leaves_a_model_that_marks_no_blocks_as_it_is(monkeypatch):
    monkeypatch.setattr(LlamaPreTrainedModel, "_no_split_modules", None)
    assert decided(monkeypatch) == "no"


def test_yes_is_refused_with_what_stands_against_it(monkeypatch):
    monkeypatch.setattr(causal_lm, "missing", lambda device: "a C++ compiler (g++)")
    with pytest.raises(ValueError, match=r"policy.compile yes needs a C\+\+ compiler \(g\+\+\)"):
        pair("llama").compile_blocks()
    policy = pair("llama")
    policy.gradient_checkpointing = True
    with pytest.raises(ValueError, match=r"does not go with policy.gradient_checkpointing"):
        policy.compile_blocks()
    table = make_table_policy()
    with pytest.raises(ValueError, match=r"policy.compile yes is for language models, and policy 'llm_1'"):
        table.compile_blocks()
    with pytest.raises(ValueError, match=r"--shard does not go with policy.compile yes"):
        Config(shard=True, policy=PolicyConfig(compile="yes"))
    with pytest.raises(ValueError, match="there are auto, yes, no"):
        PolicyConfig(compile="always")


def test_a_compiler_is_looked_for_where_torch_looks(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert missing(CPU) == "a C++ compiler (no-such-compiler)"
    monkeypatch.setenv("CXX", "sh")
    monkeypatch.setattr(compiled_blocks.sysconfig, "get_path", lambda name: str(tmp_path))
    assert "Python.h" in str(missing(CPU))
    (tmp_path / "Python.h").touch()
    assert missing(CPU) is None
    monkeypatch.setattr(compiled_blocks, "find_spec", lambda name: None)
    assert missing(torch.device("cuda")) == "the package triton"


@pytest.mark.slow
def test_a_model_that_the_compiler_fails_on_is_refused_in_one_sentence(monkeypatch):
    policy = pair("llama")
    policy.compile_blocks()

    def fails(**inputs):
        raise torch._dynamo.exc.BackendCompilerFailed(None, RuntimeError("no room"), None)

    monkeypatch.setattr(policy, "_pass", fails)
    with pytest.raises(ValueError, match=r"cannot compile this model here .* set policy.compile to no"):
        policy.trunk(input_ids=torch.ones(2, 3, dtype=torch.long), use_cache=False)


@pytest.fixture
def recompiled():
    """Dynamo as in a fresh process."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def learned(policy: Policy) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What scoring and one learning pass of a policy compute: statistics, and gradients."""
    batch, learner = make_batch(policy), make_learner(policy)
    used = gradients_used(learner)
    learner.update(batch, advantage_of(learner, batch), [torch.arange(B)])
    statistics = [batch.old_logprobs_BT, batch.ref_logprobs_BT, batch.exact_kl_BT, batch.values_BT]
    return statistics, list(used[0].values())


def assert_alike(policy: Policy, eager: Policy) -> None:
    for got, want in zip(learned(policy), learned(eager), strict=True):
        assert want
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_compiled_blocks_compute_what_the_layers_compute_and_are_compiled_once(kind, recompiled):
    """For any batch, length and policy: with and without gradient, and for frozen weights."""
    policy, eager, second = pair(kind), pair(kind), pair(kind)
    for compiled in (policy, policy.reference, second, second.reference):
        compiled.compile_blocks()
    assert_alike(policy, eager)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert_alike(second, pair(kind))
        rows, _ = make_rows(second, key=1)
        for few in rows.split(2):
            evaluate(second, few)


@pytest.mark.long
def test_the_policies_of_a_lora_team_keep_a_version_each(tmp_path, recompiled):
    folder = save_backbone("llama", tmp_path / "model")
    team, eager = make_team(folder), make_team(folder)
    for policy in (*team.policies.values(), team.reference):
        policy.compile_blocks()
    for name, policy in team.policies.items():
        stir(policy)
        stir(eager.policies[name])
        assert_alike(policy, eager.policies[name])
    with torch.compiler.set_stance("fail_on_recompile"):
        for policy in team.policies.values():
            learned(policy)


@pytest.mark.long
def test_a_run_with_compiled_blocks_resumes_bit_for_bit_where_nothing_was_compiled_before(
    tmp_path, monkeypatch, recompiled
):
    """The second half begins with a batch of other lengths and a compiler that remembers nothing."""
    without_report(monkeypatch)
    model = save_backbone("llama", tmp_path / "model")
    flags = [
        *("--policy.model", str(model), "--policy.compile", "yes", "--task", "echo", "--batch", "4"),
        *("--max-response", "1", "5", "--checkpoint-every", "1", "--evaluation.queries", "4"),
        *("--threads", "1"),
    ]

    def go(run, iterations: int, *more: str) -> None:
        torch._dynamo.reset()
        with fresh_cache():
            assert main(["train", *flags, "--iterations", str(iterations), "--run", str(run), *more]) == 0

    go(tmp_path / "whole", 2)
    go(tmp_path / "halves", 1)
    go(tmp_path / "halves", 2, "--resume", "must")
    assert same(traces(tmp_path / "whole", 2), traces(tmp_path / "halves", 2))
    assert "policy.compile: 'yes'" in (tmp_path / "whole" / "config.yaml").read_text()
