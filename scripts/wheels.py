"""Build the wheels of both distributions into dist/, with the locked hatchling and without a network.

`make wheels` runs it; the runtime's wheel holds what the image installs, the operator's what a user's laptop installs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = ("runtime", "operator")
BUILD_SECONDS = 120


def build(target: Path) -> list[Path]:
    """Build both into a folder; give the files. Raises CalledProcessError, hatchling's words in its output."""
    built = []
    for distribution in DISTRIBUTIONS:
        command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target.absolute()))
        folder = ROOT / distribution
        said = subprocess.check_output(command, cwd=folder, text=True, stderr=subprocess.STDOUT, timeout=BUILD_SECONDS)
        built.append(target / Path(said.strip().splitlines()[-1]).name)
    return built


def main() -> None:
    """Build into dist/."""
    for path in build(ROOT / "dist"):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
