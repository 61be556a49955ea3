"""The images of the project as a table, and building those that changed.

An image is named by a hash of its inputs: its Dockerfile, arguments, files, and its base image. Built images are kept
in an OCI layout in the cache, so that an unchanged one is neither built nor imported again, and a changed one adds only
its new layers. `python -m tests.cluster image load operator` does both steps.
"""

import hashlib
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import buildah, imagestore, oci
from tests.cluster.errors import ClusterError
from tests.cluster.nodes import Node
from tests.cluster.packages import IMAGE_PACKAGES, ensure_packages
from tests.cluster.paths import REPOSITORY, cache_folder
from tests.cluster.programs import locked

KEY_LENGTH = 24
# Files that tools leave in a source tree; they do not affect an image.
IGNORED_PARTS = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".venv", ".git"})


@dataclass(frozen=True)
class Recipe:
    """How an image is built, and from what."""

    tag: str
    dockerfile: Path
    inputs: tuple[str, ...]
    context: Path = REPOSITORY
    stage: str = ""
    arguments: tuple[tuple[str, str], ...] = ()
    # An image of the table to build on, and the build argument for it. BASE_IMAGE is always set to the base that
    # debootstrap created.
    base: str = ""
    base_argument: str = "BASE_IMAGE"
    # The Dockerfile accepts no base that may change over time.
    by_digest: bool = False


_RUNTIME = REPOSITORY / "images" / "runtime" / "Dockerfile"
_ASCEND = REPOSITORY / "images" / "runtime" / "ascend" / "Dockerfile"
_EMULATED = REPOSITORY / "tests" / "emulated_npu"
_CONTRACT = REPOSITORY / "tests" / "contract_driver"
_STACK = (
    "images/runtime/cache_model_info.py",
    "images/runtime/strip.py",
    "images/runtime/suffix_wheel.py",
    "requirements/runtime-cpu.txt",
    "requirements/suffix.txt",
    "requirements/uv.txt",
)
_UNFIT = REPOSITORY / "tests" / "image_check"
UNFIT = ("old-verl", "new-vllm", "renamed-seam")
RELEASES = ("old-ray", "nearest")
"""Images with packages of other releases, for `make acceptance`."""
WHEEL = "unidecode==1.4.0 --hash=sha256:c3c7606c27503ad8d501270406e345ddb480a7b5f38827eafe4fa82a137f0021"
"""A wheel in a folder of the image old-ray, which no package of it is: for `runtime.packages`."""

TABLE: Mapping[str, Recipe] = {
    "operator": Recipe(
        tag="rljob.local/operator:dev",
        dockerfile=REPOSITORY / "images" / "operator" / "Dockerfile",
        inputs=(
            "requirements/operator.txt",
            "requirements/build.txt",
            "requirements/runtime-code.txt",
            "requirements/runtime-verl.txt",
            "operator/pyproject.toml",
            "operator/README.md",
            "operator/src/**/*",
            "runtime/pyproject.toml",
            "runtime/README.md",
            "runtime/src/**/*",
        ),
    ),
    # For tests of an upgrade.
    "operator-later": Recipe(
        tag="rljob.local/operator:later",
        dockerfile=REPOSITORY / "tests" / "e2e" / "later" / "Dockerfile",
        base="operator",
        base_argument="OPERATOR_IMAGE",
        inputs=(),
    ),
    # Gigabytes that rarely change: none of our code.
    "runtime-cpu": Recipe(tag="rljob.local/runtime:cpu", dockerfile=_RUNTIME, inputs=_STACK),
    # The same with an interpreter of this machine (scripts/other_python.py).
    "other-python": Recipe(
        tag="rljob.local/python:other",
        dockerfile=REPOSITORY / "tests" / "cluster" / "python" / "Dockerfile",
        context=REPOSITORY / "build" / "python",
        inputs=("**/*",),
    ),
    "runtime-cpu-other-python": Recipe(
        tag="rljob.local/runtime:cpu-other-python", dockerfile=_RUNTIME, base="other-python", inputs=_STACK
    ),
    # Images that differ from the pinned stack, for the check of images.
    **{
        stage: Recipe(
            tag=f"rljob.local/runtime:{stage}",
            dockerfile=_UNFIT / "Dockerfile",
            context=_UNFIT,
            stage=stage,
            base="runtime-cpu",
            base_argument="RUNTIME_IMAGE",
            inputs=("old-verl.txt",) if stage == "old-verl" else (),
        )
        for stage in UNFIT
    },
    "old-ray": Recipe(
        tag="rljob.local/runtime:old-ray",
        dockerfile=_UNFIT / "Dockerfile",
        stage="old-ray",
        base="runtime-cpu",
        base_argument="RUNTIME_IMAGE",
        inputs=("requirements/ray-unauthenticated.txt",),
        arguments=(("WHEEL", WHEEL),),
    ),
    "nearest": Recipe(
        tag="rljob.local/runtime:nearest",
        dockerfile=_UNFIT / "Dockerfile",
        context=_UNFIT,
        stage="nearest",
        base="runtime-cpu",
        base_argument="RUNTIME_IMAGE",
        inputs=("nearest.txt",),
    ),
    # The trainer of the lifecycle tests, on a layer without torch, verl and vLLM.
    "contract-deps": Recipe(
        tag="rljob.local/contract-deps:dev",
        dockerfile=_CONTRACT / "Dockerfile",
        stage="dependencies",
        inputs=("requirements/runtime-contract.txt", "requirements/uv.txt"),
    ),
    "contract": Recipe(
        tag="rljob.local/runtime:contract",
        dockerfile=_CONTRACT / "Dockerfile",
        context=_CONTRACT,
        base="contract-deps",
        base_argument="DEPENDENCIES_IMAGE",
        inputs=("*.py", "dist-info/*", "inputs/**/*"),
    ),
    # An image that contains the runtime, as with `runtime.injection: Never`.
    "own-runtime": Recipe(
        tag="rljob.local/runtime:own",
        dockerfile=REPOSITORY / "tests" / "e2e" / "own_runtime" / "Dockerfile",
        base="contract",
        base_argument="RUNTIME_IMAGE",
        inputs=("requirements/build.txt", "runtime/pyproject.toml", "runtime/README.md", "runtime/src/**/*"),
    ),
    # The Python stack of the Ascend image on an emulated NPU.
    "ascend-emulated": Recipe(
        tag="rljob.local/runtime:ascend-emulated",
        dockerfile=_EMULATED / "Dockerfile",
        inputs=(
            "tests/emulated_npu/build.py",
            "tests/emulated_npu/native/*",
            "tests/emulated_npu/site/**/*.py",
            "images/runtime/strip.py",
            "images/runtime/suffix_wheel.py",
            "requirements/runtime-ascend-x86_64.txt",
            "requirements/runtime-ascend-vllm.txt",
            "requirements/emulated-npu.txt",
            "requirements/seams.txt",
            "requirements/suffix.txt",
            "requirements/uv.txt",
        ),
    ),
    # The stage of the Ascend image that needs neither CANN nor packages that no index has, on a base without CANN.
    "ascend-system": Recipe(
        tag="rljob.local/runtime-ascend:system",
        dockerfile=_ASCEND,
        stage="system",
        inputs=("runtime/src/rljob_runtime/cann_environment.sh",),
        by_digest=True,
    ),
}

# Images that a cluster needs to run an RLJob; the other entries are parts of these.
LOADED = ("operator", "runtime-cpu")


def recipe_of_folder(folder: Path, tag: str, arguments: Iterable[str]) -> Recipe:
    """Return the recipe of any folder with a Dockerfile; arguments are NAME=VALUE."""
    dockerfile = folder.resolve() / "Dockerfile"
    if not tag:
        raise ClusterError("pass --tag NAME:TAG for an image that is built from a folder")
    if not dockerfile.is_file():
        raise ClusterError(f"{folder} is neither in the table ({', '.join(TABLE)}) nor a folder with a Dockerfile")
    pairs = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals:
            raise ClusterError(f"--build-arg {argument}: say NAME=VALUE")
        pairs.append((name, value))
    return Recipe(tag, dockerfile, ("**/*",), context=folder.resolve(), arguments=tuple(pairs))


def recipe_named(name: str) -> Recipe:
    """Return an entry of the table."""
    if name not in TABLE:
        raise ClusterError(f"the table has no image {name!r}; use one of {', '.join(TABLE)}")
    return TABLE[name]


def key_of(recipe: Recipe) -> str:
    """Return a hash of everything that determines the content of an image."""
    below = key_of(TABLE[recipe.base]) if recipe.base else buildah.base_key()
    parts = (recipe.tag, recipe.stage, recipe.base_argument, below, repr(recipe.arguments))
    digest = hashlib.sha256("\n".join(parts).encode())
    digest.update(_instructions(recipe).encode())
    for path in _input_files(recipe):
        digest.update(f"\n{path.relative_to(recipe.context)} {path.stat().st_mode & 0o111:o} ".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:KEY_LENGTH]


def build(recipe: Recipe) -> oci.Image:
    """Build an image unless an identical one is in the cache."""
    name = slug(recipe.tag)
    reference = f"{name}-{key_of(recipe)}"
    with locked(_lock("layout")):
        stored = buildah.in_layout(reference)
    if not stored:
        ensure_packages(IMAGE_PACKAGES)
        local = _build_local(recipe)
        # The layout has one index, so one writer; builds that take minutes hold only their own lock.
        with locked(_lock("layout")):
            started = time.monotonic()
            buildah.push(local, reference)
            buildah.prune(name, keep=reference)
        print(f"image  {recipe.tag}: stored in {time.monotonic() - started:.1f} s", flush=True)
    _pointer(recipe.tag).write_text(reference)
    return _named(reference, recipe.tag)


def built(tag: str) -> oci.Image:
    """Return the image that was built last under a tag."""
    pointer = _pointer(tag)
    if not pointer.exists():
        raise ClusterError(f"{tag} was not built here; see `python -m tests.cluster image build --help`")
    return _named(pointer.read_text(), tag)


def load(names: Iterable[str], nodes: Iterable[Node]) -> None:
    """Build images of the table and import them into every node."""
    made = [build(recipe_named(name)) for name in names]
    for node in nodes:
        for image in made:
            imagestore.ensure_image(node, image)


def slug(tag: str) -> str:
    """Return a tag as a file name."""
    return re.sub(r"[^a-z0-9.]+", "-", tag.lower())


def _named(reference: str, tag: str) -> oci.Image:
    stored = oci.layout_image(buildah.layout(), reference)
    return oci.Image(tag, stored.manifest, stored.blobs)


def _pointer(tag: str) -> Path:
    folder = cache_folder() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{slug(tag)}.last"


def _lock(name: str) -> Path:
    return cache_folder() / "locks" / f"image-{name}.lock"


def _build_local(recipe: Recipe) -> str:
    """Build into buildah's own store, including base images, and return the name there."""
    local = f"localhost/rljob/{slug(recipe.tag)}:{key_of(recipe)}"
    with locked(_lock("base")):
        base = buildah.ensure_base()
        arguments = {**dict(recipe.arguments), "BASE_IMAGE": buildah.pinned(base) if recipe.by_digest else base}
    if recipe.base:
        arguments[recipe.base_argument] = _build_local(TABLE[recipe.base])
    with locked(_lock(slug(recipe.tag))):
        if buildah.has(local):
            return local
        started = time.monotonic()
        print(f"image  {recipe.tag}: building", flush=True)
        buildah.build(
            local, dockerfile=recipe.dockerfile, context=recipe.context, stage=recipe.stage, arguments=arguments
        )
        buildah.prune_local(local)
    print(f"image  {recipe.tag}: built in {time.monotonic() - started:.1f} s", flush=True)
    return local


def _instructions(recipe: Recipe) -> str:
    """Return the part of the Dockerfile that matters, which is up to the end of the recipe's stage.

    Later stages may change.
    """
    if not recipe.dockerfile.is_file():
        raise ClusterError(
            f"{recipe.dockerfile} does not exist: the image {recipe.tag} cannot be built from this checkout"
        )
    text = recipe.dockerfile.read_text()
    if not recipe.stage:
        return text
    start = re.search(rf"^FROM .* AS {re.escape(recipe.stage)}$", text, re.MULTILINE)
    if start is None:
        raise ClusterError(f"{recipe.dockerfile} has no stage {recipe.stage}, which the image {recipe.tag} needs")
    end = re.search(r"^FROM ", text[start.end() :], re.MULTILINE)
    return text[: start.end() + end.start()] if end else text


def _input_files(recipe: Recipe) -> list[Path]:
    found: set[Path] = set()
    for pattern in recipe.inputs:
        matched = [path for path in recipe.context.glob(pattern) if path.is_file()]
        found.update(path for path in matched if not _ignored(path.relative_to(recipe.context)))
    return sorted(found)


def _ignored(path: Path) -> bool:
    return not IGNORED_PARTS.isdisjoint(path.parts) or any(part.endswith(".egg-info") for part in path.parts)
