"""Map pod paths to the folders of this machine that stand for them. Pure.

A local run has no mounts, so paths are rewritten: whole paths in typed fields, and in free text (commands, variables,
overrides) every mount path that stands alone. Paths written in the code of a script cannot be rewritten: scripts must
take paths as arguments or variables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mount:
    """A mount path of the pods and the local folder that stands for it."""

    pod_path: str
    """Path in the pods, without a trailing slash."""
    folder: Path


class MountMap:
    """All mounts of a job; the longest pod path wins, as in a pod."""

    def __init__(self, mounts: tuple[Mount, ...]) -> None:
        self.mounts = tuple(sorted(mounts, key=lambda mount: -len(mount.pod_path)))
        self._folders = {mount.pod_path: str(mount.folder) for mount in self.mounts}
        words = "|".join(re.escape(mount.pod_path) for mount in self.mounts)
        # Match a complete path: not preceded by part of a path, except file://, and followed by its end or a slash.
        self._pattern = re.compile(rf"(?:(?<![\w./-])|(?<=file://))({words})(?![\w.-])") if self.mounts else None

    def covers(self, path: str) -> bool:
        """Return whether a pod path lies on a volume."""
        return any(path == mount.pod_path or path.startswith(f"{mount.pod_path}/") for mount in self.mounts)

    def path(self, path: str) -> str:
        """Return the local path of a pod path; a path outside of all volumes is unchanged."""
        for mount in self.mounts:
            if path == mount.pod_path or path.startswith(f"{mount.pod_path}/"):
                return str(mount.folder) + path[len(mount.pod_path) :]
        return path

    def text(self, text: str) -> str:
        """Rewrite every mount path that stands alone in a text."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._folders[found[1]], text)
