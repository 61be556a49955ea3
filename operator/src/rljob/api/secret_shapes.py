"""Formats of well-known secrets, for checks of manifests and for texts that are shown.

Every search is linear in the text: a repetition gives nothing back, and a match begins only where a run of its
characters begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

SHAPES: Mapping[str, re.Pattern[str]] = {
    what: re.compile(shape)
    for what, shape in {
        "a Hugging Face token": r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{20,}+",
        "a GitHub token": r"(?<![A-Za-z0-9])(?:gh[opsur]_[A-Za-z0-9]{20,}+|github_pat_[A-Za-z0-9_]{20,}+)",
        "a GitLab token": r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{16,}+",
        "an AWS access key": r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}",
        "an API key": r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{20,}+",
        "a Slack token": r"(?<![A-Za-z0-9])xox[abeprs]-[A-Za-z0-9-]{10,}+",
        "a JSON web token": r"(?<![\w-])eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+",
        "a private key": r"-----BEGIN (?:[A-Z]{1,16} ){0,3}PRIVATE KEY-----",
        "a URL with a password": r"(?<![A-Za-z0-9+.-])[a-z][a-z0-9+.-]{0,31}+://[^/\s:@]{1,256}+:[^/\s@]{1,256}+@",
    }.items()
}
"""https://github.com/gitleaks/gitleaks and the documentation of each service."""


ANY = re.compile("|".join(shape.pattern for shape in SHAPES.values()))


def shape_of_secret(text: str) -> str | None:
    """Return the kind of secret that a text contains, or None."""
    if ANY.search(text) is None:
        return None
    return next((what for what, shape in SHAPES.items() if shape.search(text)), None)
