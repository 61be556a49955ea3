"""Build the wheels of both distributions into dist/ or a folder, with the locked hatchling and without network access.

`make wheels` runs it. The image installs the runtime's wheel, and a user's laptop the operator's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = ("runtime", "operator")
BUILD_SECONDS = 120


def build(target: Path, distributions: Sequence[str] = DISTRIBUTIONS) -> list[Path]:
    """Build wheels into a folder and return the files.

    Raise CalledProcessError with hatchling's output if that fails.
    """
    built = []
    for distribution in distributions:
        command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target.absolute()))
        folder = ROOT / distribution
        said = subprocess.check_output(command, cwd=folder, text=True, stderr=subprocess.STDOUT, timeout=BUILD_SECONDS)
        built.append(target / Path(said.strip().splitlines()[-1]).name)
    return built


def main(words: Sequence[str] = ()) -> None:
    """Build into the folder that is named, by default dist/."""
    for path in build(ROOT / (words[0] if words else "dist")):
        print(f"{path.name}  {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
