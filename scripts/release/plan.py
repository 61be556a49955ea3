"""The steps of a release, in their order: buildah, Helm, syft and cosign build, push, describe and sign its parts.

scripts/release/__main__.py prints or runs them. Nothing here runs a command or writes a file.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.artifact_hub import SignKey
from scripts.release import arguments, manifest
from scripts.release.arguments import Stated
from scripts.release.images import MACHINES, OWN, OwnImage, own_name

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
class Step:
    """A command with what it makes or does, for messages."""

    title: str
    command: list[str]


@dataclass(frozen=True)
class Release:
    """What the command line asks for."""

    registry: str
    version: str
    images: tuple[str, ...]
    """Names of the images to build."""
    arguments: Stated
    """Build arguments of the site."""
    key: str
    """cosign's key, `keyless`, or empty: no signatures and attestations."""
    provenance: Provenance | None
    source: str
    """URL of the source, or empty."""
    dist: Path
    """Folder for what is built, in the repository's root if it is relative."""

    def built(self) -> list[OwnImage]:
        """Return the images to build."""
        return [image for image in OWN if image.name in self.images]

    @property
    def package(self) -> Path:
        """Return the package of the chart."""
        return self.dist / f"rljob-operator-{self.version}.tgz"

    def cosign(self, verb: str, *words: str) -> list[str]:
        """Return a command of cosign."""
        return ["cosign", verb, "--yes", *([] if self.key == KEYLESS else ["--key", self.key]), *words]


def _of_digest(command: list[str], repository: str, digest: Path) -> list[str]:
    """Return a command for the image whose digest is in a file: its tag may name another image meanwhile."""
    return ["sh", "-c", f'{shlex.join(command)} {repository}@"$(cat {shlex.quote(str(digest))})"']


def steps(release: Release) -> Iterator[Step]:
    """Yield all steps. What fails within seconds comes before the builds, and what others see comes last.

    Raise ValueError if build arguments are missing, or have no effect.
    """
    arguments.check(release.arguments)
    yield from files(release)
    yield from packaged_chart(release)
    if release.key:
        for file in ("images.txt", *(f"{name}.yaml" for name in manifest.OF)):
            bundle = ["--bundle", str(release.dist / f"{file}.sigstore.json")]
            yield Step(f"signature of {file}", [*release.cosign("sign-blob", *bundle), str(release.dist / file)])
    for image in release.built():
        yield from built_image(release, image)
    for image in release.built():
        yield from pushed_image(release, image)
    yield from pushed_chart(release)


def files(release: Release) -> Iterator[Step]:
    """Yield what makes the wheels, the list of images and the manifests."""
    python, dist = sys.executable, release.dist
    names = [release.registry, release.version]
    yield Step(f"folder {dist}", ["mkdir", "-p", str(dist)])
    yield Step("wheels", [python, "-m", "scripts.wheels", str(dist)])
    yield Step("images.txt", [python, "-m", "scripts.release.images", *names, str(dist / "images.txt")])
    for name in manifest.OF:
        made = ["scripts.release.manifest", "--of", name, *names, str(dist / f"{name}.yaml")]
        yield Step(f"{name}.yaml", [python, "-m", *made])


def packaged_chart(release: Release) -> Iterator[Step]:
    """Yield what packages the chart with the names of the release's images, and verifies its signature."""
    dist, given = release.dist, release.provenance
    stage = [sys.executable, "-m", "scripts.release.chart", release.registry, release.version, str(dist / "chart")]
    shown = ["--sign-key", given.shown.fingerprint, given.shown.url] if given and given.shown else []
    yield Step("files of the chart", [*stage, *shown, *(["--source", release.source] if release.source else [])])
    signed = []
    if given:
        signed = ["--sign", "--key", given.name, "--keyring", given.keyring]
        signed += ["--passphrase-file", given.passphrase] if given.passphrase else []
    version = ["--version", release.version, "--app-version", release.version]
    package = ["helm", "package", str(dist / "chart"), *version, "--destination", str(dist), *signed]
    yield Step("package of the chart", package)
    if given:
        verify = ["helm", "verify", str(release.package), "--keyring", given.keyring]
        yield Step("verification of the chart", verify)


def built_image(release: Release, image: OwnImage) -> Iterator[Step]:
    """Yield what builds an image for each of its platforms."""
    name = own_name(image, release.registry, release.version)
    # A build adds to a list that exists, and a push would publish the images of an earlier run as well.
    quoted = shlex.quote(name)
    remove = f"! buildah manifest exists {quoted} || buildah manifest rm {quoted}"
    yield Step(f"removal of an earlier list of {image.name}", ["sh", "-c", remove])
    for platform in image.platforms:
        values = arguments.of_build(release.arguments, image, platform)
        stated = [word for key, value in values.items() for word in ("--build-arg", f"{key}={value}")]
        build = ["buildah", "build", "--platform", platform, "--manifest", name, "-f", image.dockerfile]
        yield Step(f"build of {image.name} for {platform}", [*build, *stated, image.context])


def pushed_image(release: Release, image: OwnImage) -> Iterator[Step]:
    """Yield what pushes and signs an image of several platforms, and describes and attests what is in each."""
    name, plain = own_name(image, release.registry, release.version), image.name.replace(":", "-")
    repository, digest = name.rpartition(":")[0], release.dist / f"{plain}.digest"
    push = ["buildah", "manifest", "push", "--all", "--digestfile", str(digest), name, f"docker://{name}"]
    yield Step(f"push of {image.name}", push)
    if release.key:
        sign = release.cosign("sign", "--recursive")
        yield Step(f"signature of {image.name}", _of_digest(sign, repository, digest))
    for platform in image.platforms:
        bill = release.dist / f"{plain}-{MACHINES[platform]}.cdx.json"
        scan = ["syft", "scan", "--platform", platform, "--output", f"cyclonedx-json={bill}"]
        yield Step(f"bill of materials {bill.name}", _of_digest(scan, f"registry:{repository}", digest))
        if release.key:
            attest = release.cosign("attest", "--type", "cyclonedx", "--predicate", str(bill))
            yield Step(f"attestation of {bill.name}", _of_digest(attest, repository, digest))


def pushed_chart(release: Release) -> Iterator[Step]:
    """Yield what pushes and signs the chart."""
    dist, charts = release.dist, f"{release.registry}/charts"
    said, digest = dist / "rljob-operator.push", dist / "rljob-operator.digest"
    # helm has no option that writes the digest to a file. The provenance file beside the package is pushed with it.
    push = (
        f"{shlex.join(['helm', 'push', str(release.package), f'oci://{charts}'])} 2>&1 | tee {shlex.quote(str(said))}"
    )
    found = f"sed -n 's/^Digest: //p' {shlex.quote(str(said))} > {shlex.quote(str(digest))}"
    yield Step("push of the chart", ["sh", "-c", f"{push} && {found} && test -s {shlex.quote(str(digest))}"])
    if release.key:
        sign = _of_digest(release.cosign("sign"), f"{charts}/rljob-operator", digest)
        yield Step("signature of the chart", sign)
