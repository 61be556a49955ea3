"""The bearer token of a Ray cluster, derived from the operator's key, the job and the cluster, and never read back.

The executor writes it to the Secret that KubeRay mounts, and the Ray client sends it. So the operator needs no
permission to read Secrets, and the token of one cluster does not work for another.

While the key is rotated, the previous one is known too: new clusters get tokens of the new key, and a head that rejects
such a token is asked again with one of the previous key (docs/operations.md, "Rotate the token key").
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KEY_BYTES = 32
"""Minimum length of the key: that of the hash's output (RFC 2104 section 3)."""
PREVIOUS = "previous"
"""Name of the file with the key before the current one, in the folder of the current one."""


@dataclass(frozen=True)
class TokenKey:
    """The operator's key, which no representation contains."""

    key: bytes = field(repr=False)
    previous: TokenKey | None = field(default=None, repr=False)
    """The key from which the tokens of older clusters are derived, while the key is rotated."""

    def __post_init__(self) -> None:
        """Reject a key that can be guessed."""
        if len(self.key) < KEY_BYTES:
            raise ValueError(f"the token key has {len(self.key)} bytes; provide at least {KEY_BYTES} random bytes")

    @classmethod
    def from_file(cls, path: Path) -> TokenKey:
        """Read the key from the mounted Secret."""
        previous = path.with_name(PREVIOUS)
        try:
            return cls(path.read_bytes(), cls(previous.read_bytes()) if previous.exists() else None)
        except OSError as error:
            raise ValueError(
                f"the token key cannot be read from {error.filename}: {error.strerror}; mount its Secret"
            ) from error

    def token(self, job_uid: str, cluster_name: str) -> str:
        """Derive the token of one cluster."""
        message = job_uid.encode() + b"\0" + cluster_name.encode()
        return hmac.new(self.key, message, hashlib.sha256).hexdigest()
