"""Translation of an RLJob for this machine: folders of volumes, local paths, checkpoints for every job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import group, small_spec, typed

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.errors import UsageError
from rljob.cli.local import translate
from rljob.cli.local.folder import JobFolder

ROOT = Path("/w/job")
FOLDER = JobFolder(ROOT)
VOLUMES: dict[str, dict[str, Any]] = {
    "data": {"persistentVolumeClaim": {"claimName": "quickstart"}},
    "settings": {"configMap": {"name": "settings"}},
    "models": {"hostPath": {"path": "/srv/models"}},
    "scratch": {"emptyDir": {}},
}


def spec_with_volumes(change: dict[str, Any] | None = None) -> RLJobSpec:
    template = {
        "volumes": [{"name": name, **source} for name, source in VOLUMES.items()],
        "volumeMounts": [
            {"name": "data", "mountPath": "/data/"},
            {"name": "models", "mountPath": "/models", "subPath": "qwen"},
            {"name": "scratch", "mountPath": "/tmp/x"},
        ],
        "env": [{"name": "CACHE", "value": "/tmp/x/cache"}],
    }
    code = {"code": {"type": "ConfigMap", "configMap": {"name": "code"}}}
    return typed(small_spec(group({"template": template}) | code | (change or {})))


def localised(spec: RLJobSpec) -> RLJobSpec:
    folders = translate.volume_folders(spec, FOLDER, {})
    mounts = translate.mount_map(spec, folders, translate.code_folder(spec, FOLDER, None))
    return translate.localise(spec, mounts, FOLDER, lambda job: f"/w/{job}/saved")


def test_each_kind_of_volume_has_its_folder() -> None:
    folders = translate.volume_folders(spec_with_volumes(), FOLDER, {"data": Path("/mine")})
    assert {name: str(place.folder) for name, place in folders.items()} == {
        "data": "/mine",
        "settings": "/w/job/configmaps/settings",
        "models": "/srv/models",
        "scratch": "/w/job/scratch/scratch",
    }


def test_typed_paths_and_texts_are_rewritten() -> None:
    spec = localised(
        spec_with_volumes(
            {
                "model": {"path": "/models/tiny"},
                "initializers": [{"name": "prepare", "command": ["python", "/code/p.py", "--out=/data/x"]}],
                "verl": {"overrides": {"data.tool_config_path": "/code/tools.yaml", "data.shuffle": True}},
                "observability": {"logPath": "/data/logs"},
            }
        )
    )
    assert spec.model.path == "/srv/models/qwen/tiny"
    assert spec.data.train == ["/w/job/volumes/quickstart/train.parquet"]
    assert spec.reward.path == "/w/job/configmaps/code/reward.py"
    assert spec.initializers[0].command[1:] == ["/w/job/configmaps/code/p.py", "--out=/w/job/volumes/quickstart/x"]
    assert spec.verl.overrides == {"data.tool_config_path": "/w/job/configmaps/code/tools.yaml", "data.shuffle": True}
    assert spec.observability.log_path == "/w/job/volumes/quickstart/logs"
    assert spec.worker_groups[0].template.env[0].value == "/w/job/scratch/scratch/cache"


def test_a_job_without_checkpoints_gets_some_and_another_keeps_its_own() -> None:
    saved = localised(spec_with_volumes()).checkpoint
    assert saved is not None
    assert (saved.path, saved.every_steps) == ("/w/job/checkpoints", 10)
    own = {"checkpoint": {"path": "/data/c", "everySteps": 3, "from": {"job": "before", "step": 7}}}
    kept = localised(spec_with_volumes(own)).checkpoint
    assert kept is not None
    assert (kept.path, kept.every_steps) == ("/w/job/volumes/quickstart/c", 3)
    assert kept.from_ is not None
    assert (kept.from_.path, kept.from_.job, kept.from_.step) == ("/w/before/saved", None, 7)


def test_paths_on_no_volume_are_listed() -> None:
    spec = spec_with_volumes({"model": {"path": "/opt/model"}})
    mounts = translate.mount_map(spec, translate.volume_folders(spec, FOLDER, {}), ROOT / "code")
    assert translate.paths_outside(spec, mounts) == ["model.path /opt/model"]


def test_what_cannot_be_had_here_says_what_to_give() -> None:
    nfs = {"name": "n", "nfs": {"server": "filer", "path": "/export"}}
    spec = typed(small_spec(group({"template": {"volumes": [nfs]}})))
    with pytest.raises(UsageError, match="mount filer:/export yourself and pass --volume n=FOLDER"):
        translate.volume_folders(spec, FOLDER, {})
    with pytest.raises(UsageError, match="no such volume; its volumes are: n"):
        translate.volume_folders(spec, FOLDER, {"x": ROOT})


def test_code_may_come_from_a_claim_or_a_folder() -> None:
    claim = {"type": "PVC", "persistentVolumeClaim": {"claimName": "repo", "subPath": "src"}}
    spec = typed(small_spec({"code": claim}))
    assert translate.code_folder(spec, FOLDER, None) == ROOT / "volumes/repo/src"
    assert translate.code_folder(spec, FOLDER, Path("/mine")) == Path("/mine")
    assert translate.code_folder(typed(), FOLDER, None) is None
    git = {"type": "Git", "git": {"url": "https://host/r.git", "revision": "0" * 40}}
    assert translate.code_folder(typed(small_spec({"code": git})), FOLDER, None) == ROOT / "code"


def test_a_volume_over_everything_is_refused() -> None:
    template = {"volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": "/"}]}
    spec = typed(small_spec(group({"template": template})))
    with pytest.raises(UsageError, match="mountPath / cannot be replaced by a local folder"):
        translate.mount_map(spec, translate.volume_folders(spec, FOLDER, {}), None)
