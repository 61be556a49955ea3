"""Files of counts and of placements.

Counts are tokens per expert as whole numbers, in the shape (layers, experts), or (windows, layers, experts) with the
oldest window first: nested lists in JSON, or an array that numpy.save wrote. verl 0.9.1 counts them in this shape from
the experts that router replay records (`_compute_rollout_moe_load_counts`, verl/trainer/ppo/metric_utils.py:192); its
trainer has those of a step in `_rollout_moe_lb_metrics_accumulator.load_counts`.

A placement is the file that vllm-ascend 0.23.0 writes (vllm_ascend/eplb/adaptor/vllm_adaptor.py:157) and reads
(vllm_ascend/eplb/core/eplb_utils.py:27) as `additional_config.eplb_config.expert_map_path`. Its layers are the MoE
layers in the order of the model (`moe_counter`, vllm_ascend/ops/fused_moe/fused_moe_0_23_0.py:165); dense layers do
not count.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rljob.planner.experts.placement import Counts, Loads, Placement, Values, replicas_held
from rljob_runtime.contract.foreign_json import ForeignJSONError, parse

FILE_MAX = 32 << 20
"""Bytes of a file of counts or of a map; a map of 100 layers with 1,000 replicas has less than 1 MiB."""
ELEMENTS_MAX = 1 << 27
SUM_MAX = 1 << 53
"""Sums of tokens that a float represents exactly."""


class FileError(ValueError):
    """A file cannot be used; the message names it and says what it should contain."""


def read_counts(path: Path) -> Counts:
    """Return (windows, layers, experts) tokens. Raise FileError."""
    found = _read_array(path) if path.suffix == ".npy" else _nested(path, _read_json(path))
    shape = "counts must have the shape (layers, experts) or (windows, layers, experts)"
    if found.ndim not in (2, 3) or not found.size:
        raise FileError(f"{path}: shape {found.shape}; {shape}, none of them 0")
    if found.size > ELEMENTS_MAX:
        raise FileError(f"{path}: {found.size} numbers, more than {ELEMENTS_MAX}; add up some windows")
    if found.dtype.kind not in "iu":
        raise FileError(f"{path}: not all are whole numbers (or they exceed 64 bits); write tokens per expert")
    if found.min() < 0:
        raise FileError(f"{path}: negative counts; write tokens per expert")
    if float(found.sum(dtype=np.float64)) >= SUM_MAX:
        raise FileError(f"{path}: the counts add up to more than 2^53; divide them by a common number")
    counts = found.astype(np.int64)
    return counts if counts.ndim == 3 else counts[None]


def _read_array(path: Path) -> NDArray[np.int64]:
    try:
        # Mapped, so that a header cannot claim more than the file has.
        found: NDArray[np.int64] = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}; pass the counts as JSON or .npy") from error
    except (ValueError, EOFError, SyntaxError, MemoryError) as error:
        raise FileError(f"{path}: not an array that numpy.save wrote ({str(error)[:80]})") from error
    if not isinstance(found, np.ndarray):
        raise FileError(f"{path}: an archive of arrays; write one array with numpy.save")
    return found


def _read_json(path: Path) -> object:
    try:
        with path.open("rb") as file:
            return parse(file.read(FILE_MAX + 1), FILE_MAX)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from error
    except ForeignJSONError as error:
        raise FileError(f"{path}: not JSON: {error}") from error


def _nested(path: Path, value: object) -> NDArray[np.int64]:
    try:
        return np.array(value)
    except (ValueError, OverflowError) as error:
        raise FileError(f"{path}: not a list of equally long lists of numbers; one list per layer") from error


def map_text(placement: Placement) -> str:
    """Return a placement as vllm-ascend reads it."""
    layers = [
        {
            "layer_id": number,
            "device_count": len(devices),
            "device_list": [{"device_id": device, "device_expert": held} for device, held in enumerate(devices)],
        }
        for number, devices in enumerate(placement.tolist())
    ]
    return json.dumps({"moe_layer_count": len(layers), "layer_list": layers}, separators=(",", ":")) + "\n"


def read_map(path: Path) -> Placement:
    """Return (layers, devices, slots) experts of a map that vllm-ascend or `map_text` made. Raise FileError."""
    value = _read_json(path)
    try:
        lists = [
            [device["device_expert"] for device in layer["device_list"]]
            for layer in value["layer_list"]  # type: ignore[index] # what is no map raises
        ]
        found = np.array(lists)
    except (KeyError, TypeError, ValueError, OverflowError, IndexError) as error:
        raise FileError(f"{path}: not an expert map with equally many experts on every device") from error
    if found.ndim != 3 or not found.size or found.dtype.kind != "i":
        raise FileError(f"{path}: not an expert map with equally many experts on every device")
    return found.astype(np.int64)


def routed_loads(loads: Loads, placement: Placement) -> Values:
    """Return (layers, devices) tokens as vllm-ascend shares them among the replicas of an expert.

    Each rank sends all its tokens for an expert with n replicas to number `rank % n` of them, in the order of devices
    (generate_log2phy_map, eplb_utils.py:109). If n does not divide the number of ranks, the first replicas get one
    rank more. Ranks are assumed to have equally many tokens, and tensor parallelism 1.
    """
    layers, devices, slots = placement.shape
    flat = placement.reshape(layers, -1)
    # Replicas of one expert beside each other, in the order of devices; then each one's number among them.
    order = np.argsort(flat, axis=1, kind="stable")
    grouped = np.take_along_axis(flat, order, 1)
    held = replicas_held(placement, loads.shape[1])
    firsts = np.cumsum(held, axis=1) - held
    number = np.arange(flat.shape[1]) - np.take_along_axis(firsts, grouped, 1)
    count = np.take_along_axis(held, grouped, 1)
    senders = (devices - number + count - 1) // count
    tokens = np.empty(flat.shape)
    np.put_along_axis(tokens, order, np.take_along_axis(loads, grouped, 1) * senders / devices, 1)
    return tokens.reshape(layers, devices, slots).sum(axis=2)
