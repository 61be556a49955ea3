"""Read what a release of vllm-ascend or verl has, and compare it with the committed tables. Reads files."""

from __future__ import annotations

import ast
import email
import json
import zipfile
from collections.abc import Iterator, Mapping
from email.message import Message
from pathlib import Path

import yaml

from rljob.launchers.verl.checks.overrides import LAUNCHERS_OWN
from rljob.launchers.verl.table import TABLE
from rljob_runtime.planning import ascend_names, verl
from upstream import verl_names
from upstream.ascend_names import names_of
from upstream.newer.moved import SECTION, Defaults, as_names, keys_moved, names_moved

METADATA = ("METADATA", "PKG-INFO")
OURS = frozenset(row.key.lstrip("+") for row in TABLE) | frozenset(LAUNCHERS_OWN)
"""Keys of verl that the operator or the launcher sets."""


class Release:
    """The files of a wheel, or of the unpacked source of a release."""

    def __init__(self, path: Path) -> None:
        """Take the path of a wheel or of a folder."""
        self._wheel = None if path.is_dir() else zipfile.ZipFile(path)
        self._folder = path

    def names(self) -> list[str]:
        """Return the paths of all files."""
        if self._wheel is not None:
            return self._wheel.namelist()
        return [str(path.relative_to(self._folder)) for path in self._folder.rglob("*") if path.is_file()]

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return self._wheel.read(name) if self._wheel is not None else (self._folder / name).read_bytes()

    def trees(self, package: str) -> dict[str, ast.Module]:
        """Return the modules of a package."""
        modules = (name for name in self.names() if name.startswith(package) and name.endswith(".py"))
        return {name: ast.parse(self.read(name)) for name in modules}

    def metadata(self) -> Message:
        """Return the metadata. In a folder it is the file at the top, since there may be copies below."""
        found = sorted((name for name in self.names() if name.rpartition("/")[2] in METADATA), key=len)
        if not found:
            raise SystemExit(f"{self._folder} has neither METADATA nor PKG-INFO; give a wheel or the unpacked source")
        return email.message_from_bytes(self.read(found[0]))


def vllm_ascend_moved(release: Release) -> Iterator[str]:
    """Yield what moved in the names of vllm-ascend on which checks and pages rely."""
    new = names_of(release.trees("vllm_ascend/"))
    for title, name in (
        ("options of additional_config", "VLLM_ASCEND_OPTIONS"),
        ("environment variables", "VLLM_ASCEND_VARIABLES"),
        ("methods of speculative decoding", "VLLM_ASCEND_METHODS"),
        ("classes and functions", "VLLM_ASCEND_SYMBOLS"),
    ):
        yield from names_moved(title, as_names(getattr(ascend_names, name)), as_names(new[name]))
    asked = release.metadata().get_all("Requires-Dist") or []
    yield from names_moved("requirements", as_names(ascend_names.VLLM_ASCEND_REQUIRES), as_names(asked))


def verl_moved(release: Release) -> Iterator[str]:
    """Yield what moved in the keys of verl's configuration, and the cited files that are gone."""
    for engine, suffix in (("FSDP2", "DP"), ("Megatron", "MEGATRON")):
        old = {
            key: SECTION if isinstance(value, verl.Section) else value
            for key, value in verl.keys(megatron=suffix == "MEGATRON").items()
        }
        text = release.read(verl_names.CONFIG.format(verl_names.ENGINES[suffix]))
        yield from (f"{engine}: {line}" for line in keys_moved(old, composed(yaml.safe_load(text)), OURS))
    present = set(release.names())
    cited = sorted({f"verl/{row.source}" for row in TABLE} - present)
    yield from (f"cited by a row of the launcher, and gone: {name}" for name in cited)


def composed(document: Mapping[str, object]) -> Defaults:
    """Return the keys of a composed configuration with their defaults."""
    words = dict(verl_names.composed(document))
    return {key: json.loads(word[1:]) if word else SECTION for key, word in words.items()}
