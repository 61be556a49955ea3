"""The images of a node: what containerd has, and importing what it lacks.

An image whose name already refers to the wanted manifest is not touched; otherwise only missing blobs are imported. So
a change of code costs only its own small layer.
"""

import subprocess
import tempfile
import time
from pathlib import Path

from tests.cluster import oci, programs
from tests.cluster.errors import ClusterError
from tests.cluster.nodes import Node
from tests.cluster.oci import Image
from tests.cluster.shell import run

IMPORT_DEADLINE_SECONDS = 1800
# The only containerd namespace in which the kubelet finds images.
NAMESPACE = "k8s.io"


def ctr(node: Node) -> list[str]:
    """Return the start of a ctr command for the node's containerd."""
    program = programs.entry("containerd") / "ctr"
    return [str(program), "--address", str(node.containerd_socket), "--namespace", NAMESPACE]


def digests(node: Node) -> dict[str, str]:
    """Return the node's images: name to manifest digest."""
    rows = [line.split() for line in run([*ctr(node), "images", "list"]).splitlines()[1:]]
    return {row[0]: row[2] for row in rows if len(row) > 2}


def ensure_image(node: Node, image: Image) -> bool:
    """Import an image unless it exists; return whether anything was done."""
    if digests(node).get(image.tag) == image.manifest.digest:
        return False
    held = set(run([*ctr(node), "content", "list", "--quiet"]).split())
    started = time.monotonic()
    _import(node, image, held - {image.manifest.digest})
    now = digests(node).get(image.tag)
    if now != image.manifest.digest:
        raise ClusterError(f"{image.tag} on {node.name} is {now} after its import, not {image.manifest.digest}")
    _forget_superseded(node)
    megabytes = sum(blob.size for blob in image.blobs if blob.digest not in held) / 1e6
    seconds = time.monotonic() - started
    print(f"image  {image.tag} -> {node.name}: {megabytes:.0f} MB in {seconds:.1f} s", flush=True)
    return True


def _forget_superseded(node: Node) -> None:
    """Remove images of earlier builds.

    The kubelet's image collection is off, and a runtime image needs five gigabytes.
    """
    for name in superseded(digests(node)):
        # What a container still uses stays on disk until the container is gone.
        run([*ctr(node), "images", "remove", name])


def superseded(images: dict[str, str]) -> list[str]:
    """Return the names that consist of a digest only and whose image has no tag any more."""
    tagged = {digest for name, digest in images.items() if not name.startswith("sha256:")}
    return sorted(name for name, digest in images.items() if name.startswith("sha256:") and digest not in tagged)


def _import(node: Node, image: Image, held: set[str]) -> None:
    command = [*ctr(node), "images", "import", "--snapshotter", "overlayfs", "-"]
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said)
        broken = False
        try:
            if child.stdin is not None:
                with child.stdin as stream:
                    oci.write_tar(image, stream, without=held)
        except BrokenPipeError:
            broken = True
        code = child.wait(timeout=IMPORT_DEADLINE_SECONDS)
        if code or broken:
            said.seek(0)
            text = said.read().decode(errors="replace")[-2000:]
            raise ClusterError(f"containerd of {node.name} rejects {image.tag} (code {code}): {text}")


def architecture(binary: Path) -> str:
    """Return the architecture of a compiled program, by the machine number in its ELF header."""
    number = int.from_bytes(binary.open("rb").read(20)[18:20], "little")
    return {0x3E: "amd64", 0xB7: "arm64"}[number]
