"""A small random model of each architecture: tiny widths, heads of 64 or 128, each kind of layer once or more."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

VOCABULARY = 61
LAYERS = ["linear_attention", "full_attention"]
EVERYWHERE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
ATTENTION = {"num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 32}
DELTA = {
    "layer_types": LAYERS,
    "head_dim": 16,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
}
EXPERTS = {
    "num_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
INDEXER = {
    "hc_count": 2,
    "hc_lowrank": 8,
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 64,
    "indexer_compress_ratio": 4,
}
LATENT = {"kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
KDA = {
    "layer_types": LAYERS,
    "mlp_layer_types": ["dense", "sparse"],
    "linear_num_heads": 2,
    "linear_head_dim": 64,
    "moe_intermediate_size": 16,
    "num_local_experts": 2,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
}
MAMBA = {
    "mamba_n_heads": 1,
    "mamba_d_head": 64,
    "mamba_n_groups": 1,
    "mamba_d_state": 128,
    "mamba_chunk_size": 32,
}
VISION = {"depth": 1, "hidden_size": 16, "num_heads": 1, "out_hidden_size": 32, "intermediate_size": 16}
OPTIONS: dict[str, dict[str, Any]] = {
    "qwen3_next": {**ATTENTION, **DELTA, **EXPERTS},
    "qwen3_5_text": {**ATTENTION, **DELTA},
    "qwen3_5_moe_text": {**ATTENTION, **DELTA, **EXPERTS},
    "qwen4_exp_text": {**ATTENTION, **DELTA, **EXPERTS, **INDEXER},
    "olmo_hybrid": {**ATTENTION, **DELTA, "head_dim": 16},
    "kimi_linear": {**ATTENTION, **KDA, **LATENT},
    "bailing_hybrid": {**ATTENTION, **KDA, **LATENT, "head_dim": 64, "num_mtp_layers": 0},
    "glm5_next": {
        **ATTENTION,
        **KDA,
        **LATENT,
        "qk_rope_head_dim": 0,
        "q_lora_rank": 16,
        "n_routed_experts": 2,
        "hc_mult": 2,
        "index_topk": 32,
        "index_head_dim": 16,
        "index_n_heads": 2,
    },
    "mamba2": {"num_heads": 2, "head_dim": 64, "hidden_size": 64, "state_size": 128, "n_groups": 1, "chunk_size": 32},
    "bamba": {**ATTENTION, **MAMBA, "attn_layer_indices": [1]},
    "falcon_h1": {**ATTENTION, **MAMBA, "mamba_d_ssm": 64},
    "granitemoehybrid": {**ATTENTION, **MAMBA, "layer_types": LAYERS},
    "nemotron_h": {
        **ATTENTION,
        "layers_block_type": LAYERS,
        "head_dim": 16,
        "mamba_num_heads": 2,
        "mamba_head_dim": 64,
        "n_groups": 2,
        "chunk_size": 32,
    },
    "zamba2": {
        **ATTENTION,
        "layers_block_type": ["linear_attention", "hybrid"],
        "n_mamba_heads": 1,
        "mamba_d_state": 64,
        "chunk_size": 32,
    },
    "minimax": {**ATTENTION, "layer_types": LAYERS, "head_dim": 64, "num_local_experts": 2, "block_size": 16},
}


def small_model(architecture: str, **changes: Any) -> Any:
    """The same weights at each call."""
    torch.manual_seed(0)
    options = {**EVERYWHERE, **OPTIONS[architecture], **changes}
    if architecture != "glm5_next":
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **options)).eval()
    config = AutoConfig.for_model(architecture, text_config=options, vision_config=VISION)
    return AutoModelForImageTextToText.from_config(config).eval()  # Transformers has no text model with a head here
