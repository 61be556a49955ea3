"""Translate a valid RLJob for a local run: folders for volumes, a spec with local paths, variables. Pure.

The spec has passed the same checks as in a cluster. The result renders to job.json by the same launcher table; only
paths differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob.api.pods import Volume
from rljob.api.sources import DownloadSource
from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.errors import UsageError
from rljob.cli.local.folder import JobFolder
from rljob.cli.local.paths import Mount, MountMap
from rljob.render.configmap import spec_document

POD_PATHS = (
    "model.path",
    "critic.path",
    "trainer.lora.path",
    "data.train[]",
    "data.validation[]",
    "reward.path",
    "rollout.agent.tools",
    "checkpoint.path",
    "checkpoint.from.path",
    "observability.logPath",
    "launcher.command.workingDir",
    "launcher.command.progress.path",
    "initializers[].creates",
    "initializers[].download.path",
    "initializers[].download.to",
    "initializers[].conversion.from",
    "initializers[].conversion.to",
)
"""Fields that hold a single pod path."""
TEXTS = (
    "initializers[].command[]",
    "initializers[].env[].value",
    "workerGroups[].template.env[].value",
    "head.template.env[].value",
    "verl.overrides",
    "launcher.command.args[]",
    "launcher.command.checkpoint.resumeArgs[]",
    "launcher.command.stop.file",
)
"""Fields whose text may contain pod paths."""
DEFAULT_EVERY_STEPS = 10
DEFAULT_KEEP = 2
"""Checkpoints kept for a job without a checkpoint section: enough that Ctrl-C loses no work."""


@dataclass(frozen=True)
class VolumeFolder:
    """A volume of the manifest and its local folder."""

    volume: Volume
    folder: Path
    given: bool
    """Whether the user chose the folder."""


def volume_folders(spec: RLJobSpec, folder: JobFolder, given: Mapping[str, Path]) -> dict[str, VolumeFolder]:
    """Choose a folder for each volume. Raise UsageError for an option whose volume does not exist."""
    templates = (spec.trainer_group.template, spec.head.template)
    volumes = {volume.name: volume for template in templates for volume in template.volumes}
    if unknown := sorted(set(given) - set(volumes)):
        names = ", ".join(sorted(volumes)) or "none"
        raise UsageError(f"--volume {unknown[0]}: the job has no such volume; its volumes are: {names}")
    return {
        name: VolumeFolder(volume, given[name], given=True)
        if name in given
        else VolumeFolder(volume, _folder_of(volume, folder), given=False)
        for name, volume in volumes.items()
    }


def _folder_of(volume: Volume, folder: JobFolder) -> Path:
    if volume.persistent_volume_claim is not None:
        return folder.claim(volume.persistent_volume_claim.claim_name)
    if volume.config_map is not None:
        return folder.config_map(volume.config_map.name)
    if volume.host_path is not None:
        return Path(volume.host_path.path)
    if volume.nfs is not None:
        raise UsageError(
            f"volume {volume.name}: a local run mounts nothing; mount {volume.nfs.server}:{volume.nfs.path} "
            f"yourself and pass --volume {volume.name}=FOLDER"
        )
    return folder.scratch(volume.name)


def code_folder(spec: RLJobSpec, folder: JobFolder, given: Path | None) -> Path | None:
    """Choose the folder that stands for code.mountPath; None if the code is in the image."""
    code = spec.code
    if given is not None:
        return given
    if code.config_map is not None:
        return folder.config_map(code.config_map.name)
    if code.persistent_volume_claim is not None:
        return folder.claim(code.persistent_volume_claim.claim_name) / (code.persistent_volume_claim.sub_path or "")
    return folder.fetched_code if code.git is not None else None


def mount_map(spec: RLJobSpec, folders: Mapping[str, VolumeFolder], code: Path | None) -> MountMap:
    """Join the mounts of head and workers, which are one machine in a local run."""
    mounts: dict[str, Path] = {}
    for template in (spec.trainer_group.template, spec.head.template):
        for mount in template.volume_mounts:
            mounts[_pod_path(mount.mount_path)] = folders[mount.name].folder / (mount.sub_path or "")
    if code is not None:
        mounts[_pod_path(spec.code.mount_path)] = code
    return MountMap(tuple(Mount(path, local.absolute()) for path, local in mounts.items()))


def _pod_path(path: str) -> str:
    if not (plain := path.rstrip("/")):
        raise UsageError("mountPath / cannot be replaced by a local folder; mount the volume below /")
    return plain


def localise(spec: RLJobSpec, mounts: MountMap, folder: JobFolder, checkpoint_of: Callable[[str], str]) -> RLJobSpec:
    """Return the spec with local paths, and with checkpoints if the manifest has none.

    `checkpoint_of` returns the folder in which another local job saves.
    """
    document = spec_document(spec)
    # An interface of the cluster's nodes would be set for gloo, but may not exist on this machine.
    del document["network"]
    for initializer in document.get("initializers", ()):
        _take_from_folder(initializer.get("download"), folder)
    for path in POD_PATHS:
        change(document, path, mounts.path)
    for path in TEXTS:
        change(document, path, mounts.text)
    if spec.checkpoint is not None and spec.checkpoint.from_ is not None and spec.checkpoint.from_.job is not None:
        source = document["checkpoint"]["from"]
        source["path"] = checkpoint_of(source.pop("job"))
    if spec.checkpoint is None and spec.reads("checkpoint.everySteps"):
        saved = str(folder.checkpoints.absolute())
        document["checkpoint"] = {"path": saved, "everySteps": DEFAULT_EVERY_STEPS, "keep": DEFAULT_KEEP}
    return RLJobSpec.model_validate(document, context=spec.accelerator.table)


def _take_from_folder(download: dict[str, Any] | None, folder: JobFolder) -> None:
    """Let a download from a claim read the local folder that stands for the claim."""
    claim = (download or {}).get("claim")
    if download is not None and claim is not None:
        place = folder.claim(claim["claimName"]) / claim.get("subPath", "")
        del download["claim"]
        download |= {"source": DownloadSource.PATH.value, "path": str(place.absolute())}


def change(document: Any, path: str, how: Callable[[str], str]) -> None:  # noqa: ANN401 - a JSON value
    """Change the strings at a path such as `a.b[].c` in place, including all strings below a map or list at its end."""
    first, _, rest = path.partition(".")
    name, is_list = first.removesuffix("[]"), first.endswith("[]")
    if not isinstance(document, dict) or name not in document:
        return
    if is_list and rest:
        for member in document[name]:
            change(member, rest, how)
    elif rest:
        change(document[name], rest, how)
    else:
        document[name] = _changed(document[name], how)


def _changed(value: Any, how: Callable[[str], str]) -> Any:  # noqa: ANN401 - a JSON value
    if isinstance(value, str):
        return how(value)
    if isinstance(value, list):
        return [_changed(member, how) for member in value]
    if isinstance(value, dict):
        return {key: _changed(member, how) for key, member in value.items()}
    return value


def paths_outside(spec: RLJobSpec, mounts: MountMap) -> list[str]:
    """Return `field path` for typed paths that are on no volume; in a cluster they would be in the image."""
    found: list[str] = []
    for path in POD_PATHS:

        def look(value: str, path: str = path) -> str:
            if not mounts.covers(value):
                found.append(f"{path} {value}")
            return value

        change(spec_document(spec), path, look)
    return found
