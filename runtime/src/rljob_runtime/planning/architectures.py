"""Sizes of well-known models, by the name used in `model.architecture`: those of recipes, examples and verl's scripts.

Each row cites where its numbers were read: the model's config.json, of which ai-dynamo/aiconfigurator keeps copies
(`CONFIGS`), or the model's arguments for Megatron in THUDM/slime (`SLIME`). An architecture stands for a family of
weights, such as a base model and its later releases. They share every size but the number of positions, which is
therefore only a default.
"""

from __future__ import annotations

from rljob_runtime.planning.shapes import Experts, Latent, Shape

CONFIGS = "ai-dynamo/aiconfigurator 095f58a5, aic-core/src/aiconfigurator_core/model_configs"
"""Repository, commit and folder with copies of config.json."""
SLIME = "THUDM/slime 624b824a, scripts/models"
"""Repository, commit and folder with arguments for Megatron."""
DEONTIC = "Retruth/deontic, nlp_models/qwen2/README.md"
"""Quotes the config.json of Qwen2-7B-Instruct."""

QWEN_VOCABULARY = 151936
QWEN_LARGE_VOCABULARY = 152064
LLAMA_VOCABULARY = 128256
KIMI_VOCABULARY = 163840


def _config(path: str) -> str:
    return f"https://huggingface.co/{path}/blob/main/config.json"


def _qwen2(name: str, source: str, sizes: tuple[int, int, int, int, int], *, tied: bool) -> Shape:
    """Return a model of Qwen2 or Qwen2.5 by layers, hidden size, heads, key-value heads and width."""
    layers, hidden, heads, kv_heads, width = sizes
    return Shape(
        name=name,
        source=source,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head=hidden // heads,
        width=width,
        vocabulary=QWEN_VOCABULARY if tied else QWEN_LARGE_VOCABULARY,
        tied=tied,
        qkv_bias=True,
    )


def _qwen3(
    name: str,
    source: str,
    sizes: tuple[int, int, int, int, int],
    *,
    tied: bool = False,
    experts: tuple[int, int, int] | None = None,
    positions: int | None = 40960,
) -> Shape:
    """Return a model of Qwen3 by layers, hidden size, heads, key-value heads and width.

    `experts` are their number, those per token, and the width of one.
    """
    layers, hidden, heads, kv_heads, width = sizes
    return Shape(
        name=name,
        source=source,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head=128,
        width=width,
        vocabulary=QWEN_VOCABULARY,
        tied=tied,
        head_norm=True,
        experts=Experts(*experts, 0, shared_gate=False, first_layer=0, every=1) if experts else None,
        positions=positions,
    )


def _llama(name: str, source: str, sizes: tuple[int, int, int, int, int], *, tied: bool = False) -> Shape:
    """Return a model of Llama 3 by layers, hidden size, heads, key-value heads and width."""
    layers, hidden, heads, kv_heads, width = sizes
    return Shape(
        name=name,
        source=source,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head=128,
        width=width,
        vocabulary=LLAMA_VOCABULARY,
        tied=tied,
        positions=131072,
    )


def _latent(
    name: str,
    source: str,
    sizes: tuple[int, int, int, int],
    experts: Experts,
    *,
    vocabulary: int = KIMI_VOCABULARY,
    query_rank: int | None = 1536,
    positions: int | None,
) -> Shape:
    """Return a model with DeepSeek's attention by layers, hidden size, heads and width."""
    layers, hidden, heads, width = sizes
    return Shape(
        name=name,
        source=source,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head=128,
        width=width,
        vocabulary=vocabulary,
        tied=False,
        latent=Latent(query_rank, 512, plain_head=128, rotary_head=64, value_head=128),
        experts=experts,
        positions=positions,
    )


# The layer for multi-token prediction is left out, because verl does not train it.
_DEEPSEEK = (61, 7168, 128, 18432)
_DEEPSEEK_EXPERTS = Experts(256, 8, 2048, 2048, shared_gate=False, first_layer=3, every=1)
_KIMI_EXPERTS = Experts(384, 8, 2048, 2048, shared_gate=False, first_layer=1, every=1)
_MOONLIGHT_EXPERTS = Experts(64, 6, 1408, 2 * 1408, shared_gate=False, first_layer=1, every=1)

MODELS = (
    _qwen2("Qwen2-7B", DEONTIC, (28, 3584, 28, 4, 18944), tied=False),
    _qwen2("Qwen2.5-0.5B", _config("Qwen/Qwen2.5-0.5B"), (24, 896, 14, 2, 4864), tied=True),
    _qwen2("Qwen2.5-1.5B", f"{SLIME}/qwen2.5-1.5B.sh", (28, 1536, 12, 2, 8960), tied=True),
    _qwen2("Qwen2.5-3B", f"{SLIME}/qwen2.5-3B.sh", (36, 2048, 16, 2, 11008), tied=True),
    _qwen2("Qwen2.5-7B", f"{SLIME}/qwen2.5-7B.sh", (28, 3584, 28, 4, 18944), tied=False),
    _qwen2("Qwen2.5-32B", f"{SLIME}/qwen2.5-32B.sh", (64, 5120, 40, 8, 27648), tied=False),
    _qwen3("Qwen3-0.6B", _config("Qwen/Qwen3-0.6B"), (28, 1024, 16, 8, 3072), tied=True),
    _qwen3("Qwen3-1.7B", _config("Qwen/Qwen3-1.7B"), (28, 2048, 16, 8, 6144), tied=True),
    _qwen3("Qwen3-4B", f"{SLIME}/qwen3-4B.sh", (36, 2560, 32, 8, 9728), tied=True, positions=None),
    _qwen3("Qwen3-8B", _config("Qwen/Qwen3-8B"), (36, 4096, 32, 8, 12288)),
    _qwen3("Qwen3-14B", f"{SLIME}/qwen3-14B.sh", (40, 5120, 40, 8, 17408), positions=None),
    _qwen3("Qwen3-32B", _config("Qwen/Qwen3-32B"), (64, 5120, 64, 8, 25600)),
    _qwen3("Qwen3-30B-A3B", _config("Qwen/Qwen3-30B-A3B"), (48, 2048, 32, 4, 6144), experts=(128, 8, 768)),
    _qwen3("Qwen3-235B-A22B", _config("Qwen/Qwen3-235B-A22B"), (94, 4096, 64, 4, 12288), experts=(128, 8, 1536)),
    _qwen3(
        "Qwen3-Coder-480B-A35B",
        _config("Qwen/Qwen3-Coder-480B-A35B-Instruct"),
        (62, 6144, 96, 8, 8192),
        experts=(160, 8, 2560),
        positions=262144,
    ),
    _llama("Llama-3.1-8B", _config("meta-llama/Llama-3.1-8B"), (32, 4096, 32, 8, 14336)),
    _llama("Llama-3.1-70B", _config("meta-llama/Llama-3.1-70B"), (80, 8192, 64, 8, 28672)),
    _llama("Llama-3.1-405B", _config("meta-llama/Llama-3.1-405B"), (126, 16384, 128, 8, 53248)),
    _llama("Llama-3.2-3B", f"{SLIME}/llama3.2-3B-Instruct.sh", (28, 3072, 24, 8, 8192), tied=True),
    *(
        _latent(
            name,
            _config(f"deepseek-ai/{name}"),
            _DEEPSEEK,
            _DEEPSEEK_EXPERTS,
            vocabulary=129280,
            positions=163840,
        )
        for name in ("DeepSeek-V3", "DeepSeek-R1")
    ),
    _latent("Kimi-K2", _config("moonshotai/Kimi-K2-Instruct"), (61, 7168, 64, 18432), _KIMI_EXPERTS, positions=131072),
    _latent(
        "Moonlight-16B-A3B",
        f"{SLIME}/moonlight.sh",
        (27, 2048, 16, 11264),
        _MOONLIGHT_EXPERTS,
        query_rank=None,
        positions=None,
    ),
)
BUILT_IN = {shape.name: shape for shape in MODELS}
"""Every model by its name."""
