"""`rljob doctor`: what each check makes of the facts. tests/e2e/test_commands.py runs it on the local cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from builders import Json

from rljob.cli import doctor, kubectl
from rljob.cli.doctor import KUBERAY, Mark, installed
from rljob.cli.installation import Installed
from rljob.core.scheduling.discovery import NodeFacts
from rljob.core.scheduling.pod_room import Offer
from rljob.render.accelerator_table import AcceleratorTable, read_table
from rljob.render.accelerators import BUILT_IN, built_in_document
from rljob.render.podgroup import NEWEST_FIELDS, TOPOLOGY

NPU = "huawei.com/Ascend910"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


A3 = {"servertype": "Ascend910A3-20"}


@pytest.mark.parametrize(
    ("nodes", "message", "mark"),
    [
        (
            [({}, 16), ({}, 8), ({}, 0)],
            "24 @ on 2 nodes, 16 at most on one; no whole node has the labels of",
            Mark.NOTE,
        ),
        ([({}, 0), (A3, 16)], "16 @ on 1 node; whole nodes of class atlas-a3", Mark.OK),
        ([({}, 0)], "no node offers huawei.com/Ascend910 or huawei.com/ascend-1980", Mark.NOTE),
    ],
)
def test_devices_are_counted_for_each_node_and_classes_named(
    nodes: list[tuple[dict[str, str], int]], message: str, mark: Mark
) -> None:
    found = doctor.devices([NodeFacts(labels, {NPU: count}) for labels, count in nodes], BUILT_IN)
    assert found.message.startswith(message.replace("@", NPU))
    assert found.mark is mark
    assert doctor.devices(None, BUILT_IN).mark is Mark.UNKNOWN


def test_a_worker_of_the_default_size_that_fits_no_node_is_noted() -> None:
    small = NodeFacts(A3, {NPU: 16}, offer=Offer(cpu=Fraction(192), memory=Fraction(1000 * 2**30)))
    found = doctor.devices([small], BUILT_IN)
    assert found.mark is Mark.NOTE
    assert "no node of class atlas-a3 has the 304 CPUs and 1400Gi that a worker requests; the largest" in found.message


SCHEDULER = Installed("volcano-system", "volcano-scheduler", "unknown", "volcanosh/vc-scheduler:v1.14.1", 1, 1)
RAY = Installed("ray", "kuberay", "v1.6.2", "kuberay/operator:v1.6.2", 1, 1)


@pytest.mark.parametrize(
    ("image", "fields", "mark", "words"),
    [
        ("v1.14.1", NEWEST_FIELDS, Mark.OK, "volcano-system/volcano-scheduler v1.14.1"),
        ("v1.14.1", None, Mark.OK, "volcano-system/volcano-scheduler v1.14.1"),
        (
            "v1.9.0-v26.1.0",
            frozenset(),
            Mark.NOTE,
            "MindCluster builds its plug-in for 1.9, and this project tests 1.14",
        ),
        ("v1.9.0-v26.1.0", frozenset(), Mark.NOTE, "PodGroups have no networkTopology (Volcano 1.11)"),
        ("v1.13.0", frozenset({TOPOLOGY}), Mark.NOTE, "1.13 is not tested: 1.14.1 is"),
        ("v1.13.0", frozenset({TOPOLOGY}), Mark.NOTE, "level must be the number of a tier"),
        ("latest", NEWEST_FIELDS, Mark.NOTE, "its image does not name a release"),
    ],
)
def test_a_volcano_is_compared_with_what_is_tested(
    image: str, fields: frozenset[str] | None, mark: Mark, words: str
) -> None:
    found = doctor.volcano([replace(SCHEDULER, image=f"volcanosh/vc-scheduler:{image}")], fields, [RAY])
    assert found.mark is mark
    assert words in found.message


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--batch-scheduler=volcano",), "--batch-scheduler=volcano"),
        (("-batch-scheduler", "yunikorn", "--x"), "-batch-scheduler=yunikorn"),
        (("--enable-batch-scheduler",), "--enable-batch-scheduler"),
        (("--enable-batch-scheduler=true",), "--enable-batch-scheduler=true"),
        (("--enable-batch-scheduler=false", "--batch-scheduler=", "--batch-scheduler", "--x"), None),
        ((), None),
    ],
)
def test_a_kuberay_that_schedules_by_itself_takes_the_pods_of_our_groups(
    arguments: tuple[str, ...], told: str | None
) -> None:
    found = doctor.volcano([SCHEDULER], NEWEST_FIELDS, [replace(RAY, arguments=arguments)])
    assert found.mark is (Mark.FAILED if told else Mark.OK)
    assert told is None or found.message.startswith(f"KubeRay runs with {told}, which takes the pods")


def test_a_volcano_that_does_not_run_fails() -> None:
    assert doctor.volcano([replace(SCHEDULER, ready=0)], NEWEST_FIELDS, [RAY]).mark is Mark.FAILED
    # Some callers may not list Deployments.
    assert doctor.volcano(None, NEWEST_FIELDS, ()).mark is Mark.OK


def claim(phase: str, *modes: str) -> Json:
    return {"metadata": {"name": "shared"}, "spec": {"accessModes": list(modes)}, "status": {"phase": phase}}


FAST = [("fast", True), ("slow", False)]


@pytest.mark.parametrize(
    ("classes", "claims", "mark", "words"),
    [
        (FAST, [claim("Bound", "ReadWriteMany")], Mark.OK, "bound with ReadWriteMany: shared"),
        (None, [claim("Bound", "ReadWriteMany")], Mark.OK, "bound with ReadWriteMany: shared"),
        (FAST, [claim("Bound", "ReadWriteOnce")], Mark.NOTE, "does not state its modes: fast (default), slow"),
        (FAST, [claim("Pending", "ReadWriteMany")], Mark.NOTE, "is bound with ReadWriteMany (shared is not)"),
        ([], [], Mark.NOTE, "no claim of the namespace is bound with ReadWriteMany, and there is no StorageClass"),
        (None, None, Mark.UNKNOWN, "claims may not be listed, and StorageClasses may not be listed"),
    ],
)
def test_only_a_bound_claim_shows_shared_storage(
    classes: list[tuple[str, bool]] | None, claims: list[Json] | None, mark: Mark, words: str
) -> None:
    found = doctor.storage(classes, claims)
    assert found.mark is mark
    assert words in found.message
    assert bool(found.fix) is (mark is not Mark.OK)


@pytest.mark.parametrize(
    ("ranges", "address", "fails"),
    [
        (["10.1.0.0/24"], "fd00::1", False),
        (["fd00:1::/64", "10.1.0.0/24"], "fd00::1", False),
        (["fd00:1::/64"], "10.0.0.1", True),
        ([], "fd00::1", True),
        ([], "10.0.0.1", False),
        ([], None, False),
    ],
)
def test_nodes_with_ipv6_alone_are_reported(ranges: list[str], address: str | None, fails: bool) -> None:
    addresses = [{"type": "Hostname", "address": "n::1"}]
    addresses += [{"type": "InternalIP", "address": address}] if address else []
    node = {"metadata": {"name": "n1"}, "spec": {"podCIDRs": ranges}, "status": {"addresses": addresses}}
    found = [(each.mark, each.message) for each in doctor.addresses([node, {"metadata": {"name": "simulated"}}])]
    assert found == ([(Mark.FAILED, "nodes with IPv6 only, which KubeRay does not support: n1")] if fails else [])


def test_a_runtime_class_that_workers_refer_to_must_exist(kubectl: Path) -> None:
    table = AcceleratorTable(read_table(built_in_document(), {"atlas-a3": {"driverMounts": "RuntimeClass"}}))
    nodes = [NodeFacts(A3, {NPU: 16})]
    (kubectl / "answer").write_text('{"items": []}')
    (found,) = doctor.runtime_classes(nodes, table, PLACE)
    assert (found.mark, found.check) == (Mark.NOTE, "runtime class")
    assert found.message.startswith("RuntimeClass ascend of class atlas-a3 does not exist")
    (kubectl / "answer").write_text('{"items": [{"metadata": {"name": "ascend"}}]}')
    assert list(doctor.runtime_classes(nodes, table, PLACE)) == []
    (kubectl / "words").unlink()
    assert list(doctor.runtime_classes(nodes, BUILT_IN, PLACE)) == []
    assert not (kubectl / "words").exists(), "nobody is asked for what no class uses"


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
        "spec": {"template": {"spec": {"containers": [{"image": "kuberay/operator:v1.6.2", "args": ["-c", "a b"]}]}}},
        "status": {"readyReplicas": 1},
    }
    (kubectl / "one").write_text(json.dumps({"items": [deployment]}))
    (kubectl / "none").write_text(json.dumps({"items": []}))
    script = f'#!/bin/sh\ncd "$(dirname "$0")"\ncase "$*" in *{label}*) cat one;; *) cat none;; esac\n'
    (kubectl / "kubectl").write_text(script)
    assert installed(KUBERAY, PLACE) == [
        Installed("ray", "kuberay-operator", "unknown", "kuberay/operator:v1.6.2", 1, 1, ("-c", "a", "b"))
    ]
    assert installed(("app=none",), PLACE) == []


PLACE = kubectl.Place()
