"""Create the pod of a check, wait for its end, read what it printed, and delete it, whatever happened.

Every wait has a deadline. A problem that does not end by itself within PATIENCE_SECONDS ends the wait.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.core.attempts.start_diagnosis import PROBLEMS, Diagnosis, StartReason, diagnose
from rljob.core.observed import Manifest
from rljob.render import injection
from rljob.render.image_check import CONTAINER, ImageCheck, build_pod

POLL_SECONDS = 2.0
PATIENCE_SECONDS = 45.0
"""How long a problem may last: an autoscaler, a registry or a free node can end it."""
UNANSWERED_MAX = 5
"""Consecutive polls that kubectl may fail."""
NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
"""Reasons of containerd and cri-o, as core/attempts/container_failures.py."""
LOG_BYTES = 1_000_000
LAST_LINES = 5
PROGRESS = re.compile(r"^rljob: (importing [\w.]+ \(\d+ of \d+\))$", re.MULTILINE)
"""rljob_runtime.image_check.deep.run. An image may print anything else."""


@dataclass(frozen=True)
class Clock:
    """Time, which tests replace."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Ended:
    """How the container ended."""

    exit_code: int
    message: str
    """Of the kubelet, if the container could not start."""
    log: str
    node: str


def run_check(check: ImageCheck, name: str, place: kubectl.Place, clock: Clock) -> Ended:
    """Run the pod and return how its container ended. Raise UsageError if that cannot be learned."""
    with deleted_at_the_end(name, check, place) as made:
        kubectl.create(build_pod(check, name), place)
        made.append(name)
        say(f"checking {check.image} in pod {name}, without a device")
        pod = _wait(name, check, place, clock)
        status = _state(pod)
        log = ""
        # A container that could not start has no log.
        if status.get("reason") not in NOT_STARTED:
            words = ["logs", name, "--container", CONTAINER, f"--limit-bytes={LOG_BYTES}"]
            log = kubectl.run(words, place)
        node = str((pod.get("spec") or {}).get("nodeName", ""))
        return Ended(int(status["exitCode"]), " ".join(str(status.get("message") or "").split()), log, node)


@contextmanager
def deleted_at_the_end(name: str, check: ImageCheck, place: kubectl.Place) -> Iterator[list[str]]:
    """Delete the pod at the end, also after an interruption. Yield a list for its name once it has been created."""
    before, made = signal.signal(signal.SIGTERM, _interrupt), list[str]()
    try:
        yield made
    finally:
        # A second Ctrl-C must not leave the pod behind.
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            kubectl.run(["delete", "pod", name, "--ignore-not-found", "--wait=false"], place)
        except UsageError as error:
            # A creation that was refused has said so. One that was not answered may still have made the pod.
            if made:
                ends = f"it ends by itself within {check.seconds} s: delete it then"
                say(f"pod {name} could not be deleted ({error}); {ends}")
        finally:
            signal.signal(signal.SIGINT, handlers[signal.SIGINT])
            signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: object) -> None:
    del number, frame
    raise KeyboardInterrupt


def say(text: str) -> None:
    """Print a line of progress. Standard output is for the result."""
    print(f"rljob: {text}", file=sys.stderr, flush=True)


def _wait(name: str, check: ImageCheck, place: kubectl.Place, clock: Clock) -> Manifest:
    """Return the pod when its container has ended."""
    deadline = clock.now() + check.seconds
    problem_since, unanswered, announced = None, 0, ""
    while True:
        try:
            pod = kubectl.get_pod(name, place)
        except kubectl.NotFoundError as error:
            raise UsageError(f"pod {name} was deleted before it ended; run the command again") from error
        except UsageError:
            unanswered += 1
            if unanswered > UNANSWERED_MAX:
                raise
            clock.sleep(POLL_SECONDS)
            continue
        unanswered = 0
        if "exitCode" in _state(pod):
            return pod
        found = _diagnose(pod, check, place)
        if (pod.get("status") or {}).get("phase") == "Failed":
            raise UsageError(_failure(pod, found, check))
        # A pull alternates between two messages.
        subject = found.reason if found.reason in PROBLEMS else found.message
        if subject != announced:
            announced = subject
            say(found.message)
        problem_since = (problem_since or clock.now()) if found.reason in PROBLEMS else None
        if problem_since is not None and clock.now() - problem_since >= PATIENCE_SECONDS:
            raise UsageError(_explained(found, check))
        if clock.now() >= deadline:
            raise UsageError(_late(found, check))
        clock.sleep(POLL_SECONDS)


def _diagnose(pod: Manifest, check: ImageCheck, place: kubectl.Place) -> Diagnosis:
    """Return what the pod waits for, or what the check in it does."""
    found = diagnose([pod])
    if not check.deep or found.reason in PROBLEMS:
        return found
    return replace(found, message=_progress(pod, place) or found.message)


def _progress(pod: Manifest, place: kubectl.Place) -> str:
    """Return what the running check imports at the moment, as it prints it; empty if it has not begun."""
    if (pod.get("status") or {}).get("phase") != "Running":
        return ""
    try:
        words = ["logs", pod["metadata"]["name"], "--container", CONTAINER, "--tail=20", f"--limit-bytes={LOG_BYTES}"]
        lines = PROGRESS.findall(kubectl.run(words, place))
    except UsageError:
        return ""
    return str(lines[-1]) if lines else ""


def _state(pod: Manifest) -> Manifest:
    """Return how the container ended; empty if it has not."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status["name"] == CONTAINER:
            ended: Manifest = (status.get("state") or {}).get("terminated") or {}
            # The kubelet reports containers of a pod that it ends so before they have run.
            return {} if ended.get("reason") == "ContainerStatusUnknown" else ended
    return {}


def _failure(pod: Manifest, found: Diagnosis, check: ImageCheck) -> str:
    status = pod["status"]
    if status.get("reason") == "DeadlineExceeded":
        return _late(found, check)
    if found.reason in PROBLEMS:
        return _explained(found, check)
    return f"the pod failed: {status.get('reason', 'no reason')}: {status.get('message', 'no message')}; try again"


def _late(found: Diagnosis, check: ImageCheck) -> str:
    if found.reason in PROBLEMS:
        return _explained(found, check)
    return f"the check did not end within {check.seconds} s: {found.message}; allow more with --timeout"


def _explained(found: Diagnosis, check: ImageCheck) -> str:
    """Return a problem of the pod with what to do about it."""
    of_runtime = found.container == injection.CONTAINER
    image = check.runtime_image if of_runtime else check.image
    if found.reason is StartReason.IMAGE_PULL_FAILED:
        fix = (
            "it is the operator's image: pass a Secret for its registry with --image-pull-secret, or another copy with "
            "--runtime-image"
            if of_runtime
            else "check its name, and pass a Secret for a private registry with --image-pull-secret"
        )
        return f"{image} cannot be pulled: {found.message}; {fix}"
    if found.reason is StartReason.POD_UNSCHEDULABLE:
        fix = "choose another class with --class" if check.accelerator else "free a node, or name a class with --class"
        return f"no node takes the pod: {found.message}; the check needs no device: {fix}"
    if found.reason is StartReason.CONTAINER_FAILED and of_runtime:
        return f"the runtime cannot be copied from {image}: {found.message}; pass the operator's image of this release"
    return f"the pod cannot run: {found.message}; check the rules of the namespace, or use another one with -n"
