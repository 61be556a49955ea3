"""Building images with buildah, without an engine and without a registry.

`--isolation chroot` needs no rights that a small virtual machine lacks, and gives a
build the network of the host. Base images come from debootstrap, because no registry
may answer; `RLJOB_BASE_IMAGE` names another one. A build sees the host's settings
for package indexes through files mounted for its time; they enter no layer.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.cluster import hostconfig
from tests.cluster.errors import ClusterError
from tests.cluster.paths import cache_folder
from tests.cluster.shell import run

BUILD_DEADLINE_SECONDS = 3600
KEPT_IMAGES = 3
SUITE = "bookworm"
# What public Python images bring and the project's Dockerfiles rely on.
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv", "libgomp1", "procps")
BASE_DOCKERFILE = f"""FROM scratch
ADD base.tar /
RUN ln -s /usr/bin/python3 /usr/local/bin/python
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
LABEL org.opencontainers.image.base.name="debootstrap {SUITE}"
CMD ["python3"]
"""


def layout() -> Path:
    """The OCI layout in which built images are kept."""
    return cache_folder() / "layout"


def base_key() -> str:
    """What the bottom of every image is: a hash of the base's definition, or the name of another base."""
    definition = f"{SUITE} {BASE_PACKAGES} {BASE_DOCKERFILE}"
    return os.environ.get("RLJOB_BASE_IMAGE") or hashlib.sha256(definition.encode()).hexdigest()[:16]


def ensure_base() -> str:
    """The name of the base image, made by debootstrap when it is not there."""
    named = os.environ.get("RLJOB_BASE_IMAGE")
    if named:
        return named
    base = f"rljob.local/base:{base_key()}"
    if has(base):
        return base
    print(f"image  {base}: debootstrap {SUITE}", flush=True)
    with tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
        root, context = Path(scratch) / "root", Path(scratch) / "context"
        context.mkdir()
        packages = ",".join(BASE_PACKAGES)
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", SUITE, str(root)]
        run([*command, *hostconfig.debian_mirror(SUITE)], timeout_seconds=BUILD_DEADLINE_SECONDS)
        for useless in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
            shutil.rmtree(root / useless, ignore_errors=True)
        run(["tar", "-C", root, "--numeric-owner", "--one-file-system", "-cf", context / "base.tar", "."])
        (context / "Dockerfile").write_text(BASE_DOCKERFILE)
        build(base, dockerfile=context / "Dockerfile", context=context)
    return base


def has(name: str) -> bool:
    """Whether buildah's store holds an image."""
    return bool(_buildah(["images", "--quiet", "--filter", f"reference={name}"]).strip())


def build(
    name: str, *, dockerfile: Path, context: Path, stage: str = "", arguments: Mapping[str, str] | None = None
) -> None:
    """Build a Dockerfile under a name in buildah's store."""
    with tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
        command = ["build", "--isolation", "chroot", "--layers", "--pull=false", "--format", "oci"]
        command += ["--file", str(dockerfile), "--tag", name]
        if stage:
            command += ["--target", stage]
        for key, value in (arguments or {}).items():
            command += ["--build-arg", f"{key}={value}"]
        if os.environ.get("RLJOB_BASE_IMAGE"):
            command.remove("--pull=false")
        command += hostconfig.build_options(Path(scratch))
        _buildah([*command, str(context)], timeout_seconds=BUILD_DEADLINE_SECONDS)


def in_layout(reference: str) -> bool:
    """Whether the layout holds an image."""
    return reference in _references()


def push(name: str, reference: str) -> None:
    """Copy an image into the layout, uncompressed; layers that it holds already are not written again.

    skopeo, not `buildah push`: that one compresses every layer of a layout again at
    each push, which for the runtime image takes minutes.
    """
    layout().parent.mkdir(parents=True, exist_ok=True)
    store = _store()
    run(
        [
            "skopeo",
            "--policy",
            _policy(),
            "copy",
            "--quiet",
            "--dest-oci-accept-uncompressed-layers",
            f"containers-storage:[overlay@{store / 'root'}+{store / 'run'}]{name}",
            f"oci:{layout()}:{reference}",
        ],
        timeout_seconds=BUILD_DEADLINE_SECONDS,
    )


def prune(name: str, *, keep: str) -> None:
    """Forget all but the newest images of a name, in the layout and in buildah's store."""
    index_file = layout() / "index.json"
    index = json.loads(index_file.read_text())
    of_name = [reference for reference in _references() if reference.rpartition("-")[0] == name]
    dropped = [reference for reference in of_name[:-KEPT_IMAGES] if reference != keep]
    if not dropped:
        return
    index["manifests"] = [item for item in index["manifests"] if _reference(item) not in dropped]
    fresh = index_file.with_suffix(".new")
    fresh.write_text(json.dumps(index))
    fresh.replace(index_file)
    for blob in _unreferenced(index["manifests"]):
        blob.unlink()
    for reference in dropped:
        local = f"localhost/rljob/{name}:{reference.rpartition('-')[2]}"
        if has(local):
            _buildah(["rmi", local])


def _unreferenced(manifests: Iterable[dict[str, object]]) -> list[Path]:
    used = set()
    for item in manifests:
        digest = str(item["digest"])
        manifest = json.loads((layout() / "blobs" / digest.replace(":", "/")).read_text())
        used |= {digest, manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])}
    names = {digest.partition(":")[2] for digest in used}
    return [path for path in (layout() / "blobs" / "sha256").iterdir() if path.name not in names]


def _references() -> list[str]:
    try:
        index = json.loads((layout() / "index.json").read_text())
    except FileNotFoundError:
        return []
    return [_reference(item) for item in index["manifests"]]


def _reference(item: dict[str, object]) -> str:
    annotations = item.get("annotations")
    return str(annotations.get("org.opencontainers.image.ref.name", "")) if isinstance(annotations, dict) else ""


def _scratch() -> Path:
    folder = cache_folder() / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _store() -> Path:
    folder = cache_folder() / "buildah"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _policy() -> Path:
    """The signature policy: images are made here and leave nowhere, so there is no signature to check."""
    path = _store() / "policy.json"
    if not path.exists():
        path.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    return path


def _buildah(command: list[str], *, timeout_seconds: float = 120) -> str:
    store = _store()
    words = ["buildah", "--storage-driver", "overlay", "--root", str(store / "root"), "--runroot", str(store / "run")]
    takes_policy = ["--signature-policy", str(_policy())] if command[0] == "build" else []
    log = store / f"{command[0]}.log"
    with log.open("w") as output:
        try:
            done = subprocess.run(
                [*words, command[0], *takes_policy, *command[1:]],
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, "TMPDIR": str(_scratch())},
                timeout=timeout_seconds,
                check=False,
                text=True,
            )
        except FileNotFoundError as error:
            raise ClusterError("buildah is missing; `python -m tests.cluster image build` installs it") from error
    if done.returncode:
        said = "\n".join((done.stdout + log.read_text(errors="replace")).splitlines()[-40:])
        raise ClusterError(f"buildah {command[0]} ended with code {done.returncode}; {log}:\n{said}")
    return done.stdout
