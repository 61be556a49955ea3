"""Image references, by the grammar that the kubelet applies before it pulls.

The API server only refuses surrounding spaces (ValidateContainers in pkg/apis/core/validation of v1.36). A container
with any other text fails on its node with InvalidImageName, while the other pods hold their NPUs: the kubelet calls
ParseNormalizedNamed (pkg/util/parsers/parsers.go). Sources: github.com/distribution/reference v0.6.0, regexp.go (the
grammar), normalize.go (the domain, lower case) and reference.go (the length of a name); go-digest v1.0.0, algorithm.go
(the digests).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields, secrets
from rljob.core.validation.violation import Check, Violation

NAME_MAX = 255
"""RepositoryNameTotalLengthMax."""
DOCKER_HUB = (None, "docker.io", "index.docker.io")
DIGESTS = {"sha256": 64, "sha384": 96, "sha512": 128}
"""Algorithm -> hexadecimal digits."""
FORM = "[REGISTRY/]NAME[:TAG][@DIGEST], such as registry.example/team/runtime:1.0"
SHOWN = 200
"""Characters of a text that a message shows."""
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_HOST_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = re.compile(rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")


def image_problem(text: str) -> str | None:
    """Return why a text is not an image reference, or None if it is one."""
    if re.search(r"\s", text):
        return "contains white space"
    if _IDENTIFIER.fullmatch(text):
        return "is 64 hexadecimal digits, which is the ID of an image and not its name"
    rest, at, digest = text.partition("@")
    domain, rest = _domain(rest)
    name, colon, tag = rest.partition(":")
    if domain is not None and not _DOMAIN.fullmatch(domain):
        return f"has the registry {domain[:SHOWN]!r}, which is not HOST[:PORT]"
    if name.lower() != name:
        return f"has the name {name[:SHOWN]!r}; names are in lower case"
    if not _NAME.fullmatch(name):
        return (
            f"has the name {name[:SHOWN]!r}; the parts of a name consist of lower-case letters and digits, joined by "
            "'.', '_', '__' or '-'"
        )
    if len(_full_name(domain, name)) > NAME_MAX:
        return f"has a name of {len(name)} characters; at most {NAME_MAX} are allowed, with library/ on Docker Hub"
    if colon and not _TAG.fullmatch(tag):
        return (
            f"has the tag {tag[:SHOWN]!r}; a tag has 1 to 128 letters, digits, '_', '.' and '-', and does not start "
            "with '.' or '-'"
        )
    return _digest_problem(digest) if at else None


def _domain(text: str) -> tuple[str | None, str]:
    """Split a registry off, as splitDockerDomain does; None where the first part is a part of the name."""
    first, slash, rest = text.partition("/")
    is_host = first == "localhost" or "." in first or ":" in first or first.lower() != first
    # With an underscore it is no host, and the grammar reads it as a part of the name.
    if slash and is_host and not ("_" in first and _NAME.fullmatch(first)):
        return first, rest
    return None, text


def _full_name(domain: str | None, name: str) -> str:
    return f"library/{name}" if domain in DOCKER_HUB and "/" not in name else name


def _digest_problem(digest: str) -> str | None:
    algorithm, _, digits = digest.partition(":")
    if (length := DIGESTS.get(algorithm)) is None:
        return f"has the digest {digest[:SHOWN]!r}; a digest is {', '.join(DIGESTS)} and its digits, as in sha256:0123…"
    if not re.fullmatch(rf"[a-f0-9]{{{length}}}", digits):
        return f"has a digest that is not {algorithm} followed by ':' and {length} hexadecimal digits in lower case"
    return None


def _images_are_references(spec: RLJobSpec) -> Iterator[Violation]:
    """Every image must be a reference that a node can pull."""
    for field, image in _images(spec):
        if (problem := image_problem(image)) is None:
            continue
        if secrets.may_hold_secrets(field, image):
            yield Violation(field, f"is not an image reference; use {FORM}")
        else:
            yield Violation(field, f"{image[:SHOWN]!r} {problem}; use {FORM}")


def _images(spec: RLJobSpec) -> Iterator[tuple[str, str]]:
    yield "spec.runtime.image", spec.runtime.image
    for index, service in enumerate(spec.services):
        yield f"spec.services[{index}].image", service.image
    for index, initializer in enumerate(spec.initializers):
        if initializer.image is not None:
            yield f"spec.initializers[{index}].image", initializer.image
    for path, container in fields.containers(spec):
        yield f"{path}.image", container.image


CHECKS: tuple[Check, ...] = (_images_are_references,)
