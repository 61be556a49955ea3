"""Is this spec worth an NPU? Recipes and job are merged, typed and checked, and all violations are reported at once.

Called by `reconcile` before anything is created, and by `rljob validate`. The checks are grouped by subject in the
modules beside this one and in the launcher. Each is a small function of a spec whose types hold; none sees the cluster.
What is accepted but has no effect in this version, or is doubtful, is reported as a warning (`warnings_of`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from rljob.api import forms
from rljob.api.field_path import member
from rljob.api.recipes import RecipeLayer
from rljob.api.texts import read_texts
from rljob.api.v1alpha1 import MAX_NAME_LENGTH, RLJobSpec
from rljob.core.launcher import LauncherOf
from rljob.core.manifest_facts import asks_to_stop
from rljob.core.nearest import nearest_field
from rljob.core.spec.locks import locked_violations
from rljob.core.spec.merge import EMPTY, LEAF, Layer, layer, merge, shape_of, values
from rljob.core.spec.recipes import JOB_SOURCE, NOT_IN_CLUSTER, Recipes, merge_layer, resolve, unset_violations
from rljob.core.validation import (
    accelerator,
    device_variables,
    devices,
    evaluating,
    exporting,
    hccl,
    images,
    initializers,
    launcher_fields,
    lifecycle,
    mounts,
    packages,
    patches,
    pods,
    roles,
    secrets,
    topology,
)
from rljob.core.validation.sizes import kept_size_violation, size_violations
from rljob.core.validation.unions import union_violations
from rljob.core.validation.unique_keys import key_violations
from rljob.core.validation.violation import Check, Violation
from rljob.render.accelerator_table import AcceleratorTable

T = TypeVar("T")
CHECKS: tuple[Check, ...] = (
    *launcher_fields.CHECKS,
    *accelerator.CHECKS,
    *roles.CHECKS,
    *devices.CHECKS,
    *pods.CHECKS,
    *images.CHECKS,
    *packages.CHECKS,
    *initializers.CHECKS,
    *hccl.CHECKS,
    *patches.CHECKS,
    *mounts.CHECKS,
    *device_variables.CHECKS,
    *secrets.CHECKS,
    *lifecycle.CHECKS,
    *exporting.CHECKS,
    *evaluating.CHECKS,
    *topology.CHECKS,
)
WARNINGS: tuple[Check, ...] = (*accelerator.WARNINGS, *hccl.WARNINGS, *packages.WARNINGS, *topology.WARNINGS)
DEPTH_MAX = 40
"""Levels of nesting: more than any field has, and far below Python's own limit."""
VIOLATIONS_MAX = 256
WARNINGS_MAX = 32
JUDGED_MAX = 1024
"""Findings after which judging ends: each costs time, and a message of its own."""
NULLS_ALLOWED = frozenset({"spec.verl.overrides", "spec.model.config"})
INPUT_SHOWN = 200
"""Characters of an invalid value that a message shows."""
GENERATED_CHARACTERS = 5
"""Appended to metadata.generateName: randomLength of k8s.io/apiserver v0.36, pkg/storage/names/generate.go."""
_MODELS = "; an initializer of type Model downloads a model of a hub to such a path"
_DATA = "; an initializer of type Dataset downloads a data set of a hub and writes such files"
HINTS = {
    "spec.model.path": _MODELS,
    "spec.critic.path": _MODELS,
    "spec.data.train[]": _DATA,
    "spec.data.validation[]": _DATA,
}
"""What to do about a text of a wrong form, in addition to its description."""
EXAMPLES = {"spec.data.train[]": "/data/train.parquet", "spec.data.validation[]": "/data/test.parquet"}
"""Paths that an absolute path of a field looks like, in place of a model's."""


@dataclass(frozen=True)
class Checked:
    """The result of checking a manifest."""

    spec: RLJobSpec | None
    """With recipes and defaults applied; None where there is a violation."""
    violations: tuple[Violation, ...]
    recipes: tuple[RecipeLayer, ...] = ()
    """The recipes below the spec, the lowest first."""
    merged: Layer = EMPTY
    """Recipes and job merged, before types and defaults."""
    warnings: tuple[Violation, ...] = ()
    """Fields that have no effect in this version, and settings that are doubtful."""


def validate(
    name: str,
    raw_spec: Mapping[str, Any],
    recipes: Recipes | None = None,
    *,
    launcher: LauncherOf,
    accelerators: AcceleratorTable,
    generated: bool = False,
    created: bool = True,
    absent: str = NOT_IN_CLUSTER,
) -> Checked:
    """Merge, type and check a spec. `generated`: the name is metadata.generateName, to which characters are added.

    `created`: the job is created with this spec, which nobody edited since. `absent` completes the message about a
    recipe that is not among `recipes`.
    """
    return at_once(
        validating(
            name,
            raw_spec,
            recipes,
            launcher=launcher,
            accelerators=accelerators,
            generated=generated,
            created=created,
            absent=absent,
        )
    )


def at_once(parts: Generator[None, None, T]) -> T:
    """Return the result of a computation in parts."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: T = end.value
            return found


def validating(
    name: str,
    raw_spec: Mapping[str, Any],
    recipes: Recipes | None = None,
    *,
    launcher: LauncherOf,
    accelerators: AcceleratorTable,
    generated: bool = False,
    created: bool = True,
    absent: str = NOT_IN_CLUSTER,
) -> Generator[None, None, Checked]:
    """Do what `validate` does in parts: after each, the operator's event loop may do other work."""
    if refused := (*kept_size_violation(raw_spec), *_depth_violations(raw_spec)):
        return Checked(None, refused)
    chain = resolve(raw_spec, recipes or {}, absent)
    found = (*chain.violations, *_name_violations(name, generated=generated))
    found += tuple(_stop_violations(raw_spec)) if created else ()
    yield
    return (yield from _checking(raw_spec, chain.layers, found, launcher=launcher, accelerators=accelerators))


def _stop_violations(raw_spec: Mapping[str, Any]) -> Iterator[Violation]:
    """A job that ends before it begins is a manifest that was copied from one that was stopped."""
    if asks_to_stop(raw_spec):
        yield Violation(
            "spec.stop.requested",
            "is true in a job that is created, which would never begin; remove it, and set it on the job to end it",
        )


def check(
    name: str,
    raw_spec: Mapping[str, Any],
    recipes: tuple[RecipeLayer, ...],
    *,
    launcher: LauncherOf,
    accelerators: AcceleratorTable,
) -> Checked:
    """Check a spec over recipes that are already read, such as those of a snapshot."""
    return at_once(checking(name, raw_spec, recipes, launcher=launcher, accelerators=accelerators))


def checking(
    name: str,
    raw_spec: Mapping[str, Any],
    recipes: tuple[RecipeLayer, ...],
    *,
    launcher: LauncherOf,
    accelerators: AcceleratorTable,
) -> Generator[None, None, Checked]:
    """Do what `check` does in parts."""
    if refused := tuple(kept_size_violation(raw_spec)):
        return Checked(None, refused)
    found = tuple(_name_violations(name))
    return (yield from _checking(raw_spec, recipes, found, launcher=launcher, accelerators=accelerators))


def _checking(
    raw_spec: Mapping[str, Any],
    recipes: tuple[RecipeLayer, ...],
    found: tuple[Violation, ...],
    *,
    launcher: LauncherOf,
    accelerators: AcceleratorTable,
) -> Generator[None, None, Checked]:
    found += tuple(unset_violations("spec.unset", raw_spec.get("unset")))
    unset = raw_spec.get("unset")
    paths = [path for path in unset if isinstance(path, str)] if isinstance(unset, list) else []
    own, unread = read_texts(raw_spec, "spec")
    found += tuple(Violation(problem.field, problem.message) for problem in unread)
    yield
    upper = layer(JOB_SOURCE, own, paths)
    merged = merge([*map(merge_layer, recipes), upper])
    found += tuple(locked_violations(recipes, upper))
    document = values(merged)
    found += (*_depth_violations(document), *_null_violations(document, "spec"), *size_violations(document))
    # What a Command job must not have is reported once, and not judged as well.
    found += tuple(launcher_fields.violations(merged.tree))
    document = launcher_fields.readable(document)
    yield
    try:
        # Strict like the API server: a string of digits is not an integer.
        spec = RLJobSpec.model_validate_json(json.dumps(document), strict=True, context=accelerators)
    except ValidationError as error:
        # Fields that a missing recipe would have set are not reported as well.
        problems = () if found and not recipes and raw_spec.get("recipeRef") else tuple(_type_violations(error))
        return _refused(found + problems, recipes, merged)
    if unknown := tuple(accelerator.class_violations(spec)):
        return _refused(found + unknown, recipes, merged)
    found += yield from _judging(spec, (*CHECKS, *launcher(spec).checks))
    found += (*union_violations(spec, "spec"), *key_violations(spec, "spec"))
    made = None if found else evaluating.job_spec(spec, accelerators)
    if isinstance(made, Violation):
        found = (made,)
    elif made is not None:
        found = tuple(map(evaluating.refused, (yield from _judging(made, (*CHECKS, *launcher(made).checks)))))
    # Nobody reads what is doubtful in what is wrong.
    warnings = () if found else (yield from _warning(spec, launcher))
    return Checked(None if found else spec, _few(found, VIOLATIONS_MAX, "violations"), recipes, merged, warnings)


def _refused(found: tuple[Violation, ...], recipes: tuple[RecipeLayer, ...], merged: Layer) -> Checked:
    return Checked(None, _few(found, VIOLATIONS_MAX, "violations"), recipes, merged)


def _judging(spec: RLJobSpec, checks: Iterable[Check]) -> Generator[None, None, tuple[Violation, ...]]:
    found: list[Violation] = []
    for judge in checks:
        yield
        for violation in judge(spec):
            found.append(violation)
            yield
            if len(found) >= JUDGED_MAX:
                return tuple(found)
    return tuple(found)


def warnings_of(spec: RLJobSpec, launcher: LauncherOf) -> tuple[Violation, ...]:
    """Return the doubtful settings, and those without effect, of a spec whose class is known."""
    return at_once(_warning(spec, launcher))


def _warning(spec: RLJobSpec, launcher: LauncherOf) -> Generator[None, None, tuple[Violation, ...]]:
    found = yield from _judging(spec, (*WARNINGS, *launcher(spec).warnings))
    return _few(found, WARNINGS_MAX, "warnings")


def _few(found: tuple[Violation, ...], most: int, what: str) -> tuple[Violation, ...]:
    """Return the first ones and how many are left out: each is kept as long as its job, and nobody reads them all."""
    left = len(found) - most
    return found if left <= 0 else (*found[:most], Violation("spec", f"and {left} more {what}"))


def _depth_violations(document: object) -> Iterator[Violation]:
    """Refuse nesting that would exhaust the stack; the walk itself does not recurse."""
    level: list[tuple[str, object]] = [("spec", document)]
    for _ in range(DEPTH_MAX):
        level = [(path, entry) for name, value in level for path, entry in _members(name, value)]
    if level:
        yield Violation(level[0][0], f"is nested deeper than {DEPTH_MAX} levels; no field is")


def _members(path: str, value: object) -> Iterator[tuple[str, object]]:
    # The first two levels identify the field; a deeper path would not help.
    short = path.count(".") + path.count("[") > 1
    if isinstance(value, Mapping):
        yield from ((path if short else member(path, str(name)), entry) for name, entry in value.items())
    elif isinstance(value, list):
        yield from ((path if short else f"{path}[{index}]", entry) for index, entry in enumerate(value))


def _null_violations(value: object, path: str) -> Iterator[Violation]:
    """Refuse null as the API server does; in overrides and in model.config it is a value."""
    if value is None:
        yield Violation(path, "is null; remove the field, or name it in spec.unset to drop a recipe's value")
    elif isinstance(value, Mapping) and path not in NULLS_ALLOWED:
        for name, entry in value.items():
            yield from _null_violations(entry, member(path, str(name)))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _null_violations(entry, f"{path}[{index}]")


def _name_violations(name: str, *, generated: bool = False) -> Iterator[Violation]:
    """Enforce for `rljob validate` what CEL enforces on the API server."""
    field, suffix = ("metadata.generateName", "x" * GENERATED_CHARACTERS) if generated else ("metadata.name", "")
    most = MAX_NAME_LENGTH - len(suffix)
    if len(name) > most:
        added = f", and the API server appends {len(suffix)} characters" if generated else ""
        yield Violation(
            field,
            f"{len(name)} characters; at most {most} are allowed, because pod names are derived from it{added}",
        )
    if not re.fullmatch(forms.LABEL.pattern, name + suffix):
        yield Violation(
            field,
            f"{name[:INPUT_SHOWN]!r} must be lower-case letters, digits and '-', and start with a letter (DNS-1035), "
            f"such as {'sums-' if generated else 'sums-1'}",
        )


def _type_violations(error: ValidationError) -> Iterator[Violation]:
    for problem in error.errors(include_url=False):
        field = _place(problem["loc"])
        if problem["input"] is None and problem["type"] != "missing":
            continue  # Reported by _null_violations.
        match problem["type"]:
            case "missing":
                yield Violation(field, "is required and not set")
            case "extra_forbidden":
                yield Violation(field, f"is not a field of RLJob; {_meant(problem['loc'])}")
            case "json_invalid":  # Its input is the whole document.
                yield Violation(field, f"cannot be written as JSON: {problem['msg']}")
            case "string_pattern_mismatch":
                entry = re.sub(r"\[\d+\]", "[]", field)
                must = forms.problem_text(problem).replace(forms.EXAMPLE_PATH, EXAMPLES.get(entry, forms.EXAMPLE_PATH))
                yield Violation(field, f"{_seen(field, problem['input'])}{must}{HINTS.get(entry, '')}")
            case _:
                yield Violation(field, f"{_seen(field, problem['input'])}{forms.problem_text(problem)}")


def _place(location: tuple[int | str, ...]) -> str:
    """Return the path of a location in the spec."""
    path = "spec"
    for part in location:
        path = f"{path}[{part}]" if isinstance(part, int) else member(path, part)
    return path


def _meant(location: tuple[int | str, ...]) -> str:
    """Return a suggestion for a misspelt field."""
    shape = shape_of(RLJobSpec)
    for part in location[:-1]:
        shape = (shape.item or LEAF) if shape.keys else shape.member(str(part))
    near = nearest_field(str(location[-1]), shape.members)
    return f"did you mean {near}?" if near else "see `kubectl explain rljob.spec`"


def _seen(field: str, value: object) -> str:
    if not isinstance(value, (str, int, float, bool)) or secrets.may_hold_secrets(field, value):
        return ""
    text = repr(value)
    return f"{text if len(text) <= INPUT_SHOWN else text[: INPUT_SHOWN - 1] + '…'}: "
