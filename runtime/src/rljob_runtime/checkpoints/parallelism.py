"""Record Megatron's parallelism of a checkpoint step, and check whether this attempt can load it.

verl saves Megatron's optimizer so that it can be loaded only with another number of data-parallel ranks, and the states
of the random generators by pipeline and tensor rank (megatron_checkpoint_manager.py,
`_build_sharded_state_dict_metadata` and `get_rng_state`, 0.9.1). With other sizes, loading fails after the models of
all devices have been built. Each save therefore records its sizes in the step's folder, and the launcher refuses a
mismatch before the start. The weights alone can be loaded with any sizes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rljob_runtime.checkpoints import contents, saved_steps
from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.checkpoints.saved_steps import CRITIC_FOLDER
from rljob_runtime.contract import ExitCode
from rljob_runtime.outcomes import RefusedError

if TYPE_CHECKING:
    from omegaconf import DictConfig

SPLIT_FILE = "parallelism.json"
"""Name of the file in a step's folder with its parallelism."""
SIZES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
)
"""Keys of verl/trainer/config/engine/megatron.yaml (0.9.1). Context parallelism only divides the data ranks."""


def require(start: Start, config: DictConfig) -> None:
    """Refuse to start from a step with another parallelism (exit 64).

    A step without a record was written by an older image and is accepted.
    """
    wanted = split(config)
    if start.folder is not None and wanted and _loads_more_than_weights(config, start.folder):
        _expect(wanted, start.folder)


def note(step: Path, sizes: Mapping[str, int | None], check_owner: Callable[[], None]) -> None:
    """Record the parallelism in a step's folder. A failing volume loses the record, not the save."""
    if sizes:
        saved_steps.note(step, SPLIT_FILE, json.dumps(sizes, sort_keys=True), "parallelism", check_owner)


def split(config: DictConfig) -> dict[str, int | None]:
    """Return the sizes of Megatron's groups by verl's names; empty for other engines."""
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
            f"{step} was written with {'; '.join(changed)}: Megatron's optimizer and random states can be loaded only "
            f"with the same parallelism; restore trainer.parallelism, or load only the weights with verl.overrides "
            f'{contents.LOAD_KEY}: ["{contents.MODEL}"]',
        )
