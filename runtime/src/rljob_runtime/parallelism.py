"""How a checkpoint folder's steps were split by Megatron, and whether this attempt may load them.

verl saves Megatron's optimizer so that only another number of data-parallel ranks can load it, and the states of the
random generators by pipeline and tensor rank (megatron_checkpoint_manager.py, `_build_sharded_state_dict_metadata` and
`get_rng_state`, 0.9.1): what was split otherwise fails in the load, with the models of all devices already built. So
the split stands in the folder beside the steps, and the launcher refuses another one first. The weights alone can be
loaded by any split: who asks verl for no more is let pass.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from rljob_runtime.contract import ExitCode
from rljob_runtime.files import write_atomically
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.resume import CRITIC, Start

if TYPE_CHECKING:
    from omegaconf import DictConfig

SPLIT_FILE = ".parallelism.json"
"""In a checkpoint folder: how its steps were split."""
SIZES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
)
"""Keys of verl/trainer/config/engine/megatron.yaml (0.9.1); context parallelism only divides the data's ranks."""
WEIGHTS = "model"
"""What of `checkpoint.load_contents` any split can load (verl/trainer/config/actor/actor.yaml, 0.9.1)."""
FIELD = "actor_rollout_ref.actor.checkpoint.load_contents"
"""The critic has one of its own."""


def keep(folder: Path | None, start: Start, config: DictConfig) -> None:
    """Refuse to begin with steps of another split (exit 64), else write down that of the steps to come.

    A folder that does not tell is taken as it is: an older image wrote it.
    """
    wanted = split(config)
    if start.folder is not None and wanted and _loads_more_than_weights(config, start.folder):
        _expect(wanted, start.folder)
    if folder is not None and wanted:
        write_atomically(folder / SPLIT_FILE, json.dumps(wanted, sort_keys=True).encode(), durable=True)


def split(config: DictConfig) -> dict[str, int | None]:
    """Give the sizes of Megatron's groups by verl's names; empty for another engine."""
    actor = config.actor_rollout_ref.actor
    if actor.strategy != "megatron":
        return {}
    return {name: getattr(actor.megatron, name) for name in SIZES}


def _loads_more_than_weights(config: DictConfig, step: Path) -> bool:
    roles = [config.actor_rollout_ref.actor, *([config.critic] if (step / CRITIC).is_dir() else [])]
    return any(set(role.checkpoint.load_contents) != {WEIGHTS} for role in roles)


def _expect(wanted: dict[str, int | None], step: Path) -> None:
    try:
        written = json.loads((step.parent / SPLIT_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return
    changed = [f"{name} {written.get(name)}, now {size}" for name, size in wanted.items() if written.get(name) != size]
    if changed:
        raise RefusedError(
            ExitCode.BAD_CONFIG,
            "CheckpointTopology",
            f"{step} was written with {'; '.join(changed)}: Megatron's optimizer and random states can only be loaded "
            f"by the same split; set trainer.parallelism back, or load the weights alone by verl.overrides "
            f'{FIELD}: ["{WEIGHTS}"]',
        )
