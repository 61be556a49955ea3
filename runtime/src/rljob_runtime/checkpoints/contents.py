"""Contents of a checkpoint: what verl saves and loads for each role, and whether a run can resume from it.

verl 0.9.1 saves and loads the model of a role only if `checkpoint.save_contents` and `load_contents` contain "model",
and the optimizer only if they contain "optimizer" (verl/utils/checkpoint/checkpoint_manager.py:76,83,119,126). By
default it loads what it saves (verl/trainer/config/actor/actor.yaml:139, critic/critic.yaml:81), so nothing fails when
a step lacks the model: training continues at step N with the weights of `model.path`. The launcher therefore refuses
such settings, and steps that lack what the run would load. It also refuses to load what is not saved, which every
restart would fail to find, and to leave out "extra" where FSDP keeps the place in a learning-rate schedule there
(verl/utils/checkpoint/fsdp_checkpoint_manager.py:222). The operator checks the same (launchers/verl/checks).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rljob_runtime.checkpoints import saved_steps
from rljob_runtime.contract import ExitCode, JobConfig
from rljob_runtime.files import file_named_in_errors
from rljob_runtime.outcomes import RefusedError

if TYPE_CHECKING:
    from omegaconf import DictConfig

CONSTANT = "constant"
MEGATRON = "megatron"
MODEL = "model"
OPTIMIZER = "optimizer"
EXTRA = "extra"
DEFAULT = frozenset({MODEL, OPTIMIZER, EXTRA})
"""verl's meaning of null: verl/utils/checkpoint/checkpoint_manager.py:54-57 (0.9.1)."""
PARTS = (MODEL, OPTIMIZER, EXTRA)
NEEDED = {"save_contents": (MODEL, OPTIMIZER), "load_contents": (MODEL,)}
"""Loading the model without its optimizer is allowed, to change Megatron's parallelism (docs/training.md)."""
KEYS = {saved_steps.MODEL_FOLDER: "actor_rollout_ref.actor", saved_steps.CRITIC_FOLDER: "critic"}
"""verl's key of a role, by the folder of its checkpoint."""
LOAD_KEY = "actor_rollout_ref.actor.checkpoint.load_contents"
"""The critic has its own key."""
SHARDS = {"model": MODEL, "optim": OPTIMIZER, "extra_state": EXTRA}
"""Contents by kind of FSDP shard: verl/utils/checkpoint/fsdp_checkpoint_manager.py:316-318 (0.9.1)."""
FSDP_FILE = "fsdp_config.json"
"""Rank 0 of FSDP always writes it: verl/utils/checkpoint/fsdp_checkpoint_manager.py:410 (0.9.1)."""
MEGATRON_KINDS = {"model": MODEL, "optimizer": OPTIMIZER, "rng_state": EXTRA}
"""Contents by name in Megatron's list: verl/utils/checkpoint/megatron_checkpoint_manager.py:495-557 (0.9.1)."""
MEGATRON_FILE = "ckpt_contents.json"
"""Rank 0 of Megatron writes it last: verl/utils/megatron_utils.py:1113 (0.9.1). Empty folders are not meaningful,
because verl creates folders for all contents (lines 1036-1057)."""


def require(job: JobConfig, config: DictConfig, *, needs_critic: bool) -> None:
    """Raise RefusedError (exit 64) if a run that saves checkpoints could not resume from them."""
    if not job.checkpoint_path:
        return
    for role in _trained(needs_critic=needs_critic):
        key = KEYS[role]
        for field, needed in NEEDED.items():
            value = getattr(_settings(config, role), field)
            if lacking := [name for name in needed if name not in named(value)]:
                raise _refused(
                    f"{key}.checkpoint.{field} is {value}, without {' and '.join(lacking)}: an attempt that resumes "
                    f"would not continue what was trained; list {' and '.join(needed)} there, or remove the override"
                )
        _require_same(config, role, key)


def _require_same(config: DictConfig, role: str, key: str) -> None:
    """Raise RefusedError if a restart would look for what is not saved, or begin the learning-rate schedule again."""
    settings, owner = _settings(config, role), _owner(config, role)
    saved, loaded = named(settings.save_contents), named(settings.load_contents)
    if lacking := [name for name in PARTS if name in loaded and name not in saved]:
        raise _refused(
            f"{key}.checkpoint.load_contents names {' and '.join(lacking)}, which save_contents does not: an attempt "
            "that resumes would not find them; make both lists the same"
        )
    if EXTRA not in loaded and owner.strategy != MEGATRON and has_schedule(owner.optim):
        raise _refused(
            f"{key}.checkpoint lists no extra, which has the place in the learning-rate schedule of {key}.optim: an "
            "attempt that resumes would begin the schedule again; add extra to save_contents and load_contents"
        )


def _refused(message: str) -> RefusedError:
    return RefusedError(ExitCode.BAD_CONFIG, "InvalidOverride", message)


def has_schedule(optimizer: Any) -> bool:  # noqa: ANN401 - a node of verl's configuration
    """Report whether the learning rate depends on the step (verl/workers/engine/fsdp/transformer_impl.py:509-522)."""
    kinds = (optimizer.get("lr_scheduler_type", CONSTANT), optimizer.get("lr_decay_style", CONSTANT))
    steps = (optimizer.get("lr_warmup_steps") or 0, optimizer.get("lr_warmup_steps_ratio") or 0)
    return any(kind != CONSTANT for kind in kinds) or any(number > 0 for number in steps)


def loads(config: DictConfig, *, needs_critic: bool) -> dict[str, frozenset[str]]:
    """Return what verl loads, by the folder of each role that the algorithm trains."""
    return {role: named(_settings(config, role).load_contents) for role in _trained(needs_critic=needs_critic)}


def _trained(*, needs_critic: bool) -> tuple[str, ...]:
    """Return the folder of each role that the algorithm trains; verl reads and saves no other."""
    return (saved_steps.MODEL_FOLDER, *((saved_steps.CRITIC_FOLDER,) if needs_critic else ()))


def named(value: object) -> frozenset[str]:
    """Return the contents that verl reads from a setting. It uses `in`, which also works on a string."""
    if value is None:
        return DEFAULT
    return frozenset(name for name in DEFAULT if name in value) if isinstance(value, Sequence) else frozenset()


def lacking(step: Path, wanted: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Yield the parts (model, optimizer, extra) that a step was saved without although the run would load them.

    If a role's files do not show their contents, its engine fails when it does not find what it loads.
    """
    for role, names in wanted.items():
        if (found := saved(step / role)) is not None:
            yield from (f"{role} {name}" for name in PARTS if name in names and name not in found)


def saved(folder: Path) -> frozenset[str] | None:
    """Return the contents of a role's folder; None if its files do not show them.

    Raises OSError for a volume that cannot be read.
    """
    kinds = {kind for kind, _ in saved_steps.shards(folder)}
    if kinds or (folder / FSDP_FILE).exists():
        return frozenset(SHARDS[kind] for kind in kinds)
    file = folder / MEGATRON_FILE
    try:
        with file_named_in_errors(file):
            listed = frozenset(json.loads(file.read_text())["contents"].keys())
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return frozenset(part for name, part in MEGATRON_KINDS.items() if name in listed)


def _settings(config: DictConfig, role: str) -> Any:  # noqa: ANN401 - a node of verl's configuration
    return _owner(config, role).checkpoint


def _owner(config: DictConfig, role: str) -> Any:  # noqa: ANN401 - a node of verl's configuration
    return config.actor_rollout_ref.actor if role == saved_steps.MODEL_FOLDER else config.critic
