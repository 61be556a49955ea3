"""The generated page on memory: formulas with their sources, known models, and the memory of the shipped recipes.

Pure.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.model_shape import known_shape
from rljob.core.spec.recipes import Recipes, recipe_id
from rljob.core.validation.validate import validate
from rljob.launchers import LAUNCHER
from rljob.launchers.verl.memory import memory_plan
from rljob.render import accelerators
from rljob_runtime.planning.architectures import BUILT_IN
from rljob_runtime.planning.weights import Cut, kv_bytes_per_token, model_elements
from scripts.reference import HEADER, table

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "charts/rljob-operator/recipes"
EXAMPLES = ("qwen3-235b", "deepseek-v3", "mindspeed")
GIB = 1 << 30

USE = """\
`rljob plan memory -f job.yaml [-f recipe.yaml …]` estimates how much of a die's memory (HBM) each phase of a step
needs, before a cluster exists: as a table, or as data with `-o json`; exit code 1 if something does not fit. The
model's sizes come from `model.architecture` (a name of the table below), from `model.config` (the content of a Hugging
Face config.json), or from `--model-config config.json`.

The operator and `rljob validate` use the same arithmetic if architecture or config is set. A job that needs more than
the memory of a die is rejected; from 90 % on there is a warning (95 % for the generation, whose cache fills what
`memoryFraction` allows). `model.memoryCheck: Warn` turns the rejection into a warning. Without architecture and config
nothing is checked.

    spec:
      model:
        path: /shared/models/my-model
        config: |                                             # config.json is YAML too
          {"model_type": "qwen3", "hidden_size": 5120, …}
        memoryCheck: Warn

Overrides are considered with their effect: offload, `swap_optimizer`, recomputation, `moe_zero_memory`, uneven stages,
the bucket of the weight transfer, and `HCCL_BUFFSIZE` in the environment of the workers. A variable is taken from the
place that applies: Ray's `runtime_env` before `podSpecPatch`, the template's `env`, and the class.
"""
FORMULAS = """\
*h* hidden size, *L* layers, *H* attention heads, *K* key-value heads, *d* elements of a head, *I* inner size of an MLP,
*V* vocabulary, *E* experts, *k* experts per token; *t*, *p*, *c*, *e* the tensor, pipeline, context and expert sizes,
*N* devices. bf16 has 2 bytes, fp32 has 4. Rows with `~` are estimates: they were compared with published figures if
there are any, and have not been measured on hardware; `rljob conformance`: `trains` would confirm only that a small
model fits.
"""
ROWS = (
    (
        "attention weights",
        "h·d·(2·H + 2·K)/t; K/t is at least one head; MLA: the down-projections whole, the rest /t",
        "vLLM, QKVParallelLinear; arXiv 2405.04434, section 2.1",
    ),
    ("MLP weights", "3·h·I/t", "transformers, modeling_qwen3.py"),
    (
        "experts per die",
        "3·h·I·E/e, each split by expertTensor; in vLLM whole with expert parallelism, else /t",
        "Megatron-Core, parallel_state.py, core_r0.16.0; vllm_ascend/ops/fused_moe, v0.23.0",
    ),
    ("embedding, output", "V·h/t each, once if they are tied", "transformers; vLLM, VocabParallelEmbedding"),
    ("rollout weights", "2 bytes × all layers; with MLA the up-projections twice", "vllm_ascend/attention/mla_v1.py"),
    ("trainer weights, Megatron", "2 bytes × the layers of the stage", "verl 0.9.1, megatron.yaml, dtype"),
    ("trainer weights, FSDP2", "4 bytes (model_dtype bf16: 2) × all / N", "verl 0.9.1, fsdp.yaml, model_dtype"),
    (
        "LoRA adapter",
        "rank × (inputs + outputs) of each linear layer; only it has gradients and a state; the reference is the actor",
        "peft, LoraConfig; verl 0.9.1, trainer_base.py:237",
    ),
    (
        "gathered layers, FSDP2",
        "2 bytes × (two layers + embedding + output)",
        "torch.distributed.fsdp.fully_shard; verl 0.9.1, param_dtype",
    ),
    ("gradients", "4 bytes per weight on the die", "verl 0.9.1, utils/megatron_utils.py, grad_reduce_in_fp32"),
    (
        "optimizer state",
        "12 bytes per weight (FSDP2: 8), over N/(t·p) ranks; experts: N/(e·expertTensor·p); none with swap_optimizer",
        "Megatron-Core, distrib_optimizer.py; MindSpeed, swap_optimizer_feature.py, core_r0.16.0",
    ),
    ("KV cache per token", "2·L·K/t·d × 2 bytes; MLA: L·(kv_lora_rank + qk_rope_head_dim) × 2", "as the weights"),
    (
        "KV cache",
        "memoryFraction × what torch sees, minus rollout weights, working memory and communicators",
        "vLLM, Worker.determine_available_memory",
    ),
    ("~ activations of experts", "k·(2·h + 3·I) instead of 3·I, of which zero memory keeps 0.3 or 0.1", "MindSpeed"),
    (
        "~ activations",
        "tokens × layers × micro batches in flight × (4·h + (2·H + 2·K)·d + 3·I) × 2 bytes / t; a recomputed layer: h",
        "arXiv 2205.05198, section 4; Megatron-Core, schedules.py (1F1B)",
    ),
    ("~ logits", "tokens × V/t × 8 bytes on the last stage (6 without gradients)", "verl 0.9.1, torch_functional.py"),
    (
        "~ rollout's working memory",
        "maxBatchedTokens × (3·h + the larger of attention and experts, /t) × 2 bytes + maxSequences × V × 6",
        "vLLM's profile run has a full batch of tokens",
    ),
    (
        "~ communicators",
        "2 × HCCL_BUFFSIZE (200 MB) for each group of more than one rank",
        "CANN 9.0, environment variables, HCCL_BUFFSIZE",
    ),
    ("bucket, largest tensor", "2048 MiB; V·h or an expert's matrix, gathered", "verl 0.9.1, rollout.yaml"),
    (
        "buckets between dies",
        "2 on each die of both roles, and one in which the receiver passes weights on to vLLM",
        "verl 0.9.1, hccl_checkpoint_engine.py, bucketed_weight_transfer.py",
    ),
    ("driver and firmware", "64 GiB minus what torch_npu sees: 61.27 GiB on A3, 60.97 on A2", "rljob.render.hbm"),
)
PHASES = """\
| phase | on the die |
|---|---|
| generate | vLLM's share; the parts of trainer, reference and critic that are not offloaded |
| log probabilities | weights of actor and reference (in turn if both are offloaded), a layer's activations, logits |
| update | weights, gradients, optimizer state, activations, logits; vLLM sleeps |
| weight transfer | weights of trainer and rollout at the same time, the bucket, the largest tensor |

With `trainer.mode: SeparateAsync` each phase has dies of one role:

| phase | on the die |
|---|---|
| generate | of the rollout: vLLM's share only |
| log probabilities, update | of the trainer: as above |
| weight transfer | of the trainer: what it keeps, two buckets, the largest tensor, a communicator |
| weight reception | of the rollout: vLLM's weights, three buckets, a communicator; the cache if vLLM may not sleep |

The fullest die decides: the first pipeline stage holds most micro batches, the last one has the logits. Experts are
assumed to be equally loaded. Fragmentation, captured graphs, vision towers and MTP layers are not counted.
"""
CHECKED = """\
Published figures that the formulas reproduce (runtime/tests/test_memory.py, each within 2 %): the numbers of parameters
on the models' cards; Qwen3-235B with tensor 4 and expert 128: 7.09 GiB of weights per die, 188 KiB of cache per token
(47 on a die), 1.47 GiB for 32,768 tokens, 900,608 tokens of cache per data-parallel rank; DeepSeek-V3: 68.6 KiB per
token; a training stage of 24 layers with tensor 4, expert 32: 4.17 GiB. The published slides write GB for GiB.
"""


def memory_page() -> str:
    """Return the page."""
    models = [
        (
            shape.name,
            f"{model_elements(shape, Cut()).total / 1e9:.2f}",
            str(shape.layers),
            f"{kv_bytes_per_token(shape, 1) / 1024:.1f}",
            shape.source,
        )
        for shape in BUILT_IN.values()
    ]
    parts = [
        HEADER,
        "# Memory of a die\n",
        USE,
        "## Known models\n",
        table(("name", "10⁹ parameters", "layers", "KiB of cache per token", "source"), models),
        "## Memory of the shipped recipes\n",
        "GiB on the fullest die, of 64.\n",
        table(
            ("job", "generate", "log probabilities", "update", "weight transfer", "concurrent sequences"), _examples()
        ),
        "## Formulas\n",
        FORMULAS,
        table(("what", "how much", "source"), ROWS),
        "## Phases\n",
        PHASES,
        "## Compared with\n",
        CHECKED,
    ]
    return "\n".join(parts)


def _examples() -> list[tuple[str, ...]]:
    rows = []
    for name in EXAMPLES:
        spec = _spec(ROOT / f"examples/{name}.yaml")
        shape = known_shape(spec)
        plan = memory_plan(spec, shape) if shape else None
        if plan is None:
            raise SystemExit(f"examples/{name}.yaml has no known model on an Atlas class; remove it from EXAMPLES")
        sizes = [f"{phase.bytes / GIB:.1f}" for phase in plan.phases]
        rows.append((f"examples/{name}.yaml", *sizes, f"{plan.full_sequences:.0f} of {plan.sequence_tokens:,} tokens"))
    return rows


def _spec(path: Path) -> RLJobSpec:
    documents = [yaml.safe_load(file.read_text()) for file in sorted(RECIPES.glob("*.yaml"))]
    recipes: Recipes = {recipe_id(document): document for document in documents}
    job = yaml.safe_load(path.read_text())
    name, rows = job["metadata"]["name"], accelerators.BUILT_IN
    checked = validate(name, job["spec"], recipes, launcher=LAUNCHER, accelerators=rows)
    if checked.spec is None:
        raise SystemExit("; ".join(map(str, checked.violations)))
    return checked.spec
