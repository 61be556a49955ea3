"""Generated page: rules that follow from upstream's code, with the file and lines that draw the line.

Pure, but for reading the table of the seam test, which the operator's tests write.
"""

from __future__ import annotations

import json
from pathlib import Path

from scripts.reference import HEADER, table

RULES = Path(__file__).resolve().parent.parent / "runtime/tests/upstream/rules.json"
ABOUT = """\
Rules of the operator that follow from the code of verl 0.9.1, vLLM 0.23.0 and Megatron-Core 0.16.1. Each has a job
just inside and one just outside (`operator/tests/corpus/rules.py`). The operator accepts the first, and refuses the
second or warns about it; in the runtime image, upstream's own code must agree at the lines that are named here
(`runtime/tests/upstream/test_rules.py`). Megatron-Core is not in the image for CPUs; the tests bring the release.
"""


def upstream_rules_page() -> str:
    """Return the page with every rule."""
    rules = json.loads(RULES.read_text())["rules"]
    rows = [(name, f"`{row['field']}`", row["verdict"], f"`{row['source']}`") for name, row in sorted(rules.items())]
    return f"{HEADER}\n# Rules from upstream\n\n{ABOUT}\n{table(('rule', 'field', 'outside', 'source'), rows)}"
