"""`rljob doctor`: what each check makes of the facts. tests/e2e/test_commands.py runs it on the local cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rljob.cli import doctor, kubectl
from rljob.cli.doctor import Mark
from rljob.cli.installation import Installed
from rljob.cli.verbs.doctor import KUBERAY, installed

NPU = "huawei.com/Ascend910"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        (["16", "1k", "0"], f"1016 {NPU} on 2 nodes, 1000 at most on one"),
        ([None, 8], f"8 {NPU} on 1 node"),
        (["0"], f"no node offers {NPU}"),
    ],
)
def test_devices_are_counted_for_each_node(counts: list[object], told: str) -> None:
    found = doctor.devices([{NPU: count} for count in counts], [NPU, NPU])
    assert (found.message, found.mark is Mark.OK) == (told, not told.startswith("no node"))
    assert doctor.devices(None, [NPU]).mark is Mark.UNKNOWN


@pytest.mark.parametrize(
    ("client", "server", "mark"),
    [
        ("v1.36.2", "v1.35.9", Mark.OK),
        ("v1.36.2", "v1.34.0+k3s1", Mark.NOTE),
        ("v1.36.2", "nightly", Mark.UNKNOWN),
    ],
)
def test_kubectl_fits_one_minor_version_on_each_side(client: str, server: str, mark: Mark) -> None:
    assert doctor.versions(client, server).mark is mark


@pytest.mark.parametrize(
    ("machine", "nodes", "mark", "told"),
    [
        (5, (0, 12), Mark.OK, "2 nodes within 40 s"),
        (90, (0, 5), Mark.FAILED, "this machine is 90 s ahead of all nodes"),
        (-90, (0, 5), Mark.FAILED, "this machine is 90 s behind all nodes"),
        (5, (0, 61), Mark.FAILED, "n1 renewed its Lease more than 40 s ago"),
    ],
)
def test_clocks_are_compared_by_leases(machine: int, nodes: tuple[int, ...], mark: Mark, told: str) -> None:
    renewed = {f"n{number}": NOW - timedelta(seconds=late) for number, late in enumerate(nodes)}
    found = doctor.clocks(renewed, NOW + timedelta(seconds=machine))
    assert (found.mark, found.message) == (mark, told)
    assert doctor.clocks({}, NOW).mark is Mark.UNKNOWN


def test_a_controller_without_a_ready_replica_fails() -> None:
    def judged(*found: Installed, kinds: tuple[str, ...] = ("rayclusters.ray.io",)) -> tuple[Mark, str]:
        seen = doctor.controller("KubeRay", kinds, found, is_needed=True, absent="no RayCluster is served")
        return seen.mark, seen.message

    ready = Installed("ray", "kuberay", "v1.6.2", "kuberay/operator:v1.6.2", 1, 1)
    assert judged(ready) == (Mark.OK, "ray/kuberay v1.6.2")
    stopped = Installed("ray", "kuberay", "v1.6.2", "kuberay/operator:v1.6.2", 0, 1)
    assert judged(stopped) == (Mark.FAILED, "its controller is installed, and no replica is ready")
    assert judged() == (Mark.OK, "1 kinds served; its controller is not visible")
    assert judged(kinds=()) == (Mark.FAILED, "no RayCluster is served")


@pytest.mark.parametrize("label", KUBERAY)
def test_kuberay_is_found_by_the_labels_of_each_of_its_installations(label: str, kubectl: Path) -> None:
    deployment = {
        "metadata": {"name": "kuberay-operator", "namespace": "ray"},
        "spec": {"template": {"spec": {"containers": [{"image": "kuberay/operator:v1.6.2"}]}}},
        "status": {"readyReplicas": 1},
    }
    (kubectl / "one").write_text(json.dumps({"items": [deployment]}))
    (kubectl / "none").write_text(json.dumps({"items": []}))
    script = f'#!/bin/sh\ncd "$(dirname "$0")"\ncase "$*" in *{label}*) cat one;; *) cat none;; esac\n'
    (kubectl / "kubectl").write_text(script)
    assert installed(KUBERAY, PLACE) == [
        Installed("ray", "kuberay-operator", "unknown", "kuberay/operator:v1.6.2", 1, 1)
    ]
    assert installed(("app=none",), PLACE) == []


PLACE = kubectl.Place()
