"""Which scrape of the chart a series of a board comes from.

A Prometheus may store other pages too, for example of every pod with an annotation, and such a page may contain any
name and any label. Each selector of a board therefore has the label `job` of the scrape that stores the series, as
those of the rules have (files/rules.yaml).
"""

from __future__ import annotations

import re

SCRAPES = {"rljob_operator_": "rljob-operator", "rljob_": "rljob-jobs", "vllm:": "rljob-jobs", "tq_": "rljob-jobs"}
SCRAPES |= {"ray_": "rljob-ray"}
"""Beginning of a series' name and its scrape; the first that matches."""
_LABELS = ("rljob_namespace", "ray_node_type")
SELECTOR = re.compile(rf'(?<![\w:"$.])(?!(?:{"|".join(_LABELS)})\b)((?:{"|".join(SCRAPES)})\w+)(?:\{{([^}}]*)\}})?')


def from_scrapes(expression: str) -> str:
    """Return an expression in which each selector names the scrape of its series."""
    return SELECTOR.sub(_named, expression)


def _named(found: re.Match[str]) -> str:
    name, matchers = found[1], found[2]
    scrape = next(scrape for beginning, scrape in SCRAPES.items() if name.startswith(beginning))
    inside = ",".join(part for part in (f'job="{scrape}"', matchers) if part)
    return f"{name}{{{inside}}}"
