"""Stage the chart of a release: `python -m scripts.release.chart REGISTRY VERSION FOLDER`.

It is the repository's chart with `image.registry` and `image.tag` of the release, in the values and in its README, the
list of its images, and what Artifact Hub shows of it.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from scripts.artifact_hub import MARK, SignKey, release_annotations
from scripts.release.images import LOCAL_REGISTRY, OWN, ROOT, images_text, own_name

CHART = ROOT / "charts/rljob-operator"
SETTINGS = {
    "values.yaml": (r"(?m)^(  registry: ).*()$", r"(?m)^(  tag: ).*()$"),
    "README.md": (r"(?m)^(\| `image\.registry` \| `)[^`]*(` \|)", r"(?m)^(\| `image\.tag` \| `)[^`]*(` \|)"),
}
"""File of the chart -> the first lines with image.registry and image.tag, with what is around the values in groups."""


def stage(registry: str, version: str, folder: Path, key: SignKey | None = None, source: str = "") -> None:
    """Write the chart into a folder, which is replaced. Raise ValueError if the chart has no place for a setting."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(CHART, folder)
    for file, rows in SETTINGS.items():
        path = folder / file
        text = path.read_text()
        for pattern, value in zip(rows, (f'"{registry}"', f'"{version}"'), strict=True):
            text, found = re.subn(pattern, rf"\g<1>{value}\g<2>", text, count=1)
            if found != 1:
                raise ValueError(
                    f"{CHART}/{file} has no line {pattern}; restore it, or correct SETTINGS in scripts/release/chart.py"
                )
        path.write_text(text)
    (folder / "images.txt").write_text(images_text(registry, version))
    described = folder / "Chart.yaml"
    described.write_text(chart_text(described.read_text(), registry, version, key, source))


def chart_text(text: str, registry: str, version: str, key: SignKey | None, source: str) -> str:
    """Return Chart.yaml of a release. Its annotations are the last field."""
    if MARK not in text:
        raise ValueError(f"{CHART}/Chart.yaml lacks the line: {MARK.strip()}; run `make generate`")
    for image in OWN:
        # The examples name images.
        text = text.replace(own_name(image, LOCAL_REGISTRY, ""), own_name(image, registry, version))
    if source:
        text = text.replace("annotations:\n", f"home: {source}\nsources: [{source}]\nannotations:\n", 1)
    return text + release_annotations(registry, version, key)


def main(words: Sequence[str] | None = None) -> None:
    """Stage the chart that the command line describes."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release.chart", description=__doc__)
    parser.add_argument("registry", metavar="REGISTRY")
    parser.add_argument("version", metavar="VERSION")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("--sign-key", nargs=2, metavar=("FINGERPRINT", "URL"), help="public key of the signed package")
    parser.add_argument("--source", default="", metavar="URL", help="where the source of the release is")
    chosen = parser.parse_args(words)
    key = SignKey(*chosen.sign_key) if chosen.sign_key else None
    stage(chosen.registry, chosen.version, chosen.folder, key, chosen.source)


if __name__ == "__main__":
    main()
