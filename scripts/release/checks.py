"""What must hold before a release is made; each function returns what is wrong, with the fix, and changes nothing.

scripts/release/__main__.py asks all of them before the first step, because some steps take hours.
"""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import yaml
from packaging.version import InvalidVersion, Version

from scripts.artifact_hub import changes, sections
from scripts.release.images import LOCAL_REGISTRY, ROOT
from scripts.release.plan import KEYLESS, Release

NUMBER = r"(?:0|[1-9]\d*)"
WORD = rf"(?:{NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
VERSION = re.compile(rf"{NUMBER}\.{NUMBER}\.{NUMBER}(?:-{WORD}(?:\.{WORD})*)?")
"""A semantic version without build metadata, which tags of images cannot have."""
PROJECTS = ("operator/pyproject.toml", "runtime/pyproject.toml")
CHART = "charts/rljob-operator"
PROGRAMS = {"sh": "a shell", "buildah": "buildah", "helm": "Helm", "syft": "syft"}
"""Program that every release needs -> package that contains it."""


def of_names(release: Release, root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with registry and version; the chart's schema has the pattern of a registry."""
    schema = json.loads((root / CHART / "values.schema.json").read_text())
    pattern = schema["properties"]["image"]["properties"]["registry"]["pattern"]
    if not re.fullmatch(pattern, release.registry) or "//" in release.registry:
        yield f"--registry {release.registry}: write it as in the name of an image ({pattern}), without https://"
    if release.registry.partition("/")[0] == LOCAL_REGISTRY:
        yield f"--registry {release.registry}: that is the name of images of a checkout; name a registry"
    if not VERSION.fullmatch(release.version):
        yield f"--version {release.version}: no semantic version without leading zeros, such as 0.2.0 or 0.2.0-rc.1"


def of_tree(version: str, root: Path = ROOT) -> Iterator[str]:
    """Yield where the tree states another version, or does not describe this one."""
    for name in PROJECTS:
        found = tomllib.loads((root / name).read_text())["project"]["version"]
        if not _same(found, version):
            yield f"{name} has version {found}, not {version}; set it, or check out the release"
    chart = yaml.safe_load((root / CHART / "Chart.yaml").read_text())
    for field in ("version", "appVersion"):
        if str(chart[field]) != version:
            yield f"{CHART}/Chart.yaml has {field} {chart[field]}, not {version}; set it, or check out the release"
    changelog = (root / "CHANGELOG.md").read_text()
    if version not in sections(changelog):
        yield f"CHANGELOG.md has no heading `## {version} - DATE`; rename `Unreleased`"
    elif not changes(changelog, version):
        yield f"CHANGELOG.md has no entries for {version}; list its changes"


def _same(python: str, version: str) -> bool:
    """Return whether a version of a Python package is this semantic version: 0.2.0rc1 is 0.2.0-rc.1."""
    try:
        return Version(python) == Version(version)
    except InvalidVersion:
        return python == version


def of_machine(release: Release, root: Path = ROOT) -> Iterator[str]:
    """Yield which programs and files a run would lack, and what an earlier run left in its folder."""
    programs = PROGRAMS | ({"cosign": "cosign 2"} if release.key else {})
    for program, package in programs.items():
        if shutil.which(program) is None:
            yield f"{program} is not on PATH; install {package}"
    given = release.provenance
    files = {"--keyring": given.keyring, "--passphrase-file": given.passphrase} if given else {}
    # A key without a colon is a file; KMS, PKCS #11 and variables are URIs.
    if release.key not in ("", KEYLESS) and ":" not in release.key:
        files["--sign"] = release.key
    for option, name in files.items():
        if name and not (root / name).is_file():
            yield f"{option} {name}: no such file below {root}; correct the path"
    dist = root / release.dist
    if dist.exists() and not dist.is_dir():
        yield f"--dist {release.dist}: not a folder; name another"
    elif dist.exists() and (left := sorted(path.name for path in dist.iterdir())):
        shown = ", ".join(left[:3]) + (", ..." if len(left) > 3 else "")
        yield f"--dist {release.dist}: it has {shown}; delete what it has, or name an empty folder"
