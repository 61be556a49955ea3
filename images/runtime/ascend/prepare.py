"""Steps of the Ascend image's build that need checks: a wheel by its digest, sources by their commit, and stripping.

    prepare.py wheel <distribution> <URL or file> <sha256>     into /opt/venv, by uv
    prepare.py source <repository> <commit> <folder> [git]     with submodules; `git` keeps .git for a build
    prepare.py strip                                           with the environment's own Python

Standard library only. The words after a step are build arguments; an error names the argument.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

UV = "/build/tools/bin/uv"
VENV = "/opt/venv"
DOWNLOADS = Path("/build/wheels")
KEPT = ("torch/include", "torch/bin/protoc*")
"""Files that stripping keeps in this image: operators are compiled against torch's headers."""
OPTIONAL = {"torch": "aarch64"}
"""Distribution -> the machine on which the lock has the correct wheel."""
REPLACED = {"torch": ("nvidia-*", "cuda-*")}
"""Distribution -> dependencies of its wheel in the lock that are for another device."""


class ArgumentError(SystemExit):
    """An invalid build argument."""


def install_wheel(distribution: str, place: str, digest: str, machine: str) -> None:
    """Install a wheel that is not in any package index."""
    argument = distribution.upper().replace("-", "_")
    if not place:
        if OPTIONAL.get(distribution) == machine:
            return
        raise ArgumentError(f"{argument}_WHEEL is not set; docs/reference/ascend-image.md describes it")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise ArgumentError(f"{argument}_SHA256={digest!r}: expected the digest of the wheel, 64 hexadecimal digits")
    wheel = fetch(place)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != digest:
        raise ArgumentError(f"{argument}_WHEEL={place}: its sha256 is {found}, but {argument}_SHA256 is {digest}")
    for pattern in REPLACED.get(distribution, ()):
        for name in installed(pattern):
            run(UV, "pip", "uninstall", "--quiet", "--python", f"{VENV}/bin/python", name)
    run(UV, "pip", "install", "--quiet", "--no-deps", "--reinstall", "--python", f"{VENV}/bin/python", str(wheel))


def fetch(place: str) -> Path:
    """Return a file, downloaded first if it is a URL."""
    if "://" not in place:
        return Path(place)
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    target = DOWNLOADS / place.rsplit("/", 1)[-1].replace("%2B", "+")
    with urllib.request.urlopen(place, timeout=600) as answer, target.open("wb") as file:  # noqa: S310 - by its digest
        shutil.copyfileobj(answer, file)
    return target


def installed(pattern: str) -> list[str]:
    """Return the distributions of the environment whose name matches."""
    site = Path(VENV) / "lib/python3.11/site-packages"
    folders = site.glob(f"{pattern.replace('-', '_')}-*.dist-info")
    return sorted(folder.name.split("-")[0].replace("_", "-") for folder in folders)


def check_out(repository: str, commit: str, folder: Path, *, keep_git: bool) -> None:
    """Fetch one commit and verify its id."""
    if not re.fullmatch("[0-9a-f]{40}", commit):
        raise ArgumentError(f"{repository}: commit {commit!r} is not a full id of 40 hexadecimal digits")
    run("git", "init", "--quiet", str(folder))
    run("git", "-C", str(folder), "fetch", "--quiet", "--depth", "1", repository, commit)
    run("git", "-C", str(folder), "checkout", "--quiet", "FETCH_HEAD")
    run("git", "-C", str(folder), "submodule", "--quiet", "update", "--init", "--recursive", "--depth", "1")
    head = run("git", "-C", str(folder), "rev-parse", "HEAD").strip()
    if head != commit:
        raise ArgumentError(f"{repository}: got {head}, expected {commit}")
    (folder / "COMMIT").write_text(head + "\n")
    if not keep_git:
        shutil.rmtree(folder / ".git")


def strip() -> None:
    """Strip as for CPUs, but keep headers and compilers."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import strip as shared  # noqa: PLC0415 - it is beside this file only in the build

    shared.REMOVED = {pattern: why for pattern, why in shared.REMOVED.items() if pattern not in KEPT}
    shared.main()


def run(*command: str) -> str:
    """Run a command and return its output. Errors are printed."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Run one step."""
    step, *words = sys.argv[1:]
    if step == "wheel":
        install_wheel(*words, platform.machine())
    elif step == "source":
        check_out(words[0], words[1], Path(words[2]), keep_git=words[3:] == ["git"])
    elif step == "strip":
        strip()
    else:
        raise ArgumentError(f"{step}: expected wheel, source or strip")


if __name__ == "__main__":
    main()
