"""Compare the start of a job with and without an injected runtime: `python -m benchmarks.injection_start`.

Both arms run the contract driver on the local cluster, alternately: one in an image that contains the runtime
(`runtime.injection: Never`), one in the same image without it (`Auto`). Printed is the time from the creation of the
job until Ray's container in the worker has started, and until the driver is submitted, polled every 0.05 s.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

from tests.e2e import recorded_run, runs
from tests.e2e.conftest import cluster
from tests.e2e.test_own_runtime import IMAGE as OWN_IMAGE
from tests.kube import Kube

NAMESPACE = "rljob-benchmark"
POLL_SECONDS = 0.05
LIMIT_SECONDS = 180
ARMS = {
    "in the image": {"image": OWN_IMAGE, "injection": "Never"},
    "injected": {"image": runs.CONTRACT_IMAGE, "injection": "Auto"},
}


@dataclass(frozen=True)
class Start:
    """Seconds from the creation of a job."""

    container: float
    """Ray's container in the worker has started."""
    submitted: float
    """The driver is submitted."""


def measure(kube: Kube, arm: str, number: int) -> Start:
    """Start one job and delete it."""
    name = f"start-{number}"
    job = runs.variant(name, runtime=ARMS[arm], trainer__steps=1000, observability={})
    for template in (job["spec"]["head"]["template"], job["spec"]["workerGroups"][0]["template"]):
        template.pop("volumes", None)
        template.pop("volumeMounts", None)
    begin = time.monotonic()
    kube.apply(job)
    container, submitted = None, None
    while submitted is None:
        if time.monotonic() - begin > LIMIT_SECONDS:
            raise SystemExit(f"{arm}: the driver was not submitted within {LIMIT_SECONDS} s")
        time.sleep(POLL_SECONDS)
        status = (kube.get("rljob", name) or {}).get("status", {})
        if status.get("state") in recorded_run.ENDED:
            raise SystemExit(f"{arm}: the job is {status['state']}: {status.get('message')}")
        workers = kube.find("pods", f"rljob.dev/job={name},ray.io/node-type=worker") if container is None else []
        states = [state for pod in workers for state in pod.get("status", {}).get("containerStatuses", ())]
        if any(state["name"] == "ray-worker" and "running" in state["state"] for state in states):
            container = time.monotonic() - begin
        if status.get("attempts"):
            submitted = time.monotonic() - begin
    kube.delete("rljob", name)
    return Start(container or submitted, submitted)


def main() -> int:
    """Run both arms alternately and print the medians."""
    parser = argparse.ArgumentParser(prog="benchmarks.injection_start", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", type=int, default=5, help="of each arm; default: 5")
    starts = parser.parse_args().starts
    admin = Kube(f"{cluster('path', 'kube')}/kubectl", cluster("kubeconfig"), "default")
    kube = admin.in_namespace(NAMESPACE)
    admin.run("create", "namespace", NAMESPACE)
    try:
        found: dict[str, list[Start]] = {arm: [] for arm in ARMS}
        for number in range(2 * starts):
            arm = list(ARMS)[number % 2]
            found[arm].append(measure(kube, arm, number))
            print(f"{arm}: {found[arm][-1]}", flush=True)
        for arm, measured in found.items():
            container = statistics.median(start.container for start in measured)
            submitted = statistics.median(start.submitted for start in measured)
            print(f"{arm}: median container {container:.2f} s, submitted {submitted:.2f} s")
    finally:
        admin.delete("namespace", NAMESPACE, wait=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
