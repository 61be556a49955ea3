"""Which Chinese pages are older than their English ones.

A Chinese page `x.zh.md` belongs to `x.md`. Its first line has the hash of the English page that it was written
for. After a change of the English page the house test fails until somebody has brought the Chinese page up to
date, or seen that the change does not affect it, and has recorded that with `python -m scripts.site accept`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from scripts.site.pages import ROOT, TRANSLATED, tracked

STAMP = re.compile(r"\A<!-- translation of (?P<page>\S+) at (?P<hash>[0-9a-f]{12}) -->\n")
"""A comment, because front matter would be a table on top of the page where the repository is browsed."""
PAGES = "concepts faq glossary install operations quickstart runbooks training troubleshooting"
MUST_EXIST = ("README", *(f"docs/{name}" for name in PAGES.split()))
"""With the pages of docs/guides, what readers of Chinese are promised."""


@dataclass(frozen=True)
class Translation:
    """A Chinese page."""

    page: PurePosixPath
    english: PurePosixPath
    problem: str
    """Empty if the page is up to date."""


def content_hash(page: Path) -> str:
    """Return the hash of a page's content."""
    return hashlib.sha256(page.read_bytes()).hexdigest()[:12]


def english_of(page: PurePosixPath) -> PurePosixPath:
    """Return the English page that a Chinese page belongs to."""
    return page.with_name(page.name.removesuffix(TRANSLATED) + ".md")


def judge(page: PurePosixPath, root: Path = ROOT) -> Translation:
    """Return a Chinese page with what is wrong with it."""
    english = english_of(page)
    stamp = STAMP.match((root / page).read_text())
    if not (root / english).exists():
        problem = f"{english} does not exist"
    elif stamp is None:
        problem = "its first line is no stamp; `python -m scripts.site accept` writes it"
    elif stamp["page"] != english.name:
        problem = f"its stamp names {stamp['page']}"
    elif stamp["hash"] != content_hash(root / english):
        problem = f"{english} has changed since; bring it up to date, then run `python -m scripts.site accept {page}`"
    else:
        problem = ""
    return Translation(page, english, problem)


def translations(root: Path = ROOT) -> list[Translation]:
    """Return all Chinese pages."""
    return [judge(page, root) for page in sorted(tracked(root)) if page.name.endswith(TRANSLATED)]


def missing(root: Path = ROOT) -> list[PurePosixPath]:
    """Return the promised pages that have no Chinese one."""
    files = tracked(root)
    english = [PurePosixPath(f"{name}.md") for name in MUST_EXIST]
    english += [page for page in files if page.parent == PurePosixPath("docs/guides") and page.suffix == ".md"]
    plain = sorted(page for page in english if not page.name.endswith(TRANSLATED))
    return [page for page in plain if page.with_name(page.stem + TRANSLATED) not in files]


def accept(page: Path) -> None:
    """Write the hash of the English page into a Chinese page."""
    english = page.with_name(page.name.removesuffix(TRANSLATED) + ".md")
    text = STAMP.sub("", page.read_text())
    page.write_text(f"<!-- translation of {english.name} at {content_hash(english)} -->\n{text}")


def table(root: Path = ROOT) -> str:
    """Return a line per Chinese page, and the promised pages that do not exist."""
    lines = [f"{each.page}: {each.problem or 'up to date'}" for each in translations(root)]
    return "\n".join([*lines, *(f"{page}: no Chinese page" for page in missing(root))])
