"""Keeps what is large and rarely read as UTF-8.

Python stores a whole text with the width of its widest character: one emoji makes each character of a text four bytes
long, and a spec of 256 KiB a megabyte, in the store and in all that is derived from it. What would waste more than
WASTE_BYTES that way is kept as bytes between two rounds of its job and read again when it is needed, which takes
milliseconds.
"""

from __future__ import annotations

import functools
import io
import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from rljob.cluster.manifests import interned
from rljob.core.observed import Manifest
from rljob.render.accelerator_table import AcceleratorTable

WASTE_BYTES = 16 * 1024
UNPACKED = 8
"""Parts of manifests that stay readable after their last use: rounds read them many times."""
_EMPTY = sys.getsizeof("")

T = TypeVar("T")


def waste(value: object) -> int:
    """Return by how many bytes the texts of a JSON value are larger in memory than as UTF-8."""
    if isinstance(value, str):
        if value.isascii():
            return 0
        return max(0, sys.getsizeof(value) - _EMPTY - len(value.encode(errors="surrogatepass")))
    if isinstance(value, Mapping):
        return sum(waste(name) + waste(member) for name, member in value.items())
    return sum(map(waste, value)) if isinstance(value, list) else 0


def packed(manifest: Manifest, part: str) -> Manifest:
    """Return a copy to keep of a manifest: with a part as UTF-8, unless that saves little."""
    if waste(manifest.get(part)) <= WASTE_BYTES:
        return interned(manifest)
    return PackedManifest(manifest, part)


class PackedManifest(Mapping[str, Any]):
    """A manifest that reads one of its parts from UTF-8."""

    def __init__(self, manifest: Manifest, part: str) -> None:
        self._rest = interned({**manifest, part: None})
        self._part = part
        self._text = json.dumps(manifest[part], ensure_ascii=False).encode(errors="surrogatepass")

    @property
    def kept_bytes(self) -> int:
        """Size of the part as it is kept."""
        return len(self._text)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """Return a part."""
        return _unpacked(self._text) if name == self._part else self._rest[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of its parts."""
        return iter(self._rest)

    def __len__(self) -> int:
        """Return how many parts it has."""
        return len(self._rest)


@functools.lru_cache(maxsize=UNPACKED)
def _unpacked(text: bytes) -> Any:  # noqa: ANN401 - JSON
    return json.loads(text.decode(errors="surrogatepass"))


class PackedValue(Generic[T]):
    """A value of Python as bytes, which this process alone reads; accelerator tables are shared with it."""

    def __init__(self, value: T) -> None:
        self._tables: list[AcceleratorTable] = []
        buffer = io.BytesIO()
        _Pickler(buffer, self._tables).dump(value)
        self._bytes = buffer.getvalue()

    def get(self) -> T:
        """Return the value."""
        value: T = _Unpickler(io.BytesIO(self._bytes), self._tables).load()
        return value


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, tables: list[AcceleratorTable]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._tables = tables

    def persistent_id(self, obj: object) -> int | None:
        if not isinstance(obj, AcceleratorTable):
            return None
        if obj not in self._tables:
            self._tables.append(obj)
        return self._tables.index(obj)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tables: list[AcceleratorTable]) -> None:
        super().__init__(file)
        self._tables = tables

    def persistent_load(self, pid: int) -> AcceleratorTable:
        return self._tables[pid]
