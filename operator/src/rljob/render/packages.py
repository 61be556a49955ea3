"""The packages of `runtime.packages`: an init container of the job's own image installs them before Ray starts.

Each pod installs the same wheels or none: the frozen spec has their hashes, and pip resolves and builds nothing. bash,
with which KubeRay starts Ray, reads a file that puts them in front of PYTHONPATH (`stopping.SHELL_FILE`).
"""

from __future__ import annotations

from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.resources import INSTALL_PACKAGES, whole
from rljob.render.security import PodSecurity
from rljob_runtime.contract import head_paths

CONFIG_VOLUME = "rljob-config"
"""The ConfigMap of the cluster generation, with the requirements beside job.json."""
CONTAINER = "rljob-packages"
VOLUME = "rljob-packages"
FOLDER = "/rljob-packages"
FILE = "requirements.txt"
VOLUME_MAX = "8Gi"
"""Far more than what an image may lack: transformers 5 has 70 MB, vLLM for CPUs 200 MB."""
PIP = (
    *("python", "-m", "pip", "install", "--target", FOLDER, "--requirement", f"{head_paths().config_folder}/{FILE}"),
    *("--require-hashes", "--no-deps", "--only-binary", ":all:"),
    *("--no-cache-dir", "--no-input", "--disable-pip-version-check", "--root-user-action", "ignore"),
)
SHELL_TEXT = f"""\
case ":${{PYTHONPATH-}}:" in
    *:{FOLDER}:*) ;;
    *) export PYTHONPATH="{FOLDER}${{PYTHONPATH:+:$PYTHONPATH}}" ;;
esac
"""


def releases(spec: RLJobSpec) -> list[str]:
    """Return the packages as name==version."""
    return [] if spec.runtime.packages is None else [line.split()[0] for line in spec.runtime.packages.requirements]


def files(spec: RLJobSpec) -> dict[str, str]:
    """Return the file that pip reads, by its name."""
    packages = spec.runtime.packages
    return {} if packages is None else {FILE: "".join(f"{line}\n" for line in packages.requirements)}


def init_containers(
    spec: RLJobSpec, variables: dict[str, Any], mounts: list[dict[str, Any]], security: PodSecurity
) -> list[dict[str, Any]]:
    """Return the container that installs them, if there are any."""
    packages = spec.runtime.packages
    if packages is None:
        return []
    local = () if packages.wheelhouse is None else ("--no-index", "--find-links", packages.wheelhouse)
    return [
        {
            "name": CONTAINER,
            "image": spec.runtime.image,
            "imagePullPolicy": spec.runtime.image_pull_policy,
            "command": [*PIP, *local],
            **variables,
            "resources": whole(INSTALL_PACKAGES),
            **security.user_image(),
            "volumeMounts": [
                {"name": CONFIG_VOLUME, "mountPath": head_paths().config_folder, "readOnly": True},
                {"name": VOLUME, "mountPath": FOLDER},
                *mounts,
            ],
            # As pods.LAST_LINES.
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
    ]


def volumes(spec: RLJobSpec) -> list[dict[str, Any]]:
    """Return the volume of the packages."""
    return [] if spec.runtime.packages is None else [{"name": VOLUME, "emptyDir": {"sizeLimit": VOLUME_MAX}}]


def mounts(spec: RLJobSpec) -> list[dict[str, Any]]:
    """Return the read-only mount of the packages."""
    return [] if spec.runtime.packages is None else [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}]
