"""The runtime that an init container brings, for jobs with `runtime.injection: Auto`: nothing in their image changes.

The container is from the operator's image and copies its files into an emptyDir, which the Ray containers mount
read-only: the runtime, and verl unless the job's trainer is a command. bash, with which KubeRay starts Ray, reads a
file (BASH_ENV, `stopping.SHELL_FILE`) that puts the runtime in front of PYTHONPATH. A variable of the pod would replace
the image's own PYTHONPATH, and CANN's images have one.
"""

from __future__ import annotations

from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.resources import COPY_RUNTIME, whole
from rljob.render.security import PodSecurity
from rljob_runtime.contract import IMAGE_SHELL_FILE, INJECTED_FOLDER

CONTAINER = "rljob-runtime"
VOLUME = "rljob-runtime"
VOLUME_MAX = "256Mi"
"""Many times what is copied: 17 MB with verl."""
COPY = ("python", "-m", "rljob_runtime", "copy-runtime")
CODE = f"{INJECTED_FOLDER}/code"
CANN_FILE = f"{CODE}/rljob_runtime/cann_environment.sh"
IMAGE_ENVIRONMENT = f"""\
if [ -f {IMAGE_SHELL_FILE} ]; then . {IMAGE_SHELL_FILE}; elif [ -f {CANN_FILE} ]; then . {CANN_FILE}; fi
"""
"""The environment that the image's own entry point would set: its file for shells, or else the runtime's for CANN."""
SHELL_TEXT = f"""\
case ":${{PYTHONPATH-}}:" in
    *:{CODE}:*) ;;
    *) export PYTHONPATH="{CODE}${{PYTHONPATH:+:$PYTHONPATH}}" ;;
esac
"""


def init_containers(spec: RLJobSpec, security: PodSecurity) -> list[dict[str, Any]]:
    """Return the init container that copies the runtime, if it is injected."""
    image = spec.runtime.injected_image
    if image is None:
        return []
    context = security.own_program(read_only_root=True)
    return [copy_container(image, spec.runtime.image_pull_policy, context, with_verl=spec.reads("verl"))]


def copy_container(image: str, pull_policy: str, security: dict[str, Any], *, with_verl: bool) -> dict[str, Any]:
    """Return the container that copies the runtime of the operator's image."""
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": [*COPY, *(["--with-verl"] if with_verl else []), INJECTED_FOLDER],
        "resources": whole(COPY_RUNTIME),
        **security,
        "volumeMounts": [{"name": VOLUME, "mountPath": INJECTED_FOLDER}],
        # As pods.LAST_LINES.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def volumes(spec: RLJobSpec) -> list[dict[str, Any]]:
    """Return the volume of the injected runtime."""
    if spec.runtime.injected_image is None:
        return []
    return [volume()]


def volume() -> dict[str, Any]:
    """Return the volume to which the runtime is copied."""
    return {"name": VOLUME, "emptyDir": {"sizeLimit": VOLUME_MAX}}


def mounts(spec: RLJobSpec) -> list[dict[str, Any]]:
    """Return the read-only mount of the injected runtime."""
    if spec.runtime.injected_image is None:
        return []
    return [mount()]


def mount() -> dict[str, Any]:
    """Return the mount of a container that runs the copied runtime."""
    return {"name": VOLUME, "mountPath": INJECTED_FOLDER, "readOnly": True}


def program(spec: RLJobSpec) -> list[str]:
    """Return the start of a command line of the runtime in the Ray container, for hooks, which no shell starts."""
    python = ["python", "-m", "rljob_runtime"]
    return python if spec.runtime.injected_image is None else ["env", f"PYTHONPATH={CODE}", *python]
