"""A launcher that does not know its job.json: which image to correct, and how."""

from __future__ import annotations

from dataclasses import replace

from builders import answer, cluster, decide, job, running, small_spec, status_training, typed, wrote

from rljob.api.status import FailureCause, State
from rljob.core.attempts.classify import Failure
from rljob.core.attempts.runtime_mismatch import REFUSED, with_image_named
from rljob.render import labels
from rljob.render.accelerator_table import OPERATOR_IMAGE
from rljob_runtime.contract import RUNTIME_VERSION, ExitCode, Outcome, Phase

SAID = "/etc/rljob/job.json: JobConfig: unknown keys later; this runtime is rljob-runtime 0.0.9"
FAILURE = Failure(FailureCause.CONFIGURATION, REFUSED, SAID, ExitCode.BAD_CONFIG)
IMAGE = "registry.example/rljob/runtime:cpu"
ENDED = answer({"phase": Phase.ENDED, "outcome": Outcome(ExitCode.BAD_CONFIG, REFUSED, SAID)})


def test_the_image_of_the_job_is_named_with_both_versions_and_the_fix() -> None:
    made = cluster(ready=1, annotations={})
    status = wrote(decide(running(job=job(status=status_training()), progress=ENDED, clusters=(made,))))
    assert (status.state, status.reason) == (State.FAILED, "RuntimeMismatch")
    said = str(status.message)
    assert f"spec.runtime.image {IMAGE} has another rljob-runtime" in said
    assert f"knows version {RUNTIME_VERSION}" in said
    assert "0.0.9" in said
    assert "spec.runtime.injection to Auto" in said


def test_of_an_injected_runtime_the_image_of_the_operator_is_named() -> None:
    made = cluster(ready=1, annotations={labels.RUNTIME_IMAGE: OPERATOR_IMAGE})
    found = running(job=job(status=status_training()), progress=ENDED, clusters=(made,))
    assert f"the injected runtime of {OPERATOR_IMAGE}" in str(wrote(decide(found)).message)


def test_without_a_frozen_spec_the_words_of_the_launcher_stay() -> None:
    found = running(job=job(status=status_training()), progress=ENDED, snapshot=None)
    assert SAID in str(wrote(decide(found)).message)


def test_other_ends_are_left_alone() -> None:
    runtime = typed(small_spec()).runtime
    for other in (replace(FAILURE, reason="PathMissing"), replace(FAILURE, exit_code=1)):
        assert with_image_named(other, runtime, None) == other
    assert with_image_named(FAILURE, runtime, None) != FAILURE
