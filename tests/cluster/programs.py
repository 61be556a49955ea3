"""The programs of the cluster, and how they are compiled once per machine.

Each folder under `programs/` is a Go module of its own. A compiled program is in a cache entry named by a hash of
everything that determines its content. An entry is created by a rename, so it is complete whenever it exists. A lock
per program prevents two checkouts from compiling the same program. This module starts no programs.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.paths import PROGRAMS, cache_folder
from tests.cluster.shell import run

BUILD_DEADLINE_SECONDS = 3600
KEPT_ENTRIES = 3
# A program that was started from an old entry may still read it, so entries of this age are kept.
KEPT_SECONDS = 24 * 3600


@dataclass(frozen=True)
class Program:
    """A module under `programs/` and its outputs."""

    name: str
    binaries: tuple[str, ...]
    # Build the packages named as tools in go.mod instead of the module's own main.
    tools: bool = False
    variables: tuple[str, ...] = ()
    # Other names of the first binary, if its behavior depends on its name.
    aliases: tuple[str, ...] = ()
    # Folders of an upstream module that belong to the program and are kept with it.
    shared: tuple[tuple[str, str], ...] = ()
    on_request: bool = False


def _kube_version(minor: int, patch: int) -> tuple[str, ...]:
    """Return the variables without which the programs call themselves v0.0.0 (kubernetes/kubernetes#79384)."""
    component = "k8s.io/component-base/version"
    return (
        f"{component}.gitVersion=v1.{minor}.{patch}",
        f"{component}.gitMajor=1",
        f"{component}.gitMinor={minor}",
        f"{component}.gitTreeState=clean",
        f"k8s.io/client-go/pkg/version.gitVersion=v1.{minor}.{patch}",
    )


PROGRAM_TABLE = (
    Program(
        "kube",
        ("kube",),
        variables=_kube_version(36, 2),
        aliases=(
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
        ),
    ),
    Program("etcd", ("etcd",)),
    Program("coredns", ("coredns",)),
    Program(
        "containerd",
        ("containerd", "containerd-shim-runc-v2", "ctr"),
        tools=True,
        variables=("github.com/containerd/containerd/v2/version.Version=v2.2.0",),
    ),
    Program(
        "kuberay",
        ("ray-operator",),
        tools=True,
        shared=(
            ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases"),
            ("github.com/ray-project/kuberay/ray-operator", "config/rbac"),
        ),
    ),
    Program("helm", ("helm",), tools=True, variables=("helm.sh/helm/v4/internal/version.version=v4.2.4",)),
    # The older releases that `make compat` runs.
    Program(
        "kube-1.34",
        ("kube",),
        variables=_kube_version(34, 4),
        aliases=("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
        on_request=True,
    ),
    Program(
        "kuberay-1.5",
        ("ray-operator",),
        tools=True,
        shared=(("github.com/ray-project/kuberay/ray-operator", "config/crd/bases"),),
        on_request=True,
    ),
    Program(
        "helm3",
        ("helm",),
        tools=True,
        # As in its Makefile: without the release of Kubernetes, it takes the chart's cluster for one of 1.20.
        variables=(
            "helm.sh/helm/v3/internal/version.version=v3.21.4",
            *(
                f"helm.sh/helm/v3/pkg/{package}.k8sVersion{part}"
                for package in ("chartutil", "lint/rules")
                for part in ("Major=1", "Minor=36")
            ),
        ),
        on_request=True,
    ),
    Program("pause", ("pause",)),
    Program("fakenpu", ("fakenpu",)),
    Program("storage", ("storage",)),
    Program(
        "kueue",
        ("kueue",),
        tools=True,
        shared=(("sigs.k8s.io/kueue", "charts/kueue"),),
        on_request=True,
    ),
    # Enforces NetworkPolicies, which the network of the cluster does not (tests/cluster/enforcement.py).
    Program("netpol", ("netpol",), on_request=True),
    Program(
        "volcano",
        ("scheduler", "controller-manager"),
        tools=True,
        shared=(("volcano.sh/volcano", "config/crd/volcano/bases"),),
        on_request=True,
    ),
)


def program(name: str) -> Program:
    """Return the program of that name."""
    for known in PROGRAM_TABLE:
        if known.name == name:
            return known
    names = ", ".join(known.name for known in PROGRAM_TABLE)
    raise ClusterError(f"no program {name!r}; use one of {names}")


@cache
def go_version() -> str:
    """Return the version of the compiler, on which the output depends."""
    return run(["go", "env", "GOVERSION"], environment=go_environment()).strip()


def go_environment() -> dict[str, str]:
    """Return the environment of the compiler: static binaries, and never another toolchain."""
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def module(name: str, version: str) -> Path:
    """Return the source of a Go module, from the compiler's own cache, which is filled on demand."""
    said = run(["go", "mod", "download", "-json", f"{name}@{version}"], folder=PROGRAMS, environment=go_environment())
    return Path(json.loads(said)["Dir"])


def cache_key(built: Program, module: Path, compiler: str) -> str:
    """Return a hash of everything that determines the content of a program's cache entry."""
    digest = hashlib.sha256(f"{compiler}\n{built!r}\n".encode())
    for path in sorted(module.iterdir()):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.name} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:24]


def entry(name: str) -> Path:
    """Return the folder of the program, which may not be built yet."""
    key = cache_key(program(name), PROGRAMS / name, go_version())
    return cache_folder() / "bin" / f"{name}-{key}"


def binary(name: str, executable: str | None = None) -> Path:
    """Return the path of an executable of a built program."""
    path = entry(name) / (executable or name)
    if not path.exists():
        raise ClusterError(f"{name} is not built yet: run `python -m tests.cluster build {name}`")
    return path


def build(names: Iterable[str] = ()) -> dict[str, float]:
    """Build what is missing and return the seconds that each program took.

    Without names: all programs except those that are only built on request.
    """
    chosen = [program(name) for name in names] or [known for known in PROGRAM_TABLE if not known.on_request]
    missing = [known for known in chosen if not entry(known.name).exists()]
    if not missing:
        return {}
    if shutil.which("go") is None:
        raise ClusterError("the Go compiler is missing; install Go 1.26 or newer to build the cluster's programs")
    # Two at a time, because the largest program leaves a core idle for most of its build.
    with ThreadPoolExecutor(max_workers=2) as pool:
        seconds = list(pool.map(_build_one, missing))
    return dict(zip((known.name for known in missing), seconds, strict=True))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file during the block; wait if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_one(built: Program) -> float:
    started = time.monotonic()
    target = entry(built.name)
    with locked(cache_folder() / "locks" / f"{built.name}.lock"):
        if not target.exists():
            print(f"build  {built.name}: compiling", flush=True)
            _compile(built, target)
            _prune(built.name, target)
    seconds = time.monotonic() - started
    print(f"build  {built.name}: ready after {seconds:.0f} s", flush=True)
    return seconds


def _compile(built: Program, target: Path) -> None:
    module = PROGRAMS / built.name
    # The lock is held, so an existing folder was left by a killed build.
    fresh = target.with_name(f".{built.name}.building")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    flags = " ".join(["-s -w", *(f"-X {variable}" for variable in built.variables)])
    output = f"{fresh}/" if built.tools else str(fresh / built.binaries[0])
    command = ["go", "build", "-mod=readonly", "-trimpath", "-ldflags", flags, "-o", output]
    run(
        [*command, "tool" if built.tools else "."],
        folder=module,
        environment=go_environment(),
        timeout_seconds=BUILD_DEADLINE_SECONDS,
    )
    for name in built.binaries:
        if not (fresh / name).exists():
            raise ClusterError(f"building {built.name} created no {name}; its go.mod no longer names that tool")
    for alias in built.aliases:
        (fresh / alias).symlink_to(built.binaries[0])
    for upstream, folder in built.shared:
        source = run(
            ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", upstream],
            folder=module,
            environment=go_environment(),
        ).strip()
        # copyfile instead of copy, because files of the module cache are read-only.
        shutil.copytree(Path(source) / folder, fresh / folder, copy_function=shutil.copyfile)
    fresh.rename(target)


def _prune(name: str, current: Path) -> None:
    oldest_kept = time.time() - KEPT_SECONDS
    entries = [path for path in current.parent.glob(f"{name}-*") if path != current]
    entries.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in entries[KEPT_ENTRIES - 1 :]:
        if path.stat().st_mtime < oldest_kept:
            shutil.rmtree(path, ignore_errors=True)
