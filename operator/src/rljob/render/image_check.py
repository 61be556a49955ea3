"""The pod in which `rljob check-image` examines an image: with the runtime of the operator, and without a device.

The container starts as a Ray container with an injected runtime does: through bash, with the runtime in front of the
image's own PYTHONPATH. The pod meets the Pod Security Standard `restricted`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rljob.api.accelerators import AcceleratorFacts
from rljob.render import injection
from rljob.render.env import NO_AUTOLOAD
from rljob.render.hardware import require_nodes_of
from rljob.render.resources import CHECK_IMAGE, CHECK_IMAGE_DEEP, whole
from rljob.render.security import ContainerSecurity

CONTAINER = "check"
LABEL = "rljob.dev/image-check"
BASH = "/bin/bash"
"""KubeRay v1.6.2 starts Ray with it: ray-operator/controllers/ray/utils/util.go (GetContainerCommand)."""
NO_PYTHON, OLD_PYTHON = 97, 98
"""Exit codes of the script, beside those of the runtime's check-image."""
PULL_POLICY = "IfNotPresent"
SCRATCH, SCRATCH_FOLDER, SCRATCH_MAX = "scratch", "/tmp", "1Gi"  # noqa: S108 - of a pod of its own
SCRIPT = f"""\
{injection.IMAGE_ENVIRONMENT}command -v python >/dev/null || exit {NO_PYTHON}
python -c 'import sys; sys.exit({OLD_PYTHON} if sys.version_info < (3, 11) else 0)'
if [ $? = {OLD_PYTHON} ]; then python --version 2>&1; exit {OLD_PYTHON}; fi
{injection.SHELL_TEXT}exec python -m rljob_runtime check-image -o json"""
"""Old releases of Python cannot even read the runtime, so the script asks for the release itself."""


@dataclass(frozen=True)
class ImageCheck:
    """What to check, and how."""

    image: str
    runtime_image: str
    seconds: int
    """Deadline of the pod."""
    user: int
    pull_secrets: tuple[str, ...] = ()
    accelerator: AcceleratorFacts | None = None
    """Class of the node. None: any node."""
    deep: bool = False
    """Import what a run imports."""


def build_pod(check: ImageCheck, name: str) -> dict[str, Any]:
    """Return the pod."""
    security = {"securityContext": ContainerSecurity(check.user != 0, read_only_root=True).manifest()}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": check.seconds,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsUser": check.user},
        "imagePullSecrets": [{"name": secret} for secret in check.pull_secrets],
        "volumes": [injection.volume()],
        "initContainers": [injection.copy_container(check.runtime_image, PULL_POLICY, security, with_verl=check.deep)],
        "containers": [
            {
                "name": CONTAINER,
                "image": check.image,
                "imagePullPolicy": PULL_POLICY,
                "command": [BASH, "-c", "--", f"{SCRIPT}{' --deep' if check.deep else ''}\n"],
                # Jobs replace the image's own value, except for the file that the script reads.
                "env": [{"name": "BASH_ENV", "value": ""}, NO_AUTOLOAD],
                "resources": whole(CHECK_IMAGE_DEEP if check.deep else CHECK_IMAGE),
                **security,
                "volumeMounts": [injection.mount()],
            }
        ],
    }
    if check.deep:
        _give_room(spec)
    if check.accelerator is not None:
        require_nodes_of(check.accelerator, spec)
        # A taint that keeps other pods off nodes with devices is named after the resource, as Kubernetes' plug-in
        # ExtendedResourceToleration expects (v1.36.2, plugin/pkg/admission/extendedresourcetoleration/admission.go).
        spec["tolerations"] = [{"key": check.accelerator.resource, "operator": "Exists"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {LABEL: name}}, "spec": spec}


def _give_room(spec: dict[str, Any]) -> None:
    """Add a folder for what packages write as they are imported: caches and configuration. The root is read-only."""
    (container,) = spec["containers"]
    spec["volumes"].append({"name": SCRATCH, "emptyDir": {"sizeLimit": SCRATCH_MAX}})
    container["volumeMounts"].append({"name": SCRATCH, "mountPath": SCRATCH_FOLDER})
    container["env"] += [{"name": name, "value": SCRATCH_FOLDER} for name in ("HOME", "TMPDIR")]
