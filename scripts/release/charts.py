"""The charts of an installation, as commands that download them into a folder of a mirror."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

KUBERAY_IMAGE = "quay.io/kuberay/operator"
KUBERAY_REPOSITORY = "https://ray-project.github.io/kuberay-helm"


def operator_image(names: Sequence[str]) -> str:
    """Return the operator's image among the images of a release; empty: none."""
    return next((name for name in names if "/operator:" in name and not name.startswith(f"{KUBERAY_IMAGE}:")), "")


def commands(folder: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Return a command for each chart whose operator is among the images, in the version of the image."""
    # helm pulls into folders that exist.
    found = {"folder of the charts": ["mkdir", "-p", str(folder)]}
    registry, _, version = operator_image(names).rpartition("/operator:")
    if registry:
        own = [f"oci://{registry}/charts/rljob-operator", "--version", version]
        found["chart rljob-operator"] = ["helm", "pull", *own, "--destination", str(folder)]
    kuberay = next((name for name in names if name.startswith(f"{KUBERAY_IMAGE}:")), "")
    if kuberay:
        number = kuberay.rpartition(":")[2].removeprefix("v")
        theirs = ["kuberay-operator", "--repo", KUBERAY_REPOSITORY, "--version", number]
        found["chart kuberay-operator"] = ["helm", "pull", *theirs, "--destination", str(folder)]
    return found
