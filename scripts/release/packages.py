"""The Python packages that the builds of the images install, as commands that download them without installing.

Each lock is downloaded for every platform that its images are built for, whatever machine runs the command. pip
compares each file with the hashes of the lock, when it downloads and when a build installs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.release.images import MACHINES, OWN

PYTHON = "3.11"
"""The Python of the images."""
GLIBC = range(17, 36)
"""Minor versions of glibc whose wheels the base images can load: 2.35 is that of Ubuntu 22.04."""
SDISTS = ("runtime-ascend-vllm", "suffix")
"""Locks whose packages the builds compile from their source archives."""


def platforms(machine: str) -> list[str]:
    """Return pip's options for a machine, the newest glibc first."""
    names = [f"manylinux_2_{minor}_{machine}" for minor in reversed(GLIBC)] + [f"manylinux2014_{machine}"]
    return [word for name in names for word in ("--platform", name)]


def commands(folder: Path) -> dict[str, list[str]]:
    """Return a command for each lock and platform."""
    found: dict[str, list[str]] = {}
    for image in OWN:
        for lock in image.locks:
            named = next((machine for machine in MACHINES.values() if lock.endswith(machine)), "")
            for machine in [named] if named else [MACHINES[platform] for platform in image.platforms]:
                file = f"requirements/{lock}.txt"
                if lock in SDISTS:
                    found[lock] = [sys.executable, "-m", "scripts.release.sdist", file, str(folder)]
                else:
                    wanted = ["--prefer-binary", "--python-version", PYTHON, *platforms(machine)]
                    pip = ["pip", "download", "--no-deps", "--require-hashes", *wanted]
                    found[f"{lock} for {machine}"] = [*pip, "-r", file, "--dest", str(folder)]
    return found
