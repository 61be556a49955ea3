"""Translate a script of verl into an RLJob: typed fields where the launcher has a row for the key, overrides elsewhere.

The inverse of the launcher's rows is found by trial: a field gets each value that its type allows and the flags
suggest, and keeps the one for which the rows (`rljob.launchers.verl.table.TABLE`) render what the script says. There is
no second table of keys. What an RLJob needs and no flag says is in `stand_ins`. Pure.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl.checks.overrides import LAUNCHERS_OWN, LEGACY
from rljob.launchers.verl.job import overrides
from rljob.launchers.verl.lifecycle import BY_LAUNCHER
from rljob.launchers.verl.rows import ACTOR, OverrideRow
from rljob.launchers.verl.table import TABLE
from rljob.render.accelerators import BUILT_IN
from upstream.verl_scripts.fields import Json, choices, item_choices, put
from upstream.verl_scripts.hydra_value import Value
from upstream.verl_scripts.stand_ins import skeleton, stated_flags
from upstream.verl_scripts.table import Script

FIRST = ("algorithm.name", "trainer.backend", "trainer.maxTokensPerDevice")
"""Fields that decide which rows apply; the others follow in the order of the table."""
BACKENDS_ON_NPUS = ("FSDP2", "MindSpeed")
"""RLJob's two Megatron backends render the same keys; on NPUs verl's Megatron engine loads MindSpeed
(verl 0.9.1, workers/engine/mindspeed)."""
EPOCHS = "trainer.total_epochs"
DECIDED = {
    EPOCHS: "trainer.steps ends the run, and the launcher derives the epochs",
    "trainer.project_name": "the launcher sets the namespace",
    "trainer.experiment_name": "the launcher sets the job's name",
    "ray_kwargs.ray_init.runtime_env.py_executable": "KubeRay starts Ray in the image's own environment",
    # In trainer/config/engine/megatron.yaml of the scripts' commit, and not in that of 0.9.1.
    f"{ACTOR}.megatron.grad_offload": "verl 0.9.1 has no such key: gradients move with the weights",
}
"""Keys that say nothing about the training, or that 0.9.1 lacks, and why an RLJob leaves them out.

A key is listed here only for a reason that was looked up: any other key that verl lacks is refused by the validation.
"""
FSDP1 = "fsdp"
"""verl's first FSDP engine, for which RLJob has no backend; FSDP2 takes the same keys."""
VARIABLES = {
    "HCCL_CONNECT_TIMEOUT": "network.hccl.connectTimeoutSeconds",
    "HCCL_EXEC_TIMEOUT": "network.hccl.execTimeoutSeconds",
}
"""Environment variables with a field (rljob.render.env)."""
OTHER_VARIABLES = {
    "ASCEND_RT_VISIBLE_DEVICES": "the device plug-in decides which devices a pod has",
    "RAY_TMPDIR": "the image and KubeRay decide where Ray keeps its files",
    "CKPT_DIR": "only the script itself reads it",
}
"""Variables that an RLJob leaves out, and why."""
EQUAL, UNSET, OTHER = 2, 1, 0
"""How a field renders a key: as the script says, not at all, or with another value."""


@dataclass
class Translation:
    """An RLJob's spec, and what became of each flag."""

    spec: Json
    unsayable: dict[str, Value] = field(default_factory=dict)
    """Field -> what the script wants and the field's type does not have."""
    typed: dict[str, list[str]] = field(default_factory=dict)
    """Field -> keys of the script that it renders with the script's values."""
    dropped: dict[str, str] = field(default_factory=dict)
    """Key or variable -> why the RLJob does not have it."""

    @property
    def overrides(self) -> Json:
        """Return the keys without a field."""
        found: Json = self.spec["verl"]["overrides"]
        return found

    @property
    def manifest(self) -> Json:
        """Return the spec that a user would write who takes the script at its word."""
        spec = copy.deepcopy(self.spec)
        for name, wanted in self.unsayable.items():
            put(spec, name, wanted)
        return spec


def translate(script: Script) -> Translation:
    """Return the RLJob that says what a script says."""
    flags = stated_flags(script)
    result = Translation(skeleton(flags))
    _set_environment(result, script.environment)
    for name in _fields(flags):
        _set_field(result, name, flags)
    rendered, typed = rendered_keys(result.spec), parsed(result.spec)
    for key, value in flags.items():
        row = next((row for row in TABLE if plain(row.key) == plain(key)), None)
        if row is not None and same(rendered.get(plain(key)), value):
            result.typed.setdefault(row.field, []).append(key)
        elif (why := _reason(plain(key), row) or _of_the_row(value, row, rendered, typed)) is not None:
            result.dropped[key] = why
        else:
            result.overrides[key] = value
    return result


def parsed(spec: Json) -> RLJobSpec | None:
    """Return a spec as its type, or None where a value is not of its field's type."""
    try:
        return RLJobSpec.model_validate_json(json.dumps(spec), strict=True, context=BUILT_IN)
    except ValidationError:
        return None


def rendered_keys(spec: Json) -> Json:
    """Return the launcher's keys of a spec; empty where a value is not of its field's type."""
    typed = parsed(spec)
    return {plain(key): value for key, value in overrides(typed).items()} if typed else {}


def plain(key: str) -> str:
    """Return a key without the signs of Hydra's grammar."""
    return key.lstrip("+")


def same(ours: object, theirs: Value) -> bool:
    """Report whether two values mean the same to verl; a single file is a list of one."""
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    return ours == theirs if not isinstance(ours, list) or isinstance(theirs, list) else ours == [theirs]


def _set_environment(result: Translation, environment: Mapping[str, str]) -> None:
    """Put the script's variables on the pods, except for those with a field, or that something else decides.

    Those of HCCL must be the same on head and workers (rljob.core.validation.hccl); the head needs no others.
    """
    kept = []
    for name, value in environment.items():
        if name in OTHER_VARIABLES:
            result.dropped[name] = OTHER_VARIABLES[name]
        elif name in VARIABLES and value.isdecimal():
            put(result.spec, VARIABLES[name], int(value))
            result.typed[VARIABLES[name]] = [name]
        else:
            kept.append({"name": name, "value": value})
    result.spec["workerGroups"][0]["template"]["env"] = kept
    result.spec["head"] = {"template": {"env": [entry for entry in kept if entry["name"].startswith("HCCL_")]}}


def _fields(flags: Mapping[str, Value]) -> list[str]:
    """Return the fields that the flags decide, those that decide about other rows first."""
    keys = {plain(key) for key in flags}
    names = list(dict.fromkeys(row.field for row in TABLE if _decides(row) and plain(row.key) in keys))
    return sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


def _decides(row: OverrideRow) -> bool:
    """Report whether a key of the flags decides its field; a default that follows the field does not."""
    # The number of devices decides between the Atlas classes, and the launcher where to resume.
    chosen = row.when is BY_LAUNCHER or row.key == EPOCHS or row.field == "accelerator.class"
    return row.own and not row.free_elsewhere and not chosen


def _set_field(result: Translation, name: str, flags: Mapping[str, Value]) -> None:
    """Set a field to the value for which its rows render most of what the script says, the first row first."""
    keys = [plain(row.key) for row in TABLE if row.field == name and _decides(row)]
    wanted = {key: value for key in keys for flag, value in flags.items() if plain(flag) == key}
    best, best_score = result.spec, _score(result.spec, wanted)
    for candidate in _candidates(name, wanted):
        changed = copy.deepcopy(result.spec)
        put(changed, name, candidate)
        if (score := _score(changed, wanted)) > best_score:
            best, best_score = changed, score
    first = next(iter(wanted.values()))
    if choices(name) and isinstance(first, str) and first != FSDP1 and best_score[0] != EQUAL:
        result.unsayable[name] = first
    result.spec = best


def _score(spec: Json, wanted: Mapping[str, Value]) -> tuple[int, ...]:
    """Return how a spec renders the wanted keys, in the order of the rows; less than any where it has a wrong type."""
    rendered = rendered_keys(spec)
    if not rendered:
        return ()
    return tuple(
        EQUAL if same(rendered.get(key), value) else OTHER if key in rendered else UNSET
        for key, value in wanted.items()
    )


def _candidates(name: str, wanted: Mapping[str, Value]) -> Iterator[object]:
    """Return the values that a field may need: its choices, and the flags' values as numbers, texts and lists."""
    yield from BACKENDS_ON_NPUS if name == "trainer.backend" else choices(name)
    for value in wanted.values():
        yield value
        yield f"{value:.12g}" if isinstance(value, float) else str(value)
        yield [value]
        if isinstance(value, list):
            yield [member for member in value if member in item_choices(name)]


def _reason(key: str, row: OverrideRow | None) -> str | None:
    """Return why no RLJob has a key, if that is so."""
    if key in DECIDED:
        return DECIDED[key]
    if (why := LAUNCHERS_OWN.get(key)) is not None:
        return f"the launcher sets it: {why}"
    if row is not None:
        return BY_LAUNCHER.text if row.when is BY_LAUNCHER else None
    old = next((old for old in LEGACY if key == old.key or key.startswith(f"{old.key}.")), None)
    return f"{old.why}; {old.rewrite}" if old else None


def _of_the_row(
    value: Value, row: OverrideRow | None, rendered: Mapping[str, object], spec: RLJobSpec | None
) -> str | None:
    """Return why a key is no override either, because only its field may set it."""
    if row is None or not row.own or row.free_elsewhere:
        return None
    if plain(row.key) in rendered:
        now = rendered[plain(row.key)]
        note = "; RLJob trains with FSDP2" if value == FSDP1 else ""
        return f"spec.{row.field} sets {now}{note}"
    if spec is not None and not row.when.holds(spec):
        return f"takes effect only with: {row.when.text}"
    return f"spec.{row.field} is not set, so the default of launcher or verl applies"
