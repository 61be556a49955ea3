"""Records what kubectl answers to a run of `rljob conformance`, for its unit tests to play back.

    RLJOB_WRITE_RECORDED=1 RLJOB_E2E_TRAINER=verl .venv/bin/pytest -m e2e tests/e2e/test_conformance.py

writes operator/tests/unit/cli/conformance/recorded/*.json. Only the fields that a run reads are kept.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.shared import ROOT

FOLDER = ROOT / "operator/tests/unit/cli/conformance/recorded"
WRITE = "RLJOB_WRITE_RECORDED"
PROGRAM = """#!{python} -IS
import json, subprocess, sys
done = subprocess.run(["{kubectl}", *sys.argv[1:]], capture_output=True, text=True)
with open("{calls}", "a") as calls:
    calls.write(json.dumps([sys.argv[1:], done.stdout, done.stderr, done.returncode]) + chr(10))
sys.stdout.write(done.stdout)
sys.stderr.write(done.stderr)
sys.exit(done.returncode)
"""
REPEATED_MAX = 2
"""Equal answers in a row that are kept: the last one of a wait, and the one that the next stage reads first."""
WRITES = ("create", "delete", "patch", "annotate")
KEPT: dict[str, tuple[str, ...]] = {
    "version": ("serverVersion.gitVersion",),
    "customresourcedefinitions": ("metadata.name", "spec.versions.name", "spec.versions.served", "status"),
    "deployments": (
        *("metadata.name", "metadata.namespace", "metadata.labels", "spec.replicas"),
        *("spec.template.spec.containers.image", "status.readyReplicas", "status.conditions"),
    ),
    "leases": ("metadata.name", "metadata.namespace", "spec"),
    "storageclasses": ("metadata.name", "metadata.annotations"),
    "nodes": ("metadata.name", "spec.unschedulable", "status.allocatable"),
    "rljobs": ("metadata.name", "metadata.namespace", "metadata.uid", "status"),
    "events": ("metadata.name", "metadata.creationTimestamp", "type", "reason", "note", "regarding"),
    "rayclusters": ("metadata.name", "metadata.labels", "status.conditions", "status.state"),
    "pods": (
        *("metadata.name", "metadata.creationTimestamp", "metadata.deletionTimestamp"),
        *("status.phase", "status.conditions", "status.containerStatuses", "status.initContainerStatuses"),
    ),
}
"""Resource -> paths of the fields that are kept, with all that is in them."""

DROPPED = frozenset(
    {
        *("resolved", "intent", "lastTransitionTime", "lastProbeTime", "observedGeneration", "acceptedNames"),
        *(
            "containerID",
            "image",
            "imageID",
            "resources",
            "allocatedResources",
            "volumeMounts",
            "user",
            "acceptedNames",
        ),
    }
)
"""Fields that are dropped wherever they are, except on a path of KEPT."""
OPERATORS_LEASE = "rljob-operator"


class Recorder:
    """A kubectl that records."""

    def __init__(self, kubectl: str, folder: Path) -> None:
        """Write the program that stands for kubectl into an empty folder."""
        self.calls, program = folder / "calls", folder / "kubectl"
        program.write_text(PROGRAM.format(python=sys.executable, kubectl=kubectl, calls=self.calls))
        program.chmod(0o755)
        self.program, self.begin = str(program), time.time()

    def write(self, name: str) -> None:
        """Write the recorded answers, if the environment asks for it."""
        if not os.environ.get(WRITE):
            return
        FOLDER.mkdir(exist_ok=True)
        found = answers(self.calls.read_text().splitlines())
        (FOLDER / f"{name}.json").write_text(text_of(round(self.begin), found))


def text_of(now: int, found: dict[str, list[Any]]) -> str:
    """Return the file: one line for each answer."""
    keys = []
    for key, answers in found.items():
        rows = ",\n".join(f"   {json.dumps(answer, ensure_ascii=False)}" for answer in answers)
        keys.append(f"  {json.dumps(key)}: [\n{rows}\n  ]")
    return f'{{\n "now": {now},\n "answers": {{\n' + ",\n".join(keys) + "\n }\n}\n"


def answers(lines: list[str]) -> dict[str, list[Any]]:
    """Return the answers in order by the beginning of their commands, as doubles.played_kubectl takes them."""
    found: dict[str, list[Any]] = {}
    repeated, last = 0, ""
    for line in lines:
        words, out, error, code = json.loads(line)
        key = _key(words)
        if words[0] in WRITES and not code:
            last = ""
            continue
        answer = f"Error: {error.strip()}" if code else _reduced(words, out)
        shown = json.dumps([key, _essence(answer)])
        repeated = repeated + 1 if shown == last else 1
        last = shown
        if repeated <= REPEATED_MAX:
            found.setdefault(key, []).append(answer)
    # What never changes is one answer, which repeats.
    return {
        key: answers[:1] if all(one == answers[0] for one in answers) else answers for key, answers in found.items()
    }


def _essence(answer: Any) -> Any:  # noqa: ANN401 - JSON values
    """Return what a wait looks at, if the answer is a job: messages count seconds."""
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict) or "state" not in status:
        return answer
    met = [one["type"] for one in status.get("conditions") or () if one["status"] == "True"]
    step = (status.get("progress") or {}).get("step")
    last = (status.get("attempts") or [{}])[-1]
    resumed, saved = last.get("resumedFromStep"), (status.get("checkpoint") or {}).get("step")
    return [status["state"], status.get("reason"), met, step, saved, last.get("number"), last.get("outcome"), resumed]


def _key(words: list[str]) -> str:
    """Return the words without the cluster and what follows the pod of exec."""
    kept = list(_without(words, ("--namespace", "--kubeconfig", "--context", "--output")))
    return " ".join(kept[:2] if kept[0] == "exec" else kept)


def _without(words: list[str], options: tuple[str, ...]) -> Iterator[str]:
    skipped = False
    for word in words:
        if not skipped and word not in options:
            yield word
        skipped = not skipped and word in options


def _reduced(words: list[str], out: str) -> Any:  # noqa: ANN401 - JSON values
    if words[0] == "exec":
        return out.strip().rpartition("\n")[2]
    if words[0] == "logs":
        return json.dumps({"rows": [], "launchers": json.loads(out)["launchers"]})
    resource = words[1].partition(".")[0] if words[0] == "get" else "version"
    paths, made = KEPT.get(resource, ("metadata.name",)), json.loads(out)
    if "items" in made:
        items = [one for one in made["items"] if resource != "leases" or one["metadata"]["name"] == OPERATORS_LEASE]
        return {"items": [_keep(item, paths) for item in items]}
    return _keep(made, paths)


def _keep(value: Any, paths: tuple[str, ...], at: str = "") -> Any:  # noqa: ANN401 - JSON values
    """Return the value with the fields on the paths."""
    if isinstance(value, list):
        return [_keep(item, paths, at) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, inner in value.items():
        path = f"{at}.{name}".lstrip(".")
        if any(path == one for one in paths):
            kept[name] = _drop(inner)
        elif any(one.startswith(f"{path}.") for one in paths):
            kept[name] = _keep(inner, paths, path)
    return kept


def _drop(value: Any) -> Any:  # noqa: ANN401 - JSON values
    if isinstance(value, list):
        return [_drop(item) for item in value]
    if isinstance(value, dict):
        return {name: _drop(inner) for name, inner in value.items() if name not in DROPPED}
    return value
