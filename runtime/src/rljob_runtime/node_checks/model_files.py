"""Check that the model's weight files are complete: the index against its shards, each shard against its header.

Otherwise an interrupted download costs a start on every node before verl detects it. Only the head reads headers; the
other nodes report file sizes, which must equal the head's.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

from rljob_runtime.node_checks.facts import ModelFiles

INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
PATTERNS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
HEADER_BYTES_MAX = 100 << 20
"""https://github.com/huggingface/safetensors: MAX_HEADER_SIZE."""
MISSING = -1


def read(folder: Path, *, deep: bool) -> ModelFiles | None:
    """Read a model's folder; return None if it is not one. `deep` also reads the shards' headers."""
    if not (folder / "config.json").is_file():
        return None
    named, problems = _named(folder)
    # A folder without weights may be correct: Megatron can load them from another folder.
    sizes = {name: _size(folder / name) for name in named}
    if deep:
        whole = (name for name, size in sizes.items() if size != MISSING and name.endswith(".safetensors"))
        problems += [problem for name in whole if (problem := _broken(folder / name, sizes[name]))]
    return ModelFiles(sizes, tuple(problems))


def _named(folder: Path) -> tuple[list[str], list[str]]:
    """Return the weight files, and problems of the index."""
    for index in INDEXES:
        file = folder / index
        if not file.is_file():
            continue
        try:
            return sorted(set(json.loads(file.read_bytes())["weight_map"].values())), []
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return [], [f"{index} is no index of weights"]
    return sorted({file.name for pattern in PATTERNS for file in folder.glob(pattern)}), []


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return MISSING


def _broken(file: Path, size: int) -> str:
    """Compare a shard with its header: 8 bytes of length, JSON with each tensor's offsets, then the tensors."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > HEADER_BYTES_MAX:
                return f"{file.name} has no readable header"
            header = json.loads(opened.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    except (OSError, ValueError, struct.error, KeyError, TypeError, IndexError, AttributeError):
        return f"{file.name} has no readable header"
    expected = 8 + length + max(ends, default=0)
    return "" if size == expected else f"{file.name} has {size} of {expected} bytes"
