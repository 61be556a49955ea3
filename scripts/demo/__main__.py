"""The steps of the demo: build, cluster, operator, job, result. `make demo` runs it.

DEMO_CLUSTER=existing uses the cluster of the current kubeconfig, where KubeRay must run and the two images must be
pullable (DEMO_OPERATOR_IMAGE, DEMO_RUNTIME_IMAGE). The cluster is kept; a second run builds and imports nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import yaml

from rljob.cli import kubectl
from rljob.cli.curve import plot
from rljob.cli.errors import UsageError
from rljob.cli.report.cluster import Sources, cluster_run
from rljob.cli.report.write_report import write_report
from rljob.cli.status import describe, table
from rljob.launchers import LAUNCHER
from rljob.reading.records import figure_table, figures
from rljob.render.accelerators import BUILT_IN
from scripts import product
from scripts.demo import operator
from scripts.demo.commands import ROOT, Kubernetes, Manifest, capture, cluster
from scripts.demo.errors import DemoError
from scripts.demo.follow import Patience, follow

QUICKSTART = ROOT / "examples" / "quickstart.yaml"
REPORT = ROOT / "build" / "report.html"
NAME, NAMESPACE = "quickstart", "default"
BUILD_SECONDS = 3600
UP_SECONDS = 900


@contextmanager
def chapter(title: str) -> Iterator[None]:
    """Print the heading of a part, and its duration at the end."""
    print(f"== {title}", flush=True)
    started = time.monotonic()
    yield
    print(f"   done in {time.monotonic() - started:.0f} s\n", flush=True)


def main() -> int:
    """Run the demo; exit code 1 if a part fails."""
    try:
        kubernetes = existing_cluster() if os.environ.get("DEMO_CLUSTER") == "existing" else local_cluster()
        train(kubernetes)
        show_result(kubernetes)
    except (DemoError, UsageError) as error:
        print(f"\ndemo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; the cluster and the job are left unchanged", file=sys.stderr)
        return 130
    return 0


def local_cluster() -> Kubernetes:
    """Build what is missing, start the local Kubernetes and install the operator there."""
    # Images do not need the programs, so both are built concurrently, and the cluster starts meanwhile.
    with ThreadPoolExecutor(max_workers=1) as pool:
        images = pool.submit(build_images)
        with chapter(
            "compile the programs of the local Kubernetes, and build the images in the background (both are cached)"
        ):
            cluster("build", seconds=BUILD_SECONDS)
        with chapter("start the local Kubernetes with KubeRay and fake NPUs"):
            cluster("up", seconds=UP_SECONDS)
        with chapter("import the images into the node"):
            images.result()
            cluster("image", "load", seconds=BUILD_SECONDS)
    kubernetes = product.local_kubernetes()
    with chapter("install the operator with its Helm chart"):
        product.install(kubernetes)
    return kubernetes


def build_images() -> None:
    """Build the images of operator and runtime, unless identical ones are in the cache."""
    for name in ("operator", "runtime-cpu"):
        cluster("image", "build", name, seconds=BUILD_SECONDS)


def existing_cluster() -> Kubernetes:
    """Install the operator into the cluster of the current kubeconfig."""
    kubernetes = Kubernetes(None)
    context = kubernetes.run("config", "current-context").strip()
    if kubernetes.get("crd", "rayclusters.ray.io") is None:
        raise DemoError(f"the cluster of context {context} has no KubeRay; install it first (kuberay-operator >= 1.6)")
    with chapter(f"install the operator into the cluster of context {context}"):
        image = os.environ.get("DEMO_OPERATOR_IMAGE", "rljob.local/operator:dev")
        operator.install(kubernetes, operator.helm_of_path(), image, "")
    return kubernetes


def train(kubernetes: Kubernetes) -> None:
    """Run the quickstart to its end. Raise DemoError with the reason if it does not succeed."""
    with chapter(f"run {QUICKSTART.relative_to(ROOT)}"):
        apply_anew(kubernetes)
        job = follow(kubernetes, NAMESPACE, NAME, Patience())
    if job["status"]["state"] != "Succeeded":
        print(describe(job))
        raise DemoError(failure(job, kubernetes))


def apply_anew(kubernetes: Kubernetes) -> None:
    """Delete an earlier quickstart job, keep its volume, and apply the manifest."""
    words = ("--namespace", NAMESPACE, "--ignore-not-found", "--wait", "--timeout", "120s")
    kubernetes.run("delete", "rljob", NAME, *words, timeout_seconds=150)
    documents: list[Manifest] = list(yaml.safe_load_all(QUICKSTART.read_text()))
    for document in documents:
        if document["kind"] == "RLJob" and "DEMO_RUNTIME_IMAGE" in os.environ:
            document["spec"]["runtime"]["image"] = os.environ["DEMO_RUNTIME_IMAGE"]
    # As JSON, because PyYAML writes the string "1e-3" without quotes, which kubectl reads as a number.
    text = "\n---\n".join(json.dumps(document) for document in documents)
    print(kubernetes.run("apply", "--namespace", NAMESPACE, "--filename", "-", text=text), end="", flush=True)


def failure(job: Manifest, kubernetes: Kubernetes) -> str:
    """Return the reason of the failure, and how to investigate it."""
    status = job["status"]
    export = f"export KUBECONFIG={kubernetes.kubeconfig}; " if kubernetes.kubeconfig else ""
    return (
        f"the job ended {status['state']}: {status.get('reason', '')}: {status.get('message', '')}\nto "
        f"investigate:\n  {export}kubectl describe rljob {NAME}\n  kubectl get pods --selector "
        f"rljob.dev/job={NAME}\n  kubectl -n {operator.NAMESPACE} logs deployment/{operator.RELEASE}"
    )


def show_result(kubernetes: Kubernetes) -> None:
    """Print the reward curve, the metrics, the report, and commands for further exploration."""
    place = kubectl.Place(NAMESPACE, kubeconfig=kubernetes.kubeconfig, program=kubernetes.kubectl)
    run = cluster_run(NAME, place, Sources(), LAUNCHER, BUILT_IN, "report")
    steps = figures(run.records)
    if not steps:
        raise DemoError("the job succeeded but left no step records; this is a bug")
    print(plot([step.reward for step in steps], title="reward (mean score per step) over steps"), end="\n\n")
    print(table(figure_table(steps)), end="\n\n")
    wide = ("get", "rljobs", "--namespace", NAMESPACE)
    print(capture((kubernetes.kubectl, *wide), environment=kubernetes.environment), end="\n")
    print(f"open the report in a browser: {write_report(run, REPORT)}\n")
    print("look around:")
    if kubernetes.kubeconfig:
        print(f"  export KUBECONFIG={kubernetes.kubeconfig}")
    print("  kubectl get rljobs --output wide")
    print("  .venv/bin/rljob status quickstart")
    print("  .venv/bin/rljob top --all-namespaces")
    print("  kubectl get rljob quickstart --output yaml")
    print(f"  kubectl --namespace {operator.NAMESPACE} logs deployment/{operator.RELEASE}")
    print("  .venv/bin/rljob render --file examples/quickstart.yaml")
    if kubernetes.kubeconfig:
        print("  make cluster-down")


if __name__ == "__main__":
    sys.exit(main())
