"""Build arguments of a release: what a site states, what the Dockerfiles declare, and what each build gets.

scripts/release/plan.py asks for them. It reads Dockerfiles and writes nothing. A statement that no build would take is
an error, because a misspelt argument would be noticed hours later or never.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.release.images import OWN, ROOT, OwnImage

FORM = "[IMAGE][@PLATFORM]/NAME=VALUE, or NAME=VALUE for all"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ARG = re.compile(r"(?im)^[ \t]*ARG[ \t]+(.+)$")


@dataclass(frozen=True)
class Statement:
    """A build argument of the site."""

    image: str
    """Name of the only image that gets it; empty: every image that declares it."""
    platform: str
    """The only platform whose build gets it; empty: every platform that takes it."""
    name: str
    value: str

    @property
    def key(self) -> str:
        """Return what the command line has before the value, which may be a secret."""
        place = f"{self.image}@{self.platform}" if self.platform else self.image
        return f"{place}/{self.name}" if place else self.name

    def fits(self, image: OwnImage, platform: str) -> bool:
        """Return whether the build of an image for a platform gets it."""
        if self.name not in declared(image) or self.image not in ("", image.name):
            return False
        if self.platform:
            return self.platform == platform
        wanted = next((each for each in image.required if each.name == self.name), None)
        if wanted is None:
            return True
        takers = wanted.platforms or image.platforms
        return platform in takers and (len(takers) == 1 or not wanted.differs)


def declared(image: OwnImage) -> set[str]:
    """Return the arguments that the Dockerfile of an image declares."""
    lines = ARG.findall((ROOT / image.dockerfile).read_text())
    return {word.partition("=")[0] for line in lines for word in line.split()}


def parse(words: Sequence[str]) -> tuple[Statement, ...]:
    """Return the statements of the command line. Raise ValueError for one that cannot be meant."""
    found: dict[str, Statement] = {}
    for word in words:
        key, equals, value = word.partition("=")
        place, slash, name = key.rpartition("/")
        image, at, platform = place.partition("@")
        if not equals:
            raise ValueError(f"--build-arg {word}: no value; write {FORM}")
        if not NAME.fullmatch(name):
            raise ValueError(f"--build-arg {key}: {name!r} is no name of an argument; write {FORM}")
        if bool(slash) != bool(place) or bool(at) != bool(platform):
            raise ValueError(f"--build-arg {key}: an image or platform is missing; write {FORM}")
        _known("image", image, key, [each.name for each in OWN])
        _known("platform", platform, key, sorted({each for image in OWN for each in image.platforms}))
        statement = Statement(image, platform, name, value)
        if statement.key in found:
            raise ValueError(f"--build-arg {key} is stated twice; keep one")
        found[statement.key] = statement
    return tuple(found.values())


def _known(what: str, word: str, key: str, names: list[str]) -> None:
    if word and word not in names:
        raise ValueError(f"--build-arg {key}: no {what} {word}; there are {', '.join(names)}")


def check(statements: Sequence[Statement], images: Sequence[OwnImage]) -> None:
    """Raise ValueError for a statement that no build of these images gets."""
    for statement in statements:
        if not any(statement.fits(image, platform) for image in images for platform in image.platforms):
            raise ValueError(f"--build-arg {statement.key}: {_why_not(statement, images)}")


def _why_not(statement: Statement, images: Sequence[OwnImage]) -> str:
    named = [image for image in images if statement.image in ("", image.name)]
    if not named:
        return f"--image does not select {statement.image}; add --image {statement.image}, or leave the argument out"
    declaring = [image for image in named if statement.name in declared(image)]
    if not declaring:
        files = ", ".join(sorted({image.dockerfile for image in named}))
        return f"{files} declares no ARG {statement.name}; correct the name"
    platforms = sorted({platform for image in declaring for platform in image.platforms})
    if statement.platform:
        return f"{declaring[0].name} is built for {', '.join(platforms)} only"
    return f"each platform has a value of its own; write {statement.image}@{platforms[0]}/{statement.name}=VALUE"


def of_build(statements: Sequence[Statement], image: OwnImage, platform: str) -> dict[str, str]:
    """Return the arguments of one build; what names image or platform takes precedence, the image before the platform.

    Raise ValueError if the site has not stated one that the build requires.
    """
    values = dict(image.arguments)
    fitting = [statement for statement in statements if statement.fits(image, platform)]
    for statement in sorted(fitting, key=lambda each: (bool(each.image), bool(each.platform))):
        values[statement.name] = statement.value
    for wanted in image.required:
        if platform in (wanted.platforms or image.platforms) and not values.get(wanted.name):
            of_one = len(image.platforms) > 1 and (wanted.differs or wanted.platforms)
            key = Statement(image.name, platform if of_one else "", wanted.name, "").key
            raise ValueError(f"{image.name} needs --build-arg {key}=VALUE; see {image.dockerfile}")
    return values
