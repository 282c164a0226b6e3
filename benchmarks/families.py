"""Makes docs/api/families.md: the architectures of transformers that are trained, and why others are refused.

    python -m benchmarks.families

Every family is a tiny model with random weights that goes through one iteration of training. It counts as
trained if the log-probs of the sampler and of the scorer are those of `model(input_ids)` on each row alone.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks import ROOT
from benchmarks.speed.workloads import make_tokenizer
from cory.algorithms import ppo
from cory.batch import Rows
from cory.config.schema import Config, PolicyConfig
from cory.policies.causal_lm import CausalLMPolicy
from cory.policies.scoring import evaluate
from cory.training.trainer import Trainer

PAGE = ROOT / "docs" / "api" / "families.md"
V = 97
SHAPE: dict[str, Any] = {
    "vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64,
    "initializer_range": 0.3, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": 16, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "shared_expert_intermediate_size": 16, "n_group": 1, "topk_group": 1,
}  # fmt: skip
LATENT: dict[str, Any] = {
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "num_key_value_heads": 4,
}  # fmt: skip
MAMBA: dict[str, Any] = {
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 4,
}  # fmt: skip
DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
DECODER: dict[str, Any] = {"is_decoder": True}
SEQ2SEQ: dict[str, Any] = {
    "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64,
    "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 64,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "apertus": {}, "arcee": {}, "bamba": MAMBA, "bart": SEQ2SEQ, "bert": DECODER, "bert-generation": DECODER,
    "big_bird": DECODER | {"attention_type": "original_full"}, "biogpt": {}, "bitnet": {},
    "bloom": {"n_head": 4},
    "camembert": DECODER, "codegen": {"rotary_dim": 4}, "cohere": {"logit_scale": 0.0625},
    "cohere2": {"logit_scale": 0.25, "sliding_window": 8}, "cpmant": {}, "ctrl": {"dff": 64}, "cwm": {},
    "data2vec-text": DECODER, "deepseek_v2": EXPERTS | LATENT, "deepseek_v3": EXPERTS | LATENT,
    "diffllama": {}, "doge": {},
    "dots1": EXPERTS | {"n_shared_experts": 1, "layer_types": ["full_attention"] * 2},
    "electra": DECODER | {"embedding_size": 32}, "ernie": DECODER, "ernie4_5": {}, "ernie4_5_moe": EXPERTS | {
        "moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1},
    "exaone4": {"sliding_window": 8}, "falcon": {}, "falcon_h1": MAMBA | {"mamba_d_ssm": 64},
    "falcon_mamba": {"state_size": 8}, "flex_olmo": EXPERTS, "gemma": {"head_dim": 8},
    "gemma2": {"head_dim": 8, "final_logit_softcapping": 3.0, "sliding_window": 8},
    "gemma3_text": {"head_dim": 8, "sliding_window": 8}, "gemma4_text": {
        "head_dim": 8, "global_head_dim": 8, "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": V},
    "glm": {"head_dim": 8}, "glm4": {"head_dim": 8}, "glm4_moe": EXPERTS | {"head_dim": 8},
    "gpt2": {}, "gpt_bigcode": {},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 8},
    "gpt_neox": {}, "gpt_neox_japanese": {}, "gpt_oss": EXPERTS | {"head_dim": 8, "sliding_window": 8},
    "gptj": {"rotary_dim": 4}, "granite": {"logits_scaling": 8.0},
    "granitemoe": EXPERTS | {"logits_scaling": 4.0}, "granitemoehybrid": MAMBA | {
        "layer_types": ["mamba", "attention"], "shared_intermediate_size": 64, "num_local_experts": 0},
    "granitemoeshared": EXPERTS | {"shared_intermediate_size": 64}, "helium": {"head_dim": 8},
    "hunyuan_v1_dense": {"head_dim": 8}, "hunyuan_v1_moe": {"head_dim": 8, "num_experts": 2, "moe_topk": 1},
    "hyperclovax": {}, "jais2": {}, "jamba": {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 4, "expert_layer_offset": 3,
        "mamba_d_state": 8, "mamba_dt_rank": 4, "use_mamba_kernels": False, "num_experts": 2},
    "jetmoe": EXPERTS | {"kv_channels": 8}, "lfm2": {"layer_types": ["conv", "full_attention"]},
    "llama": {}, "llama4_text": {"head_dim": 8, "num_local_experts": 2, "intermediate_size_mlp": 64},
    "longcat_flash": EXPERTS | LATENT | {
        "ffn_hidden_size": 64, "expert_ffn_hidden_size": 16, "zero_expert_num": 2, "moe_topk": 2,
        "head_dim": 4, "num_layers": 2, "qk_head_dim": 8},
    "mamba": {"state_size": 8}, "mamba2": {
        "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 4},
    "megatron-bert": DECODER, "minicpm3": LATENT | {"head_dim": 4, "dim_model_base": 8},
    "minimax": {
        "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "block_size": 8,
        "layer_types": ["linear_attention", "full_attention"]},
    "minimax_m2": EXPERTS | {"head_dim": 8, "rotary_dim": 8}, "ministral3": {"head_dim": 8},
    "mistral": {"sliding_window": 8}, "mixtral": EXPERTS | {"sliding_window": 8},
    "modernbert-decoder": {"local_attention": 8}, "mpt": {"n_heads": 4, "n_layers": 2, "d_model": 32},
    "nanochat": {}, "nemotron": {}, "nemotron_h": MAMBA | EXPERTS | {
        "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 1, "chunk_size": 4,
        "layers_block_type": ["mamba", "attention"], "head_dim": 8},
    "olmo": {}, "olmo2": {}, "olmo3": {"sliding_window": 8}, "olmo_hybrid": DELTA, "olmoe": EXPERTS,
    "openai-gpt": {}, "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32}, "pegasus": SEQ2SEQ, "persimmon": {},
    "phi": {}, "phi3": {
        "original_max_position_embeddings": 40, "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4,
            "long_factor": [4.0] * 4, "original_max_position_embeddings": 40, "partial_rotary_factor": 1.0}},
    "phimoe": EXPERTS, "qwen2": {"sliding_window": 8, "use_sliding_window": True}, "qwen2_moe": EXPERTS,
    "qwen3": {"head_dim": 8}, "qwen3_5_text": DELTA | {"head_dim": 8}, "qwen3_moe": EXPERTS | {"head_dim": 8},
    "qwen3_next": EXPERTS | DELTA | {"head_dim": 8}, "recurrent_gemma": {
        "lru_width": 32, "head_dim": 8, "attention_window_size": 8,
        "block_types": ["recurrent", "attention"]},
    "rembert": DECODER | {"input_embedding_size": 32, "output_embedding_size": 32}, "roberta": DECODER,
    "roformer": DECODER, "rwkv": {"attention_hidden_size": 32, "context_length": 64}, "seed_oss": {},
    "smollm3": {}, "stablelm": {}, "starcoder2": {"sliding_window": 8}, "trocr": {
        "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64},
    "vaultgemma": {"head_dim": 8, "sliding_window": 8}, "xglm": {
        "d_model": 32, "ffn_dim": 64, "num_layers": 2, "attention_heads": 4},
    "xlm": {}, "xlm-roberta": DECODER, "xlnet": {
        "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64, "max_position_embeddings": None},
    "xlstm": {"num_heads": 4, "chunk_size": 4, "mode": "inference"}, "zamba2": MAMBA | {
        "layers_block_type": ["mamba", "hybrid"], "num_mem_blocks": 1, "adapter_rank": 4, "chunk_size": 4},
}  # fmt: skip
"""What each family's configuration has beside `SHAPE`; windows are shorter than the rows."""


SETTINGS: dict[str, Any] = {
    "task": "benchmarks.speed.workloads:Task",
    "batch": 4,
    "max_response": (3, 6),
    "algorithm_options": ppo.Config(epochs=1),
    "turns": ("llm_1", "llm_1"),
    "policy": PolicyConfig(precision="float32", device="cpu"),
}
"""Four games of two seats, played by one policy; rows are longer than the windows of `FAMILIES`."""


def make_model(family: str) -> Any:
    """A tiny model of a family with random weights."""
    torch.manual_seed(0)
    shape = {name: value for name, value in (SHAPE | FAMILIES[family]).items() if value is not None}
    config = AutoConfig.for_model(family, **shape)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def outcome(family: str) -> str:
    """Train a tiny model for an iteration; `trained` and what is special, or `refused: ` and why.

    RuntimeError if log-probs are not the model's.
    """
    model = make_model(family)
    try:
        policy = CausalLMPolicy("llm_1", model, make_tokenizer(V), precision="float32")
        reference = CausalLMPolicy("reference", make_model(family), make_tokenizer(V), precision="float32")
        policy.set_reference(reference.requires_grad_(False))
        policy.reference.set_reference(reference)
        trainer = Trainer(Config.from_flat(SETTINGS), policies={"llm_1": policy})
    except ValueError as error:
        return f"refused: {reason(error)}"
    trainer.iterate(0)
    for batch in trainer.batches.values():
        sampled, before = batch.behaviour_logprobs_BT, truth(reference, batch)
        after, now = evaluate(policy, batch).logprobs_BT, truth(policy, batch)
        for ours, theirs in ((sampled, before), (batch.old_logprobs_BT, before), (after, now)):
            if not torch.allclose(ours[batch.mask_BT], theirs[batch.mask_BT], atol=2e-4, rtol=1e-4):
                raise RuntimeError(f"{family} is trained with log-probs that are not its own")
    scale, cap = policy.head.transform
    notes = [f"logits times {scale:.4g}"] * (scale != 1.0) + [f"soft cap {cap:.4g}"] * (cap != math.inf)
    notes += ["decoded without a cache"] * (not policy.caches)
    return ", ".join(["trained", *notes])


@torch.no_grad()
def truth(policy: CausalLMPolicy, rows: Rows) -> Tensor:
    """Log-probs [B, T] of the whole model on each row by itself."""
    logprobs_BT = torch.zeros(rows.response_BT.shape)
    for row, (start, length) in enumerate(zip(rows.prompt_length_B, rows.response_length_B, strict=True)):
        response_T = rows.response_BT[row, :length]
        ids_L = torch.cat([rows.prompt_BP[row, :start], response_T])
        logits_TV = policy.model(input_ids=ids_L[None, :-1], use_cache=False).logits[0, start - 1 :]
        logp_TV = logits_TV.log_softmax(-1)
        logprobs_BT[row, :length] = logp_TV.gather(1, response_T[:, None])[:, 0]
    return logprobs_BT


def reason(error: ValueError) -> str:
    """Why a model is refused: what stands in brackets after its class, else the message."""
    text = str(error)
    return text.split("cannot be a policy (", 1)[-1].rsplit("); take a model", 1)[0]


def page(outcomes: Mapping[str, str]) -> str:
    """The page with the families of each outcome."""
    trained = sum(text.startswith("trained") for text in outcomes.values())
    lines = [
        f"| {text} | {', '.join(family for family in outcomes if outcomes[family] == text)} |"
        for text in sorted(set(outcomes.values()), key=lambda text: (text.startswith("refused"), text))
    ]
    table = "\n".join(lines)
    return f"""# Architectures

A policy is checked when it is made: its log-probs must be those of `model(input_ids).logits` on each row
alone, however it is padded, batched and cached. Scales and soft caps of logits are measured and computed. A
model without a cache that decodes as it scores computes every token from its whole prefix, which is slow.
What cannot be right is refused with the model's class, before anything is written. Rotary positions that are
scaled by the longest row of a batch (longrope) end the window where that begins.

Of {len(outcomes)} families, {trained} are trained: a tiny model with random weights, for one iteration of PPO
with two seats (`python -m benchmarks.families`; a slow test compares this page with the truth). Others are
checked in the same way. Names are the `model_type` of a `config.json`.

| a model is | families |
|---|---|
{table}
"""


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    PAGE.write_text(page({family: outcome(family) for family in FAMILIES}), encoding="utf-8")
