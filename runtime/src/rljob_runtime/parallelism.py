"""How a checkpoint's step was split by Megatron, and whether this attempt may load it.

verl saves Megatron's optimizer so that only another number of data-parallel ranks can load it, and the states of the
random generators by pipeline and tensor rank (megatron_checkpoint_manager.py, `_build_sharded_state_dict_metadata` and
`get_rng_state`, 0.9.1): what was split otherwise fails in the load, with the models of all devices already built. So
each save writes its split into the step's own folder, and the launcher refuses another one first. The weights alone can
be loaded by any split: who asks verl for no more is let pass.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rljob_runtime import contents
from rljob_runtime.checkpoint import CRITIC_FOLDER
from rljob_runtime.contract import ExitCode
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.resume import Start

if TYPE_CHECKING:
    from omegaconf import DictConfig

SPLIT_FILE = "parallelism.json"
"""In a step's folder: how it was split."""
SIZES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
)
"""Keys of verl/trainer/config/engine/megatron.yaml (0.9.1); context parallelism only divides the data's ranks."""


def require(start: Start, config: DictConfig) -> None:
    """Refuse to begin with a step of another split (exit 64).

    A step that does not tell is taken as it is: an older image wrote it.
    """
    wanted = split(config)
    if start.folder is not None and wanted and _loads_more_than_weights(config, start.folder):
        _expect(wanted, start.folder)


def note(step: Path, sizes: Mapping[str, int | None], check_owner: Callable[[], None]) -> None:
    """Write down in a step's folder how it is split; a volume that fails costs the note, never the save.

    However long the process is frozen between two of these lines, it writes nothing into a successor's step: a new
    owner moves the place in which this one saves, with the scratch file.
    """
    if not sizes:
        return
    scratch = step / f".{SPLIT_FILE}.{uuid.uuid4().hex}"
    try:
        try:
            scratch.write_text(json.dumps(sizes, sort_keys=True))
            check_owner()
            scratch.replace(step / SPLIT_FILE)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        print(f"rljob: {step} does not tell how it is split: {error}", file=sys.stderr, flush=True)  # noqa: T201


def split(config: DictConfig) -> dict[str, int | None]:
    """Give the sizes of Megatron's groups by verl's names; empty for another engine."""
    actor = config.actor_rollout_ref.actor
    if actor.strategy != "megatron":
        return {}
    return {name: getattr(actor.megatron, name) for name in SIZES}


def _loads_more_than_weights(config: DictConfig, step: Path) -> bool:
    roles = [config.actor_rollout_ref.actor, *([config.critic] if (step / CRITIC_FOLDER).is_dir() else [])]
    return any(contents.named(role.checkpoint.load_contents) != {contents.MODEL} for role in roles)


def _expect(wanted: dict[str, int | None], step: Path) -> None:
    try:
        written = json.loads((step / SPLIT_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return
    changed = [f"{name} {written.get(name)}, now {size}" for name, size in wanted.items() if written.get(name) != size]
    if changed:
        raise RefusedError(
            ExitCode.BAD_CONFIG,
            "CheckpointTopology",
            f"{step} was written with {'; '.join(changed)}: Megatron's optimizer and random states can only be loaded "
            f"by the same split; set trainer.parallelism back, or load the weights alone by verl.overrides "
            f'{contents.LOAD_KEY}: ["{contents.MODEL}"]',
        )
