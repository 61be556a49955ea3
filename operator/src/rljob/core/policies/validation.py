"""Is this spec worth an NPU? Types first, then a chain of small checks; all violations are told at once.

Called by `reconcile` before anything is made, and by `rljob validate`. A check gets a spec whose types hold; it never
sees the cluster.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from rljob.api.base import DNS_LABEL
from rljob.api.pods import PodTemplate
from rljob.api.v1alpha1 import MAX_NAME_LENGTH, RLJobSpec
from rljob.build.accelerators import ACCELERATORS
from rljob.core.merge import EMPTY, Layer, layer, merge, values
from rljob.core.policies.unions import union_violations
from rljob.core.policies.violation import Violation
from rljob.core.recipes import JOB_SOURCE, RecipeLayer, Recipes, resolve, unset_violations
from rljob.launchers import verl
from rljob_runtime.contract import AttemptVariable, PodVariable, head_paths

Check = Callable[[RLJobSpec], Iterator[Violation]]

NODES_MAX = 5000
"""https://kubernetes.io/docs/setup/best-practices/cluster-large/"""
OUR_VARIABLES = frozenset(variable.value for variable in (*PodVariable, *AttemptVariable))
RESERVED_VOLUMES = frozenset({"rljob-code", "rljob-spool", "rljob-config", "shared-memory"})


@dataclass(frozen=True)
class Checked:
    """What became of a manifest."""

    spec: RLJobSpec | None
    """With recipes and defaults; None where there is a violation."""
    violations: tuple[Violation, ...]
    recipes: tuple[RecipeLayer, ...] = ()
    """What the spec stands on, the lowest first."""
    merged: Layer = EMPTY
    """Recipes and job laid over each other, before types and defaults."""


def validate(name: str, raw_spec: Mapping[str, Any], recipes: Recipes | None = None) -> Checked:
    """Merge, type and check a spec."""
    chain = resolve(raw_spec, recipes or {})
    return check(name, raw_spec, chain.layers, chain.violations)


def check(
    name: str, raw_spec: Mapping[str, Any], recipes: tuple[RecipeLayer, ...], found: tuple[Violation, ...] = ()
) -> Checked:
    """Do so with recipes that are at hand, as those of a snapshot are."""
    found += (*_name_violations(name), *unset_violations("spec.unset", raw_spec.get("unset")))
    unset = raw_spec.get("unset")
    own = layer(JOB_SOURCE, raw_spec, unset if isinstance(unset, list) else ())
    merged = merge([*(recipe.to_layer() for recipe in recipes), own])
    document = values(merged)
    found += tuple(_null_violations(document, "spec"))
    try:
        # As the API server does: an integer is not a text of digits.
        spec = RLJobSpec.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        # What a missing recipe would have given is not missed as well.
        problems = () if found and not recipes and raw_spec.get("recipeRef") else tuple(_type_violations(error))
        return Checked(None, found + problems, recipes, merged)
    found += (*(violation for judge in CHECKS for violation in judge(spec)), *union_violations(spec, "spec"))
    return Checked(None if found else spec, found, recipes, merged)


def _null_violations(value: object, path: str) -> Iterator[Violation]:
    """Refuse null as the API server does; in overrides it is a value."""
    if value is None:
        yield Violation(path, "is null; leave the field out, or name it in spec.unset to drop a recipe's value")
    elif isinstance(value, Mapping) and path != "spec.verl.overrides":
        for name, member in value.items():
            yield from _null_violations(member, f"{path}.{name}")
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _null_violations(member, f"{path}[{index}]")


def _name_violations(name: str) -> Iterator[Violation]:
    """Say for `rljob validate` what CEL says on the API server."""
    if len(name) > MAX_NAME_LENGTH:
        yield Violation(
            "metadata.name",
            f"{len(name)} characters; at most {MAX_NAME_LENGTH} are allowed, since names of pods are made from it",
        )
    if not re.fullmatch(DNS_LABEL, name):
        yield Violation(
            "metadata.name", f"{name!r} must be lower-case letters, digits and '-', beginning with a letter (DNS-1035)"
        )


def _type_violations(error: ValidationError) -> Iterator[Violation]:
    for problem in error.errors(include_url=False, include_context=False):
        field = "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
        if problem["input"] is None and problem["type"] != "missing":
            continue  # told by _null_violations
        match problem["type"]:
            case "missing":
                yield Violation(field, "is required and not set")
            case "extra_forbidden":
                yield Violation(field, "is no field of RLJob; see `kubectl explain rljob.spec`")
            case _:
                yield Violation(field, f"{_seen(problem['input'])}{problem['msg']}")


def _seen(value: object) -> str:
    return f"{value!r}: " if isinstance(value, (str, int, float, bool)) else ""


def _devices_fit_node(spec: RLJobSpec) -> Iterator[Violation]:
    facts = ACCELERATORS[spec.accelerator.class_]
    for index, group in enumerate(spec.worker_groups):
        if group.nodes > NODES_MAX:
            yield Violation(
                f"spec.workerGroups[{index}].nodes",
                f"{group.nodes} nodes, but Kubernetes is made for at most {NODES_MAX}; lower it",
            )
        if group.devices_per_node > facts.devices_per_node:
            yield Violation(
                f"spec.workerGroups[{index}].devicesPerNode",
                f"{group.devices_per_node} devices, but a node of class {spec.accelerator.class_} has "
                f"{facts.devices_per_node}; lower it and raise nodes",
            )
        if group.devices_per_node % facts.dies_per_card and group.devices_per_node != 1:
            yield Violation(
                f"spec.workerGroups[{index}].devicesPerNode",
                f"{group.devices_per_node} devices split a card: class {spec.accelerator.class_} has "
                f"{facts.dies_per_card} dies a card; use a multiple of {facts.dies_per_card}",
            )


def _tensor_parallel_divides(spec: RLJobSpec) -> Iterator[Violation]:
    group, tensor = spec.worker_groups[0], spec.rollout.parallelism.tensor
    if group.devices_per_node % tensor:
        yield Violation(
            "spec.rollout.parallelism.tensor",
            f"{tensor} does not divide workerGroups[0].devicesPerNode {group.devices_per_node}, so a replica would "
            f"span nodes; use one of {_divisors(group.devices_per_node)}",
        )


def _mini_batch_divides(spec: RLJobSpec) -> Iterator[Violation]:
    batch, mini = spec.trainer.global_batch_size, verl.mini_batch(spec)
    if batch % mini:
        yield Violation(
            "spec.trainer.miniBatchSize",
            f"{mini} does not divide trainer.globalBatchSize {batch}; use one of {_divisors(batch)}",
        )


def _batches_divide_over_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """Check what verl asserts for FSDP: each device trains whole samples (verl/utils/config.py, v0.9.1)."""
    group, count, samples = spec.worker_groups[0], verl.devices(spec), spec.trainer.samples_per_prompt
    for field, prompts in (
        ("globalBatchSize", spec.trainer.global_batch_size),
        ("miniBatchSize", spec.trainer.mini_batch_size),
    ):
        if prompts is not None and prompts * samples % count:
            yield Violation(
                f"spec.trainer.{field}",
                f"{prompts} prompts × trainer.samplesPerPrompt {samples} = {prompts * samples} samples do not divide "
                f"over {count} devices (workerGroups[0].nodes {group.nodes} × devicesPerNode "
                f"{group.devices_per_node}); set {field} to {_next_multiple(prompts, samples, count)}",
            )


def _micro_batch_divides(spec: RLJobSpec) -> Iterator[Violation]:
    share = verl.mini_batch(spec) * spec.trainer.samples_per_prompt // verl.devices(spec)
    micro = spec.trainer.micro_batch_size_per_device
    if micro is not None and share and share % micro:
        yield Violation(
            "spec.trainer.microBatchSizePerDevice",
            f"{micro} does not divide a device's {share} samples of a mini batch; use one of {_divisors(share)}",
        )


def _group_has_peers(spec: RLJobSpec) -> Iterator[Violation]:
    if spec.trainer.samples_per_prompt < 2:
        yield Violation(
            "spec.trainer.samplesPerPrompt",
            f"{spec.trainer.samples_per_prompt}: GRPO compares the responses of a prompt, so the advantage of a "
            "single one is always 0; use 2 or more (8 is usual)",
        )


def _mounts_have_volumes(spec: RLJobSpec) -> Iterator[Violation]:
    shared = spec.worker_groups[0].template
    yield from _template_violations("spec.workerGroups[0].template", shared, {v.name for v in shared.volumes})
    known = {v.name for v in (*shared.volumes, *spec.head.template.volumes)}
    yield from _template_violations("spec.head.template", spec.head.template, known)


def _template_violations(field: str, template: PodTemplate, known: set[str]) -> Iterator[Violation]:
    for index, volume in enumerate(template.volumes):
        if volume.name in RESERVED_VOLUMES:
            yield Violation(f"{field}.volumes[{index}].name", f"{volume.name} is taken by the operator; rename it")
    for index, mount in enumerate(template.volume_mounts):
        if mount.name not in known:
            listed = ", ".join(sorted(known)) or "none"
            yield Violation(f"{field}.volumeMounts[{index}].name", f"no volume {mount.name}; volumes are: {listed}")


def _nothing_of_ours_is_taken(spec: RLJobSpec) -> Iterator[Violation]:
    """Refuse what would hide the operator's own mounts and variables: the pod would be refused, or lose its way."""
    paths = head_paths()
    ours = {paths.config_folder, paths.spool, "/dev/shm"} | ({spec.code.mount_path} if spec.code.config_map else set())  # noqa: S108
    for field, template in (
        ("spec.workerGroups[0].template", spec.worker_groups[0].template),
        ("spec.head.template", spec.head.template),
    ):
        for index, mount in enumerate(template.volume_mounts):
            if mount.mount_path.rstrip("/") in ours:
                yield Violation(
                    f"{field}.volumeMounts[{index}].mountPath",
                    f"{mount.mount_path} is the operator's; use another path",
                )
        for index, variable in enumerate(template.env):
            if variable.name in OUR_VARIABLES:
                yield Violation(f"{field}.env[{index}].name", f"{variable.name} is the operator's; use another name")


def _tolerations_hold(spec: RLJobSpec) -> Iterator[Violation]:
    """Check what the API server checks of a pod, which nobody would see but KubeRay (validateTolerations, v1.36)."""
    for field, template in (
        ("spec.workerGroups[0].template", spec.worker_groups[0].template),
        ("spec.head.template", spec.head.template),
    ):
        for index, toleration in enumerate(template.tolerations):
            place = f"{field}.tolerations[{index}]"
            if toleration.operator == "Exists" and toleration.value:
                yield Violation(place, f"operator Exists takes no value, got {toleration.value}; use operator Equal")
            if toleration.operator == "Equal" and not toleration.key:
                yield Violation(place, "operator Equal needs a key; set it, or use operator Exists for all taints")


def _overrides_are_free(spec: RLJobSpec) -> Iterator[Violation]:
    for key, value in spec.verl.overrides.items():
        field = f"spec.verl.overrides[{key}]"
        if not _is_override_value(value):
            yield Violation(
                field, f"{type(value).__name__} is no JSON scalar (a number must be finite), list or map of scalars"
            )
            continue
        plain = key.lstrip("+")
        # verl merges a map into its configuration, so a map sets the keys below it.
        for name in [f"{plain}.{member}" for member in value] if isinstance(value, dict) else [plain]:
            if (typed := verl.TYPED_KEYS.get(name)) is not None:
                yield Violation(field, f"is set by spec.{typed}; set it there")
            elif any(known.startswith(f"{name}.") for known in verl.TYPED_KEYS):
                yield Violation(field, f"{name} is a section with fields of its own; name the key that is meant")


def _is_override_value(value: object) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_scalar, value.values()))
    return all(map(_is_scalar, value)) if isinstance(value, list) else _is_scalar(value)


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))


def _numbers_are_finite(spec: RLJobSpec) -> Iterator[Violation]:
    for field, text in (
        ("algorithm.klCoefficient", spec.algorithm.kl_coefficient),
        ("trainer.learningRate", spec.trainer.learning_rate),
    ):
        if not math.isfinite(float(text)):
            yield Violation(f"spec.{field}", f"{text} is too large for a number; use one such as 1e-6")


def _verl_can_do_it(spec: RLJobSpec) -> Iterator[Violation]:
    yield from (Violation(f"spec.{field}", message) for field, message in verl.refusals(spec))


def _initializers_are_distinct(spec: RLJobSpec) -> Iterator[Violation]:
    names = [initializer.name for initializer in spec.initializers]
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Violation(f"spec.initializers[{index}].name", f"{name} is used twice; rename one")


CHECKS: tuple[Check, ...] = (
    _devices_fit_node,
    _tensor_parallel_divides,
    _mini_batch_divides,
    _batches_divide_over_devices,
    _micro_batch_divides,
    _group_has_peers,
    _mounts_have_volumes,
    _nothing_of_ours_is_taken,
    _tolerations_hold,
    _numbers_are_finite,
    _overrides_are_free,
    _verl_can_do_it,
    _initializers_are_distinct,
)


def _divisors(number: int) -> str:
    found = [candidate for candidate in range(1, min(number, 4096) + 1) if number % candidate == 0]
    return ", ".join(str(candidate) for candidate in found[-8:])


def _next_multiple(prompts: int, samples: int, count: int) -> int:
    unit = count // math.gcd(samples, count)
    return -(-prompts // unit) * unit
