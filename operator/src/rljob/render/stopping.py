"""How pods end: their grace period, and the hooks by which a run saves regardless of what deletes its pods.

The hooks, `rljob_runtime.stop`, use the spec from when the cluster was created. The operator's own stops first go
through the exporter, so the run has already ended when the pods are deleted.
"""

from __future__ import annotations

from typing import Any

from rljob.api.lifecycle import Stop
from rljob.api.v1alpha1 import RLJobSpec, Role, WorkerGroup
from rljob.render import injection, packages
from rljob_runtime.contract import StopMode, head_paths

TEARDOWN_SECONDS = 30
"""Seconds for Ray's processes to end after the hook, before they are killed; also Kubernetes' default grace period."""
MODES = {"Auto": StopMode.AFTER_STEP, **{mode.value: mode for mode in StopMode}}
"""Meaning of Auto in a pod's hook, which is created before anything is measured: the gentlest mode. The operator's own
stops choose by measured times (core/attempts/stop_mode.py)."""

SHELL_VARIABLE = "BASH_ENV"
"""bash reads the file that it names before a script: Bash Reference Manual, 6.2, Bash Startup Files."""
SHELL_FILE = "bash-env"
SHELL_TEXT = f"""\
if [[ ${{BASH_EXECUTION_STRING-}} == *'ray health-check'* ]]; then
    # KubeRay's wait-gcs-ready is a bash as process 1, to which the kernel gives no SIGTERM that it has no handler for;
    # bash handles it when the command in front ends, or at once where it waits for one in the background.
    trap 'exit 143' TERM
    ray() {{ command ray "$@" & wait "$!"; }}
    sleep() {{ command sleep "$@" & wait "$!"; }}
else
    # Asking the head needs none of it.
    {injection.IMAGE_ENVIRONMENT}fi
"""
"""File that every bash of a worker reads first (BASH_ENV). With it, a worker that is deleted while it waits for its
head ends at once, instead of when its grace period ends or when Ray's query of a missing head ends (observed: after 54
s). The init container has environment and mounts of the Ray container, and its script is bash's argument (KubeRay
v1.6.2, ray-operator/controllers/ray/common/pod.go, DefaultWorkerPodTemplate). The variable replaces the one that the
Ascend image sets (images/runtime/ascend/Dockerfile)."""

Fields = dict[str, Any]


def stop_mode(stop: Stop) -> StopMode:
    """Return how the trainer is asked to stop."""
    return MODES[stop.mode]


def saves_when_stopped(spec: RLJobSpec) -> bool:
    """Return whether a stop can save anything."""
    return spec.checkpoint is not None and stop_mode(spec.stop) is not StopMode.IMMEDIATE


def grace_period(spec: RLJobSpec) -> Fields:
    """Return the seconds between a pod's deletion and SIGKILL."""
    saving = spec.stop.grace_seconds if saves_when_stopped(spec) else 0
    return {"terminationGracePeriodSeconds": saving + TEARDOWN_SECONDS}


def head_hooks(spec: RLJobSpec) -> Fields:
    """Return the hooks of the head's Ray container: ask the trainer to save and stop, and wait for its end."""
    return {"lifecycle": {"preStop": _exec(*_stop(spec))}} if saves_when_stopped(spec) else {}


def worker_hooks(spec: RLJobSpec, group: WorkerGroup) -> Fields:
    """Return the hooks of a worker's Ray container: store the head's address.

    On deletion ask the head to stop the run, and wait. A run continues without workers that only generate.
    """
    if not saves_when_stopped(spec) or set(group.roles) == {Role.ROLLOUT}:
        return {}
    file = f"{head_paths().spool}/head"
    # KubeRay sets FQ_RAY_IP (v1.6.2, controllers/ray/utils/constant.go). A failing hook would kill the container.
    note = _exec("sh", "-c", f'getent hosts "$FQ_RAY_IP" > {file} || true')
    return {"lifecycle": {"postStart": note, "preStop": _exec(*_stop(spec), "--head-file", file)}}


def cluster_files(spec: RLJobSpec) -> dict[str, str]:
    """Return the texts that the pods need beside job.json, by file name."""
    if not _has_shell_file(spec):
        return {}
    paths = (packages.SHELL_TEXT if spec.runtime.packages else "") + (
        # Last, so that the runtime comes first.
        injection.SHELL_TEXT if spec.runtime.injected_image else ""
    )
    return {SHELL_FILE: SHELL_TEXT + paths} | packages.files(spec)


def _has_shell_file(spec: RLJobSpec) -> bool:
    return saves_when_stopped(spec) or _adds_modules(spec)


def _adds_modules(spec: RLJobSpec) -> bool:
    return spec.runtime.injected_image is not None or spec.runtime.packages is not None


def head_env(spec: RLJobSpec) -> list[Fields]:
    """Return the variables of the head's Ray container."""
    return _shell_env() if _adds_modules(spec) else []


def worker_env(spec: RLJobSpec) -> list[Fields]:
    """Return the variables of a worker's Ray container, and of KubeRay's init container before it."""
    return _shell_env() if _has_shell_file(spec) else []


def _shell_env() -> list[Fields]:
    return [{"name": SHELL_VARIABLE, "value": f"{head_paths().config_folder}/{SHELL_FILE}"}]


def exporter_command(spec: RLJobSpec) -> list[str]:
    """Return the exporter's command. It outlives the deletion of its pod for as long as the run may save."""
    command = ["python", "-m", "rljob_runtime", "exporter"]
    return [*command, "--outlive-seconds", str(spec.stop.grace_seconds)] if saves_when_stopped(spec) else command


def exporter_hooks() -> Fields:
    """Return the hook of the exporter: the kernel gives no SIGTERM to a process 1 that has no handler for it yet.

    Without it, a head that is deleted while its exporter starts lasts for its whole grace period: observed for 330 s,
    when KubeRay had replaced a lost head just before the cluster was deleted.
    """
    return {"lifecycle": {"preStop": _exec("python", "-m", "rljob_runtime", "await-listener")}}


def _stop(spec: RLJobSpec) -> list[str]:
    mode, wait = stop_mode(spec.stop).value, str(spec.stop.grace_seconds)
    return [*injection.program(spec), "stop", "--mode", mode, "--wait", wait]


def _exec(*command: str) -> Fields:
    return {"exec": {"command": list(command)}}
