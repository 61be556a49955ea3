"""Suffix needs an extension in the image; every other method runs without it."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import pytest

from rljob_runtime import draft_check
from rljob_runtime.contract import DRAFTS_VARIABLE, Drafts, ExitCode, JobConfig
from rljob_runtime.launcher_overrides import environment
from rljob_runtime.outcomes import RefusedError
from runtime.tests.conftest import MakeJob

SUFFIX = Drafts(32, needs_suffix_trees=True)


def drafting(make_job: MakeJob, drafts: Drafts | None) -> JobConfig:
    return dataclasses.replace(make_job(), drafts=drafts)


def package(folder: Path, *files: str) -> None:
    for name in files:
        path = folder / "arctic_inference" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.mark.parametrize("drafts", [None, Drafts(32)])
def test_other_methods_need_nothing(make_job: MakeJob, drafts: Drafts | None) -> None:
    draft_check.require(drafting(make_job, drafts))


@pytest.mark.parametrize("files", [(), ("__init__.py",), ("__init__.py", "suffix_decoding/cache.py")])
def test_an_image_without_the_extension_is_refused(
    make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...]
) -> None:
    package(tmp_path, *files)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    importlib.invalidate_caches()
    with pytest.raises(RefusedError, match="install the wheel that images/runtime/suffix_wheel") as caught:
        draft_check.require(drafting(make_job, SUFFIX))
    assert (caught.value.code, caught.value.reason) == (ExitCode.BAD_CONFIG, "ImageUnsuitable")


def test_an_image_with_the_extension_passes(make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "__init__.py", "suffix_decoding/_C.cpython-311-x86_64-linux-gnu.so")
    monkeypatch.syspath_prepend(str(tmp_path))
    draft_check.require(drafting(make_job, SUFFIX))


def test_engines_get_the_drafts_in_a_variable(make_job: MakeJob) -> None:
    drafts = Drafts(8, history_bytes=1 << 30, needs_suffix_trees=True)
    told = environment(drafting(make_job, drafts), {})
    assert Drafts.from_variable(told[DRAFTS_VARIABLE]) == drafts
    assert DRAFTS_VARIABLE not in environment(make_job(), {})
