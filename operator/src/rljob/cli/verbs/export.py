"""`rljob export`: ask for an export of a checkpoint by an annotation, or show those of a job.

The operator makes the export. `--to` sets spec.export.to, which takes effect at once, also for a finished job.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rljob.api.group import GROUP
from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, job_command
from rljob.cli.errors import UsageError
from rljob.cli.status import table
from rljob.reading.figures import ABSENT
from rljob.render.labels import EXPORT

FORMS = "/folder, pvc:CLAIM[/folder], hf:owner/name or modelscope:owner/name"
POLL_SECONDS = 3.0
FAILED = 1
ENDED = ("Succeeded", "Failed")
HUBS = {"hf": "HuggingFace", "modelscope": "ModelScope"}


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "export",
        "export a checkpoint of an RLJob to a folder, a claim or a model hub",
        _run,
        outputs=output.FORMS,
        examples=(
            ("export sums --to /data/export --wait 600", "export the last checkpoint to a folder, and wait for it"),
            ("export sums --step best --to hf:team/sums --secret hub", "push the best kept checkpoint to a hub"),
            ("export sums --list", "show the exports of a job"),
        ),
    )
    made.add_argument("--step", default="latest", help="step of the checkpoint, latest or best; default: latest")
    made.add_argument("--to", metavar="TARGET", help=f"{FORMS}; default: what spec.export says")
    made.add_argument("--secret", metavar="NAME", help="Secret with the key `token`, for a target on a hub")
    made.add_argument("--list", action="store_true", help="show the exports of the job, and ask for none")
    made.add_argument("--wait", type=float, metavar="SECONDS", help="wait for its end; exit code 1 if it fails")


def _run(chosen: argparse.Namespace) -> int:
    place = kubectl.Place(chosen.namespace, chosen.context)
    job = kubectl.get_job(chosen.name, place)
    if chosen.list:
        print(_page(_entries(job), chosen.output))
        return 0
    asked = f"{_step(chosen.step)} {datetime.now(UTC).isoformat(timespec='milliseconds')}"
    kubectl.run(
        ["patch", f"rljobs.{GROUP}", chosen.name, "--type", "merge", "--patch", _patch(job, asked, chosen)], place
    )
    if chosen.wait is None:
        print(f"asked for an export of step {chosen.step}; `rljob export {chosen.name} --list` shows its progress")
        return 0
    entry = _await(chosen.name, place, asked, known={entry["name"] for entry in _entries(job)}, seconds=chosen.wait)
    print(_page([entry], chosen.output))
    return 0 if entry["state"] == "Succeeded" else FAILED


def _step(text: str) -> str:
    if text in ("latest", "best") or re.fullmatch(r"[1-9][0-9]{0,8}", text):
        return text
    raise UsageError(f"--step {text} is no step; use a number, latest or best")


def _patch(job: Mapping[str, Any], asked: str, chosen: argparse.Namespace) -> str:
    patch: dict[str, Any] = {"metadata": {"annotations": {EXPORT: asked}}}
    spec = job.get("spec") or {}
    if chosen.to is not None:
        patch["spec"] = {"export": {"to": _target(chosen.to, chosen.secret)}}
        if not spec.get("export"):
            patch["spec"]["export"]["when"] = "OnRequest"
    elif not spec.get("export") and not spec.get("recipeRef"):
        raise UsageError(f"the job has no spec.export; say where to with --to: {FORMS}")
    return json.dumps(patch)


def _target(text: str, secret: str | None) -> dict[str, Any]:
    """Return spec.export.to as a merge patch, which removes the fields of other types."""
    from rljob.api.export import ExportTarget

    members: dict[str, Any] = dict.fromkeys(("path", *ExportTarget.MEMBERS_BY_TYPE.values()))
    scheme, _, rest = text.partition(":")
    if text.startswith("/"):
        return members | {"type": "Path", "path": text}
    if scheme == "pvc" and rest:
        claim, _, folder = rest.partition("/")
        return members | {"type": "PVC", "persistentVolumeClaim": {"claimName": claim, "subPath": folder or None}}
    if scheme in HUBS and rest:
        if secret is None:
            raise UsageError(f"--to {text} needs --secret, the name of a Secret whose key `token` is the access token")
        kind = HUBS[scheme]
        repository = {"repository": rest, "secretRef": {"name": secret}}
        return members | {"type": kind, ExportTarget.MEMBERS_BY_TYPE[kind]: repository}
    raise UsageError(f"--to {text} is no target; use {FORMS}")


def _entries(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = ((job.get("status") or {}).get("export") or {}).get("steps") or []
    return [dict(entry) for entry in entries]


def _await(name: str, place: kubectl.Place, asked: str, *, known: set[str], seconds: float) -> dict[str, Any]:
    """Return the entry that answers the request once it has ended."""
    end = time.monotonic() + seconds
    while True:
        job = kubectl.get_job(name, place)
        taken = ((job.get("status") or {}).get("export") or {}).get("request") == asked
        new = [entry for entry in _entries(job) if entry["name"] not in known]
        own: dict[str, Any] | None = next((entry for entry in reversed(new) if not entry.get("automatic")), None)
        if taken and own is None:
            raise UsageError(
                f"the operator refused the request; `kubectl describe rljob {name}` has the event with why"
            )
        if taken and own is not None and own["state"] in ENDED:
            return own
        if time.monotonic() > end:
            raise UsageError(f"the export has not ended after {seconds:g} s; `rljob export {name} --list` shows it")
        time.sleep(POLL_SECONDS)


def _page(entries: list[dict[str, Any]], form: str) -> str:
    if form in output.DATA:
        return output.data_page(entries, form)
    head = ("STEP", "STATE", "ATTEMPTS", "TARGET", "PATH", "MESSAGE")
    rows = [
        (
            str(entry.get("step") or "best"),
            str(entry.get("state", ABSENT)),
            str(entry.get("attempts", 0)),
            str(entry.get("target", ABSENT)),
            str(entry.get("path") or ABSENT),
            str(entry.get("message") or ""),
        )
        for entry in entries
    ]
    return table([head, *rows]) if rows else "no exports"
