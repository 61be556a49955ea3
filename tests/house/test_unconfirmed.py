"""Where the documentation says that something has not run on an NPU, it names the claim that would confirm it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from rljob.cli.conformance.claims import CLAIMS

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("README.md", "CHANGELOG.md", "docs/*.md", "images/*", "charts/*", "examples/*.yaml", "examples/*.md")
"""Patterns of git, in which * also matches folders."""
IDS = {claim.id for claim in CLAIMS}
ADMISSION = re.compile(
    r"unconfirmed|not confirmed"
    r"|\b(?:not|nothing|none|neither|never)\b[^.;|]{0,60}\b(?:run|tried|measured|tested)\b[^.;|]{0,30}\bNPUs?\b"
    r"|\bnot with Ascend"
    r"|\b(?:not|none|never|no)\b[^.;|]{0,60}\b(?:on hardware|for NPUs has been)\b"
    r"|\bhas never been run\b",
    re.IGNORECASE,
)
NAMED = re.compile(r"`rljob conformance`(?:\]\([^)]*\))?[^`]*?((?:`[a-z-]+`(?:,\s+|\s+and\s+)?)+)")
"""The command, and the claims behind it."""
BEFORE = re.compile(r"((?:`[a-z-]+`(?:,\s+|\s+and\s+)?)+) of\s+`rljob conformance`")
AROUND = 400
"""Characters after an admission in which the claim must be named."""
GUIDE = "docs/guides/conformance.md"
PAGE = re.compile(r"\b[Ss]ee (docs/[\w/.-]+\.md)")
"""A page that says the same with its claims; recipes in the chart are texts for `kubectl describe`."""


def admissions(text: str) -> list[str]:
    """Return every admission with the text that follows in the same paragraph."""
    paragraphs = re.split(r"\n\s*\n", re.sub(r"\n#\s?", "\n", text))
    return [part[found.start() : found.end() + AROUND] for part in paragraphs for found in ADMISSION.finditer(part)]


def named_claims(text: str) -> list[str]:
    """Return the claims that a text names with the command."""
    groups = [found[1] for pattern in (NAMED, BEFORE) for found in pattern.finditer(text)]
    return [name for group in groups for name in re.findall(r"`([a-z-]+)`", group)]


def pages() -> dict[str, str]:
    """Return the tracked documents."""
    listed = subprocess.run(["git", "ls-files", "-z", *PLACES], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\0") if name.endswith((".md", ".yaml", "Dockerfile"))]
    return {name: (ROOT / name).read_text() for name in names if (ROOT / name).is_file()}


def test_each_admission_names_the_claims_that_would_confirm_it() -> None:
    found = {(name, text) for name, page in pages().items() if name != GUIDE for text in admissions(page)}
    assert len({name for name, _ in found}) >= 8, "the pattern finds the admissions"
    silent = [f"{name}: {text[:100]}" for name, text in sorted(found) if not _named_here_or_on_a_page(text)]
    assert silent == []


def _named_here_or_on_a_page(text: str) -> bool:
    if set(named_claims(text)) & IDS:
        return True
    referred = [ROOT / found[1] for found in PAGE.finditer(text)]
    return any(set(named_claims(part)) & IDS for page in referred for part in admissions(page.read_text()))


def test_each_claim_that_a_page_names_exists() -> None:
    unknown = {name: set(named_claims(page)) - IDS for name, page in pages().items() if name != GUIDE}
    assert {name: ids for name, ids in unknown.items() if ids} == {}


def test_the_guide_has_a_row_for_each_claim() -> None:
    section = (ROOT / GUIDE).read_text().partition("## The claims")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)
    assert rows == [claim.id for claim in CLAIMS]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Nothing has run on an NPU (`rljob conformance`: `hccl`, `trains`).", ["hccl", "trains"]),
        ("The rows `hccl` and `trains` of `rljob conformance` would confirm it.", ["hccl", "trains"]),
        ("Nothing has run on an NPU. See `rljob describe`: `why`.", []),
    ],
)
def test_claims_are_found_in_a_sentence(text: str, ids: list[str]) -> None:
    assert named_claims(text) == ids
