"""Build, describe, sign and push a release: `python -m scripts.release --registry REGISTRY --version VERSION`.

It prints the commands, for any CI to run; `--run` runs them one after the other and stops at the first that fails.
Images are built for each platform by buildah, which needs qemu's binfmt handlers for the platforms of other machines.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.release.images import OWN, ROOT, OwnImage, images_text, own_name

DIST = Path("dist")
CHART = "charts/rljob-operator"
STEP_SECONDS = 4 * 3600
VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")
CYCLONEDX = "cyclonedx-bom==7.5.0"
"""Makes a software bill of materials from a lock with hashes; `uvx` runs it without installing it."""
LOCKS = {"operator": ("operator", "runtime-code"), "runtime": ("runtime-cpu", "runtime-code")}
"""Distribution -> the locks of its image."""


@dataclass(frozen=True)
class Release:
    """What the command line asks for."""

    registry: str
    version: str
    images: tuple[str, ...]
    """Names of the images to build."""
    arguments: tuple[str, ...]
    """Build arguments of the site, as NAME=VALUE, or as IMAGE/NAME=VALUE for one image."""
    key: str
    """cosign's key, `keyless`, or empty: no signatures."""

    def build_arguments(self, image: OwnImage) -> list[str]:
        """Return the arguments of an image. Raise ValueError if the site has not stated one."""
        stated = dict(word.split("=", 1) for word in self.arguments)
        values = dict(image.arguments)
        for name in image.required:
            value = stated.get(f"{image.name}/{name}", stated.get(name))
            if not value:
                raise ValueError(f"{image.name} needs --build-arg {image.name}/{name}=VALUE; see {image.dockerfile}")
            values[name] = value
        return [word for name, value in values.items() for word in ("--build-arg", f"{name}={value}")]


def commands(release: Release) -> Iterator[list[str]]:
    """Yield all commands, to be run in the root of the repository."""
    yield [sys.executable, "-m", "scripts.wheels"]
    for distribution, locks in LOCKS.items():
        files = [f"requirements/{lock}.txt" for lock in locks]
        for file in files:
            out = DIST / f"{distribution}-{Path(file).stem}.cdx.json"
            yield ["uvx", "--from", CYCLONEDX, "cyclonedx-py", "requirements", file, "-o", str(out)]
    for image in OWN:
        if image.name in release.images:
            yield from image_commands(release, image)
    yield from chart_commands(release)


def image_commands(release: Release, image: OwnImage) -> Iterator[list[str]]:
    """Yield what builds, pushes, signs and describes one image of several platforms."""
    name = own_name(image, release.registry, release.version)
    digest = str(DIST / f"{image.name.replace(':', '-')}.digest")
    build = ["buildah", "build", "--platform", ",".join(image.platforms), "--manifest", name, "-f", image.dockerfile]
    yield [*build, *release.build_arguments(image), "."]
    yield ["buildah", "manifest", "push", "--all", "--digestfile", digest, name, f"docker://{name}"]
    if release.key:
        repository = name.rpartition(":")[0]
        key = [] if release.key == "keyless" else ["--key", release.key]
        # By digest, because a tag may name another image by then.
        signed = f'cosign sign --yes --recursive {shlex.join(key)} "{repository}@$(cat {digest})"'
        yield ["sh", "-c", " ".join(signed.split())]


def chart_commands(release: Release) -> Iterator[list[str]]:
    """Yield what packages and pushes the chart with the names of the release's images."""
    staged, version = DIST / "chart", ["--version", release.version, "--app-version", release.version]
    yield [sys.executable, "-m", "scripts.release.chart", release.registry, release.version, str(staged)]
    yield ["helm", "package", str(staged), *version, "--destination", str(DIST)]
    package = DIST / f"rljob-operator-{release.version}.tgz"
    yield ["helm", "push", str(package), f"oci://{release.registry}/charts"]
    yield [
        sys.executable,
        "-m",
        "scripts.release.manifest",
        release.registry,
        release.version,
        str(DIST / "install.yaml"),
    ]


def parse(words: Sequence[str] | None) -> tuple[Release, bool]:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release", description=__doc__)
    parser.add_argument(
        "--registry", required=True, help="registry, or a folder of it, such as registry.example.com/rl"
    )
    parser.add_argument("--version", required=True, help="version of the release, such as 0.2.0")
    names = [image.name for image in OWN]
    parser.add_argument("--image", action="append", choices=names, help="image to build; default: all; repeatable")
    parser.add_argument("--build-arg", action="append", default=[], metavar="[IMAGE/]NAME=VALUE", help="repeatable")
    parser.add_argument("--sign", default="", metavar="KEY", help="cosign's key file or KMS URI, or keyless")
    parser.add_argument("--run", action="store_true", help="run the commands instead of printing them")
    chosen = parser.parse_args(words)
    if not VERSION.fullmatch(chosen.version):
        parser.error(f"--version {chosen.version}: not a semantic version, such as 0.2.0")
    if wrong := next((word for word in chosen.build_arg if "=" not in word), None):
        parser.error(f"--build-arg {wrong}: no value; write NAME=VALUE")
    made = Release(chosen.registry, chosen.version, tuple(chosen.image or names), tuple(chosen.build_arg), chosen.sign)
    return made, chosen.run


def main(words: Sequence[str] | None = None) -> int:
    """Print or run the commands."""
    release, run = parse(words)
    try:
        planned = list(commands(release))
    except ValueError as error:
        print(f"rljob release: {error}", file=sys.stderr)
        return 2
    (ROOT / DIST).mkdir(exist_ok=True)
    (ROOT / DIST / "images.txt").write_text(images_text(release.registry, release.version))
    for command in planned:
        print(shlex.join(command), flush=True)
        if run:
            subprocess.run(command, cwd=ROOT, check=True, timeout=STEP_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
