"""What MkDocs does not check in the site that it built."""

from __future__ import annotations

import re
from pathlib import Path

RESOURCE = re.compile(
    r"<(?:script|img|iframe|source|video|audio)\b[^>]*\ssrc=[\"']?(?:https?:)?//[^\s\"'>]+"
    r"|<link\b(?=[^>]*\srel=[\"']?(?:stylesheet|preload|preconnect|icon))[^>]*\shref=[\"']?(?:https?:)?//[^\s\"'>]+",
    re.IGNORECASE,
)


def foreign_resources(site: Path) -> list[str]:
    """Return what pages of a site would load from other hosts, each with its page."""
    return [
        f"{page.relative_to(site)}: {match[0]}"
        for page in sorted(site.rglob("*.html"))
        for match in RESOURCE.finditer(page.read_text())
    ]
