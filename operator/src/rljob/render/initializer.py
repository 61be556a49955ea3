"""The Jobs that run before any NPU is allocated. They have the volumes, code and secrets of the Ray pods.

Those that are not a command of the user's run a program of the runtime (`rljob_runtime.initializers`), which is brought
into the pod as into the Ray pods.
"""

from __future__ import annotations

from typing import Any

from rljob.api.sources import Initializer, InitializerType
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render import code, injection, labels, pods, resources
from rljob.render.batch_job import BatchJob, build_batch_job
from rljob.render.env import without_device
from rljob.render.initializer_request import arguments, source_volumes, token_env
from rljob.render.names import JobIdentity, initializer_name
from rljob.render.security import PodSecurity
from rljob_runtime.contract import ExitCode

CONTAINER = "initializer"
SKIPPED = "skipped: "
"""Prefix of a container's termination message if the result existed already."""

# The path is $0 and the command is "$@", so the shell does not interpret either.
_UNLESS_THERE = (
    'if [ -e "$0" ]; then'
    f' said="{SKIPPED}$0 is there already"; echo "$said"; echo "$said" >/dev/termination-log; exit 0; '
    'fi; exec "$@"'
)


def initializers(spec: RLJobSpec) -> list[Initializer]:
    """Return the job's initializers.

    Code in Git adds one before them, so that a failing fetch ends before NPUs are allocated.
    """
    if spec.code.git is None:
        return list(spec.initializers)
    name = code.FETCH_CONTAINER
    while name in {initializer.name for initializer in spec.initializers}:
        name = f"rljob-{name}"
    listing = ["ls", "-la", spec.code.mount_path]
    return [
        Initializer(name=name, command=listing, timeout_seconds=2 * code.FETCH_SECONDS),
        *spec.initializers,
    ]


def build_initializer(job: JobIdentity, spec: RLJobSpec, initializer: Initializer) -> dict[str, Any]:
    """Return the Job."""
    template = spec.trainer_group.template
    security = PodSecurity.of(spec, template)
    with_runtime = initializer.type is not InitializerType.COMMAND
    own_volumes, own_mounts = source_volumes(initializer)
    if with_runtime:
        own_volumes, own_mounts = own_volumes + injection.volumes(spec), own_mounts + injection.mounts(spec)
    name, marks = initializer_name(job, initializer.name), {labels.INITIALIZER: initializer.name}
    container = {
        "name": CONTAINER,
        "image": initializer.image or spec.runtime.image,
        "imagePullPolicy": spec.runtime.image_pull_policy,
        "command": _command(spec, initializer),
        "env": pods.environment(
            token_env(initializer),
            pods.user_env(initializer.env),
            pods.user_env(template.env),
            pods.secret_env(spec),
            without_device(spec),
        ),
        **pods.env_from(spec, template),
        "resources": pods.resources(initializer.cpu, initializer.memory),
        "volumeMounts": pods.user_mounts(template) + code.code_mounts(spec) + own_mounts,
        **pods.LAST_LINES,
        **security.user_image(),
    }
    fetch = code.fetch_containers(spec, security)
    first = (injection.init_containers(spec, security) if with_runtime else []) + fetch
    resources.complete(container, resources.INITIALIZER)
    what = BatchJob(
        name=name,
        intent=f"initializer/{initializer.name}",
        marks=marks,
        container=container,
        retries=initializer.retries,
        timeout_seconds=initializer.timeout_seconds,
        init_containers=tuple(first),
        volumes=(*code.code_volumes(job, spec), *own_volumes),
        more=_shared_work(initializer)
        | _give_up(code.FETCH_CONTAINER if fetch else None, CONTAINER if with_runtime else None),
    )
    return build_batch_job(job, spec, what)


def _command(spec: RLJobSpec, initializer: Initializer) -> list[str]:
    if initializer.type is not InitializerType.COMMAND:
        return [
            *injection.program(spec),
            *arguments(initializer, trust_remote_code=bool(spec.model.trust_remote_code)),
        ]
    if initializer.creates is None:
        return list(initializer.command)
    return ["sh", "-c", _UNLESS_THERE, initializer.creates, *initializer.command]


def _shared_work(initializer: Initializer) -> dict[str, Any]:
    """Return the fields of a Job whose pods share a conversion, each by its index.

    https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode
    """
    conversion = initializer.conversion if initializer.type is InitializerType.CONVERSION else None
    count = conversion.pods if conversion is not None else 1
    return {"completionMode": "Indexed", "completions": count, "parallelism": count} if count > 1 else {}


def _give_up(*containers: str | None) -> dict[str, Any]:
    """Do not retry if one of these programs of ours says that no try can succeed: no such commit, model or right.

    https://kubernetes.io/docs/tasks/job/pod-failure-policy/
    """
    hopeless = {"operator": "In", "values": [int(ExitCode.BAD_CONFIG)]}
    rules = [{"action": "FailJob", "onExitCodes": {"containerName": name, **hopeless}} for name in containers if name]
    return {"podFailurePolicy": {"rules": rules}} if rules else {}
