"""`make` lists every target with its description."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def phony_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text()
    return {word for line in re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE) for word in line.split()}


def test_make_without_arguments_lists_every_target() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    listed = {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    assert listed == phony_targets()
