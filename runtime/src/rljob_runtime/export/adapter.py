"""Merge the LoRA adapter of a checkpoint into its model, which verl's converter does not.

Of FSDP's shards the converter writes the base model, and the adapter into a folder of its own
(verl/model_merger/base_model_merger.py, save_lora_adapter, 0.9.1), both in bfloat16. Megatron saves only the adapter in
the format of Hugging Face (verl/utils/checkpoint/megatron_checkpoint_manager.py:1009).
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from rljob_runtime.checkpoints.contents import MEGATRON_FILE
from rljob_runtime.contract import ExitCode, ForeignJSONError, parse_foreign_json
from rljob_runtime.export.errors import ExportError

ADAPTER = "lora_adapter"
"""The converter's folder, in the folder of the model."""
MEGATRON_ADAPTER = "model/huggingface/adapter"
FSDP_META = "lora_train_meta.json"
"""verl/utils/checkpoint/fsdp_checkpoint_manager.py:127 (0.9.1); earlier releases do not write it."""
PREFIX, LOW, HIGH = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
"""Of the names of an adapter's matrices: rank × inputs, and outputs × rank."""
PARAMETER, WRAPPED = b"lora_", b"base_layer"
"""The converter knows an adapter's parameters by this part of their names; peft renames the layer that it adapts."""


def has_adapter(actor: Path) -> bool:
    """Report whether an adapter was trained."""
    return (actor / FSDP_META).exists() or _says_megatron(actor) or PARAMETER in _names(actor)


def lacks_base(actor: Path) -> bool:
    """Report whether the adapter was saved without its base model: by Megatron, or by `checkpoint.save_lora_only`."""
    names = _names(actor)
    return _says_megatron(actor) or (PARAMETER in names and WRAPPED not in names)


def merge(model: Path) -> None:
    """Add the converter's adapter to the weights of the model in whose folder it is. Raises ExportError, OSError.

    Each weight becomes W + alpha/rank · B·A, computed in float32 and rounded once to the type of W; peft rounds the
    product to bfloat16 before it adds it, or needs the whole model in float32. One file of weights is in memory at a
    time.
    """
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    adapter = model / ADAPTER
    config = json.loads((adapter / "adapter_config.json").read_text())
    if not config.get("lora_alpha"):
        raise _not_merged(f"{FSDP_META} of the checkpoint does not say alpha, which verl has saved since 0.9")
    scale = config["lora_alpha"] / config["r"]
    parts = load_file(adapter / "adapter_model.safetensors")
    left = {name.removeprefix(PREFIX).rpartition(".lora_")[0] for name in parts}
    pairs = {f"{PREFIX}{module}{suffix}" for module in left for suffix in (LOW, HIGH)}
    if unknown := sorted(pairs ^ parts.keys()):
        raise _not_merged(f"{unknown[0]} is not one of a pair of LoRA's matrices")
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            names, metadata = set(opened.keys()), opened.metadata()
        if not (here := sorted(module for module in left if f"{module}.weight" in names)):
            continue
        weights = load_file(file)
        for module in here:
            low, high = (parts[f"{PREFIX}{module}{suffix}"].float() for suffix in (LOW, HIGH))
            weight = weights[f"{module}.weight"]
            weights[f"{module}.weight"] = (weight.float() + scale * (high @ low)).to(weight.dtype)
        left -= set(here)
        written = file.with_suffix(".merged")
        save_file(weights, written, metadata=metadata)
        written.replace(file)
    if left:
        raise _not_merged(f"the model has no {min(left)}.weight")


def _not_merged(why: str) -> ExportError:
    return ExportError(
        ExitCode.BAD_CONFIG,
        "AdapterNotMerged",
        f"the LoRA adapter cannot be merged into its base model: {why}; merge it with peft (merge_and_unload)",
    )


def _says_megatron(actor: Path) -> bool:
    try:
        found = parse_foreign_json((actor / MEGATRON_FILE).read_bytes())
    except (OSError, ForeignJSONError):
        return False
    backend = found.get("backend") if isinstance(found, dict) else None
    return isinstance(backend, dict) and backend.get("peft") is True


def _names(actor: Path) -> bytes:
    """Return the pickle of one rank's shard, which has the names of all parameters and no weights."""
    for shard in sorted(actor.glob("model_world_size_*_rank_0.pt")):
        try:
            with zipfile.ZipFile(shard) as archive:
                return b"".join(archive.read(name) for name in archive.namelist() if name.endswith("/data.pkl"))
        except (OSError, zipfile.BadZipFile):
            continue
    return b""
