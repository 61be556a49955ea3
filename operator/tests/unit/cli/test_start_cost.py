"""What the command line loads before it does anything: users wait for it at every command, and shells at every TAB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODULES_MAX = 220
"""At most 202 with Python 3.11. The API types and their libraries would be 400 more."""
HEAVY = ("aiohttp", "kopf", "kubernetes", "numpy", "pydantic", "ray", "yaml")
PROGRAM = """
import json, sys
from rljob.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(*words: str, path: Path | None = None) -> list[str]:
    """Return the modules that a process has loaded when the command has ended."""
    environment = {"PATH": f"{path or ''}:/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, *words], capture_output=True, text=True, check=True, env=environment
    )
    found: list[str] = json.loads(done.stderr.splitlines()[-1])
    assert "rljob.cli.main" in found
    return found


@pytest.mark.parametrize(
    "words", [["--help"], ["status", "--help"], ["explane"], ["list"], ["status", "x"], ["logs", "x"]]
)
def test_no_heavy_library_is_loaded(kubectl: Path, words: list[str]) -> None:
    (kubectl / "error").write_text("The connection to the server 10.0.0.1:6443 was refused")
    found = loaded(*words, path=kubectl)
    assert {name.partition(".")[0] for name in found} & set(HEAVY) == set()
    assert len(found) <= MODULES_MAX, len(found)


def test_a_command_that_reads_a_spec_loads_the_types_only_then() -> None:
    """The counterpart, without which the test above could not fail."""
    assert {"pydantic", "yaml"} <= {name.partition(".")[0] for name in loaded("validate", "-f", "/nowhere/job.yaml")}
