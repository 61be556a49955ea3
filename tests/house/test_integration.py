"""A test that needs a real API server is in a folder that a stage of `make test` runs with the marker `integration`."""

import subprocess

from scripts.stages import ROOT
from scripts.test import FULL

MARKED = r"^ *(@|pytestmark = \[?|integration = |marks=)?pytest\.mark\.integration"
OF_OTHER_TARGETS = "tests/compat/"
"""`make compat` runs these, on other releases of Kubernetes."""


def test_every_integration_test_is_run_by_a_stage() -> None:
    run = [word for stage in FULL if "integration" in stage.command for word in stage.command if (ROOT / word).exists()]
    listed = ("git", "grep", "-lE", MARKED, "--", "operator", "runtime", "tests", "benchmarks")
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(found) > 10
    assert [path for path in found if not path.startswith((OF_OTHER_TARGETS, *run))] == []
