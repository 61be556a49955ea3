"""The names of series that the scrape job of the exporters stores, in the chart's files/scrape-config.yaml.

The exporter's page is under the control of the job's author, so Prometheus stores only the names of its catalogue.
Families of vLLM are passed on under vLLM's own names, whatever its version has, and are known by their prefix.
"""

from __future__ import annotations

import textwrap
from collections import defaultdict

from rljob_runtime.exporter.catalogue import CATALOGUE
from rljob_runtime.exporter.upstream_metrics import TRANSFER_QUEUE, VLLM_PREFIX

HISTOGRAM = ("_bucket", "_sum", "_count")
BEGIN = "      # Begin of the names that `make generate` writes from the exporter's catalogue.\n"
END = "      # End of the generated names.\n"
WIDTH = 110


def exporter_names() -> frozenset[str]:
    """Return the names of all series of the exporter except vLLM's."""
    names = {row.name for row in CATALOGUE}
    for row in TRANSFER_QUEUE:
        names |= {row.name + suffix for suffix in HISTOGRAM} if row.kind == "histogram" else {row.name}
    return frozenset(names)


def names_pattern() -> str:
    """Return the regular expression that matches the whole names of the exporter's series."""
    grouped = defaultdict(list)
    for name in sorted(exporter_names()):
        prefix, _, rest = name.partition("_")
        grouped[prefix].append(rest)
    own = "|".join(f"{prefix}_({'|'.join(rests)})" for prefix, rests in sorted(grouped.items()))
    return f"{own}|{VLLM_PREFIX}[a-zA-Z0-9_:]+"


def scrape_config_text(current: str) -> str:
    """Return the scrape configuration with the names between their marks replaced."""
    before, _, rest = current.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"files/scrape-config.yaml lacks the line {BEGIN.strip()!r} or {END.strip()!r}")
    # In double quotes, a line that ends with a backslash continues without a space.
    broken = textwrap.wrap(names_pattern().replace("|", "| "), WIDTH, break_long_words=False, break_on_hyphens=False)
    lines = [line.replace("| ", "|") for line in broken]
    pattern = "\\\n          ".join(lines)
    rule = f'      - source_labels: [__name__]\n        regex: "\\\n          {pattern}"\n        action: keep\n'
    return before + BEGIN + rule + END + after
