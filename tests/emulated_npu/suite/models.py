"""Write models of two layers with random weights, and the data of a job beside each: `FOLDER`."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
    "initializer_range": 0.1,  # Its tokens are certain enough to be the same in bfloat16 and float32.
}
EXPERTS = {
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    # Not half of the hidden size: verl and vllm-ascend each transpose experts by comparing their shape with it
    # (verl 0.9.1, utils/vllm/npu_vllm_patch.py:244).
    "moe_intermediate_size": 48,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
}
LATENT = {
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
}
OWN_CODE = """\
from transformers.configuration_utils import PretrainedConfig


class DeepseekV3Config(PretrainedConfig):
    model_type = "deepseek_v3"

    def __init__(self, rope_theta=10000.0, rope_scaling=None, **rest):
        self.rope_theta = rope_theta
        self.rope_scaling = rope_scaling
        super().__init__(**rest)
"""
"""As the published folder of DeepSeek-V3 has it. mbridge reads rope_theta, which transformers' own class has not."""


def inputs() -> Any:
    """Return the module of the seams' tests that writes tokenizer and data."""
    path = Path(os.environ["RLJOB_UPSTREAM"], "real_training.py")
    spec = importlib.util.spec_from_file_location("real_training", path)
    if spec is None or spec.loader is None:
        raise AssertionError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def add_own_code(folder: Path) -> None:
    """Let a folder have the code of its configuration."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"rope_theta": 10000.0, "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}}
    del config["rope_parameters"]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "configuration_deepseek.py").write_text(OWN_CODE)


def main() -> None:
    """Write all."""
    import torch
    from transformers import AutoModelForCausalLM, DeepseekV3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig

    torch.manual_seed(0)
    models = {
        "dense": Qwen2Config(**SIZES),
        "experts": Qwen3MoeConfig(**SIZES, **EXPERTS),
        "qwen3": Qwen3Config(**SIZES, head_dim=16),
        "deepseek": DeepseekV3Config(**SIZES | LATENT),
    }
    for name, config in models.items():
        folder = Path(sys.argv[1], name)
        sharded = {"max_shard_size": "64KB"} if name == "deepseek" else {}  # mbridge needs an index there.
        AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder / "model", **sharded)
        inputs().write_tokenizer(folder / "model")
        inputs().write_data(folder)
    add_own_code(Path(sys.argv[1], "deepseek/model"))


if __name__ == "__main__":
    main()
