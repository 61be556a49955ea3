"""Check the image in a pod of its own: `check-image` of the runtime that the operator's image brings.

The pod needs no device. It gets the runtime as the pods of a job do, so the image need not have one. `Run` deletes it
with everything else that carries the label of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rljob.cli import kubectl
from rljob.cli.check_image import result
from rljob.cli.check_image.follow import LOG_BYTES, Ended
from rljob.cli.conformance.clock import POLL_SECONDS, Clock, Trouble
from rljob.cli.conformance.facts import ConformancePlan, ImageFacts
from rljob.cli.conformance.manifests import LABEL
from rljob.cli.errors import UsageError
from rljob.core.attempts.start_diagnosis import PROBLEMS, diagnose
from rljob.core.observed import Manifest
from rljob.render import labels
from rljob.render.image_check import ImageCheck, build_pod

CHECK = "check-image"
SECONDS = 900.0
"""Deadline: the image is pulled here for the first time."""
USER = 65532
"""Of both containers, as `rljob check-image` has it by default."""
ENDED = ("Succeeded", "Failed")
REASONS_MAX = 3
"""Reasons in the table; the report has all."""
LAST_CHARACTERS = 600
NODES_MAX = 50


def check_image(
    plan: ConformancePlan,
    operator_image: str,
    nodes: Sequence[str],
    place: kubectl.Place,
    clock: Clock,
    launcher: str = "Verl",
) -> ImageFacts:
    """Return the verdict about the image for jobs of a launcher. Raise UsageError if the pod cannot be created."""
    try:
        kubectl.create(pod_manifest(plan, operator_image, nodes), place)
    except UsageError as error:
        # A quota or an admission policy refuses the pod in the same words, and would refuse those of the job.
        if "cannot create resource" in str(error):
            return ImageFacts(skipped="you may not create pods; the job reports what its image lacks")
        raise
    state, problem = _wait(plan, place, clock)
    if problem:
        return ImageFacts("refused", problem)
    log = kubectl.run(["logs", pod_name(plan), "--container", CHECK, f"--limit-bytes={LOG_BYTES}"], place)
    ended = Ended(int(state["exitCode"]), str(state.get("message") or ""), log, node="")
    if (document := result.start_problem(ended, USER)) is not None:
        return _of_launcher(document, launcher)
    return read_answer(log, launcher, plan.accelerator if plan.is_npu else None)


def pod_name(plan: ConformancePlan) -> str:
    """Return the name of the pod."""
    return f"{plan.name}-image"


def pod_manifest(plan: ConformancePlan, operator_image: str, nodes: Sequence[str]) -> Manifest:
    """Return the pod. It runs on one of the nodes: others may have another CPU architecture."""
    check = ImageCheck(plan.image, operator_image, int(SECONDS), USER, plan.pull_secrets)
    spec: dict[str, Any] = build_pod(check, pod_name(plan))["spec"]
    spec["containers"][0]["name"] = CHECK
    if plan.is_npu:
        # As render/image_check.py does for a class: the pod requests no device, so nothing else tolerates the taint.
        spec["tolerations"] = [{"key": plan.resource, "operator": "Exists"}]
    if plan.node is not None:
        spec["nodeSelector"] = {labels.HOSTNAME: plan.node}
    if nodes:
        # The terms are alternatives, and a requirement on a field takes one value (kubernetes v1.36.2,
        # pkg/apis/core/validation/validation.go, ValidateNodeFieldSelectorRequirement).
        fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in nodes[:NODES_MAX]]
        required = {"nodeSelectorTerms": [{"matchFields": [one]} for one in fields]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    metadata = {"name": pod_name(plan), "labels": {LABEL: plan.run}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _wait(plan: ConformancePlan, place: kubectl.Place, clock: Clock) -> tuple[Mapping[str, Any], str]:
    """Wait until the check has ended. Return how its container ended, or why the check could not be made."""
    begin, trouble = clock.now(), Trouble()
    while True:
        pod = kubectl.get_pod(pod_name(plan), place)
        if (state := _ended(pod)) is not None:
            return state, ""
        now, found = clock.now(), diagnose([pod])
        ended = (pod.get("status") or {}).get("phase") in ENDED
        trouble = trouble.next(now, troubled=found.reason in PROBLEMS)
        if ended or trouble.lasts(clock):
            return {}, found.message
        if now - begin >= SECONDS:
            return {}, f"{found.message} (after {now - begin:.0f} s)"
        clock.sleep(POLL_SECONDS)


def _ended(pod: Manifest) -> Mapping[str, Any] | None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    states = (status.get("state", {}).get("terminated") or {} for status in statuses)
    return next((state for state in states if "exitCode" in state), None)


def read_answer(text: str, launcher: str, npu_class: str | None = None) -> ImageFacts:
    """Return the verdict in the output of `check-image -o json`, for nodes of a class with NPUs if one is named."""
    document = result.find(text)
    if document is None:
        end = " ".join(text.split())[-LAST_CHARACTERS:]
        return ImageFacts("refused", f"the runtime cannot be started in the image: {end or 'no output'}")
    if npu_class is not None:
        result.require_npu_image(document, npu_class)
    return _of_launcher(document, launcher)


def _of_launcher(document: result.Document, launcher: str) -> ImageFacts:
    found = document["launchers"][launcher]
    verdict, headline, reasons = found["verdict"], found["headline"], found["reasons"]
    more = f" and {len(reasons) - REASONS_MAX} more" if len(reasons) > REASONS_MAX else ""
    shown = f"{headline}: {'; '.join(reasons[:REASONS_MAX])}{more}" if reasons else headline
    return ImageFacts(verdict, shown, tuple(reasons))
