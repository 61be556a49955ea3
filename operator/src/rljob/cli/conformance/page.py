"""The result of a run: a table for people, a document to attach to a report. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rljob.cli.conformance.claims import Row
from rljob.cli.conformance.facts import Facts, Waited
from rljob.cli.conformance.verdict import Result
from rljob.cli.status import table

FORMAT = 1
"""Version of the document."""
SEEN_WIDTH = 96
ORDER = (Result.CONFIRMED, Result.FAILED, Result.NOT_APPLICABLE, Result.NOT_RUN)


def versions(facts: Facts, own: Mapping[str, str]) -> dict[str, str]:
    """Return component -> version."""
    cluster, pods = facts.cluster, facts.pods
    found = dict(own)
    if cluster is not None:
        found["Kubernetes"] = cluster.kubernetes
        for name, deployments in (("operator image", cluster.operators), ("KubeRay image", cluster.kuberay)):
            if deployments:
                found[name] = deployments[0]["spec"]["template"]["spec"]["containers"][0]["image"]
        labels = (cluster.operators[0]["metadata"].get("labels") or {}) if cluster.operators else {}
        found["operator"] = labels.get("app.kubernetes.io/version", "")
        found["CRD"] = _stored(cluster.crds or ())
    found["image"] = facts.plan.image
    if pods is not None:
        found |= pods.versions
        rows = (pods.progress.get("preflight") or {}).get("checks") or ()
        for row in rows:
            if row["check"] in ("driver versions", "image versions", "devices"):
                found[row["check"]] = row["seen"]
    return {name: version for name, version in found.items() if version}


def _stored(crds: Sequence[Mapping[str, Any]]) -> str:
    names = {
        version
        for crd in crds
        for version in (crd.get("status") or {}).get("storedVersions") or ()
        if crd["metadata"]["name"].startswith("rljobs.")
    }
    return ", ".join(sorted(names))


def text_page(rows: Sequence[Row], facts: Facts, own: Mapping[str, str]) -> str:
    """Return versions, claims and their count."""
    lines = [("CLAIM", "RESULT", "SEEN")]
    for row in rows:
        first, *more = textwrap.wrap(row.verdict.text, SEEN_WIDTH, break_long_words=False) or [""]
        lines.append((row.claim.id, row.verdict.result.value, first))
        lines += [("", "", text) for text in more]
    counted = Counter(row.verdict.result for row in rows)
    total = ", ".join(f"{counted[result]} {result}" for result in ORDER if counted[result])
    return "\n\n".join([table(list(versions(facts, own).items())), table(lines), f"{facts.plan.accelerator}: {total}"])


def document(rows: Sequence[Row], facts: Facts, own: Mapping[str, str], begin: str, end: str) -> dict[str, Any]:
    """Return the same as data, with what was read from the job."""
    plan = facts.plan
    return {
        "format": FORMAT,
        "run": plan.run,
        "begin": begin,
        "end": end,
        "result": "interrupted" if facts.interrupted else "failed" if has_failed(rows) else "passed",
        "class": plan.accelerator,
        "devices": plan.devices,
        "image": plan.image,
        "versions": versions(facts, own),
        "claims": [
            {
                "id": row.claim.id,
                "confirms": row.claim.confirms,
                "stage": row.claim.stage.value,
                "needsNPU": row.claim.needs_npu,
                "result": row.verdict.result.value,
                "seen": row.verdict.seen,
                **({"fix": row.verdict.fix} if row.verdict.fix else {}),
            }
            for row in rows
        ],
        "evidence": _evidence(facts),
    }


def has_failed(rows: Sequence[Row]) -> bool:
    """Return whether a claim failed."""
    return any(row.verdict.result is Result.FAILED for row in rows)


def _evidence(facts: Facts) -> dict[str, Any]:
    pods, stages = facts.pods, {"started": facts.started, "trained": facts.trained, "finished": facts.finished}
    faults = {"killed": facts.killed, "suspended": facts.suspended}
    stages |= {name: fault.after if fault else None for name, fault in faults.items()}
    image = facts.image
    return {
        **({"image": {"verdict": image.verdict, "reasons": list(image.reasons)}} if image and image.verdict else {}),
        "stages": {name: _stage(waited) for name, waited in stages.items() if waited is not None},
        **(
            {
                "preflight": pods.progress.get("preflight"),
                "coreBinding": pods.progress.get("coreBinding"),
                "hccl": dict(pods.hccl),
                "metrics": {name: list(values) for name, values in pods.metrics.items()},
            }
            if pods
            else {}
        ),
    }


def _stage(waited: Waited) -> dict[str, Any]:
    kept = ("state", "reason", "message", "progress", "checkpoint", "attempts", "counters", "usage")
    status = {key: waited.status[key] for key in kept if key in waited.status}
    return {"reached": waited.reached, "seconds": round(waited.seconds, 1), "status": status}
