"""Split the index of the search: each language searches its own pages, and nobody searches source files.

A fault of the search engine is repaired too, see `repair_engine`.

Material puts all pages into one index. A page of the second language finds its own index by the address of its folder,
which its configuration has as `base` (material 9: src/templates/assets/javascripts/bundle.ts, `config.base`). A page
without a translation is in both indexes, since the plug-in for languages copies it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

INDEX = PurePosixPath("search/search_index.json")
LANGUAGE = "zh"
LEFT_OUT = ("source/", "design/", "releasing.html")
"""Source files, and what only contributors read."""
WEIGHTS = {"reference/definitions.html": 2.0, "reference/": 0.5, "benchmarks.html": 0.3, "comparison.html": 0.3}
"""Factors of the scores of pages that few readers ask for, or that have every word; of others it is 1."""
BASE = re.compile(r'(<script id="__config" type="application/json">\{"annotate": null, "base": ")[^"]*(")')

WORKERS = "assets/javascripts/workers/search.*.js"
NODE = ("e=e+s+o.id}return e", 'e=e+s+o.id+";"}return e')
"""The end of TokenSet.toString in the minified lunr, and the same with an end to each number."""


def repair_engine(html: Path) -> None:
    """Let lunr tell the nodes of its words apart. Raise ValueError if the code is not found, as after an update.

    It shares nodes whose texts are equal (lunr 2.3.9, lib/token_set.js:174-194). A text has a letter and a number for
    each edge, without anything between them, so a word with digits can make two different nodes equal. A search then
    expands to a word that is in no page, fails, and finds nothing.
    """
    for worker in html.glob(WORKERS):
        text = worker.read_text()
        if text.count(NODE[0]) != 1:
            raise ValueError(f"{worker}: the text of lunr's nodes is not made by {NODE[0]!r}; look whether it is right")
        worker.write_text(text.replace(*NODE))
        return
    raise ValueError(f"no {WORKERS} in {html}; look where Material has its search")


def split_index(html: Path) -> None:
    """Write an index for each language. Raise ValueError if a page has no configuration, as after an update."""
    index: dict[str, Any] = json.loads((html / INDEX).read_text())
    folder, prefix = html / LANGUAGE, f"{LANGUAGE}/"
    entries = [entry for entry in index["docs"] if not entry["location"].removeprefix(prefix).startswith(LEFT_OUT)]
    own = [_weighed(entry, prefix) for entry in entries if _is_own(entry, prefix)]
    english = [_weighed(entry, "") for entry in entries if not _is_own(entry, prefix)]
    translated = {_page(entry) for entry in own}
    _write(html / INDEX, index | {"docs": english})
    _write(folder / INDEX, index | {"docs": [*own, *(entry for entry in english if _page(entry) not in translated)]})
    for page in folder.rglob("*.html"):
        base = os.path.relpath(folder, page.parent)
        text, count = BASE.subn(rf"\g<1>{base}\g<2>", page.read_text())
        if count != 1:
            raise ValueError(f"{page}: no configuration of Material that states its base; look at its templates")
        page.write_text(text)


def _is_own(entry: dict[str, Any], prefix: str) -> bool:
    return bool(entry["location"].startswith(prefix))


def _weighed(entry: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return an entry with its place below the folder of its language, and with the weight of its page."""
    place = entry["location"].removeprefix(prefix)
    weights = [weight for page, weight in WEIGHTS.items() if place.startswith(page)]
    return entry | {"location": place} | ({"boost": weights[0]} if weights else {})


def _page(entry: dict[str, Any]) -> str:
    return str(entry["location"]).partition("#")[0]


def _write(path: Path, index: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")))
