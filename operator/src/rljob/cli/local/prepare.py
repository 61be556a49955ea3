"""Plan a local run before anything is started: spec, folders, variables and notes for the user."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rljob.api.sources import Initializer
from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.errors import UsageError
from rljob.cli.local import fields, translate
from rljob.cli.local.companion_objects import Surroundings
from rljob.cli.local.folder import JobFolder, State, empty, read_state, write_files
from rljob.cli.local.initializers import Step
from rljob.cli.local.translate import VolumeFolder
from rljob.cli.local.variables import Variables
from rljob.core.launcher import LauncherOf
from rljob.core.spec.merge import values
from rljob.core.validation.validate import Checked
from rljob.render.accelerators import facts_of
from rljob.render.code import FETCH_SECONDS, fetch_containers
from rljob.render.names import JobIdentity
from rljob.render.security import PodSecurity
from rljob_runtime.contract import JobConfig, Platform

NAMESPACE = "default"
GENERATION = 1
NPU_DEVICES = "davinci[0-9]*"
"""Device files of Ascend's driver, one per die: /dev/davinci0 and so on."""


@dataclass(frozen=True)
class LocalOptions:
    """Command-line options that complete the manifest, and the launcher to use."""

    volumes: Mapping[str, Path]
    """Folders that stand for volumes."""
    code: Path | None
    """Folder that stands for code.mountPath."""
    environment: Mapping[str, str]
    launcher: LauncherOf


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to start."""

    spec: RLJobSpec
    """The spec with local paths."""
    config: JobConfig
    initializers: list[Step]
    ray_environment: Mapping[str, str]
    launcher_environment: Mapping[str, str]
    notes: list[str]


def require_runtime(launcher: LauncherOf, spec: RLJobSpec) -> None:
    """Reject an interpreter without the runtime's packages. Nothing is imported, because that takes half a minute."""
    if missing := [name for name in launcher(spec).modules if importlib.util.find_spec(name) is None]:
        raise UsageError(
            f"this Python ({sys.executable}) has no {', '.join(missing)}; a local run needs the runtime's "
            "packages beside rljob: `python -m rljob_runtime requirements > cpu.txt`, then `pip install "
            "--no-deps -r cpu.txt`"
        )


def require_one_group(spec: RLJobSpec) -> None:
    """Reject a job whose groups have different roles: one Ray node stands for all workers, and does both."""
    if len(spec.worker_groups) == 1:
        return
    if spec.judge_group is not None:
        raise UsageError(
            "spec.reward.judge: a local run has one node, which trains and generates in turns; remove reward.judge and "
            "the group with role Judge, and let the reward function ask a judge that you start yourself"
        )
    raise UsageError(
        f"spec.trainer.mode {spec.trainer.mode}: a local run has one node, which trains and generates in turns; "
        "set trainer.mode to ColocateAsync or Sync, with one worker group of both roles"
    )


def require_accelerator(spec: RLJobSpec, devices: Path = Path("/dev")) -> None:
    """Reject a job that needs more NPUs than this machine has."""
    if facts_of(spec).platform is Platform.CPU:
        return
    found, wanted = len(list(devices.glob(NPU_DEVICES))), spec.devices
    if found < wanted:
        raise UsageError(
            f"spec.accelerator.class {spec.accelerator.class_}: the job needs {wanted} NPU devices, but this "
            f"machine has {found} ({devices}/{NPU_DEVICES}); set accelerator.class to cpu to train on its CPUs"
        )


def prepare(
    name: str, checked: Checked, surroundings: Surroundings, folder: JobFolder, state: State, given: LocalOptions
) -> Prepared:
    """Plan the run and create its folders."""
    spec = checked.spec
    if spec is None:
        raise AssertionError("an invalid job is reported and not run")
    volumes = translate.volume_folders(spec, folder, given.volumes)
    code = translate.code_folder(spec, folder, given.code)
    mounts = translate.mount_map(spec, volumes, code)
    notes = [f"{', '.join(paths)}: {said}" for said, paths in fields.without_effect(values(checked.merged)).items()]
    notes += [
        f"{path} is on no volume, so it is used as a path of this machine"
        for path in translate.paths_outside(spec, mounts)
    ]
    notes += _make_folders(volumes, surroundings)
    if spec.code.config_map is not None and given.code is None:
        _write_config_map(spec.code.config_map.name, folder.config_map(spec.code.config_map.name), surroundings)
    variables = Variables(name, surroundings, given.environment)
    fetch = [] if given.code is not None else _fetch_code(spec, folder, variables)
    if code is not None and not code.is_dir():
        raise UsageError(f"code: {code} is not a folder; pass one with --code FOLDER")
    local = translate.localise(spec, mounts, folder, lambda job: checkpoint_of(folder.root, job))
    # All workers are on one Ray node, and the launcher waits for that one; the overrides still state the number of
    # nodes.
    config = given.launcher(local).job_config(JobIdentity(NAMESPACE, name, state.uid), local, GENERATION)
    config = replace(config, nodes=1)
    prepared = Prepared(
        spec=local,
        config=config,
        initializers=fetch + [Step(each, variables.of_initializer(local, each)) for each in local.initializers],
        ray_environment=variables.of_workers(local),
        launcher_environment=variables.of_head(local),
        notes=notes,
    )
    notes += variables.missing
    if spec.checkpoint is None:
        notes.append(
            f"checkpoint: the manifest has none; saving every {translate.DEFAULT_EVERY_STEPS} steps to "
            f"{folder.checkpoints}, so that Ctrl-C loses no work"
        )
    return prepared


def _make_folders(volumes: Mapping[str, VolumeFolder], surroundings: Surroundings) -> list[str]:
    """Create the folders of volumes and return notes for the user."""
    notes = []
    for name, place in volumes.items():
        volume, folder = place.volume, place.folder
        if place.given or (volume.host_path is not None and volume.host_path.type == "Directory"):
            if not folder.is_dir():
                raise UsageError(
                    f"volume {name}: {folder} is not a folder of this machine; pass --volume {name}=FOLDER"
                )
        elif volume.config_map is not None:
            _write_config_map(volume.config_map.name, folder, surroundings)
        elif volume.empty_dir is not None:
            empty(folder)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            claim = volume.persistent_volume_claim
            if claim is not None and claim.claim_name not in surroundings.claims and not any(folder.iterdir()):
                notes.append(
                    f"volume {name}: claim {claim.claim_name} is not in the file, so the empty folder "
                    f"{folder} is used; fill it, or pass --volume {name}=FOLDER"
                )
    return notes


def _write_config_map(name: str, folder: Path, surroundings: Surroundings) -> None:
    files = surroundings.config_maps.get(name)
    if files is None:
        known = ", ".join(sorted(surroundings.config_maps)) or "none"
        raise UsageError(
            f"ConfigMap {name} is not in the file (found: {known}); add it, for example from `kubectl get -o yaml`"
        )
    write_files(folder, files)


def _fetch_code(spec: RLJobSpec, folder: JobFolder, variables: Variables) -> list[Step]:
    """Return the step that fetches code from Git as the pods' init container does, or None."""
    steps = []
    for container in fetch_containers(spec, PodSecurity.of(spec, spec.head.template)):
        folder.fetched_code.mkdir(parents=True, exist_ok=True)
        local = {spec.code.mount_path: str(folder.fetched_code)}
        initializer = Initializer(
            name=container["name"],
            command=[local.get(word, word) for word in container["command"]],
            retries=0,
            timeout_seconds=2 * FETCH_SECONDS,
        )
        steps.append(Step(initializer, variables.of_code_fetch(container.get("env", []))))
    return steps


def checkpoint_of(root: Path, job: str) -> str:
    """Return where another local job saves; its folder is a sibling of this one."""
    state = read_state(root.parent / job)
    if state is None or state.checkpoint_path is None:
        raise UsageError(
            f"spec.checkpoint.from.job {job}: there is no local run in {root.parent / job}; run it first, or "
            "set checkpoint.from.path"
        )
    return state.checkpoint_path
