"""Ray jobs that a command submitted to its own cluster are stopped in the real Ray; ours and earlier ones stay."""

from __future__ import annotations

import tempfile
import time

import pytest

from rljob_runtime.command import nested

SECONDS = 300.0
SLEEP = "sleep 1000"


def test_what_a_command_left_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray.job_submission import JobStatus, JobSubmissionClient

    with tempfile.TemporaryDirectory(prefix="rnj-", dir="/tmp") as folder:
        found = ray.init(num_cpus=2, include_dashboard=True, dashboard_port=0, _temp_dir=folder)
        try:
            monkeypatch.setenv("RAY_ADDRESS", found.address_info["gcs_address"])
            client = JobSubmissionClient()

            def submit(name: str) -> None:
                client.submit_job(entrypoint=SLEEP, submission_id=name)
                deadline = time.monotonic() + SECONDS
                while client.get_job_status(name) != JobStatus.RUNNING:
                    assert time.monotonic() < deadline, client.get_job_info(name)
                    time.sleep(0.5)

            submit("earlier")
            since = time.time()
            submit("own")
            submit("nested")
            notes: list[str] = []
            nested.stop_left("own", since, notes.append)
            states = {name: client.get_job_status(name) for name in ("earlier", "own", "nested")}
        finally:
            ray.shutdown()
    assert states == {"earlier": JobStatus.RUNNING, "own": JobStatus.RUNNING, "nested": JobStatus.STOPPED}
    (note,) = notes
    assert "are stopped: nested;" in note
