"""The user's code in the pods: a frozen ConfigMap, a folder of a volume, or one commit that each pod fetches.

A ConfigMap is copied before anything starts, so that edits during a run have no effect. Of a Git repository only the
commit's hash is trusted: `rljob_runtime fetch-code` verifies it, so every pod has the same code or none.
"""

from __future__ import annotations

from typing import Any

from rljob.api.sources import GitSource
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render import labels
from rljob.render.metadata import child_metadata, digest
from rljob.render.names import JobIdentity, code_name
from rljob.render.resources import FETCH_CODE, whole
from rljob.render.security import PodSecurity
from rljob_runtime.contract import PodVariable

CODE_VOLUME = "rljob-code"
FETCH_CONTAINER = "fetch-code"
FETCH_SECONDS = 600
"""Bound on all tries of one pod."""
USERNAME_KEY, PASSWORD_KEY = "username", "password"
"""Keys of a Secret of type kubernetes.io/basic-auth: https://kubernetes.io/docs/concepts/configuration/secret/"""


def build_code_copy(job: JobIdentity, source: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest
    """Return the immutable copy of the user's ConfigMap."""
    metadata = child_metadata(job, code_name(job), "code")
    content = _content(source)
    metadata["annotations"][labels.CODE_DIGEST] = digest(content)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, **content}


def code_digest(manifest: Any) -> str:  # noqa: ANN401 - a manifest
    """Return SHA-256 over the data of a ConfigMap, sorted by key."""
    return digest(_content(manifest))


def _content(manifest: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest
    return {field: dict(manifest[field]) for field in ("data", "binaryData") if manifest.get(field)}


def code_volumes(job: JobIdentity, spec: RLJobSpec) -> list[dict[str, Any]]:
    """Return the volume with the user's code, unless the image contains it."""
    if spec.code.config_map is not None:
        return [{"name": CODE_VOLUME, "configMap": {"name": code_name(job)}}]
    if spec.code.persistent_volume_claim is not None:
        claim = spec.code.persistent_volume_claim.claim_name
        return [{"name": CODE_VOLUME, "persistentVolumeClaim": {"claimName": claim}}]
    if spec.code.git is not None:
        return [{"name": CODE_VOLUME, "emptyDir": {}}]
    return []


def code_mounts(spec: RLJobSpec) -> list[dict[str, Any]]:
    """Return the read-only mount of the code."""
    code = spec.code
    if code.config_map is None and code.persistent_volume_claim is None and code.git is None:
        return []
    mount = {"name": CODE_VOLUME, "mountPath": code.mount_path, "readOnly": True}
    if code.persistent_volume_claim is not None and code.persistent_volume_claim.sub_path:
        mount["subPath"] = code.persistent_volume_claim.sub_path
    return [mount]


def fetch_containers(spec: RLJobSpec, security: PodSecurity) -> list[dict[str, Any]]:
    """Return the init container that fetches the commit, if the code is in Git."""
    git = spec.code.git
    if git is None:
        return []
    container = {
        "name": FETCH_CONTAINER,
        "image": spec.runtime.helper_image,
        "imagePullPolicy": spec.runtime.image_pull_policy,
        "command": ["python", "-m", "rljob_runtime", "fetch-code", *_fetch_arguments(git, spec.code.mount_path)],
        "resources": whole(FETCH_CODE),
        **security.own_program(),
        "volumeMounts": [{"name": CODE_VOLUME, "mountPath": spec.code.mount_path}],
        # As pods.LAST_LINES.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if git.secret_ref is not None:
        # In the environment and not on the command line, which the pod's spec and the node's process list show.
        container["env"] = [
            _credential(PodVariable.CODE_USERNAME, git.secret_ref.name, USERNAME_KEY),
            _credential(PodVariable.CODE_PASSWORD, git.secret_ref.name, PASSWORD_KEY),
        ]
    return [container]


def _fetch_arguments(git: GitSource, folder: str) -> list[str]:
    arguments = ["--url", git.url, "--revision", git.revision, "--folder", folder, "--seconds", str(FETCH_SECONDS)]
    return [*arguments, "--sub-path", git.sub_path] if git.sub_path else arguments


def _credential(variable: PodVariable, secret: str, key: str) -> dict[str, Any]:
    # Tokens are often used without a user name.
    source = {"name": secret, "key": key, "optional": key == USERNAME_KEY}
    return {"name": variable.value, "valueFrom": {"secretKeyRef": source}}
