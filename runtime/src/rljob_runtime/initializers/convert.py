"""Convert FP8 weights with a scale per block to bf16, file by file, by one process or by the pods of an indexed Job.

DeepSeek-V3 stores a weight `x.weight` in float8_e4m3fn and the inverse scale of each block of 128 by 128 in
`x.weight_scale_inv`, possibly in another file (config.json: quantization_config.weight_block_size; README_WEIGHTS.md of
DeepSeek-V3: the weight is the stored value times the scale). Each file of the source becomes one of the same name
without scales. A file has its name only when it is whole, so a killed pod continues with the next file. Pod i of n
takes every n-th file. The index and the other files of the model are written by each pod, with the same content.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rljob_runtime.contract import ExitCode
from rljob_runtime.contract.downloads import InitializerRequest
from rljob_runtime.files import write_atomically
from rljob_runtime.initializers.error import RequestError
from rljob_runtime.initializers.target import Target, say

if TYPE_CHECKING:
    import torch

INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
SCALE = "_scale_inv"
BF16_BYTES = 2
HEADER_MAX = 100 * 2**20
"""Limit of a file's header in the format's reference implementation (safetensors, tensor.rs, MAX_HEADER_SIZE)."""


@dataclass(frozen=True)
class Weights:
    """The weights of a folder, by their index."""

    folder: Path
    files: Mapping[str, str]
    """Name of a tensor -> its file."""
    block: tuple[int, int]
    """Rows and columns that share a scale."""

    @classmethod
    def of(cls, folder: Path) -> Weights:
        """Read config and index. Raises RequestError for a model without FP8 blocks."""
        config = _json(folder / CONFIG)
        settings = config.get("quantization_config") or {}
        block = settings.get("weight_block_size")
        if settings.get("quant_method") != "fp8" or not isinstance(block, list) or not _is_block(block):
            raise _unsuitable(
                f"{folder / CONFIG}: quantization_config states no fp8 with a weight_block_size of two numbers, so "
                "nothing is to be converted; use the folder as it is"
            )
        names = sorted(path.name for path in folder.glob("*.safetensors"))
        if not names:
            raise _unsuitable(f"{folder} has no .safetensors file; is the download complete?")
        files = {tensor: name for name in names for tensor in _header(folder / name)}
        stated = set(_json(folder / INDEX)["weight_map"].values()) if (folder / INDEX).exists() else set(names)
        if missing := sorted(stated - set(names)):
            raise _unsuitable(f"{folder / INDEX} names {missing[0]} and {len(missing) - 1} more, which are not there")
        return cls(folder, files, (block[0], block[1]))

    def names(self) -> list[str]:
        """Return the files, in a fixed order."""
        return sorted(set(self.files.values()))

    def scale(self, tensor: str) -> torch.Tensor | None:
        """Return the scales of a tensor; None if it has none."""
        from safetensors import safe_open

        name = tensor + SCALE
        if name not in self.files:
            return None
        with safe_open(self.folder / self.files[name], framework="pt") as opened:
            scale: torch.Tensor = opened.get_tensor(name)
        return scale


def convert(request: InitializerRequest, target: Target, index: int | None) -> None:
    """Convert the files of this pod, or all without an index. Raises RequestError, OSError."""
    weights = Weights.of(Path(request.source))
    names = weights.names()
    pods = request.pods if index is not None else 1
    mine = names[(index or 0) % pods :: pods]
    for number, name in enumerate(mine, 1):
        final = target.folder / name
        if final.exists():
            say(f"{name} is there already, {number} of {len(mine)} files")
            continue
        _convert_file(weights, name, target)
        say(f"{name} is converted, {number} of {len(mine)} files")
    _copy_others(weights, target)
    _write_index(weights, target)


def _convert_file(weights: Weights, name: str, target: Target) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    made: dict[str, torch.Tensor] = {}
    with safe_open(weights.folder / name, framework="pt") as opened:
        for tensor in opened.keys():  # noqa: SIM118 - not a mapping
            if not tensor.endswith(SCALE):
                made[tensor] = _converted(weights, tensor, opened.get_tensor(tensor))
    # Pods of an earlier try may still write: each has a name of its own, and the content is the same.
    part = _own_part(target, name)
    save_file(made, part, metadata={"format": "pt"})
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.replace(target.folder / name)
    # Those of pods that were killed in this file.
    for other in part.parent.glob(f"{part.stem}.*"):
        other.unlink(missing_ok=True)


def _own_part(target: Target, name: str) -> Path:
    """Return where this process writes a file."""
    part = target.part(name, "")
    part.parent.mkdir(parents=True, exist_ok=True)
    return part.with_name(f"{part.name}.{os.uname().nodename}-{os.getpid()}")


def _converted(weights: Weights, tensor: str, value: torch.Tensor) -> torch.Tensor:
    import torch

    if value.dtype != torch.float8_e4m3fn:
        return value
    scale = weights.scale(tensor)
    if scale is None:
        raise _unsuitable(f"{weights.files[tensor]}: {tensor} is in FP8 and has no {tensor}{SCALE}")
    return dequantise(value, scale, weights.block, tensor)


def dequantise(value: torch.Tensor, scale: torch.Tensor, block: tuple[int, int], name: str) -> torch.Tensor:
    """Return a matrix in bf16: each block of the FP8 matrix times its scale. The last blocks may be smaller."""
    import torch

    rows, columns = value.shape
    expected = (-(-rows // block[0]), -(-columns // block[1]))
    if tuple(scale.shape) != expected:
        raise _unsuitable(
            f"{name} of {rows} by {columns} needs scales of {expected[0]} by {expected[1]} for blocks of {block[0]} by "
            f"{block[1]}, and has {tuple(scale.shape)}"
        )
    made = torch.empty((rows, columns), dtype=torch.bfloat16)
    # One row of blocks at a time, so that only that part is in float32.
    for number in range(expected[0]):
        part = slice(number * block[0], min((number + 1) * block[0], rows))
        factors = scale[number].to(torch.float32).repeat_interleave(block[1])[:columns]
        made[part] = (value[part].to(torch.float32) * factors).to(torch.bfloat16)
    return made


def _copy_others(weights: Weights, target: Target) -> None:
    """Copy tokenizer and the like, and write a configuration without quantization."""
    for path in sorted(weights.folder.iterdir()):
        final = target.folder / path.name
        if path.is_file() and path.suffix != ".safetensors" and path.name not in (INDEX, CONFIG):
            part = _own_part(target, path.name)
            shutil.copyfile(path, part)
            part.replace(final)
    config = _json(weights.folder / CONFIG)
    del config["quantization_config"]
    config["torch_dtype"] = "bfloat16"
    write_atomically(target.folder / CONFIG, json.dumps(config, indent=2).encode())


def _write_index(weights: Weights, target: Target) -> None:
    """Write the index, which readers of several files need."""
    kept = {tensor: name for tensor, name in sorted(weights.files.items()) if not tensor.endswith(SCALE)}
    if (weights.folder / INDEX).exists() or len(set(kept.values())) > 1:
        total = sum(_bytes_after(weights.folder / name) for name in weights.names())
        index = {"metadata": {"total_size": total}, "weight_map": kept}
        write_atomically(target.folder / INDEX, json.dumps(index, indent=2).encode())


def _bytes_after(file: Path) -> int:
    """Return the size of a file's tensors after the conversion."""
    total = 0
    for tensor, entry in _header(file).items():
        begin, end = entry["data_offsets"]
        if not tensor.endswith(SCALE):
            total += (end - begin) * (BF16_BYTES if entry["dtype"] == "F8_E4M3" else 1)
    return total


def _header(file: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: eight bytes with its length, then JSON."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > HEADER_MAX:
            raise _unsuitable(f"{file} is no safetensors file; is the download complete?")
        try:
            header: dict[str, Any] = json.loads(opened.read(length))
        except ValueError:
            raise _unsuitable(f"{file} is no safetensors file; is the download complete?") from None
    header.pop("__metadata__", None)
    return header


def _is_block(value: list[object]) -> bool:
    return len(value) == 2 and all(isinstance(n, int) and n > 0 for n in value)


def _json(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text())
    except ValueError:
        raise _unsuitable(f"{file} is no JSON; is the download complete?") from None
    if not isinstance(document, dict):
        raise _unsuitable(f"{file} is no map; is the download complete?")
    return document


def _unsuitable(problem: str) -> RequestError:
    return RequestError(ExitCode.BAD_CONFIG, problem)
