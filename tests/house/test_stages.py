"""The program that runs `make test` ends its stages when it is ended, and lists failures at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from scripts.stages import ROOT

# A stage that prints its pid and then waits. The logs go to a folder of the test.
RUN = """
import sys
from pathlib import Path
from scripts import stages
stages.ROOT = stages.LOGS = Path(sys.argv[1])
stage = stages.Stage("waits", "waits", ("sh", "-c", "echo pid $$; exec sleep 600"), 1)
stages.run([stage], budget_minutes=1)
"""

# Two stages that fail long before the table of results: one of pytest, and one with other output.
FAILS = """
import sys
from pathlib import Path
from scripts import stages
stages.ROOT = stages.LOGS = Path(sys.argv[1])
test = "printf 'E   AssertionError: the wrong one\\nERROR test_it.py::test_it - the wrong one\\n'; seq 100; exit 1"
other = "seq 100; echo no such program; exit 127"
rows = [stages.Stage("tests", "tests", ("sh", "-c", test), 1), stages.Stage("other", "other", ("sh", "-c", other), 1)]
stages.run(rows, budget_minutes=1)
"""


def test_a_run_lists_at_its_end_why_it_failed(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-c", FAILS, str(tmp_path)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout
    tests, other = told.split("0 of 2 stages passed")[1].split("---- errors in ")[1:]
    assert tests.splitlines()[1:3] == [
        "E   AssertionError: the wrong one",
        "ERROR test_it.py::test_it - the wrong one",
    ]
    assert other.splitlines()[-2:] == ["no such program", "----"]


def test_a_run_that_is_ended_ends_its_stages(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-c", RUN, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as run:
        assert run.stdout is not None
        stage = next(int(line.split()[1]) for line in run.stdout if line.startswith("pid "))
        os.kill(stage, 0)
        run.send_signal(signal.SIGTERM)
        code = run.wait(30)
    assert code != 0
    assert not Path(f"/proc/{stage}").exists()
