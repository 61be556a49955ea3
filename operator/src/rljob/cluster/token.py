"""The bearer token of a Ray cluster: a function of the operator's key, the job and the cluster, never read back.

The executor puts it into the Secret that KubeRay mounts, the Ray client sends it. So the operator needs no right to
read Secrets, and a token of one cluster opens no other.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

KEY_BYTES = 32
"""Least length of the key: that of the hash's output (RFC 2104 section 3)."""


@dataclass(frozen=True)
class TokenKey:
    """The operator's key; it never shows in a representation."""

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse a key that can be guessed."""
        if len(self.key) < KEY_BYTES:
            raise ValueError(f"the token key has {len(self.key)} bytes; give at least {KEY_BYTES} random ones")

    @classmethod
    def from_file(cls, path: Path) -> TokenKey:
        """Read the key as it lies in the mounted Secret."""
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise ValueError(f"the token key cannot be read from {path}: {error.strerror}; mount its Secret") from error

    def token(self, job_uid: str, cluster_name: str) -> str:
        """Derive the token of one cluster."""
        message = job_uid.encode() + b"\0" + cluster_name.encode()
        return hmac.new(self.key, message, hashlib.sha256).hexdigest()
