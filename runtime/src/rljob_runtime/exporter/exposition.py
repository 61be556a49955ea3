"""Prometheus text exposition format: write families of samples as text, and parse text into families.

`prometheus_client.parser` is not used here: it takes 17 times as long, decodes labels that are only passed on, drops
`_total` from the names of counters, and rejects a whole page for one malformed line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_LABEL_VALUE = 512
"""Maximum length of a label value in bytes. Prometheus rejects a whole page for a longer one
(`label_value_length_limit` in the chart's files/scrape-config.yaml)."""
MAX_LABELS = 48
"""Maximum number of labels; with those of the target, fewer than `label_limit` there. One family of vLLM 0.23 has
about thirty."""
LABEL_VALUE = re.compile(r'="((?:[^"\\]|\\.)*)"')
SAMPLE_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})?[ \t]+(?P<value>[^ \t]+)")


@dataclass
class Family:
    """A metric with its samples: `(name with suffix, text of labels, text of value)`."""

    name: str
    kind: str
    description: str
    samples: list[tuple[str, str, str]] = field(default_factory=list)


def escape(value: str) -> str:
    """Escape a label value."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def label_text(labels: Mapping[str, str]) -> str:
    """Format labels as they appear between the braces."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in labels.items())


def within_label_limits(family: Family) -> Family:
    """Return a family without the samples that have too many labels, or a label value that is too long."""
    kept = [sample for sample in family.samples if not _exceeds_limits(sample[1])]
    return family if len(kept) == len(family.samples) else replace(family, samples=kept)


def _exceeds_limits(labels: str) -> bool:
    if labels.isascii() and len(labels) <= MAX_LABEL_VALUE and labels.count("=") <= MAX_LABELS:
        return False
    values = LABEL_VALUE.findall(labels)
    return len(values) > MAX_LABELS or any(len(value.encode()) > MAX_LABEL_VALUE for value in values)


def render(families: Iterable[Family]) -> str:
    """Format families. A family without samples is left out."""
    lines = []
    for family in families:
        if family.samples:
            lines.append(f"# HELP {family.name} {family.description}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines.extend(f"{name}{{{labels}}} {value}" for name, labels, value in family.samples)
    return "\n".join(lines) + "\n"


def parse(text: str, prefix: str) -> dict[str, Family]:
    """Parse the families whose names start with `prefix`."""
    families: dict[str, Family] = {}
    current: Family | None = None
    for line in text.splitlines():
        if line.startswith("#"):
            current = _header(line, prefix, families, current)
            continue
        match = SAMPLE_LINE.match(line)
        # `_bucket`, `_sum`, `_count`, `_created` and `_total` of a family follow its header.
        if match is None or current is None or not match["name"].startswith(current.name):
            continue
        current.samples.append((match["name"], match["labels"] or "", match["value"]))
    return families


def _header(line: str, prefix: str, families: dict[str, Family], current: Family | None) -> Family | None:
    words = line.split(" ", 3)
    if len(words) < 3 or words[1] not in ("HELP", "TYPE"):
        return current
    name = words[2]
    if not name.startswith(prefix):
        return None
    family = families.setdefault(name, Family(name, "untyped", ""))
    rest = words[3] if len(words) > 3 else ""
    if words[1] == "HELP":
        family.description = rest
    else:
        family.kind = rest.strip()
    return family
