"""What an installation without Helm applies, as one file: `python -m scripts.release.manifest REGISTRY TAG FILE`.

It is made of crds and deploy/kustomize, by the release and by `make install-manifest`. With `--of fakenpu` the command
writes deploy/fakenpu.yaml, the devices for nodes without NPUs, with the image of a release.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.release.images import LOCAL_REGISTRY, ROOT

CRDS = ROOT / "crds"
FAKENPU = ROOT / "deploy/fakenpu.yaml"
KUSTOMIZE = ROOT / "deploy/kustomize"
HEADER = """\
# Made of crds and deploy/kustomize of the source.
# RLJob: CRDs, namespace, permissions, operator, admission policies and built-in recipes. Apply it with
#   kubectl apply --server-side -f install.yaml
# and create the Secret rljob-operator-token-key, for which the operator's pod waits (docs/install.md).
# Deleting the CRDs of this file deletes every RLJob.
"""
OF_HELM = re.compile(r"(?m)^ +(?:app\.kubernetes\.io/managed-by: Helm|helm\.sh/chart: \S+)\n")
"""Labels that are not true of objects that kubectl applies."""
OF_VERSION = re.compile(r"(?m)^( +app\.kubernetes\.io/version: ).*$")


def install_text() -> str:
    """Return the manifest with the images of a checkout: namespace, CRDs, then what refers to both."""
    crds = [path.read_text() for path in sorted(CRDS.glob("*.yaml"))]
    namespace, operator = ((KUSTOMIZE / name).read_text() for name in ("namespace.yaml", "operator.yaml"))
    parts = [namespace, *crds, OF_HELM.sub("", operator)]
    return HEADER + "---\n".join(without_comments(part) for part in parts)


def without_comments(text: str) -> str:
    """Return a document without the comment lines before its first field, which name the file that it comes from."""
    return re.sub(r"\A(?:#.*\n)+", "", text)


def released(text: str, registry: str, tag: str) -> str:
    """Return the manifest with the operator's image in a registry. Raise ValueError if it does not name the image.

    The argument `--runtime-image` names it too, and so do the policies, which allow it where images are limited.
    """
    local, named = f"{LOCAL_REGISTRY}/operator", f"{registry.rstrip('/')}/operator"
    if f"{local}:dev" not in text or not OF_VERSION.search(text):
        raise ValueError(f"{KUSTOMIZE} does not name {local}:dev and a version; run `RLJOB_WRITE_GOLDEN=1 make chart`")
    return OF_VERSION.sub(rf'\g<1>"{tag}"', text.replace(f"{local}:dev", f"{named}:{tag}").replace(local, named))


def released_devices(text: str, registry: str, tag: str) -> str:
    """Return the manifest of the devices with their image in a registry. Raise ValueError if it does not name it."""
    local = f"image: {LOCAL_REGISTRY}/fakenpu:dev\n"
    if text.count(local) != 1:
        raise ValueError(f"{FAKENPU} does not have one line `{local.strip()}`; restore it")
    return text.replace(local, f"image: {registry.rstrip('/')}/fakenpu:{tag}\n")


OF: dict[str, tuple[Callable[[], str], Callable[[str, str, str], str]]] = {
    "install": (install_text, released),
    "fakenpu": (FAKENPU.read_text, released_devices),
}
"""Name of a file -> function that returns the file of a checkout, and function that turns it into that of a release."""


def main(words: Sequence[str] | None = None) -> None:
    """Write the file that the command line describes."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release.manifest", description=__doc__)
    parser.add_argument("registry", metavar="REGISTRY")
    parser.add_argument("tag", metavar="TAG")
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--of", choices=OF, default="install", help="manifest to write; default: %(default)s")
    chosen = parser.parse_args(words)
    checkout, make = OF[chosen.of]
    chosen.file.parent.mkdir(parents=True, exist_ok=True)
    chosen.file.write_text(make(checkout(), chosen.registry, chosen.tag))


if __name__ == "__main__":
    main()
