"""Iterate over pod templates, variables and containers of a spec, with their paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rljob.api.field_path import member
from rljob.api.pods import Container, EnvVar, PodTemplate
from rljob.api.v1alpha1 import RLJobSpec, WorkerGroup

WORKERS = "spec.workerGroups[0].template"
"""Of the workers of a job with one group."""
HEAD = "spec.head.template"


def groups(spec: RLJobSpec) -> Iterator[tuple[str, WorkerGroup]]:
    """Yield every worker group with its path."""
    for index, group in enumerate(spec.worker_groups):
        yield f"spec.workerGroups[{index}]", group


def place_of(spec: RLJobSpec, group: WorkerGroup) -> str:
    """Return the path of a group of the spec, without `spec.`."""
    return next(f"workerGroups[{index}]" for index, each in enumerate(spec.worker_groups) if each is group)


def trainer_template(spec: RLJobSpec) -> str:
    """Return the path of the template with which checkpoints are written and initializers run."""
    return f"spec.{place_of(spec, spec.trainer_group)}.template"


def templates(spec: RLJobSpec) -> tuple[tuple[str, PodTemplate], ...]:
    """Return the pod templates with their paths."""
    return (*((f"{path}.template", group.template) for path, group in groups(spec)), (HEAD, spec.head.template))


def variables(spec: RLJobSpec) -> Iterator[tuple[str, EnvVar]]:
    """Yield every typed environment variable with its path."""
    owners: list[tuple[str, list[EnvVar]]] = [(path, template.env) for path, template in templates(spec)]
    owners += [(f"spec.services[{index}]", service.env) for index, service in enumerate(spec.services)]
    owners += [(f"spec.initializers[{index}]", entry.env) for index, entry in enumerate(spec.initializers)]
    for path, env in owners:
        for index, variable in enumerate(env):
            yield f"{path}.env[{index}]", variable


def containers(spec: RLJobSpec) -> Iterator[tuple[str, Container]]:
    """Yield every container of the templates, with its path."""
    for path, template in templates(spec):
        for name, entries in (("initContainers", template.init_containers), ("sidecars", template.sidecars)):
            for index, container in enumerate(entries):
                yield f"{path}.{name}[{index}]", container


def texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield every string below a JSON value, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from texts(entry, member(path, str(name)))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from texts(entry, f"{path}[{index}]")
