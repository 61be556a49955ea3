"""Reads the facts of the image that this process runs in. Imports none of its packages."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rljob_runtime.image_check.facts import ImageFacts, SeamFacts
from rljob_runtime.image_check.requirements import READ
from rljob_runtime.image_check.seams import TABLE
from rljob_runtime.image_check.source import Sources
from rljob_runtime.node_checks.gather import ASCEND_ROOT, cann_version

TOOLKITS = ("cann", "ascend-toolkit/latest")
"""CANN's toolkit below ASCEND_ROOT, where ASCEND_TOOLKIT_HOME is not set."""
SUBSTITUTES = ("devlib", "{arch}-linux/devlib", "{arch}-linux/devlib/linux/{arch}")
"""Folders of a toolkit in which releases have substitutes for the driver: cann_environment.sh."""


def gather(path: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> ImageFacts:
    """Return the facts. `path` replaces the folders in which this interpreter looks for packages."""
    return ImageFacts(
        python=running_python(),
        bash=shutil.which("bash", path=environ.get("PATH")),
        wget=shutil.which("wget", path=environ.get("PATH")),
        distributions=distributions(path),
        cann=cann_version(environ),
        devlib=devlib(environ),
        seams=seams(Sources(path)),
    )


def devlib(environ: Mapping[str, str] = os.environ, root: str = ASCEND_ROOT) -> str:
    """Return the folder with CANN's substitutes for the driver; empty if the image has none."""
    homes = [environ.get("ASCEND_TOOLKIT_HOME", ""), *(f"{root}/{name}" for name in TOOLKITS)]
    arch = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    folders = (f"{home}/{name.format(arch=arch)}" for home in homes if home for name in SUBSTITUTES)
    return next((folder for folder in folders if Path(folder, "libascend_hal.so").exists()), "")


def running_python() -> tuple[int, int]:
    """Return the version of this interpreter."""
    return sys.version_info.major, sys.version_info.minor


def distributions(path: Sequence[str] | None = None) -> dict[str, str]:
    """Return the versions of the distributions that matter. The first on the path counts, as in an import."""
    folders = list(sys.path if path is None else path)
    versions = {name: _version(name, folders) for name in READ}
    return {name: version for name, version in versions.items() if version is not None}


def _version(name: str, folders: list[str]) -> str | None:
    for distribution in importlib.metadata.distributions(name=name, path=folders):
        # A folder whose metadata is damaged has none.
        if version := _first(distribution.metadata, "Version"):
            return version
    return None


def _first(metadata: importlib.metadata.PackageMetadata, field: str) -> str | None:
    values: list[str] = metadata.get_all(field) or []
    return values[0] if values else None


def seams(sources: Sources) -> dict[str, SeamFacts]:
    """Return what the sources define of the table. A package that is not there has no entry."""
    there = {name: sources.has_package(name) for name in {seam.package for seam in TABLE}}
    return {seam.name: sources.find(seam.module, seam.attribute) for seam in TABLE if there[seam.package]}
