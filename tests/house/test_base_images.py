"""Images are built on what a name alone determines: a stage, an argument without default, a digest. Their variables."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from rljob_runtime import trackers
from tests.cluster import buildah
from tests.cluster.errors import ClusterError

ROOT = Path(__file__).resolve().parents[2]
FROM = re.compile(r"^FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE | re.MULTILINE)
ARGUMENT = re.compile(r"^ARG\s+(\w+)(?:=(\S*))?\s*$", re.MULTILINE)
COPIED = re.compile(r"^(?:COPY|RUN)\b.*(?:--from=|[,\s]from=)([^\s,]+)", re.MULTILINE)
VARIABLE = re.compile(r"\$\{?(\w+)\}?")
DIGEST = "@sha256:" + "0" * 64


def dockerfiles() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if Path(name).name.startswith("Dockerfile")]


def loose(text: str) -> list[str]:
    """Return the images of a Dockerfile whose content depends on when it is built."""
    stages = {name for _, name in FROM.findall(text) if name} | {"scratch"}
    defaults = {name: default for name, default in ARGUMENT.findall(text) if default}
    found = []
    for image in [*(image for image, _ in FROM.findall(text)), *COPIED.findall(text)]:
        variable = VARIABLE.fullmatch(image)
        # An argument without a default is given by those who build; the value of one with a default is judged.
        given = defaults.get(variable[1], "") if variable else image
        if given and given not in stages and not re.search(r"@sha256:[0-9a-f]{64}$", given):
            found.append(given)
    return found


@pytest.mark.parametrize("path", dockerfiles(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_base_image_is_named_by_a_tag(path: Path) -> None:
    assert loose(path.read_text()) == []


def test_the_dockerfiles_are_found() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in dockerfiles()} == {"images", "tests"}
    assert len(dockerfiles()) > 5


@pytest.mark.parametrize(
    "text",
    [
        "FROM python:3.11\n",
        "FROM python\n",
        "FROM --platform=linux/arm64 python:3.11 AS a\nFROM a\n",
        "ARG BASE=python:3.11\nFROM ${BASE}\n",
        "ARG BASE=python:3.11\nFROM $BASE AS x\n",
        "FROM scratch\nCOPY --from=python:3.11 /a /b\n",
        "FROM scratch\nRUN --mount=type=bind,from=busybox,target=/x true\n",
    ],
)
def test_a_tag_is_found_wherever_it_is(text: str) -> None:
    assert len(loose(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"FROM python{DIGEST}\n",
        f"ARG BASE=python:3.11{DIGEST}\nFROM ${{BASE}} AS a\nFROM a\nCOPY --from=a /x /x\n",
        "ARG BASE\nFROM ${BASE}\n",
        "FROM scratch\n",
    ],
)
def test_a_digest_a_stage_or_an_argument_without_default_is_none(text: str) -> None:
    assert loose(text) == []


def test_a_base_for_the_local_cluster_is_named_by_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLJOB_BASE_IMAGE", "registry.example/python:3.11")
    with pytest.raises(ClusterError, match="name it by digest"):
        buildah.ensure_base()
    monkeypatch.setenv("RLJOB_BASE_IMAGE", f"registry.example/python{DIGEST}")
    assert buildah.ensure_base() == f"registry.example/python{DIGEST}"


def test_no_image_decides_whether_a_tracker_is_online() -> None:
    """The launcher takes a variable of the process for the user's wish, also beside a key."""
    names = {name for keys, _ in trackers.KEYS.values() for name in keys}
    names |= {name for mode in trackers.OFFLINE.values() for name in mode}
    found = [(path.name, name) for path in dockerfiles() for name in names if f"{name}=" in path.read_text()]
    assert found == []
