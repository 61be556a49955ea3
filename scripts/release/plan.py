"""The commands of a release, in their order: what describes, builds, pushes, signs and attests its parts.

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
from scripts.release.arguments import Statement
from scripts.release.images import OWN, OwnImage, bills, own_name

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
    arguments: tuple[Statement, ...]
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
    """Yield all commands, to be run in the root of the repository.

    Raise ValueError if build arguments are missing, or have no effect.
    """
    arguments.check(release.arguments, release.built())
    python, dist = sys.executable, release.dist
    yield ["mkdir", "-p", str(dist)]
    yield [python, "-m", "scripts.wheels", str(dist)]
    yield [python, "-m", "scripts.release.images", release.registry, release.version, str(dist / "images.txt")]
    for image in release.built():
        yield from image_commands(release, image)
    yield from chart_commands(release)
    manifests = {name: dist / f"{name}.yaml" for name in manifest.OF}
    for name, path in manifests.items():
        made = ["--of", name, release.registry, release.version, str(path)]
        yield [python, "-m", "scripts.release.manifest", *made]
    if release.key:
        for file in ("images.txt", *(path.name for path in manifests.values())):
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
    if image.go:
        described[image.name] = dist / f"{image.name}.cdx.json"
        made_of = [image.context, image.name, release.version, str(described[image.name])]
        yield [sys.executable, "-m", "scripts.release.modules", *made_of]
    digest = dist / f"{image.name.replace(':', '-')}.digest"
    # A build adds to a list that exists, and a push would publish the images of an earlier run as well.
    quoted = shlex.quote(name)
    yield ["sh", "-c", f"! buildah manifest exists {quoted} || buildah manifest rm {quoted}"]
    for platform in image.platforms:
        values = arguments.of_build(release.arguments, image, platform)
        stated = [word for key, value in values.items() for word in ("--build-arg", f"{key}={value}")]
        build = ["buildah", "build", "--platform", platform, "--manifest", name, "-f", image.dockerfile]
        yield [*build, *stated, image.context]
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
