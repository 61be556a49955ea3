"""LoRA: the keys that the trainer's engine reads, and a rank that the rollout takes.

verl has two sets of keys for one thing, and reference and rollout look at both (trainer/ppo/v1/trainer_base.py:796-799,
workers/rollout/vllm_rollout/vllm_async_server.py), while each engine reads one. With the other one the actor trains in
full, and the rollout serves the model with an adapter that nobody trains. Lines are those of verl 0.9.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rljob.api.training import LORA_RANK_MAX
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.model_shape import linear_heads
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.rows import MODEL
from rljob.launchers.verl.sizes import uses_megatron
from rljob.launchers.verl.trained import rank_key, trained
from rljob.launchers.verl.values import OFF, has_delta_layers, whole

PARTS = (MODEL, "critic.model")
OF_MEGATRON: Mapping[str, str] = {
    "lora.rank": "lora_rank",
    "lora.alpha": "lora_alpha",
    "lora.target_modules": "target_modules",
    "lora.exclude_modules": "exclude_modules",
    "lora.adapter_path": "lora_adapter_path",
}
"""Keys of Megatron's engine (workers/config/model.py:132), and those of FSDP's for the same (:124-135)."""
FIELDS = {"lora_rank": "rank", "lora_alpha": "alpha", "target_modules": "targets", "lora_adapter_path": "path"}
"""Fields of trainer.lora for them."""
MODULES_OF_MEGATRON = frozenset({"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"})
"""Megatron-Bridge's names (trainer/config/model/hf_model.yaml, lora.target_modules)."""
MODULES_OF_FSDP = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})
"""Names of Hugging Face for the layers of Llama and Qwen."""
ALL = "all-linear"
"""peft's word for all, which a list cannot contain."""


def _the_engine_reads_the_key(spec: RLJobSpec) -> Iterator[Violation]:
    seen, megatron = effective(spec), uses_megatron(spec)
    for part in PARTS:
        for theirs, ours in OF_MEGATRON.items():
            wrong, right = (ours, theirs) if megatron else (theirs, ours)
            setting = seen.setting(f"{part}.{wrong}")
            # Target modules have a default that is harmless without a rank.
            if setting is None or not setting.by_override or setting.value in OFF:
                continue
            full = ", which would train the model in full" if wrong.endswith("rank") else ""
            typed = FIELDS.get(ours) if part == MODEL else None
            yield Violation(
                setting.field,
                f"is not read by trainer.backend {spec.trainer.backend}{full}; set "
                + (f"trainer.lora.{typed}" if typed else f"verl.overrides[{part}.{right}]"),
            )


def _the_engine_has_the_modules(spec: RLJobSpec) -> Iterator[Violation]:
    """Each engine looks for modules by its own names, and fails after the model is loaded if it finds none."""
    lora = spec.trainer.lora
    wrong = MODULES_OF_FSDP if uses_megatron(spec) else MODULES_OF_MEGATRON
    for index, name in enumerate((lora.targets if lora is not None else None) or ()):
        place = f"spec.trainer.lora.targets[{index}]"
        if name in wrong:
            right = ", ".join(sorted(MODULES_OF_MEGATRON if uses_megatron(spec) else MODULES_OF_FSDP))
            yield Violation(place, f"{name} is no module of trainer.backend {spec.trainer.backend}, which has {right}")
        elif name == ALL:
            yield Violation(place, f"{ALL} is no module; leave out targets for all linear layers")


def _an_adapter_has_a_rank(spec: RLJobSpec) -> Iterator[Violation]:
    """FSDP's engine loads an adapter only with a rank (workers/engine/fsdp/transformer_impl.py:162,598)."""
    seen = effective(spec)
    for part in PARTS:
        setting = seen.setting(f"{part}.lora_adapter_path")
        if uses_megatron(spec) or setting is None or setting.value in OFF:
            continue
        if seen.value(f"{part}.lora_rank") in OFF:
            yield Violation(
                setting.field,
                "is loaded only with a rank; "
                + ("use trainer.lora" if part == MODEL else f"set verl.overrides[{part}.lora_rank]")
                + " with that of the adapter",
            )


def _the_rollout_takes_the_rank(spec: RLJobSpec) -> Iterator[Violation]:
    setting = effective(spec).setting(rank_key(spec))
    rank = whole(setting.value) if setting is not None else None
    if setting is not None and rank is not None and rank > LORA_RANK_MAX:
        yield Violation(setting.field, f"{rank}, and vLLM serves adapters up to rank {LORA_RANK_MAX}; lower it")


def _the_rollout_slices_the_layers(spec: RLJobSpec) -> Iterator[Violation]:
    """Of gated delta layers in_proj_ba has a column for each value head, which tensor parallelism shards.

    vLLM's buffer for an adapter has as many, and one of a larger rank does not fit (verl#7921, vllm-ascend#10562).
    """
    what, tensor = trained(spec), spec.rollout.parallelism.tensor
    heads = linear_heads(spec, "value") if has_delta_layers(spec) else 0
    if what.field is not None and not what.merged and 0 < heads // tensor < what.rank:
        yield Violation(
            what.field,
            f"{what.rank}, but the narrowest layer of the rollout has {heads // tensor} columns on a device ({heads} "
            f"value heads / rollout.parallelism.tensor {tensor}); lower the rank, or send merged weights: "
            f"spec.verl.overrides[{MODEL}.lora.merge]: true",
        )


CHECKS: tuple[Check, ...] = (
    _the_engine_reads_the_key,
    _the_engine_has_the_modules,
    _an_adapter_has_a_rank,
    _the_rollout_takes_the_rank,
    _the_rollout_slices_the_layers,
)
