"""Container images as files: single-binary images written directly, and tars of an image layout.

An OCI layout is a folder of blobs named by their hash, plus an index. An image with one static binary needs no builder:
a layer with that file, a configuration and a manifest. Layers are not compressed, because they stay on one machine.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.cluster.errors import ClusterError

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
LAYOUT = b'{"imageLayoutVersion": "1.0.0"}'
# The name that containerd gives an image at its import.
NAME_ANNOTATION = "io.containerd.image.name"
# Not a user of the host; images with runAsNonRoot require a number.
UNPRIVILEGED_USER = "65532"

Json = dict[str, Any]


@dataclass(frozen=True)
class Blob:
    """A content-addressed blob: its hash, and its bytes or the file that contains them."""

    digest: str
    size: int
    content: bytes | Path


@dataclass(frozen=True)
class Image:
    """A manifest and everything that it refers to."""

    tag: str
    manifest: Blob
    blobs: tuple[Blob, ...]


def blob_of(content: bytes) -> Blob:
    """Return the blob of these bytes."""
    return Blob("sha256:" + hashlib.sha256(content).hexdigest(), len(content), content)


def binary_image(tag: str, binary: Path, target: str, *, architecture: str) -> Image:
    """Return an image FROM scratch with one static binary as its entrypoint."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo(target.lstrip("/"))
        info.mode, info.size = 0o755, binary.stat().st_size
        with binary.open("rb") as file:
            tar.addfile(info, file)
    layer = blob_of(stream.getvalue())
    config = _json_blob(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": [target], "User": UNPRIVILEGED_USER},
            "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
        }
    )
    manifest = _json_blob(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": config.digest, "size": config.size},
            "layers": [{"mediaType": LAYER_TYPE, "digest": layer.digest, "size": layer.size}],
        }
    )
    return Image(tag, manifest, (config, layer))


def layout_image(folder: Path, tag: str) -> Image:
    """Return the image that an OCI layout contains under a name."""
    index: Json = json.loads((folder / "index.json").read_text())
    for entry in index["manifests"]:
        if entry.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag:
            manifest = _file_blob(folder, str(entry["digest"]))
            named: Json = json.loads(Path(str(manifest.content)).read_text())
            parts = [named["config"], *named["layers"]]
            return Image(tag, manifest, tuple(_file_blob(folder, str(part["digest"])) for part in parts))
    raise ClusterError(f"{folder} has no image named {tag}")


def write_tar(image: Image, stream: IO[bytes], *, without: Collection[str] = ()) -> None:
    """Write an image as a tar of its layout, without blobs that the reader has already."""
    index = {
        "schemaVersion": 2,
        "manifests": [
            {
                "mediaType": MANIFEST_TYPE,
                "digest": image.manifest.digest,
                "size": image.manifest.size,
                "annotations": {NAME_ANNOTATION: image.tag},
            }
        ],
    }
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 20) as tar:
        _add(tar, "oci-layout", LAYOUT)
        _add(tar, "index.json", json.dumps(index).encode())
        for blob in _distinct([image.manifest, *image.blobs]):
            if blob.digest not in without:
                _add(tar, f"blobs/{blob.digest.replace(':', '/')}", blob.content)


def _distinct(blobs: list[Blob]) -> Iterator[Blob]:
    return iter({blob.digest: blob for blob in blobs}.values())


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    info = tarfile.TarInfo(name)
    if isinstance(content, bytes):
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
        return
    info.size = content.stat().st_size
    with content.open("rb") as file:
        tar.addfile(info, file)


def _json_blob(value: Json) -> Blob:
    return blob_of(json.dumps(value, sort_keys=True).encode())


def _file_blob(folder: Path, digest: str) -> Blob:
    path = folder / "blobs" / digest.replace(":", "/")
    if not path.exists():
        raise ClusterError(f"{folder} lacks the blob {digest}; remove that folder and build the image again")
    return Blob(digest, path.stat().st_size, path)
