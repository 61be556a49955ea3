"""A ResourceQuota of the namespace keeps pods out: the job quotes the refusal, and continues when there is room."""

from __future__ import annotations

import pytest

from tests.e2e import quickstart, runs
from tests.kube import Kube, Manifest, wait_for

pytestmark = pytest.mark.e2e


def test_an_exhausted_quota_is_reported_in_the_api_servers_words_until_there_is_room(kube: Kube) -> None:
    spent = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "spent"}}
    kube.apply({**spent, "spec": {"hard": {"requests.huawei.com/Ascend910": "0"}}})
    kube.apply(runs.variant("over-quota", **quickstart.BARE))

    def status() -> Manifest:
        found: Manifest = (kube.get("rljob", "over-quota") or {}).get("status", {})
        return found

    wait_for("reason PodsRefused", lambda: status().get("reason") == "PodsRefused", 120)
    # The head pod exists: without the message of KubeRay, every existing pod would be ready.
    assert "exceeded quota: spent" in status()["message"]
    assert [event["reason"] for event in kube.events("over-quota")].count("PodsRefused") == 1
    kube.delete("resourcequota", "spent")
    wait_for("the pods are created", lambda: status().get("reason") != "PodsRefused", 180)
    kube.delete("rljob", "over-quota")


def test_a_quota_on_limits_accepts_the_pods_or_is_quoted(kube: Kube) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "cores"}}
    kube.apply({**quota, "spec": {"hard": {"limits.cpu": "0"}}})
    kube.apply(
        runs.variant("no-cores", **quickstart.BARE | {"initializers": [{"name": "prepare", "command": ["true"]}]})
    )

    def status() -> Manifest:
        found: Manifest = (kube.get("rljob", "no-cores") or {}).get("status", {})
        return found

    wait_for("reason PodsRefused", lambda: status().get("reason") == "PodsRefused", 120)
    assert "initializer prepare: Error creating: pods" in status()["message"]
    assert "exceeded quota: cores" in status()["message"]
    # Every container states its limits, so that a quota with room is enough. The Job tries again with growing pauses.
    kube.apply({**quota, "spec": {"hard": {"limits.cpu": "100", "limits.memory": "1Ti"}}})
    wait_for("the pods are created", lambda: status().get("state") in ("Starting", "Training"), 300)
    wait_for("the head exists", lambda: kube.find("pods", "rljob.dev/job=no-cores,ray.io/node-type=head"), 120)
    wait_for("a worker exists", lambda: kube.find("pods", "rljob.dev/job=no-cores,ray.io/node-type=worker"), 120)
    kube.delete("rljob", "no-cores")
    kube.delete("resourcequota", "cores")
