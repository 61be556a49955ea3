"""The launcher's checks before resources are used, and how it ends in every case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rljob_runtime.contract import RUNTIME_VERSION, ExitCode, Outcome, Phase, Progress
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.preflight import missing_here, read_attempt, read_job, require_tokens
from rljob_runtime.ray_cluster import head_lock
from rljob_runtime.spool.spool import Spool
from runtime.tests.conftest import MakeJob


@pytest.fixture
def environ(tmp_path: Path, make_job: MakeJob) -> dict[str, str]:
    config = tmp_path / "job.json"
    config.write_bytes(make_job().to_json())
    return {
        "RLJOB_ATTEMPT": "2",
        "RLJOB_SUBMISSION_ID": "sums-2",
        "RLJOB_HEAD_POD_UID": "pod-1",
        "RLJOB_POD_UID": "pod-1",
        "RLJOB_JOB_DIGEST": make_job().digest(),
        "RLJOB_CONFIG": str(config),
        "RLJOB_SPOOL": str(tmp_path / "spool"),
        # Where a runtime that is not installed is found.
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }


def test_the_intended_pod_and_config_are_accepted(environ: dict[str, str], make_job: MakeJob) -> None:
    assert read_attempt(environ).number == 2
    assert read_job(environ) == make_job()


def test_another_pod_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(RefusedError, match="is for pod pod-1, but this is pod pod-2") as caught:
        read_attempt({**environ, "RLJOB_POD_UID": "pod-2"})
    assert (caught.value.code, caught.value.reason) == (ExitCode.ENVIRONMENT, "WrongPod")


@pytest.mark.parametrize("name", ["RLJOB_ATTEMPT", "RLJOB_SUBMISSION_ID", "RLJOB_HEAD_POD_UID", "RLJOB_POD_UID"])
def test_a_missing_variable_is_named(environ: dict[str, str], name: str) -> None:
    with pytest.raises(RefusedError, match=f"{name} is not set") as caught:
        read_attempt({**environ, name: ""})
    assert caught.value.code is ExitCode.ENVIRONMENT


@pytest.mark.parametrize(("said", "step"), [({}, None), ({"RLJOB_CHECKPOINT_STEP": "40"}, 40)])
def test_an_operator_may_pass_the_saved_step(environ: dict[str, str], said: dict[str, str], step: int | None) -> None:
    assert read_attempt(environ | said).checkpoint_step == step


def test_a_saved_step_is_a_number(environ: dict[str, str]) -> None:
    with pytest.raises(RefusedError, match="RLJOB_CHECKPOINT_STEP='last': expected a step") as caught:
        read_attempt({**environ, "RLJOB_CHECKPOINT_STEP": "last"})
    assert (caught.value.code, caught.value.reason) == (ExitCode.ENVIRONMENT, "BadSubmission")


@pytest.mark.parametrize("number", ["0", "-1", "one"])
def test_an_attempt_is_counted_from_one(environ: dict[str, str], number: str) -> None:
    with pytest.raises(RefusedError, match="expected an integer of at least 1"):
        read_attempt({**environ, "RLJOB_ATTEMPT": number})


def test_a_config_of_another_generation_is_refused(environ: dict[str, str], make_job: MakeJob) -> None:
    Path(environ["RLJOB_CONFIG"]).write_bytes(make_job(cluster_generation=2).to_json())
    with pytest.raises(RefusedError, match="another cluster generation") as caught:
        read_job(environ)
    assert (caught.value.code, caught.value.reason) == (ExitCode.ENVIRONMENT, "WrongConfig")


def test_an_absent_config_may_come_later_but_a_broken_one_never_works(environ: dict[str, str]) -> None:
    Path(environ["RLJOB_CONFIG"]).write_text("{}")
    with pytest.raises(RefusedError) as broken:
        read_job(environ)
    Path(environ["RLJOB_CONFIG"]).unlink()
    with pytest.raises(RefusedError) as absent:
        read_job(environ)
    assert (broken.value.code, broken.value.reason) == (ExitCode.BAD_CONFIG, "ConfigInvalid")
    assert (absent.value.code, absent.value.reason) == (ExitCode.ENVIRONMENT, "ConfigUnreadable")


def test_a_config_of_another_release_names_the_version_of_this_runtime(
    environ: dict[str, str], make_job: MakeJob
) -> None:
    document = json.loads(make_job().to_json()) | {"fieldOfALaterRelease": 1}
    Path(environ["RLJOB_CONFIG"]).write_text(json.dumps(document))
    with pytest.raises(RefusedError, match=f"fieldOfALaterRelease.*this runtime is rljob-runtime {RUNTIME_VERSION}"):
        read_job(environ)


def test_a_ray_that_would_ignore_the_token_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"the image has Ray 2\.48\.0, .* use 2\.52\.0 or later") as caught:
        require_tokens({"RAY_AUTH_MODE": "token"}, lambda _: "2.48.0")
    assert (caught.value.code, caught.value.reason) == (ExitCode.BAD_CONFIG, "RayWithoutTokens")
    require_tokens({"RAY_AUTH_MODE": "token"}, lambda _: "2.52.0")
    require_tokens({}, lambda _: "2.48.0")


@pytest.mark.parametrize(("version", "named"), [("2.45.0", False), ("2.46.0", True)])
def test_a_ray_may_go_without_tokens_only_where_validation_would_accept_it(version: str, *, named: bool) -> None:
    with pytest.raises(RefusedError) as caught:
        require_tokens({"RAY_AUTH_MODE": "token"}, lambda _: version)
    assert (
        "unauthenticatedRay to true, where the namespace allows it and network.mode is Pod" in str(caught.value)
    ) is named


def test_each_node_lists_what_it_lacks(tmp_path: Path) -> None:
    assert missing_here([str(tmp_path), str(tmp_path / "x")]) == [str(tmp_path / "x")]


def test_two_launchers_do_not_share_a_head(tmp_path: Path) -> None:
    with head_lock(tmp_path, 0):
        with pytest.raises(RefusedError, match="another launcher still runs") as caught, head_lock(tmp_path, 0):
            pass
        assert caught.value.reason == "HeadBusy"
    with head_lock(tmp_path, 0):
        pass


def test_a_full_disk_costs_the_last_line_and_not_the_exit_code(environ: dict[str, str]) -> None:
    words = [sys.executable, "-m", "rljob_runtime", "launch"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, env={**environ, "RLJOB_POD_UID": "pod-2"}, stdout=full, stderr=full, check=False)
        assert done.returncode == ExitCode.ENVIRONMENT
        done = subprocess.run(words, env=environ, stdout=full, stderr=full, check=False)
    progress = Spool(Path(environ["RLJOB_SPOOL"])).progress()
    assert progress is not None
    assert progress.outcome is not None
    assert (done.returncode, progress.outcome.reason) == (ExitCode.FAILED, "RunFailed")


def run_launcher(environ: dict[str, str]) -> tuple[int, Outcome]:
    done = subprocess.run(
        [sys.executable, "-m", "rljob_runtime", "launch"], env=environ, capture_output=True, text=True, check=False
    )
    return done.returncode, Outcome.from_json(done.stdout.splitlines()[-1])


def test_the_last_line_is_the_outcome_and_the_exit_code_its_code(environ: dict[str, str]) -> None:
    code, outcome = run_launcher({**environ, "RLJOB_POD_UID": "pod-2"})
    assert (code, outcome.exit_code, outcome.reason) == (65, 65, "WrongPod")


def test_a_failure_after_the_beginning_is_in_the_spool_too(environ: dict[str, str]) -> None:
    # The development environment has no verl: the launcher fails when it imports it.
    code, outcome = run_launcher(environ)
    progress = Spool(Path(environ["RLJOB_SPOOL"])).progress()
    assert (code, outcome.reason) == (1, "RunFailed")
    assert progress is not None
    assert (progress.phase, progress.outcome, progress.attempt) == (Phase.ENDED, outcome, 2)


def test_a_refusal_of_identity_leaves_the_spool_to_its_owner(environ: dict[str, str]) -> None:
    spool = Spool(Path(environ["RLJOB_SPOOL"]))
    running = Progress(pod_uid="pod-1", phase=Phase.TRAINING, attempt=3, step=9)
    spool.write_progress(running)
    run_launcher({**environ, "RLJOB_HEAD_POD_UID": "pod-9"})
    assert spool.progress() == running
