"""Stage the chart of a release: `python -m scripts.release.chart REGISTRY VERSION FOLDER`.

It is the repository's chart with `image.registry` and `image.tag` of the release, and the list of its images.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from scripts.release.images import ROOT, images_text

CHART = ROOT / "charts/rljob-operator"


def stage(registry: str, version: str, folder: Path) -> None:
    """Write the chart into a folder, which is replaced."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(CHART, folder)
    values = folder / "values.yaml"
    text, found = values.read_text(), 0
    for key, value in (("registry", registry), ("tag", f'"{version}"')):
        text, count = re.subn(rf"(?m)^(  {key}: ).*$", rf"\g<1>{value}", text, count=1)
        found += count
    if found != 2:
        raise ValueError(f"{CHART}/values.yaml has no image.registry or image.tag")
    values.write_text(text)
    (folder / "images.txt").write_text(images_text(registry, version))


if __name__ == "__main__":
    stage(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
