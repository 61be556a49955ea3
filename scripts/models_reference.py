"""The generated page on models: the built-in architectures with the source of their numbers, and the rules of a split.

Pure.
"""

from __future__ import annotations

from rljob_runtime.planning.architectures import BUILT_IN, CONFIGS
from rljob_runtime.planning.shapes import SUPPORTED, Shape
from rljob_runtime.planning.weights import Cut, model_elements
from scripts.reference import HEADER, table

USE = """\
A job states the sizes of its model by fields (`model.layers`, `attentionHeads`, `experts`), by the content of its
config.json (`model.config`), or by the name of an architecture (`model.architecture`). For each size, the field is
used, else `model.config`, else the architecture; two places that state different values are refused. Every check and
the [memory model](memory.md) use these sizes.

On the head of a run, the launcher applies the same rules to the config.json in `model.path` before the model is loaded.
A run that is refused there ends with `ModelMismatch` (exit code 64) and costs a start; `rljob validate` finds the same
without a cluster where the job states its model.
"""
RULES = """\
"refused" means that the named line ends every such run. Sizes of 1 always pass. Key-value heads of models with latent
attention (DeepSeek, Kimi) are not split by vLLM and Megatron. Nothing divides the hidden size itself.
"""
NAMES = """\
An architecture stands for all releases with its sizes, such as Qwen3-8B-Base and Qwen3-8B. They may differ in their
positions, so positions of an architecture never refuse a job. Each row names where its numbers were read; of the
config.json files there are copies in """
OTHERS = """\
Every size of a config.json is used if `model_type` is one of these:
{families}.
Other families are refused only for their heads, layers and positions, and there are warnings about key-value heads and
experts. Memory is not planned for them.
"""
LAYERS, EMBEDDING = "model_executor/layers", "vocab_parallel_embedding.py"
REFUSED, WARNING = "refused", "warning"
ROWS = (
    (
        "rollout.parallelism.tensor",
        "divides the attention heads",
        REFUSED,
        "vllm 0.23.0, config/model.py:1190",
    ),
    (
        "rollout.parallelism.tensor",
        "divides the key-value heads, or is a multiple of them",
        REFUSED,
        f"vllm 0.23.0, {LAYERS}/linear.py:1026; vllm-ascend 0.23.0, ops/linear.py:181",
    ),
    (
        "rollout.parallelism.tensor",
        "divides the inner size of the MLP, if a layer has no experts",
        REFUSED,
        f"vllm 0.23.0, {LAYERS}/linear.py:647; vllm-ascend 0.23.0, ops/linear.py:247",
    ),
    (
        "rollout.parallelism.tensor",
        "divides the vocabulary, padded to a multiple of 64",
        REFUSED,
        f"vllm 0.23.0, {LAYERS}/{EMBEDDING}:296; vllm-ascend 0.23.0, ops/{EMBEDDING}:118",
    ),
    (
        "rollout.parallelism.tensor",
        "divides the inner size of the shared experts",
        WARNING,
        f"vllm 0.23.0, {LAYERS}/linear.py:647, unless they are kept whole (model_executor/models/deepseek_v2.py:221)",
    ),
    ("rollout.parallelism.expert", "1 for a dense model", REFUSED, "vllm 0.23.0, config/model.py:1137"),
    (
        "rollout.parallelism.expert",
        "divides the experts",
        WARNING,
        "vllm-ascend 0.23.0, ops/fused_moe/fused_moe.py:425 rounds down",
    ),
    (
        "rollout.parallelism.expert",
        "if it is 1, tensor × data divides the inner size of an expert",
        REFUSED,
        f"vllm 0.23.0, {LAYERS}/fused_moe/layer.py:263 and config.py:1174",
    ),
    (
        "trainer.parallelism.tensor",
        "divides the attention heads",
        REFUSED,
        "megatron-core 0.16.1, transformer/transformer_config.py:924",
    ),
    (
        "trainer.parallelism.tensor",
        "divides the key-value heads, or is a multiple of them",
        REFUSED,
        "megatron-core 0.16.1, transformer/transformer_config.py:939",
    ),
    (
        "trainer.parallelism.tensor",
        "divides the inner sizes of MLP and shared experts",
        REFUSED,
        "megatron-core 0.16.1, tensor_parallel/layers.py:842 and 1166",
    ),
    (
        "trainer.parallelism.tensor",
        "divides the vocabulary",
        WARNING,
        "megatron-core 0.16.1, tensor_parallel/utils.py:118, unless the bridge pads it",
    ),
    (
        "trainer.parallelism.expert",
        "divides the experts; 1 for a dense model",
        REFUSED,
        "megatron-core 0.16.1, transformer/moe/moe_layer.py:101, transformer/transformer_config.py:1048",
    ),
    (
        "trainer.parallelism.expertTensor",
        "divides the inner size of an expert",
        REFUSED,
        "megatron-core 0.16.1, transformer/moe/experts.py:133",
    ),
    (
        "trainer.parallelism.pipeline",
        "divides the layers, unless overrides lay them out; so do virtual stages",
        REFUSED,
        "megatron-core 0.16.1, transformer/transformer_config.py:1355-1480, transformer/transformer_block.py:156",
    ),
    (
        "trainer.parallelism.sequence",
        "divides the attention heads; divides the key-value heads, or is a multiple of them",
        REFUSED,
        "verl 0.9.1, models/transformers/monkey_patch.py:343 and 346",
    ),
    (
        "override rollout.max_model_len",
        "at most the positions of config.json",
        REFUSED,
        "verl 0.9.1, workers/rollout/vllm_rollout/vllm_async_server.py:1107",
    ),
    (
        "override rollout.max_model_len",
        "at most what vLLM derives from positions and rotary scaling",
        WARNING,
        "vllm 0.23.0, config/model.py:2222, unless VLLM_ALLOW_LONG_MAX_MODEL_LEN is set",
    ),
    (
        "data.maxResponseTokens",
        "with maxPromptTokens at most the positions, else responses are cut",
        WARNING,
        "verl 0.9.1, workers/rollout/vllm_rollout/vllm_async_server.py:593 and 613",
    ),
)


def models_page() -> str:
    """Return the page."""
    columns = ("name", "10⁹ parameters", "layers", "hidden", "heads", "key-value heads", "MLP", "experts")
    parts = [
        HEADER,
        "# Models\n",
        USE,
        "## Rules\n",
        RULES,
        table(("field", "rule", "otherwise", "source"), ROWS),
        "## Built-in architectures\n",
        f"{NAMES}{CONFIGS}.\n",
        table((*columns, "vocabulary", "positions", "source"), [_row(shape) for shape in BUILT_IN.values()]),
        "## Other models\n",
        OTHERS.format(families=", ".join(sorted(SUPPORTED))),
    ]
    return "\n".join(parts)


def _row(shape: Shape) -> tuple[str, ...]:
    moe = shape.experts
    return (
        shape.name,
        f"{model_elements(shape, Cut()).total / 1e9:.2f}",
        str(shape.layers),
        str(shape.hidden),
        str(shape.heads),
        "latent" if shape.latent else str(shape.kv_heads),
        str(shape.width) if shape.has_dense_layers else "",
        f"{moe.count} of {moe.width}, {moe.chosen} per token" if moe else "",
        str(shape.vocabulary),
        str(shape.positions or ""),
        shape.source,
    )
