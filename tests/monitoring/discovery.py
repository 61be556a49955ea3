"""Pods as targets of a Prometheus that was built without Kubernetes, as Debian's is.

Only `kubernetes_sd_configs` of the chart's scrape configuration is replaced: the pods are listed here with the same
selectors, and passed on by `file_sd_configs` with the labels of Prometheus' own pod discovery
(https://prometheus.io/docs/prometheus/latest/configuration/configuration/#pod). The configuration itself relabels and
filters them.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.errors import ClusterError

Manifest = dict[str, Any]
META = "__meta_kubernetes_"
SECONDS = 1.0


def scrape_jobs(config: Path, folder: Path) -> list[Manifest]:
    """Return the scrape jobs of a configuration, each with its targets in a file of the folder."""
    jobs = _jobs(config)
    for job in jobs:
        del job["kubernetes_sd_configs"]
        job["file_sd_configs"] = [{"files": [str(_file(folder, job))], "refresh_interval": "5s"}]
    return jobs


@contextmanager
def discovering(config: Path, folder: Path, list_pods: Callable[[], Sequence[Manifest]]) -> Iterator[None]:
    """Keep the files of targets up to date during the block."""
    over, jobs = threading.Event(), _jobs(config)
    folder.mkdir(parents=True, exist_ok=True)

    def look() -> None:
        pods = list_pods()
        for job in jobs:
            _write(_file(folder, job), targets(job, pods))

    def go_on() -> None:
        while not over.wait(SECONDS):
            try:
                look()
            except (OSError, ClusterError) as error:
                print(f"pods were not listed, targets stay as they are: {error}")

    look()
    thread = threading.Thread(target=go_on, name="discovery")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def targets(job: Manifest, pods: Sequence[Manifest]) -> list[Manifest]:
    """Return the targets of a job: every declared port of every container of the selected pods."""
    (discovery,) = job["kubernetes_sd_configs"]
    assert discovery["role"] == "pod"
    (selector,) = discovery["selectors"]
    assert selector["role"] == "pod"
    spaces = discovery.get("namespaces", {}).get("names", ())
    chosen = [
        pod
        for pod in pods
        if _matches(pod["metadata"].get("labels", {}), selector["label"])
        and (not spaces or pod["metadata"]["namespace"] in spaces)
    ]
    return [target for pod in chosen if pod.get("status", {}).get("podIP") for target in _of_pod(pod)]


def _of_pod(pod: Manifest) -> Iterator[Manifest]:
    metadata, address = pod["metadata"], pod["status"]["podIP"]
    about = {
        "namespace": metadata["namespace"],
        "pod_name": metadata["name"],
        "pod_ip": address,
        "pod_phase": pod["status"]["phase"],
        "pod_node_name": pod["spec"].get("nodeName", ""),
        "pod_host_ip": pod["status"].get("hostIP", ""),
        "pod_uid": metadata["uid"],
    }
    about |= {f"pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', key)}": value for key, value in metadata["labels"].items()}
    for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
        name = {"pod_container_name": container["name"]}
        for port in container.get("ports", ()):
            labels = (
                about
                | name
                | {
                    "pod_container_port_name": port.get("name", ""),
                    "pod_container_port_number": str(port["containerPort"]),
                    "pod_container_port_protocol": port.get("protocol", "TCP"),
                }
            )
            yield _target(f"{address}:{port['containerPort']}", labels)
        if not container.get("ports"):
            yield _target(address, about | name)


def _target(address: str, labels: Mapping[str, str]) -> Manifest:
    return {"targets": [address], "labels": {f"{META}{name}": value for name, value in labels.items()}}


def _matches(labels: Mapping[str, str], selector: str) -> bool:
    """Return whether a pod has the labels: `key` or `key=value`, separated by commas."""
    wanted = [part.partition("=") for part in selector.split(",")]
    return all(key in labels and (not sign or labels[key] == value) for key, sign, value in wanted)


def _jobs(config: Path) -> list[Manifest]:
    jobs: list[Manifest] = yaml.safe_load(config.read_text())["scrape_configs"]
    return jobs


def _file(folder: Path, job: Manifest) -> Path:
    return folder / f"targets-{job['job_name']}.json"


def _write(path: Path, groups: list[Manifest]) -> None:
    """Replace the file if its content differs; Prometheus reads it when it changes."""
    text = json.dumps(groups, indent=1)
    if not path.exists() or path.read_text() != text:
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)
