"""The program that runs `make test` ends all its processes when it is ended, cleans up, and states what ran."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.stages import ROOT
from scripts.test import BUDGET_MINUTES, CI_MINUTES, FULL
from tests.cluster.processes import start_ticks

# The logs go to a folder of the test.
PROLOGUE = """
import sys
from pathlib import Path
from scripts import stages
from scripts.stages import Stage
stages.ROOT = stages.LOGS = Path(sys.argv[1])
stages.LOOP_ITERATIONS, stages.REFERENCE_LOOP_SECONDS = 1_000_000, 0.013
"""

# A stage with a process in a session of its own that ignores SIGTERM, one that waits for it, and two that clean up.
WAITS = (
    PROLOGUE
    + """
stages.GRACE_SECONDS = 1.0
Path(sys.argv[1], "other.sh").write_text("trap '' TERM; echo pid $$; while :; do sleep 1; done")
Path(sys.argv[1], "stage.sh").write_text('setsid sh "$1/other.sh" & echo pid $$; wait')
rows = [
    Stage("waits", "waits", ("sh", sys.argv[1] + "/stage.sh", sys.argv[1]), 30),
    Stage("later", "later", ("true",), 30, after_end_of=("waits",)),
    Stage("down", "clean up", ("true",), 30, after_end_of=("later",), last=True),
    Stage("leaks", "look", ("true",), 30, after=("down",), last=True),
]
sys.exit(0 if stages.run(rows, budget_minutes=10) else 1)
"""
)

# Two stages that fail long before the table of results: one of pytest, and one with other output.
FAILS = (
    PROLOGUE
    + """
test = "printf 'E   AssertionError: the wrong one\\nERROR test_it.py::test_it - the wrong one\\n'; seq 100; exit 1"
other = "seq 100; echo no such program; exit 127"
rows = [Stage("tests", "tests", ("sh", "-c", test), 30), Stage("other", "other", ("sh", "-c", other), 30)]
stages.run(rows, budget_minutes=10)
"""
)

# A stage over its budget of CPU-bound tests, and a run whose time is over but for the cleanup.
TABLE = (
    PROLOGUE
    + """
test = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo '=== 1 failed, 3 passed, 2 skipped in 0.12s ==='"
late = Stage("late", "late", ("sh", "-c", test), 0.01)
stages.LIMIT_FACTOR = 100000.0
stages.run([late, Stage("down", "clean up", ("true",), 30, last=True)], budget_minutes=10)
stages.run([late, Stage("down", "clean up", ("true",), 30, last=True)], budget_minutes=stages.CLEANUP_MINUTES)
"""
)


def output_of(program: str, folder: Path) -> str:
    command = [sys.executable, "-u", "-c", program, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout


def row(table: str, stage: str) -> list[str]:
    return next(line.split() for line in table.splitlines() if line.startswith(f"{stage} "))


def test_a_run_lists_at_its_end_why_it_failed(tmp_path: Path) -> None:
    tests, other = output_of(FAILS, tmp_path).split("---- errors in ")[1:]
    assert tests.splitlines()[1:3] == [
        "E   AssertionError: the wrong one",
        "ERROR test_it.py::test_it - the wrong one",
    ]
    errors, closing = other.splitlines()[-3:-1], other.splitlines()[-1]
    assert errors == ["no such program", "----"]
    assert closing.startswith("0 of 2 stages passed in ")


def test_the_table_states_times_tests_and_what_is_over_its_budget(tmp_path: Path) -> None:
    output = output_of(TABLE, tmp_path)
    table = output.split("\nstage ")[1]
    _, verdict, _, cpu, tests, budget, *note = row(table, "late")
    assert (verdict, tests, budget) == ("passed", "4", "0:00")
    assert float(cpu) > 0
    assert note == ["1", "failed,", "3", "passed,", "2", "skipped", "in", "0.12s"]
    closing = next(line for line in table.splitlines() if "stages passed" in line)
    assert closing.startswith("2 of 2 stages passed in ")
    assert closing.endswith("; over budget: late")


def test_the_cleanup_runs_when_the_time_of_the_run_is_over(tmp_path: Path) -> None:
    table = output_of(TABLE, tmp_path).split("\nstage ")[2]
    assert row(table, "late")[1] == "skipped"
    assert row(table, "down")[1] == "passed"


def test_the_stages_that_remove_the_cluster_have_time_of_their_own() -> None:
    assert {stage.name for stage in FULL if stage.last} == {"down", "leaks"}
    assert BUDGET_MINUTES < CI_MINUTES


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_ends_its_processes_and_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-u", "-c", WAITS, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        pids: list[int] = []
        while len(pids) < 2:
            line = run.stdout.readline()
            assert line, "the run ended before its processes had said their pids"
            if line.startswith("pid "):
                pids.append(int(line.split()[1]))
        assert None not in [start_ticks(pid) for pid in pids]
        run.send_signal(number)
        rest = run.stdout.read()
        code = run.wait(120)
    assert code == 1
    assert [start_ticks(pid) for pid in pids] == [None, None]
    assert "Traceback" not in rest
    table = rest.split("\nstage ")[1]
    verdicts = {name: row(table, name)[1] for name in ("waits", "later", "down", "leaks")}
    assert verdicts == {"waits": "stopped", "later": "skipped", "down": "passed", "leaks": "passed"}
