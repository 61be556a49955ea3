"""Build images with buildah, without a container engine and without a registry.

`--isolation chroot` needs no permissions that a small virtual machine lacks, and gives a build the network of the host.
Base images come from debootstrap, because a registry may not be reachable; `RLJOB_BASE_IMAGE` sets another one. A build
uses the host's settings for package indexes through files that are mounted during the build and are not part of any
layer.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.cluster import hostconfig
from tests.cluster.errors import ClusterError
from tests.cluster.paths import cache_folder
from tests.cluster.shell import run

BUILD_DEADLINE_SECONDS = 3600
SHORT_DEADLINE_SECONDS = 120
SHOWN_LOG_LINES = 40
KEPT_IMAGES = 2
# Steps of builds are cached for later builds; those of a superseded runtime image need five gigabytes.
KEPT_STEPS_SECONDS = 3 * 3600
SUITE = "bookworm"
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
# Contents of public Python images that the project's Dockerfiles rely on.
BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv", "libgomp1", "libnuma1", "procps")
BASE_DOCKERFILE = f"""FROM scratch
ADD base.tar /
RUN ln -s /usr/bin/python3 /usr/local/bin/python
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
LABEL org.opencontainers.image.base.name="debootstrap {SUITE}"
CMD ["python3"]
"""


def layout() -> Path:
    """Return the OCI layout in which built images are kept."""
    return cache_folder() / "layout"


def base_key() -> str:
    """Return the identity of the base of every image: a hash of its definition, or the name of another base."""
    definition = f"{SUITE} {BASE_PACKAGES} {BASE_DOCKERFILE}"
    return os.environ.get("RLJOB_BASE_IMAGE") or hashlib.sha256(definition.encode()).hexdigest()[:16]


def ensure_base() -> str:
    """Return the name of the base image, which debootstrap creates if it does not exist."""
    named = os.environ.get("RLJOB_BASE_IMAGE")
    if named:
        if not DIGEST.search(named):
            raise ClusterError(
                f"RLJOB_BASE_IMAGE={named}: name it by digest (…@sha256:<64 digits>), because a tag may name another "
                "image tomorrow"
            )
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
    """Return whether buildah's store contains an image."""
    return bool(_buildah(["images", "--quiet", "--filter", f"reference={name}"]).strip())


def pinned(name: str) -> str:
    """Return the name of an image of the store, with its digest instead of its tag."""
    if "@" in name:
        return name
    digest = _buildah(["inspect", "--type", "image", "--format", "{{.FromImageDigest}}", name]).strip()
    return f"{name.rpartition(':')[0]}@{digest}"


def build(
    name: str, *, dockerfile: Path, context: Path, stage: str = "", arguments: Mapping[str, str] | None = None
) -> None:
    """Build a Dockerfile under a name in buildah's store."""
    with tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
        command = [
            "build",
            "--signature-policy",
            str(_policy()),
            "--isolation",
            "chroot",
            "--layers",
            "--pull=false",
            "--format",
            "oci",
        ]
        command += ["--file", str(dockerfile), "--tag", name]
        if stage:
            command += ["--target", stage]
        for key, value in (arguments or {}).items():
            command += ["--build-arg", f"{key}={value}"]
        if os.environ.get("RLJOB_BASE_IMAGE"):
            command.remove("--pull=false")
        command += hostconfig.build_options(Path(scratch))
        log = _store() / f"build-{re.sub('[^a-z0-9.]+', '-', name)}.log"
        _run_logged([*command, str(context)], log)


def in_layout(reference: str) -> bool:
    """Return whether the layout contains an image."""
    return reference in _references()


def push(name: str, reference: str) -> None:
    """Copy an image into the layout, uncompressed; existing layers are not written again.

    Uses skopeo instead of `buildah push`, which compresses every layer of a layout again at each push. For the runtime
    image that takes minutes.
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
    """Remove all but the newest images of a name, from the layout and from buildah's store."""
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
            # An interrupted build may have left a container of it.
            _buildah(["rmi", "--force", local])
    _prune_steps()


def prune_local(newest: str) -> None:
    """Remove all but the newest images of the same name from buildah's store, such as those that others build on."""
    name = newest.rpartition(":")[0]
    listed = json.loads(_buildah(["images", "--filter", f"reference={name}", "--json"]) or "null") or []
    by_age = sorted(listed, key=lambda item: item["created"])
    for item in by_age[:-KEPT_IMAGES]:
        # One that another image uses cannot be removed; a later pruning removes it.
        subprocess.run(
            [*_words(), "rmi", item["id"]],
            env=_environment(),
            capture_output=True,
            timeout=SHORT_DEADLINE_SECONDS,
            check=False,
        )


def _prune_steps() -> None:
    """Remove steps of old builds that no image of the project uses."""
    listed = json.loads(_buildah(["images", "--all", "--filter", "dangling=true", "--json"]) or "null") or []
    old = [item["id"] for item in listed if time.time() - item["created"] > KEPT_STEPS_SECONDS]
    for identity in old:
        # A step that another one uses cannot be removed; a later pruning removes it.
        subprocess.run(
            [*_words(), "rmi", identity],
            env=_environment(),
            capture_output=True,
            timeout=SHORT_DEADLINE_SECONDS,
            check=False,
        )


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
    """Return the signature policy. Images are built and used on this machine, so there are no signatures to check."""
    path = _store() / "policy.json"
    if not path.exists():
        path.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    return path


def _words() -> list[str]:
    store = _store()
    return ["buildah", "--storage-driver", "overlay", "--root", str(store / "root"), "--runroot", str(store / "run")]


def _environment() -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(_scratch())}


def _buildah(command: list[str]) -> str:
    return run([*_words(), *command], environment=_environment(), timeout_seconds=SHORT_DEADLINE_SECONDS)


def _run_logged(command: list[str], log: Path) -> None:
    """Run a long command whose output can be followed in a file."""
    with log.open("w") as output:
        done = subprocess.run(
            [*_words(), *command],
            stdout=output,
            stderr=output,
            env=_environment(),
            timeout=BUILD_DEADLINE_SECONDS,
            check=False,
        )
    if done.returncode:
        said = "\n".join(log.read_text(errors="replace").splitlines()[-SHOWN_LOG_LINES:])
        raise ClusterError(f"buildah exited with code {done.returncode}; the end of {log}:\n{said}")
