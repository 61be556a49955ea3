"""The variables that the processes of the workers see, wherever a manifest or the class sets them.

One name may be set in several places. Each place replaces the ones before it: the class's row, the template's `env`
(rljob.render.env), podSpecPatch (rljob.render.patch), and Ray's runtime environment, which applies to each process that
Ray starts. Only the value that applies is judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.launchers.verl.effective import effective
from rljob.render.accelerators import facts_of
from rljob.render.patch import DELETE, DIRECTIVE

RUNTIME_ENV = "ray_kwargs.ray_init.runtime_env.env_vars"
"""verl merges it into the runtime environment of every process (verl/trainer/main_ppo.py:71, 0.9.1)."""
RAY_WORKER = "ray-worker"
"""The Ray container of the worker pods, which podSpecPatch may name."""


@dataclass(frozen=True)
class Set:
    """A variable that the processes of the workers see."""

    field: str
    name: str
    value: str | None
    """None where it is not literal."""


def worker_variables(spec: RLJobSpec) -> tuple[Set, ...]:
    """Return every variable of the trainer's and engine's processes, with the field whose value applies.

    Groups of different roles may set one name twice.
    """
    found = (entry for path, _ in fields.groups(spec) for entry in _of_group(spec, f"{path}.template"))
    return tuple(dict.fromkeys(found))


def _of_group(spec: RLJobSpec, template: str) -> Iterable[Set]:
    applies = {name: Set("spec.accelerator.class", name, text) for name, text in facts_of(spec).env.items()}
    applies |= {found.name: found for found in of_template(spec, template)}
    for field, entry in _patched(spec):
        name, value = str(entry.get("name")), entry.get("value")
        if entry.get(DIRECTIVE) == DELETE:
            applies.pop(name, None)
        else:
            applies[name] = Set(field, name, value if isinstance(value, str) else None)
    for setting in effective(spec).below(RUNTIME_ENV):
        name = setting.key.removeprefix(f"{RUNTIME_ENV}.")
        applies[name] = Set(setting.field, name, None if setting.value is None else str(setting.value))
    return applies.values()


def worker_variable(spec: RLJobSpec, name: str) -> Set | None:
    """Return what sets a variable; None if no manifest and no class does."""
    return next((found for found in worker_variables(spec) if found.name == name), None)


def worker_value(spec: RLJobSpec, name: str) -> str | None:
    """Return the literal value of a variable, if a manifest or the class sets one."""
    found = worker_variable(spec, name)
    return found.value if found else None


def of_template(spec: RLJobSpec, place: str) -> Iterator[Set]:
    """Yield the variables of the template at a path."""
    for path, template in fields.templates(spec):
        if path == place:
            for index, entry in enumerate(template.env):
                yield Set(f"{path}.env[{index}]", entry.name, entry.value)


def _patched(spec: RLJobSpec) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the variables of the Ray container in podSpecPatch.workers; the checks of patches report other shapes."""
    for path, container in _entries((spec.pod_spec_patch.workers or {}).get("containers")):
        if container.get("name") == RAY_WORKER:
            for place, entry in _entries(container.get("env")):
                yield f"spec.podSpecPatch.workers.containers{path}.env{place}", entry


def _entries(value: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    for index, entry in enumerate(value if isinstance(value, list) else ()):
        if isinstance(entry, Mapping):
            yield f"[{index}]", entry
