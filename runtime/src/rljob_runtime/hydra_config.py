"""Compose verl's configuration from job.json with verl's `ppo_trainer` schema, and check it before Ray work starts.

Values are set as typed JSON scalars, never as command-line text, so nothing needs quoting. Keys that choose a
configuration group (`model_engine`, `actor@...`) are passed to Hydra's own composition, which determines the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rljob_runtime import launcher_overrides
from rljob_runtime.contract import ExitCode, JobConfig, OverrideValue
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.planning import ascend, megatron, verl
from rljob_runtime.planning.flattening import plain_keys
from rljob_runtime.spool.spool import Spool

if TYPE_CHECKING:
    from omegaconf import DictConfig

CONFIG_MODULE = "verl.trainer.config"
CONFIG_NAME = "ppo_trainer"
GROUPS = frozenset({"model_engine"})
"""Groups in the defaults list of ppo_trainer.yaml without an `@` in their name (verl 0.9.1)."""


def compose(job: JobConfig, spool: Spool, scratch: Path) -> DictConfig:
    """Return verl's configuration for the job. Raises RefusedError (exit 64) for keys that verl does not accept."""
    overrides = with_launcher_keys(job, spool, scratch)
    config = _compose_groups({key: value for key, value in overrides.items() if is_group(key)})
    values = {key: value for key, value in overrides.items() if not is_group(key)}
    known = set(flatten(config))
    problems = [
        f"{key}: {verl.unknown_key(key, known)}" for key in values if not key.startswith("+") and key not in known
    ]
    problems += [f"{key}: {problem}" for key, problem in unknown_to_frameworks(job.overrides).items()]
    if problems:
        raise RefusedError(ExitCode.BAD_CONFIG, "UnknownOverride", "; ".join(problems))
    apply(config, values)
    return config


def unknown_to_frameworks(overrides: Mapping[str, object]) -> dict[str, str]:
    """Return the plain keys that verl passes on and whose receiver does not know them, each with the problem."""
    keys = plain_keys(overrides)
    return megatron.unknown_keys(keys) | ascend.unknown_options(keys)


def apply(config: DictConfig, values: Mapping[str, OverrideValue]) -> None:
    """Set values. Raises RefusedError (exit 64) for a value of the wrong type."""
    for key, value in values.items():
        _set(config, key, value)


def with_launcher_keys(job: JobConfig, spool: Spool, scratch: Path) -> dict[str, OverrideValue]:
    """Merge the job's overrides with the launcher's own keys and defaults, in the order in which they apply."""
    fixed = launcher_overrides.fixed(job, spool, scratch)
    wanted = {plain(key): value for key, value in fixed.items()}
    clashes = [
        f"{key}: is set by the launcher ({launcher_overrides.FIXED[plain(key)]}); remove it from the overrides"
        for key, value in job.overrides.items()
        if plain(key) in wanted and value != wanted[plain(key)]
    ]
    if clashes:
        raise RefusedError(ExitCode.BAD_CONFIG, "ReservedOverride", "; ".join(clashes))
    set_by_job = [plain(key) for key in job.overrides]
    defaults = {
        key: value for key, value in launcher_overrides.defaults(job).items() if not touched(plain(key), set_by_job)
    }
    return defaults | job.overrides | fixed


def plain(key: str) -> str:
    """Remove the leading `+`, Hydra's mark for a key that the schema lacks."""
    return key.lstrip("+")


def touched(key: str, by: Iterable[str]) -> bool:
    """Return whether one of `by` is the key itself, below it or above it."""
    return any(other == key or other.startswith(f"{key}.") or key.startswith(f"{other}.") for other in by)


def is_group(key: str) -> bool:
    """Return whether a key chooses a configuration group rather than a value."""
    return "@" in key or plain(key) in GROUPS


def flatten(config: DictConfig) -> list[str]:
    """Return every key of the schema, including inner nodes."""
    from omegaconf import OmegaConf

    names: list[str] = []

    def walk(node: Mapping[str, Any], path: str) -> None:
        for name, value in node.items():
            names.append(f"{path}{name}")
            if isinstance(value, Mapping):
                walk(value, f"{path}{name}.")

    walk(OmegaConf.to_container(config, resolve=False), "")
    return names


def value(config: DictConfig, key: str) -> object:
    """Return the value of a key; None if there is none."""
    from omegaconf import OmegaConf

    found: object = OmegaConf.select(config, key)
    return found


def validate(config: DictConfig) -> None:
    """Run verl's own checks and convert its errors to exit 64."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    auto_set_device(config)
    try:
        validate_config(
            config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config)
        )
    except Exception as error:
        raise RefusedError(ExitCode.BAD_CONFIG, "InvalidConfig", f"verl rejects the configuration: {error}") from error


def _compose_groups(groups: Mapping[str, OverrideValue]) -> DictConfig:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.errors import HydraException

    choices = [f"{key}={value}" for key, value in groups.items()]
    try:
        with initialize_config_module(CONFIG_MODULE, version_base=None):
            return hydra_compose(CONFIG_NAME, overrides=choices)
    except HydraException as error:
        raise RefusedError(ExitCode.BAD_CONFIG, "UnknownOverride", f"{', '.join(choices)}: {error}") from error


def _set(config: DictConfig, key: str, value: OverrideValue) -> None:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        OmegaConf.update(config, plain(key), value, merge=True, force_add=key.startswith("+"))
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
        raise RefusedError(
            ExitCode.BAD_CONFIG, "InvalidOverride", f"{key}: invalid value {value!r}: {reason}"
        ) from error
