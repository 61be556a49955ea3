"""Compare the recorded lines with clones: `python -m upstream.published_images VERL.git VLLM-ASCEND.git`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from upstream.published_images.table import ASCEND, IMAGES, VERL, Fact


def absent(clones: Mapping[str, Path]) -> list[Fact]:
    """Return the facts whose line is not in the file at its commit."""
    files = {fact.file for image in IMAGES for fact in image.facts}
    texts = {
        file: subprocess.run(
            ("git", "-C", str(clones[file.clone]), "show", f"{file.commit}:{file.path}"),
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for file in files
    }
    return [fact for image in IMAGES for fact in image.facts if fact.text not in texts[fact.file]]


if __name__ == "__main__":
    if wrong := absent({VERL: Path(sys.argv[1]), ASCEND: Path(sys.argv[2])}):
        lines = "\n".join(f"{fact.file.path} at {fact.file.commit[:9]} does not have: {fact.text}" for fact in wrong)
        sys.exit(f"{lines}\ncorrect upstream/published_images/table.py")
