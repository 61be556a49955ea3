"""An RLJob's status as text for people: state, throughput and attempts. Pure: takes a manifest and returns text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rljob.api.printing import one_line
from rljob.reading import figures
from rljob.reading.figures import ABSENT
from rljob.render.names import JobIdentity, evidence_name

BAR_WIDTH = 30
FIGURES = (
    ("reward", "reward", figures.reward),
    ("TPS/card", "tokensPerSecondPerCard", figures.rate),
    ("step", "stepSeconds", figures.seconds),
    ("DP idle", "clusterIdleRatio", figures.share),
    ("first DP idle", "firstDPIdleRatio", figures.share),
)
"""Label, key of status.progress and form."""
ENDED = ("Succeeded", "Failed", "Stopped", "Invalid")
"""States that do not change without a change of the spec."""


def describe(job: Mapping[str, Any]) -> str:
    """Return the whole page."""
    written = job.get("status") or {}
    status, metadata = {key: _flat(value) for key, value in written.items()}, job["metadata"]
    head = [f"{metadata.get('namespace', 'default')}/{metadata['name']}  {status.get('state', 'Unknown')}"]
    if status.get("message"):
        # Indented, so that a line of a message does not look like a line of this page.
        message = str(written["message"]).replace("\n", "\n  ")
        head.append(f"{status.get('reason', '')}: {message}")
    sections = ["\n".join(head)]
    if progress := status.get("progress"):
        sections.append(describe_progress({**progress, "eta": figures.ends(status)}))
    if saved := status.get("checkpoint"):
        every = (progress or {}).get("saveEverySteps")
        decided = f"; every {every} steps, as decided by what a save costs" if every else ""
        sections.append(
            f"checkpoint of step {saved['step']}, saved {saved.get('savedTime', ABSENT)}, in {saved['path']}{decided}"
        )
    if evaluations := (status.get("evaluation") or {}).get("steps"):
        sections.append(_evaluations(evaluations))
    if cluster := status.get("rayCluster"):
        sections.append(_cluster(cluster))
    if conditions := status.get("conditions"):
        sections.append(_conditions(conditions))
    if attempts := status.get("attempts"):
        sections.append(_attempts(attempts, int((progress or {}).get("step", 0))))
        sections += filter(None, (_lost(attempts), _device_time(status.get("usage") or {})))
        if any(attempt.get("endTime") for attempt in attempts):
            name = evidence_name(JobIdentity(metadata.get("namespace", "default"), metadata["name"], metadata["uid"]))
            sections.append(f"records of ended attempts: configmap/{name}")
    return "\n\n".join(sections)


def _flat(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a value of the status with every text in one line."""
    if isinstance(value, Mapping):
        return {key: _flat(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_flat(part) for part in value]
    return one_line(value.replace("\n", " ")) if isinstance(value, str) else value


def status_document(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status as data, below namespace and name."""
    status, metadata = job.get("status") or {}, job["metadata"]
    place = {"namespace": metadata.get("namespace", "default"), "job": metadata["name"]}
    return {**place, "state": "Unknown", **status}


def has_checkpoints(job: Mapping[str, Any]) -> bool:
    """Return whether a job saves checkpoints, as far as its manifest shows: a recipe may say so."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    return bool(spec.get("checkpoint") or spec.get("recipeRef") or status.get("checkpoint"))


def failed(job: Mapping[str, Any]) -> bool:
    """Return whether a job failed, for exit codes."""
    return (job.get("status") or {}).get("state") in ("Failed", "Invalid")


def describe_progress(progress: Mapping[str, Any]) -> str:
    """Return the progress bar and the metrics of the last step; of an evaluation, which has no steps, its score."""
    shown = [f"{label} {form(progress[key])}" for label, key, form in FIGURES if progress.get(key) is not None]
    if progress.get("eta"):
        shown.append(f"ends about {progress['eta']}")
    bar = [progress_bar(progress)] if figures.steps(progress) != ABSENT else []
    return "\n".join([*bar, *(["  ".join(shown)] if shown else [])])


def progress_bar(progress: Mapping[str, Any], width: int = BAR_WIDTH) -> str:
    """Return a bar such as `[#####.....] 12/40`, of a progress as the status has it."""
    step, total = int(progress.get("step") or 0), int(progress.get("totalSteps") or 0)
    filled = min(width, width * step // total) if total else 0
    return f"[{'#' * filled}{'.' * (width - filled)}] {figures.steps(progress) if total else f'{step}/?'}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align columns; the last column is not padded. A line feed in a cell does not begin a row."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def software(cluster: Mapping[str, Any]) -> str:
    """Return which injected runtime and which verl a cluster has; empty if neither is known."""
    image, verl = cluster.get("runtimeImage"), cluster.get("verlVersion")
    parts = [f"the runtime of {image}"] if image else []
    return " and ".join([*parts, f"verl {verl}"] if verl else parts)


def _cluster(cluster: Mapping[str, Any]) -> str:
    line = f"RayCluster {cluster['name']}  {cluster.get('dashboardURL', '')}".rstrip()
    found = software(cluster)
    return f"{line}\nwith {found}" if found else line


def _conditions(conditions: Sequence[Mapping[str, Any]]) -> str:
    head = ("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE")
    rows = (
        (
            condition["type"],
            condition["status"],
            condition.get("reason", ABSENT),
            condition.get("lastTransitionTime", ABSENT),
            condition.get("message", ""),
        )
        for condition in conditions
    )
    return table([head, *rows])


def _evaluations(evaluations: Sequence[Mapping[str, Any]]) -> str:
    rows = [("EVALUATED STEP", "STATE", "SCORE", "RLJOB", "MESSAGE")]
    for entry in evaluations:
        state, score, message = (str(entry.get(key, ABSENT)) for key in ("state", "score", "message"))
        rows.append((str(entry["step"]), state, score, str(entry["name"]), message))
    return table(rows)


def _lost(attempts: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(recovery_text(attempt) for attempt in attempts if attempt.get("recovery"))


def _device_time(usage: Mapping[str, Any]) -> str:
    shares = figures.device_time(usage)
    return f"device time of ended attempts: {shares}" if shares else ""


def recovery_text(attempt: Mapping[str, Any]) -> str:
    """Return what was lost before an attempt, the largest part first."""
    parts = sorted(attempt["recovery"], key=lambda part: -int(part["seconds"]))
    listed = ", ".join(f"{part['cause']} {part['seconds']} s" for part in parts)
    return f"lost before attempt {attempt['number']}: {sum(int(part['seconds']) for part in parts)} s ({listed})"


def _attempts(attempts: Sequence[Mapping[str, Any]], step: int) -> str:
    """Return the table; `step` is what the attempt that runs has reached."""
    rows = [("ATTEMPT", "RAYCLUSTER", "SUBMITTED", "ENDED", "LAST STEP", "OUTCOME")]
    for attempt in attempts:
        reason = f" ({attempt['reason']})" if attempt.get("reason") else ""
        rows.append(
            (
                str(attempt["number"]),
                attempt["clusterName"],
                attempt.get("submittedTime", ABSENT),
                attempt.get("endTime", ABSENT),
                str(attempt.get("lastStep", 0) if attempt.get("endTime") else step),
                attempt.get("outcome", "running") + reason,
            )
        )
    return table(rows)
