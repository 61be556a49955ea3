"""What a reader of the documentation has: the checkout as the working directory, and the commands on PATH."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from scripts.site.pages import ROOT


def checkout(folder: Path) -> Path:
    """Return a new folder in which the files of the checkout can be read, and into which new ones can be written."""
    place = folder / "checkout"
    place.mkdir()
    for entry in ROOT.iterdir():
        if not entry.name.startswith("."):
            (place / entry.name).symlink_to(entry)
    return place


def carry_out(
    text: str, folder: Path, kubeconfig: Path, seconds: float, programs: Iterable[Path | str] = ()
) -> tuple[int, str]:
    """Run commands in a checkout, with further folders of programs on PATH. Return the exit code and the output."""
    folders = (Path(sys.executable).parent, *programs, os.environ.get("PATH", os.defpath))
    path = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        ["bash", "-euxc", text],
        cwd=folder,
        env={"PATH": path, "HOME": str(folder), "KUBECONFIG": str(kubeconfig), "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout
