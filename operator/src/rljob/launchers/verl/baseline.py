"""Settings that every job of an Atlas class gets unless it says otherwise, and those that were considered and left out.

They are defaults for hardware, not fields: `rljob render` shows them in job.json, `rljob explain` with their reasons,
and a key that the spec sets, by whichever spelling, replaces its row. Only what the released vllm-ascend and MindSpeed
read is set, and only what neither changes results nor risks a start. Sizes that follow from the cluster (storage units
of TransferQueue, agent and reward workers) are set by the launcher (rljob_runtime.launcher_overrides).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.rows import ACTOR, ALWAYS, FSDP2, PPO, REF, ROLLOUT, TRANSFORMER, RowCondition
from rljob.render.accelerators import facts_of
from rljob_runtime.contract import OverrideValue
from rljob_runtime.planning.flattening import VLLM

GRAPH_MODE = "compilation_config.cudagraph_mode"
CAPTURE_SIZES = "compilation_config.cudagraph_capture_sizes"
OPTION = f"{VLLM}.additional_config"
DECODING = "FULL_DECODE_ONLY"
WHOLE = (DECODING, "FULL")
"""Modes that capture one graph for each size."""
SIZE_MAX = 2**20
"""More sequences than any engine takes; other checks report such a value."""


class Stated(Protocol):
    """What fields, overrides and the rows above set (rljob.launchers.verl.effective)."""

    def setting(self, key: str) -> object | None:
        """Return what sets a key of verl."""

    def engine(self, argument: str) -> object | None:
        """Return what sets an argument of vLLM."""

    def engine_value(self, argument: str) -> object:
        """Return the value of an argument of vLLM, verl's default included."""


@dataclass(frozen=True)
class BaselineRow:
    """One key that the class sets."""

    key: str
    """In Hydra's grammar."""
    value: Callable[[RLJobSpec, Stated], OverrideValue]
    """Returns None where the row does not apply."""
    when: str
    """Shown in the reference."""
    why: str
    """Ends a sentence that begins with the value."""
    source: str
    argument: str = ""
    """vLLM's argument that the key sets, which has several spellings."""

    @property
    def plain(self) -> str:
        """Return the key of verl."""
        return self.key.lstrip("+")

    def is_free(self, stated: Stated, given: Mapping[str, object]) -> bool:
        """Report whether the spec leaves the key to the class.

        `given` has the user's overrides. One that sets a map above the key as text, such as a JSON string, replaces
        everything below it.
        """
        if stated.setting(self.plain) or (self.argument and stated.engine(self.argument)):
            return False
        texts = (name.lstrip("+") for name, value in given.items() if not isinstance(value, Mapping))
        return not any(self.plain.startswith(f"{name}.") for name in texts)


@dataclass(frozen=True)
class LeftOut:
    """A setting of the Ascend recipes or guides that no class sets."""

    name: str
    why: str
    source: str


def _captures(spec: RLJobSpec, stated: Stated) -> bool:
    """Report whether the engine captures graphs on NPUs."""
    eager = stated.engine_value("enforce_eager") is True
    return facts_of(spec).is_npu and not eager and str(stated.engine_value(GRAPH_MODE)).upper() != "NONE"


def _graph_mode(spec: RLJobSpec, stated: Stated) -> str | None:
    # verl falls back to piecewise graphs with decode context parallelism (vllm_async_server.py:313-319).
    split = stated.engine_value("decode_context_parallel_size")
    splits = isinstance(split, int) and split > 1
    # Such a graph serves only batches in which every sequence has all its drafts (checks/drafts.py), and with data
    # parallelism one rank without a graph takes it from all.
    drafts = spec.rollout.speculative.method != "None"
    return DECODING if _captures(spec, stated) and not splits and not drafts else None


def _gears(spec: RLJobSpec, stated: Stated) -> OverrideValue:
    """Return the batch sizes to capture, in tokens: of this many sequences, each with its drafts.

    Piecewise graphs take a stream per layer and size, so their sizes stay the engine's own (checks/graphs.py).
    """
    sequences, mode = stated.engine_value("max_num_seqs"), str(stated.engine_value(GRAPH_MODE)).upper()
    if not _captures(spec, stated) or mode not in WHOLE:
        return None
    if not isinstance(sequences, int) or not 1 <= sequences <= SIZE_MAX:
        return None
    draft = spec.rollout.speculative
    unit = draft.tokens + 1 if draft.method != "None" else 1
    if stated.engine_value("additional_config.enable_flashcomm1") is True:
        # It captures only multiples of the tensor size (vllm_ascend/platform.py:557).
        unit = math.lcm(unit, spec.rollout.parallelism.tensor)
    return [size * unit for size in gears(sequences)]


def gears(sequences: int) -> list[int]:
    """Return the batch sizes up to a number of sequences that get a graph: 1, 2, 4, 8, 12, 16, 24, 32, 48, … and it.

    A gap between neighbours is at most half of the smaller one, and a graph's time depends little on its size: 64.5 ms
    at 4, 67 at 8, 75 at 16, 94 at 32 (DeepSeek-V3, figure 19 of the rollout rebalance document).
    """
    powers = [2**exponent for exponent in range(sequences.bit_length())]
    between = [3 * power // 2 for power in powers if power >= 8]
    return sorted({size for size in (*powers, *between) if size < sequences} | {sequences})


def _eager(of: RowCondition) -> Callable[[RLJobSpec, Stated], OverrideValue]:
    """Return False where FSDP2 trains on NPUs, so that the entropy is not compiled."""
    return lambda spec, _: False if facts_of(spec).is_npu and FSDP2.holds(spec) and of.holds(spec) else None


def _eager_row(engine: str, of: RowCondition = ALWAYS) -> BaselineRow:
    return BaselineRow(
        f"{engine}.use_torch_compile",
        _eager(of),
        "FSDP2",
        "the entropy is not compiled: verl's Ascend scripts switch it off as well, most of them by a key of the same "
        "name outside the engine's section, which nothing reads",
        "verl 0.9.1, workers/engine/fsdp/transformer_impl.py:182-187; examples/ascend_extras",
    )


ROWS = (
    BaselineRow(
        f"+{VLLM}.{GRAPH_MODE}",
        _graph_mode,
        "graphs are captured, without decode context parallelism and speculative decoding",
        "with verl's FULL_AND_PIECEWISE, vllm-ascend switches off npugraph_ex and its fusions",
        "vllm-ascend 0.23.0, platform.py:599-629; verl 0.9.1, vllm_async_server.py:310",
        GRAPH_MODE,
    ),
    BaselineRow(
        f"{ROLLOUT}.cudagraph_capture_sizes",
        _gears,
        "one graph is captured for each size",
        "a full batch has a graph, and a step pays for a batch half as large again at most; vLLM captures up to 512 "
        "tokens, in 35 sizes for 256 sequences, at every start",
        "vLLM 0.23.0, config/vllm.py:1618-1750; vllm-ascend 0.23.0, platform.py:239",
        CAPTURE_SIZES,
    ),
    BaselineRow(
        f"+{OPTION}.dp_allreduce_on_npu",
        lambda spec, _: True if facts_of(spec).is_npu and spec.rollout.parallelism.data > 1 else None,
        "rollout.parallelism.data above 1",
        "ranks agree on each step's tokens over HCCL: over Gloo it took 10 to 14 ms of a step at 128 ranks, and "
        "vllm-ascend warns of corrupt data there",
        "vllm-ascend 0.23.0, ascend_config.py:317, worker/model_runner_v1.py:692-708",
        "additional_config.dp_allreduce_on_npu",
    ),
    _eager_row(f"{ACTOR}.fsdp_config"),
    _eager_row(f"{REF}.fsdp_config"),
    _eager_row("critic.fsdp", PPO),
)

MINDSPEED = "MindSpeed core_r0.16.0"
LEFT_OUT = (
    LeftOut(
        f"{OPTION}.enable_balance_scheduling",
        "moves no request: while one data-parallel rank is full, no other begins one, so free slots stay empty. It "
        "gathers the number of running requests over Gloo in every decode step, which is what dp_allreduce_on_npu "
        "avoids, and its loop lacks the ordered shutdown of vLLM 0.23.0. optimizations.loadBalancer LateBinding "
        "fills the slots of all ranks",
        "vllm-ascend 0.23.0, patch/platform/patch_balance_schedule.py:88-91, 323-326 and 644-685",
    ),
    LeftOut(
        f"{OPTION}.enable_sleep_mode_extra_cleanup",
        "frees the buffers of HCCL and of graphs between rollouts, and therefore captures every graph again and "
        "builds every group again in each step; set it where memory is short",
        "vllm-ascend 0.23.0, device_allocator/sleep_mem_optimized.py:34-72 and 121-181",
    ),
    LeftOut(
        f"{OPTION}.ascend_compilation_config.enable_static_kernel",
        "compiles a kernel for each captured size at every start; set it for long runs",
        "vllm-ascend 0.23.0, ascend_config.py:609-660",
    ),
    LeftOut(f"{OPTION}.rl_config", "vllm-ascend 0.23.0 has no such option", "vllm-ascend 0.23.0, ascend_config.py"),
    LeftOut(
        f"{ROLLOUT}.enable_chunked_prefill", "verl's default already", "verl 0.9.1, trainer/config/rollout/rollout.yaml"
    ),
    LeftOut(
        f"{ROLLOUT}.max_num_batched_tokens",
        "verl's 8,192 stays: `rljob plan memory` counts the memory of a pass of this many tokens and names the field "
        "where that does not fit",
        "verl 0.9.1, trainer/config/rollout/rollout.yaml:78",
    ),
    LeftOut(
        f"{TRANSFORMER}.disable_gloo_group",
        "MindSpeed's wrapper of new_group reads Megatron's command-line arguments, which verl never sets, and fails",
        f"{MINDSPEED}, core/parallel_state.py:1108-1117",
    ),
    LeftOut(
        f"{TRANSFORMER}.swap_optimizer",
        "moves the optimizer through host memory in every update, and starts only beside use_distributed_optimizer; "
        "trainer.offload.optimizer keeps it there between updates",
        f"{MINDSPEED}, features_manager/optimizer/swap_optimizer_feature.py",
    ),
    LeftOut(
        f"{TRANSFORMER}.moe_zero_memory",
        "needs moe_alltoall_overlap_comm, which ends the start: the experts do not take the arguments that they get, "
        "and verl does not know their weights. The sources' images patch both",
        f"{MINDSPEED}, features_manager/moe/moe_zero_memory.py:34, core/transformer/moe/moe_feature/overlap/"
        "moe_layer.py:210; mbridge 0.15.1, models/qwen2moe.py:104",
    ),
    LeftOut(
        f"{TRANSFORMER}.use_fused_swiglu",
        "no code that verl calls reads it. MindSpeed always replaces Megatron's fused SwiGLU, which Megatron calls "
        "only with bias_activation_fusion: mbridge sets that for mixtures of experts, and not for dense Qwen",
        f"{MINDSPEED}, features_manager/fusions/fused_bias_swiglu.py:8-11; megatron-core 0.16.1, "
        "transformer/mlp.py:171; mbridge 0.15.1, models/qwen2moe.py:78",
    ),
    LeftOut(
        f"{TRANSFORMER}.use_fused_rotary_pos_emb",
        "ends the start without position_embedding_type rope beside it. MindSpeed compiles the operator at first use, "
        "in all ranks at once, unless the image has it",
        f"{MINDSPEED}, features_manager/fusions/fused_rope.py:26, core/fusions/fused_rope.py:68",
    ),
    LeftOut(
        f"{TRANSFORMER}.use_flash_attn",
        "belongs to a model's recipe, beside the settings of its attention; recipes of Megatron and MindSpeed set it",
        f"{MINDSPEED}, features_manager/transformer/flash_attention",
    ),
    LeftOut(
        f"{ACTOR}.entropy_from_logits_with_chunking",
        "computes the entropy of all logits in parts, which takes time and saves memory that the plan counts as there",
        "verl 0.9.1, workers/engine/fsdp/transformer_impl.py:178",
    ),
    LeftOut(
        f"{ACTOR}.fsdp_config.entropy_checkpointing",
        "computes the entropy a second time in the backward pass, to save memory that the plan counts as there",
        "verl 0.9.1, workers/engine/fsdp/transformer_impl.py",
    ),
    LeftOut(
        f"{ROLLOUT}.enable_prefix_caching",
        "stays on: the responses of a group share their prompt. Scripts that switch it off give no reason",
        "verl 0.9.1, trainer/config/rollout/rollout.yaml",
    ),
    LeftOut(
        f"{VLLM}.mm_processor_cache_gb",
        "a cache of images on the host, which a text model does not fill",
        "vLLM 0.23.0, config/multimodal.py",
    ),
    LeftOut(
        f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes",
        "follows from the model, whose largest tensor must fit; it is checked before a pod exists",
        "verl 0.9.1, trainer/config/rollout/rollout.yaml",
    ),
    LeftOut(
        f"{TRANSFORMER}.ckpt_acceleration",
        "documented, but no code of the pinned MindSpeed reads it",
        f"{MINDSPEED}, docs/zh/features/verl-ckpt-acceleration.md",
    ),
    LeftOut(
        "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True",
        "vLLM's pool for sleep refuses it; verl switches it on around training by itself",
        "verl 0.9.1, plugin/platform/platform_npu.py:99-107",
    ),
)
