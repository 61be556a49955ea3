"""Pod paths and the folders of this machine that stand for them. Pure.

A local run has no mounts, so paths are rewritten: whole paths in typed fields, and inside of free text (commands,
variables, overrides) wherever a mount path stands as a path of its own. What a script opens by a path written in its
own code cannot be seen from here: scripts take paths as arguments or variables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mount:
    """A mount path of the pods and what stands for it here."""

    pod_path: str
    """Without a slash at its end."""
    folder: Path


class MountMap:
    """All mounts of a job; the longest pod path wins, as in a pod."""

    def __init__(self, mounts: tuple[Mount, ...]) -> None:
        self.mounts = tuple(sorted(mounts, key=lambda mount: -len(mount.pod_path)))
        self._folders = {mount.pod_path: str(mount.folder) for mount in self.mounts}
        words = "|".join(re.escape(mount.pod_path) for mount in self.mounts)
        # A path of its own: nothing of a path before it, but perhaps file://, and its own end or a slash behind it.
        self._pattern = re.compile(rf"(?:(?<![\w./-])|(?<=file://))({words})(?![\w.-])") if self.mounts else None

    def covers(self, path: str) -> bool:
        """Tell whether a pod path lies on a volume."""
        return any(path == mount.pod_path or path.startswith(f"{mount.pod_path}/") for mount in self.mounts)

    def path(self, path: str) -> str:
        """Give the local path of a pod path; one outside of all volumes stays."""
        for mount in self.mounts:
            if path == mount.pod_path or path.startswith(f"{mount.pod_path}/"):
                return str(mount.folder) + path[len(mount.pod_path) :]
        return path

    def text(self, text: str) -> str:
        """Rewrite every mount path that stands in a text as a path of its own."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._folders[found[1]], text)
