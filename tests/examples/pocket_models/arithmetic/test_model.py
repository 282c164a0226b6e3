"""The bundled arithmetic models: folder, shape, answers, tokenizer, presets."""

from dataclasses import replace

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

from cory.config import presets
from cory.evaluation.config import EvaluationConfig
from cory.evaluation.evaluator import evaluate_standalone
from cory.pocket import ARITHMETIC_LLAMA, ARITHMETIC_LM
from cory.training.factory import make_players
from cory.training.trainer import Trainer

pytestmark = pytest.mark.slow

PRESET = presets.get("pocket-arithmetic")


both_models = pytest.mark.parametrize("folder", [ARITHMETIC_LM, ARITHMETIC_LLAMA], ids=["gpt2", "llama"])


@both_models
def test_folder_is_small_and_has_a_card_and_no_pickle(folder):
    files = [path for path in folder.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 6e6
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".md"}
    assert "pass@1" in (folder / "README.md").read_text()


def test_models_have_their_stated_shape_and_a_window_for_word_problems():
    config = AutoModelForCausalLM.from_pretrained(ARITHMETIC_LM).config
    assert (config.n_layer, config.n_embd, config.vocab_size, config.n_positions) == (4, 128, 1024, 512)
    llama = AutoModelForCausalLM.from_pretrained(ARITHMETIC_LLAMA).config
    assert llama.model_type == "llama"
    assert (llama.num_hidden_layers, llama.hidden_size) == (4, 128)
    assert (llama.vocab_size, llama.max_position_embeddings) == (1024, 512)


@both_models
def test_model_loads_plainly_and_answers_in_its_form(folder):
    write = pipeline("text-generation", model=str(folder), device="cpu")
    (output,) = write("Question: 3 + 4\nAnswer: 3 + 4 =", max_new_tokens=8, do_sample=False)
    assert output["generated_text"] == "Question: 3 + 4\nAnswer: 3 + 4 = 7\n#### 7"


@both_models
def test_tokenizer_reads_all_of_printable_ascii_and_id_0_ends_and_pads(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 0, 0)
    printable = "".join(map(chr, range(32, 127))) + "\n"
    assert tokenizer.decode(tokenizer.encode(printable)) == printable


@pytest.mark.parametrize(("model", "share"), [("pocket-arithmetic", 0.38), ("pocket-arithmetic-llama", 0.47)])
def test_arithmetic_model_answers_as_many_held_out_problems_as_its_card_says(model, share):
    config = replace(PRESET, seats=1, policy=replace(PRESET.policy, model=model))
    task, references, _ = make_players(config)
    responses = evaluate_standalone(
        references["llm_1"],
        task,
        EvaluationConfig(queries=64, samples=4),
        max_response=PRESET.max_response,
        measures={},
    )
    assert responses.arrays["task_reward"].mean() == pytest.approx(share, abs=0.1)
    assert responses.arrays["eos_share"].mean() > 0.95


@pytest.mark.parametrize(("name", "seats"), [("pocket-arithmetic", 2), ("pocket-arithmetic-ppo", 1)])
def test_the_presets_play_and_learn(name, seats):
    config = replace(presets.get(name), batch=16)
    metrics = Trainer(config).iterate(0)
    rewards = [value for key, value in metrics.items() if key.endswith("/task_reward")]
    assert len(rewards) == seats
    assert all(0 <= reward <= 1 for reward in rewards)


def test_the_presets_differ_in_their_seats_only():
    single = presets.get("pocket-arithmetic-ppo")
    assert replace(single, seats=2, exchange=PRESET.exchange) == PRESET
