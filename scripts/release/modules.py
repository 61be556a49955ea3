"""The Go modules of a program as a bill of materials: `python -m scripts.release.modules FOLDER NAME VERSION FILE`.

go.mod lists every module with a package that the build of the program or of its tests loads, and go.sum has their
hashes. The bill does not have Go's standard library, whose version the base image determines.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

REQUIRED = re.compile(r"(?m)^(?:require )?\t?([a-z0-9.-]+\.[a-z]+/\S+) (v\S+)")
SUM = re.compile(r"(?m)^(\S+) (v\S+) h1:(\S+)$")
"""Hash of a module's files; the lines of files go.mod have another form of version."""


def bill(folder: Path, name: str, version: str) -> dict[str, Any]:
    """Return a bill in CycloneDX. Raise ValueError for a module without hash."""
    sums = {(module, number): digest for module, number, digest in SUM.findall((folder / "go.sum").read_text())}
    components = []
    for module, number in REQUIRED.findall((folder / "go.mod").read_text()):
        if (module, number) not in sums:
            raise ValueError(f"{folder}/go.sum has no hash of {module} {number}; run `go mod tidy` there")
        purl = f"pkg:golang/{module}@{quote(number, safe='')}"
        # As cyclonedx-gomod does: h1 is the SHA-256 of a list of the files with their hashes.
        content = base64.b64decode(sums[module, number]).hex()
        hashes = [{"alg": "SHA-256", "content": content}]
        components.append(
            {"type": "library", "bom-ref": purl, "name": module, "version": number, "purl": purl, "hashes": hashes}
        )
    program = {"type": "application", "name": name, "version": version}
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": program}}
    return head | {"components": components}


if __name__ == "__main__":
    Path(sys.argv[4]).write_text(json.dumps(bill(Path(sys.argv[1]), sys.argv[2], sys.argv[3]), indent=2) + "\n")
