"""The script for nodes with NPUs, run without NPUs: it ends at once and prints what it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "npu_checks/check_node.py"
WITHOUT_DEVICES = """#!/bin/sh
echo "$@" >> "$0.asked"
if [ "$*" = info ]; then echo "| npu-smi 25.5.0   Version: 25.5.0 |"; else exec sleep 60; fi
"""
FAILS = """#!/bin/sh
echo "$@" >> "$0.asked"
echo "dcmi module initialize failed. ret is -8005" >&2
exit 1
"""


def check(folder: Path) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, done.stderr) == (told["exitCode"], "")
    return told


def test_without_the_drivers_tools_it_prints_where_to_run_it(tmp_path: Path) -> None:
    told = check(tmp_path)
    assert (told["exitCode"], told["reason"]) == (65, "DevicesMissing")
    assert "npu-smi is not in this container; run this on a node with NPUs" in str(told["message"])


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        (WITHOUT_DEVICES, "npu-smi shows no device; run this"),
        (FAILS, "failed with exit code 1: dcmi module initialize"),
    ],
    ids=["a driver without devices", "a driver that fails"],
)
def test_a_driver_that_shows_nothing_is_asked_once(tmp_path: Path, tool: str, says: str) -> None:
    script = tmp_path / "npu-smi"
    script.write_text(tool)
    script.chmod(0o755)
    assert says in str(check(tmp_path)["message"])
    assert (tmp_path / "npu-smi.asked").read_text() == "info\n"
