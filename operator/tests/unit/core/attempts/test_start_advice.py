"""What to correct when containers cannot start: the image of the job, that of the operator, or something else."""

from __future__ import annotations

import pytest
from builders import Json, at, cluster

from rljob.api.status import ContainerFailure
from rljob.core import times
from rljob.core.attempts.start_advice import HELPERS, advice, injected_image, pull_advice
from rljob.core.attempts.start_diagnosis import diagnose
from rljob.render import labels

OPERATOR = "registry.example/rljob/operator:1.2.3"
OTHER_CPU = "exec /bin/bash: exec format error"
AS_ROOT = "container has runAsNonRoot and image will run as root"
NO_MODULE = "python: No module named rljob_runtime"


def failure(
    container: str = "ray-head", code: int | None = 1, reason: str = "Error", said: str = "no disk"
) -> ContainerFailure:
    return ContainerFailure(
        role="head",
        container=container,
        exit_code=code,
        reason=reason,
        message=said,
        count=3,
        time=times.to_text(at(0)),
    )


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (failure(code=255, said=OTHER_CPU), "the image is built for another CPU"),
        (failure(code=137, reason="OOMKilled"), "raise the memory"),
        (
            failure(code=None, reason="ErrImageNeverPull"),
            "correct the name of the image or spec.runtime.imagePullPolicy",
        ),
        (failure(code=127), "spec.runtime.image needs bash, Python, Ray and rljob-runtime"),
        (failure("warm", 127), "correct the image or the command of the container"),
        (failure("exporter", said=NO_MODULE), "with spec.runtime.injection Auto, it needs no rljob-runtime"),
        (failure("fetch-code", 64), "correct spec.code.git"),
        (failure("rljob-packages"), "correct the image, or spec.runtime.packages"),
        (failure(), "correct the image, or the command"),
        (failure(code=None, reason="CreateContainerConfigError", said=AS_ROOT), "runAsUser with another user than 0"),
    ],
)
def test_in_the_image_of_the_job_the_advice_names_what_to_correct(found: ContainerFailure, words: str) -> None:
    assert words in advice(found)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (failure("rljob-runtime"), "must be that of this release"),
        (failure("exporter", said=NO_MODULE), "must be that of this release"),
        (failure("rljob-runtime", 255, said=OTHER_CPU), "is built for another CPU architecture than that of the node"),
        (failure("exporter", None, "InvalidImageName"), "or spec.runtime.imagePullPolicy"),
    ],
)
def test_of_helpers_of_an_injected_runtime_it_names_the_operators_image(found: ContainerFailure, words: str) -> None:
    said = advice(found, OPERATOR)
    assert words in said
    assert f"the operator's image {OPERATOR}" in said
    assert "--runtime-image" in said
    assert "spec.runtime.image " not in said


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (failure(code=127), "spec.runtime.image needs bash, Python and Ray"),
        (failure("wait-gcs-ready", code=127), "spec.runtime.image needs bash, Python and Ray"),
        (failure("warm", 127), "correct the image or the command of the container"),
        (failure("fetch-code", 64), "correct spec.code.git"),
        (failure("exporter", 137, "OOMKilled"), "raise the memory"),
    ],
)
def test_an_injected_runtime_explains_no_other_failure(found: ContainerFailure, words: str) -> None:
    assert words in advice(found, OPERATOR)
    assert OPERATOR not in advice(found, OPERATOR)


def pod_that_cannot_pull(container: str) -> Json:
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    return {
        "metadata": {"name": "head"},
        "status": {"initContainerStatuses": [{"name": container, "state": {"waiting": waiting}}]},
    }


@pytest.mark.parametrize("container", sorted(HELPERS))
def test_a_helper_whose_image_cannot_be_pulled_names_the_operators_image(container: str) -> None:
    found = diagnose([pod_that_cannot_pull(container)], injected_image=OPERATOR)
    assert f"container {container} runs the operator's image {OPERATOR}, not spec.runtime.image" in found.message
    assert "spec.runtime.imagePullSecrets" in found.message


@pytest.mark.parametrize(("container", "injected"), [("ray-head", OPERATOR), ("exporter", None)])
def test_an_image_of_the_job_that_cannot_be_pulled_is_not_the_operators(container: str, injected: str | None) -> None:
    assert pull_advice(container, injected) == ""
    assert diagnose([pod_that_cannot_pull(container)], injected_image=injected).message.endswith("pulling image")


def test_the_cluster_says_whose_runtime_it_has() -> None:
    assert injected_image(cluster(annotations={labels.RUNTIME_IMAGE: OPERATOR})) == OPERATOR
    assert injected_image(cluster(annotations={})) is None
    assert injected_image(None) is None
