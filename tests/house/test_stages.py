"""The program that runs `make test` ends what it started when somebody ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from scripts.stages import ROOT

# A stage that says its pid and then waits, in a run whose logs go to a folder of the test.
RUN = """
import sys
from pathlib import Path
from scripts import stages
stages.ROOT = stages.LOGS = Path(sys.argv[1])
stage = stages.Stage("waits", "waits", ("sh", "-c", "echo pid $$; exec sleep 600"), 1)
stages.run([stage], budget_minutes=1)
"""


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
