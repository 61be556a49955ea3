"""Build, describe, sign and push a release: `python -m scripts.release --registry REGISTRY --version VERSION`.

It prints the commands, for any CI to run, and writes nothing; `--run` runs them one after the other and stops at the
first that fails. Images are built for each platform by buildah, which needs qemu's binfmt handlers for the platforms of
other machines. CONTRIBUTING.md has the steps of a release.
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

from scripts.artifact_hub import SignKey
from scripts.release.images import OWN, ROOT, OwnImage, bills, own_name

STEP_SECONDS = 4 * 3600
VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")
FINGERPRINT = re.compile(r"[0-9A-Fa-f]{40}")
CYCLONEDX = "cyclonedx-bom==7.5.0"
"""Makes a software bill of materials from a lock with hashes; `uvx` runs it without installing it."""
KEYLESS = "keyless"


@dataclass(frozen=True)
class Provenance:
    """OpenPGP's key of the chart's provenance file, which `helm verify` and `helm install --verify` check."""

    name: str
    """Name or address of the key in the keyring."""
    keyring: str
    passphrase: str
    """File with the key's passphrase; empty: helm asks."""
    shown: SignKey | None
    """What Artifact Hub shows of the public key."""


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
    """cosign's key, `keyless`, or empty: no signatures and attestations."""
    provenance: Provenance | None
    source: str
    """URL of the source, or empty."""
    dist: Path
    """Folder for what is built, in the repository's root if it is relative."""

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

    def cosign(self, verb: str, *words: str, digest: Path | None = None, repository: str = "") -> list[str]:
        """Return a command of cosign; with a file that has a digest, for the image of that digest.

        A tag may name another image by then.
        """
        key = [] if self.key == KEYLESS else ["--key", self.key]
        command = ["cosign", verb, "--yes", *key, *words]
        if digest is None:
            return command
        return ["sh", "-c", f'{shlex.join(command)} "{repository}@$(cat {shlex.quote(str(digest))})"']


def commands(release: Release) -> Iterator[list[str]]:
    """Yield all commands, to be run in the root of the repository."""
    python, dist = sys.executable, release.dist
    yield ["mkdir", "-p", str(dist)]
    yield [python, "-m", "scripts.wheels", str(dist)]
    yield [python, "-m", "scripts.release.images", release.registry, release.version, str(dist / "images.txt")]
    for image in OWN:
        if image.name in release.images:
            yield from image_commands(release, image)
    yield from chart_commands(release)
    install = dist / "install.yaml"
    yield [python, "-m", "scripts.release.manifest", release.registry, release.version, str(install)]
    if release.key:
        for file in ("images.txt", "install.yaml"):
            bundle = ["--bundle", str(dist / f"{file}.sigstore.json")]
            yield [*release.cosign("sign-blob", *bundle), str(dist / file)]


def image_commands(release: Release, image: OwnImage) -> Iterator[list[str]]:
    """Yield what describes, builds, pushes, signs and attests one image of several platforms."""
    name, dist = own_name(image, release.registry, release.version), release.dist
    described = {}
    for bill, locks in bills(image).items():
        described[bill] = dist / f"{bill}.cdx.json"
        files = shlex.join(f"requirements/{lock}.txt" for lock in locks)
        made = shlex.join(["uvx", "--from", CYCLONEDX, "cyclonedx-py", "requirements", "-", "-o", str(described[bill])])
        yield ["sh", "-c", f"cat {files} | {made}"]
    digest = dist / f"{image.name.replace(':', '-')}.digest"
    # A build adds to a list that exists, and a push would publish the images of an earlier run as well.
    quoted = shlex.quote(name)
    yield ["sh", "-c", f"! buildah manifest exists {quoted} || buildah manifest rm {quoted}"]
    build = ["buildah", "build", "--platform", ",".join(image.platforms), "--manifest", name, "-f", image.dockerfile]
    yield [*build, *release.build_arguments(image), "."]
    yield ["buildah", "manifest", "push", "--all", "--digestfile", str(digest), name, f"docker://{name}"]
    if release.key:
        repository = name.rpartition(":")[0]
        yield release.cosign("sign", "--recursive", digest=digest, repository=repository)
        for predicate in described.values():
            words = ("--type", "cyclonedx", "--predicate", str(predicate))
            yield release.cosign("attest", *words, digest=digest, repository=repository)


def chart_commands(release: Release) -> Iterator[list[str]]:
    """Yield what packages, pushes and signs the chart with the names of the release's images."""
    dist, given = release.dist, release.provenance
    stage = [sys.executable, "-m", "scripts.release.chart", release.registry, release.version, str(dist / "chart")]
    shown = ["--sign-key", given.shown.fingerprint, given.shown.url] if given and given.shown else []
    yield [*stage, *shown, *(["--source", release.source] if release.source else [])]
    signed = []
    if given:
        signed = ["--sign", "--key", given.name, "--keyring", given.keyring]
        signed += ["--passphrase-file", given.passphrase] if given.passphrase else []
    version = ["--version", release.version, "--app-version", release.version]
    yield ["helm", "package", str(dist / "chart"), *version, "--destination", str(dist), *signed]
    package, said, digest = (dist / f"rljob-operator{name}" for name in (f"-{release.version}.tgz", ".push", ".digest"))
    if given:
        yield ["helm", "verify", str(package), "--keyring", given.keyring]
    charts = f"{release.registry}/charts"
    # helm has no option that writes the digest to a file. The provenance file beside the package is pushed with it.
    push = f"{shlex.join(['helm', 'push', str(package), f'oci://{charts}'])} 2>&1 | tee {shlex.quote(str(said))}"
    found = f"sed -n 's/^Digest: //p' {shlex.quote(str(said))} > {shlex.quote(str(digest))}"
    yield ["sh", "-c", f"{push} && {found} && test -s {shlex.quote(str(digest))}"]
    if release.key:
        yield release.cosign("sign", digest=digest, repository=f"{charts}/rljob-operator")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m scripts.release", description=__doc__)
    made.add_argument("--registry", required=True, help="registry, or a folder of it, such as registry.example.com/rl")
    made.add_argument("--version", required=True, help="version of the release, such as 0.2.0")
    names = [image.name for image in OWN]
    made.add_argument("--image", action="append", choices=names, help="image to build; default: all; repeatable")
    made.add_argument("--build-arg", action="append", default=[], metavar="[IMAGE/]NAME=VALUE", help="repeatable")
    made.add_argument("--sign", default="", metavar="KEY", help="cosign's key file or KMS URI, or keyless")
    made.add_argument("--chart-key", metavar="NAME", help="OpenPGP key that signs the package of the chart")
    made.add_argument("--keyring", metavar="FILE", help="keyring with the chart's key, in GnuPG's old format")
    made.add_argument("--passphrase-file", default="", metavar="FILE", help="passphrase of the chart's key")
    words = ("FINGERPRINT", "URL")
    made.add_argument("--public-key", nargs=2, metavar=words, help="the chart's key, for Artifact Hub")
    made.add_argument("--source", default="", metavar="URL", help="where the source of the release is")
    made.add_argument("--dist", type=Path, default=Path("dist"), help="folder for what is built; default: %(default)s")
    made.add_argument("--run", action="store_true", help="run the commands instead of printing them")
    return made


def parse(words: Sequence[str] | None) -> tuple[Release, bool]:
    """Parse the command line."""
    reader = parser()
    chosen = reader.parse_args(words)
    if not VERSION.fullmatch(chosen.version):
        reader.error(f"--version {chosen.version}: not a semantic version, such as 0.2.0")
    if wrong := next((word for word in chosen.build_arg if "=" not in word), None):
        reader.error(f"--build-arg {wrong}: no value; write NAME=VALUE")
    if bool(chosen.chart_key) != bool(chosen.keyring):
        reader.error("--chart-key and --keyring name a key together; add the other")
    if chosen.public_key and not chosen.chart_key:
        reader.error("--public-key describes the key of --chart-key; add that")
    if chosen.public_key and not FINGERPRINT.fullmatch(chosen.public_key[0]):
        reader.error(f"--public-key {chosen.public_key[0]}: a fingerprint has 40 hexadecimal digits")
    provenance = None
    if chosen.chart_key:
        shown = SignKey(*chosen.public_key) if chosen.public_key else None
        provenance = Provenance(chosen.chart_key, chosen.keyring, chosen.passphrase_file, shown)
    made = Release(
        chosen.registry,
        chosen.version,
        tuple(chosen.image or [image.name for image in OWN]),
        tuple(chosen.build_arg),
        chosen.sign,
        provenance,
        chosen.source,
        chosen.dist,
    )
    return made, chosen.run


def main(words: Sequence[str] | None = None) -> int:
    """Print or run the commands."""
    release, run = parse(words)
    try:
        planned = list(commands(release))
    except ValueError as error:
        print(f"rljob release: {error}", file=sys.stderr)
        return 2
    for command in planned:
        print(shlex.join(command), flush=True)
        if run:
            subprocess.run(command, cwd=ROOT, check=True, timeout=STEP_SECONDS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
