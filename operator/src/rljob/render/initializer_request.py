"""What an initializer of type Model, Dataset or Conversion asks the runtime for, and what its pod needs for that."""

from __future__ import annotations

from typing import Any

from rljob.api.sources import ConversionFormat, DownloadSource, Initializer, InitializerType
from rljob_runtime.contract.downloads import SOURCE_FOLDER, TOKEN_VARIABLE, Hub, InitializerRequest

SOURCE_VOLUME = "rljob-source"
HUBS = {DownloadSource.HUGGING_FACE: Hub.HUGGING_FACE, DownloadSource.MODEL_SCOPE: Hub.MODEL_SCOPE}


def arguments(initializer: Initializer, *, trust_remote_code: bool = False) -> list[str]:
    """Return the subcommand of `python -m rljob_runtime`."""
    return ["initialize", request(initializer, trust_remote_code=trust_remote_code).to_argument()]


def request(initializer: Initializer, *, trust_remote_code: bool = False) -> InitializerRequest:
    """Return the request of an initializer that is not a command."""
    conversion, download = initializer.conversion, initializer.download
    if conversion is not None and initializer.type is InitializerType.CONVERSION:
        if conversion.format is ConversionFormat.CHECKPOINT:
            return InitializerRequest(
                to=conversion.to,
                source=conversion.from_,
                checkpoint=True,
                step=conversion.step or 0,
                trust_remote_code=trust_remote_code,
            )
        return InitializerRequest(to=conversion.to, source=conversion.from_, convert=True, pods=conversion.pods)
    if download is None:
        raise AssertionError(f"{initializer.name} of type {initializer.type} has no section of it")
    return InitializerRequest(
        to=download.to,
        source=SOURCE_FOLDER if download.source is DownloadSource.PVC else download.path or "",
        hub=HUBS.get(download.source),
        endpoint=download.endpoint or "",
        repository=download.repository or "",
        revision=download.revision or "",
        include=tuple(download.include),
        exclude=tuple(download.exclude),
        sha256=download.sha256 or "",
        dataset=download.dataset,
    )


def token_env(initializer: Initializer) -> list[dict[str, Any]]:
    """Return the variable with the hub's token, if there is one."""
    download = initializer.download
    if download is None or download.credentials is None:
        return []
    source = {"secretKeyRef": {"name": download.credentials.name, "key": download.credentials.key}}
    return [{"name": TOKEN_VARIABLE, "valueFrom": source}]


def source_volumes(initializer: Initializer) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the volume of the claim with the files, and its mount."""
    download = initializer.download
    if download is None or download.claim is None:
        return [], []
    claim = {"claimName": download.claim.claim_name, "readOnly": True}
    mount = {"name": SOURCE_VOLUME, "mountPath": SOURCE_FOLDER, "readOnly": True}
    if download.claim.sub_path:
        mount["subPath"] = download.claim.sub_path
    return [{"name": SOURCE_VOLUME, "persistentVolumeClaim": claim}], [mount]
