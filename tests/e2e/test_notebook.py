"""The example notebook, executed by a kernel on the local cluster: what it prints is what the job did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.e2e import runs
from tests.kube import Kube

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebooks" / "first-job.ipynb"
CELL_SECONDS = 600
STEPS = 10


@pytest.fixture(scope="module")
def printed(kube: Kube) -> dict[str, str]:
    """Return what each cell printed, by its id."""
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    (parameters,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    # As papermill sets parameters: after the defaults. The smaller image starts in seconds.
    parameters.source += f"\nNAMESPACE = {kube.namespace!r}\nIMAGE = {runs.CONTRACT_IMAGE!r}\n"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KUBECONFIG", kube.kubeconfig)
        NotebookClient(notebook, timeout=CELL_SECONDS, kernel_name="python3").execute()
    return {
        cell.id: "".join(output.text for output in cell.outputs if output.output_type == "stream")
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def test_the_job_is_followed_until_it_has_trained(printed: dict[str, str]) -> None:
    assert "Pending" in printed["create"]
    states = [line.split()[1].rstrip(":") for line in printed["train"].splitlines() if "/first-" in line]
    assert states[-1] in ("Training", "Succeeded"), printed["train"]
    assert "Starting" in states, printed["train"]
    assert "Succeeded" in printed["end"]


def test_its_log_has_every_line_of_the_program(printed: dict[str, str]) -> None:
    lines = printed["train"].splitlines()
    assert [line for line in lines if line.startswith("step ")] == [f"step {step}" for step in range(1, STEPS + 1)]


def test_its_metrics_are_rows_of_steps(printed: dict[str, str]) -> None:
    rows = [line.split() for line in printed["metrics"].splitlines()]
    assert [(int(step), float(score)) for step, score in rows] == [(n, n / 10) for n in range(1, STEPS + 1)]


def test_it_is_deleted_at_the_end(printed: dict[str, str], kube: Kube) -> None:
    assert printed["delete"] == ""
    assert not [job for job in kube.find("rljobs") if job["metadata"]["name"].startswith("first-")]
