"""Say whether the actor of a checkpoint has a LoRA adapter, which verl's converter does not merge into the weights.

Of FSDP's shards the converter writes the base model, and the adapter into a folder of its own
(verl/model_merger/base_model_merger.py, save_lora_adapter, 0.9.1). Megatron saves only the adapter in the format of
Hugging Face (verl/utils/checkpoint/megatron_checkpoint_manager.py:1009).
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from rljob_runtime.checkpoints.contents import MEGATRON_FILE
from rljob_runtime.contract import ForeignJSONError, parse_foreign_json

ADAPTER = "lora_adapter"
"""The converter's folder, in the folder of the model."""
MEGATRON_ADAPTER = "model/huggingface/adapter"
FSDP_META = "lora_train_meta.json"
"""verl/utils/checkpoint/fsdp_checkpoint_manager.py:127 (0.9.1); earlier releases do not write it."""
PARAMETER, WRAPPED = b"lora_", b"base_layer"
"""The converter knows an adapter's parameters by this part of their names; peft renames the layer that it adapts."""


def has_adapter(actor: Path) -> bool:
    """Report whether an adapter was trained."""
    return (actor / FSDP_META).exists() or _says_megatron(actor) or PARAMETER in _names(actor)


def lacks_base(actor: Path) -> bool:
    """Report whether the adapter was saved without its base model: by Megatron, or by `checkpoint.save_lora_only`."""
    names = _names(actor)
    return _says_megatron(actor) or (PARAMETER in names and WRAPPED not in names)


def not_merged(source: Path) -> str:
    """Return why a model with an adapter cannot stand for what was trained, and what to do."""
    return (
        f"{source} has a LoRA adapter, which verl's converter does not merge, so the model would be the base without "
        "what was trained; export the checkpoint, merge the adapter with peft (merge_and_unload), and use that folder"
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
