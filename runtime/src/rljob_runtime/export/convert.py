"""Make a folder in the format of Hugging Face from the actor's part of a checkpoint.

FSDP's shards go through `python -m verl.model_merger`, which loads all of them into one process and casts to bfloat16
(verl/model_merger/fsdp_model_merger.py, 0.9.1). Where the trainer saved the weights in this format already, they are
copied: Megatron does so unless it saves distributed checkpoints (verl/utils/checkpoint/megatron_checkpoint_manager.py,
should_save_hf_model), and FSDP with `hf_model` among the saved contents. With a LoRA adapter FSDP saves this format by
the names of peft, which transformers does not read (fsdp_checkpoint_manager.py:424), so its shards are converted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import deque
from pathlib import Path

from rljob_runtime.checkpoints.contents import FSDP_FILE
from rljob_runtime.contract import ExitCode
from rljob_runtime.export import adapter
from rljob_runtime.export.adapter import MEGATRON_ADAPTER, has_adapter, lacks_base
from rljob_runtime.export.errors import ExportError
from rljob_runtime.image_check import verl_choice
from rljob_runtime.outcomes import RefusedError

READY_FOLDERS = ("huggingface", "model/huggingface")
"""Where FSDP and Megatron save this format, below the actor's folder: fsdp_checkpoint_manager.py,
get_hf_model_checkpoint_path (0.9.1)."""
INDEX = "model.safetensors.index.json"
WEIGHTS = "*.safetensors"
LAST_LINES = 6
WITHOUT_DEVICES = {"CUDA_VISIBLE_DEVICES": "", "ASCEND_RT_VISIBLE_DEVICES": ""}


def convert(actor: Path, target: Path, *, trust_remote_code: bool) -> None:
    """Write the model into `target`, which does not exist. Raises ExportError."""
    adapts = has_adapter(actor)
    if adapts and lacks_base(actor):
        raise _lacks_base(actor)
    if not adapts and (ready := _ready(actor)) is not None:
        print(f"rljob: copying the weights in {ready}", flush=True)  # noqa: T201
        shutil.copytree(ready, target)
    elif (actor / FSDP_FILE).exists():
        _require_space(actor, target.parent)
        _merge(actor, target, trust_remote_code=trust_remote_code)
        if adapts:
            adapter.merge(target)
    else:
        raise ExportError(
            ExitCode.BAD_CONFIG,
            "NotConvertible",
            f"{actor} has neither weights in the format of Hugging Face nor shards of FSDP; for Megatron's distributed "
            "checkpoints add hf_model to actor_rollout_ref.actor.checkpoint.save_contents",
        )
    _expect_whole(target)


def _lacks_base(actor: Path) -> ExportError:
    saved = actor / MEGATRON_ADAPTER
    place = f"the adapter is in {saved}" if saved.is_dir() else "remove checkpoint.save_lora_only"
    return ExportError(
        ExitCode.BAD_CONFIG,
        "NotConvertible",
        f"{actor} has a LoRA adapter without its base model, so there is no model to convert; {place}",
    )


def _ready(actor: Path) -> Path | None:
    """Return the folder with whole weights, if there is one; without weights it has configuration and tokenizer."""
    return next((actor / name for name in READY_FOLDERS if any((actor / name).glob(WEIGHTS))), None)


def _require_space(actor: Path, place: Path) -> None:
    # Shards of float32 become half as large; those of bfloat16 stay, and fail later with the error of the write.
    needed = sum(file.stat().st_size for file in actor.glob("model_world_size_*.pt")) // 2
    free = shutil.disk_usage(place).free
    if free < needed:
        raise ExportError(
            ExitCode.ENVIRONMENT,
            "NoSpace",
            f"{place} has {free} bytes free and the export needs {needed}; free some, or export to another volume",
        )


def _merge(actor: Path, target: Path, *, trust_remote_code: bool) -> None:
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    command += ["--local_dir", str(actor), "--target_dir", str(target)]
    command += ["--trust-remote-code"] if trust_remote_code else []
    last: deque[str] = deque(maxlen=LAST_LINES)
    try:
        verl = verl_choice.choose()
    except RefusedError as error:
        raise ExportError(error.code, error.reason, str(error)) from error
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | verl.environment(os.environ) | WITHOUT_DEVICES,
    ) as process:
        try:
            for line in process.stdout or ():
                sys.stdout.write(line)
                sys.stdout.flush()
                if line.strip():
                    last.append(line.strip().rpartition("\r")[2])
            code = process.wait()
        finally:
            process.kill()
    if code != 0:
        killed = " (killed; if the container ran out of memory, raise its memory in the manifest)" if code < 0 else ""
        raise ExportError(
            ExitCode.FAILED,
            "ConversionFailed",
            f"verl's model_merger ended with {code}{killed}: {' | '.join(last)[-1000:]}",
        )


def _expect_whole(target: Path) -> None:
    """Raise ExportError unless every file that the model needs is there."""
    present = {file.name for file in target.glob(WEIGHTS)}
    needed = {"config.json"} - {file.name for file in target.iterdir()}
    if (target / INDEX).exists():
        needed |= set(json.loads((target / INDEX).read_text())["weight_map"].values()) - present
    if needed or not present:
        lacking = ", ".join(sorted(needed)) or "weights"
        raise ExportError(ExitCode.FAILED, "ConversionFailed", f"the converted model lacks {lacking}")
