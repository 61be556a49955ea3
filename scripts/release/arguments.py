"""Build arguments of a release: a file of the site states them, Dockerfiles declare them, and each build gets its own.

The file is TOML. What stands at its top is for all builds; a table is for those of one image ("runtime:a3"), of one
platform ("@linux/arm64"), or of both ("runtime:a3@linux/arm64"). A statement that no build would take is an error,
because a misspelt argument would be noticed hours later or never.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

from scripts.release.images import OWN, ROOT, OwnImage

Stated = Mapping[str, Mapping[str, str]]
"""Arguments by the builds that they are for: `IMAGE@PLATFORM`, either part of it, or empty for all."""
BUILDS = [(image, platform) for image in OWN for platform in image.platforms]
ARG = re.compile(r"(?im)^[ \t]*ARG[ \t]+(.+)$")


def parse(text: str) -> Stated:
    """Return the statements of a file. Raise ValueError for a value that is no text."""
    document = tomllib.loads(text)
    found = {"": {name: value for name, value in document.items() if not isinstance(value, dict)}}
    found |= {place: table for place, table in document.items() if isinstance(table, dict)}
    for place, table in found.items():
        for name, value in table.items():
            if not isinstance(value, str):
                raise ValueError(f"{_key(place, name)}: write the value in quotation marks")  # noqa: TRY004 - a wrong file
    return found


def _key(place: str, name: str) -> str:
    """Return where the file has an argument, without its value, which may be a secret."""
    return f'["{place}"] {name}' if place else name


def _places(image: OwnImage, platform: str) -> tuple[str, ...]:
    """Return where the file states arguments of a build; the later takes precedence."""
    return ("", f"@{platform}", image.name, f"{image.name}@{platform}")


def declared(image: OwnImage) -> set[str]:
    """Return the arguments that the Dockerfile of an image declares."""
    lines = ARG.findall((ROOT / image.dockerfile).read_text())
    return {word.partition("=")[0] for line in lines for word in line.split()}


def of_build(stated: Stated, image: OwnImage, platform: str) -> dict[str, str]:
    """Return the arguments of one build; what names image or platform takes precedence, the image before the platform.

    Raise ValueError if the site has not stated one that the build requires.
    """
    values = dict(image.arguments)
    for place in _places(image, platform):
        values |= {name: value for name, value in stated.get(place, {}).items() if _takes(image, platform, place, name)}
    for wanted in image.required:
        if platform in (wanted.platforms or image.platforms) and not values.get(wanted.name):
            of_one = len(image.platforms) > 1 and (wanted.differs or wanted.platforms)
            key = _key(f"{image.name}@{platform}" if of_one else image.name, wanted.name)
            raise ValueError(f"{image.name} needs {key}; see {image.dockerfile}")
    return values


def _takes(image: OwnImage, platform: str, place: str, name: str) -> bool:
    """Return whether a build takes an argument that is stated for builds like it."""
    if name not in declared(image):
        return False
    wanted = next((each for each in image.required if each.name == name), None)
    if wanted is None or "@" in place:
        return True
    takers = wanted.platforms or image.platforms
    return platform in takers and (len(takers) == 1 or not wanted.differs)


def check(stated: Stated) -> None:
    """Raise ValueError for a statement that no build of any image takes."""
    builds = {
        place: [(image, platform) for image, platform in BUILDS if place in _places(image, platform)]
        for image, platform in BUILDS
        for place in _places(image, platform)
    }
    for place, table in stated.items():
        if place not in builds:
            raise ValueError(f'["{place}"]: no such build; there are {", ".join(sorted(set(builds) - {""}))}')
        for name in table:
            declaring = [(image, platform) for image, platform in builds[place] if name in declared(image)]
            if not declaring:
                files = ", ".join(sorted({image.dockerfile for image, _ in builds[place]}))
                raise ValueError(f"{_key(place, name)}: {files} declares no ARG {name}; correct the name")
            if not any(_takes(image, platform, place, name) for image, platform in declaring):
                key = _key(f"{place}@PLATFORM", name)
                raise ValueError(f"{_key(place, name)}: each platform has a value of its own; write {key}")
