"""Export checkpoints, beside whatever else the job does, also after it has finished.

A row of `transitions.checkpoint_consumers`, whose child is a Job. A refused one is tried again under another name, and
a user may ask for a step. The step comes before all that follows a run, and decides only when there is something to
write.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rljob.api.export import Export
from rljob.api.export_status import ExportedStep, ExportState
from rljob.api.status import ConditionType, RLJobStatus, State
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import status, times
from rljob.core.attempts.start_diagnosis import PROBLEMS, diagnose
from rljob.core.context import Context
from rljob.core.manifest_facts import has_condition
from rljob.core.observed import Manifest, Refusal, RefusalCause, Unseen
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.requirements import Requirements
from rljob.core.step import step
from rljob.core.transitions.checkpoint_consumers import EXPORTS, Decisions, advance, looks
from rljob.core.validation.exporting import export_violations
from rljob.core.watched import Watched
from rljob.render import labels
from rljob.render.export import shown_path, target_text
from rljob.render.metadata import canonical_json
from rljob.render.names import export_name
from rljob_runtime.contract import RESULT_BYTES_MAX, ContractError, ExportResult

REFUSED_SECONDS, REFUSED_SECONDS_MAX = 60, 900
"""Pause after the first refusal, doubled for each further one: quotas are freed within minutes."""
REFUSALS_MAX = 8
MESSAGE_BYTES = 256
PATH_BYTES = 400
BEST = 0
STEP_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Occasion:
    """What is to be exported now."""

    step: int
    automatic: bool
    request: str | None = None
    saved_time: str | None = None


def request_of(job: Manifest) -> str | None:
    """Return the request that the user made last."""
    value = (job["metadata"].get("annotations") or {}).get(labels.EXPORT)
    return str(value)[:MESSAGE_BYTES] if value else None


def _looks(seen: Watched) -> Requirements:
    """Require the snapshot if an export may be due, and the Job of the one that runs."""
    asked, entry = request_of(seen.manifest), EXPORTS.under_way(seen.status)
    running = entry.name if entry is not None and entry.state is ExportState.RUNNING else None
    is_asked = asked is not None and asked != EXPORTS.of(seen.status).request
    return looks(EXPORTS, seen, Requirements(export_name=running), asked=is_asked)


def _begin(context: Context, spec: RLJobSpec) -> Plan | None:
    export, asked = context.export, request_of(context.manifest)
    if asked is not None and asked != EXPORTS.of(context.status).request:
        step_number, problem = _step_of(context, asked)
        occasion: Occasion | None = Occasion(step_number, automatic=False, request=asked)
        if export is None:
            problem = "the job has no spec.export, which says where to; `rljob export NAME --to PATH` sets it"
        if not problem and context.live.spec is None and (invalid := context.live.violations):
            # An invalid edit leaves what the job began with in force, which is not what was asked for.
            problem = f"{invalid[0].field}: {invalid[0].message}"
        if problem:
            new = _with_request(context.status, asked)
            return context.write(new, _warning(f"request {asked!r}: {problem}"))
    else:
        occasion = None if export is None else _due(context, export)
    if export is None or occasion is None:
        return None
    name = _name(context, export, occasion, refusals=0)
    entry = ExportedStep(
        step=occasion.step,
        name=name,
        state=ExportState.RUNNING,
        automatic=occasion.automatic,
        saved_time=occasion.saved_time,
        target=target_text(export.to),
        reason=Reason.EXPORTING,
        started_time=times.to_text(context.now),
    )
    # Fields that this job took when it began may lack the volume that the edited target is on.
    wrong = list(export_violations(spec.model_copy(update={"export": export})))
    if wrong:
        return _ended(context, entry, "; ".join(f"{each.field}: {each.message}" for each in wrong), occasion.request)
    return context.write(EXPORTS.with_entry(_with_request(context.status, occasion.request), entry))


def _step_of(context: Context, asked: str) -> tuple[int, str]:
    """Return the step that a request names, and what is wrong with it."""
    word, saved = asked.partition(" ")[0], context.status.checkpoint
    if word == "best":
        return BEST, ""
    if word == "latest":
        return (saved.step, "") if saved is not None else (BEST, "the job has saved no checkpoint")
    if word.isascii() and word.isdigit() and len(word) < len(str(STEP_MAX)) and int(word) > 0:
        return int(word), ""
    return BEST, "is no step; use a number, latest or best"


def _due(context: Context, export: Export) -> Occasion | None:
    """Return what `when` asks for now; the newest checkpoint is the only one that counts."""
    saved, target = context.status.checkpoint, target_text(export.to)
    if saved is None or export.when == "OnRequest":
        return None
    finished = status.condition(context.status, ConditionType.FINISHED)
    if export.when != "EveryCheckpoint" and (finished is None or finished.reason != State.SUCCEEDED):
        return None
    done = [entry for entry in EXPORTS.of(context.status).steps if entry.automatic and entry.target == target]
    if export.when == "Best":
        since = context.status.finished_time or ""
        return None if any(entry.started_time >= since for entry in done) else Occasion(BEST, automatic=True)
    # After a restart the same step may be trained and saved again.
    known = any((entry.step, entry.saved_time) == (saved.step, saved.saved_time) for entry in done)
    return None if known else Occasion(saved.step, automatic=True, saved_time=saved.saved_time)


def _name(context: Context, export: Export, occasion: Occasion, refusals: int) -> str:
    """Return the Job's name; each try after a refusal has another one, because refusals are remembered by name."""
    target = export.to.model_dump(mode="json")
    before = sum(entry.step == occasion.step and entry.automatic for entry in EXPORTS.of(context.status).steps)
    parts = [target, occasion.request or before, refusals]
    return export_name(context.job, occasion.step, canonical_json(parts))


def _refused(context: Context, entry: ExportedStep, refusal: Refusal) -> Plan:
    refusals, why = entry.refusals + 1, refusal.why
    if refusal.cause is not RefusalCause.DENIED or refusals >= REFUSALS_MAX:
        return _ended(context, entry, f"{Reason.JOB_REFUSED}: {why}")
    change = {"state": ExportState.WAITING, "refusals": refusals, "reason": Reason.JOB_REFUSED.value}
    message = status.bounded(why, MESSAGE_BYTES)
    change |= {"message": message, "started_time": times.to_text(context.now)}
    return context.write(EXPORTS.with_entry(context.status, entry.model_copy(update=change)), _warning(message))


def _try_again(context: Context, entry: ExportedStep) -> Plan | None:
    pause = min(REFUSED_SECONDS * 2 ** (entry.refusals - 1), REFUSED_SECONDS_MAX)
    if context.now < times.after(entry.started_time, pause):
        return None
    export = context.export
    if export is None:
        return _ended(context, entry, EXPORTS.removed())
    request = EXPORTS.of(context.status).request
    occasion = Occasion(entry.step, entry.automatic, None if entry.automatic else request)
    name = _name(context, export, occasion, entry.refusals)
    change = {"name": name, "state": ExportState.RUNNING, "started_time": times.to_text(context.now)}
    others = [each for each in EXPORTS.of(context.status).steps if each.name != entry.name]
    kept = EXPORTS.of(context.status).model_copy(update={"steps": others})
    current = context.status.model_copy(update={"export": kept})
    return context.write(EXPORTS.with_entry(current, entry.model_copy(update=change)))


def _follow(context: Context, entry: ExportedStep, found: Manifest) -> Plan | None:
    counts = found.get("status") or {}
    tried = sum(int(counts.get(name) or 0) for name in ("active", "failed", "succeeded"))
    entry = entry.model_copy(update={"attempts": max(tried, entry.attempts)})
    seen = context.observed.export.pods
    pods = () if isinstance(seen, Unseen) else seen
    end = _last_end(pods)
    result = _result(end)
    if has_condition(found, "Complete") is not None:
        return _succeeded(context, entry, result)
    if (failure := has_condition(found, "Failed")) is not None:
        said = f"{result.reason}: {result.message}" if result is not None else _last_words(end) or failure
        return _ended(context, entry, said)
    diagnosis = diagnose(pods)
    problem = status.bounded(diagnosis.message, MESSAGE_BYTES) if diagnosis.reason in PROBLEMS else None
    new = entry.model_copy(update={"message": problem})
    return context.write_change(EXPORTS.with_entry(context.status, new)) if new != _known(context, entry) else None


def _known(context: Context, entry: ExportedStep) -> ExportedStep | None:
    return next((each for each in EXPORTS.of(context.status).steps if each.name == entry.name), None)


def _succeeded(context: Context, entry: ExportedStep, result: ExportResult | None) -> Plan:
    export, written = context.export, result or ExportResult("")
    path = shown_path(export.to, written.path) if export is not None else written.path
    over = {
        "state": ExportState.SUCCEEDED,
        "step": entry.step or min(max(written.step, 0), STEP_MAX),
        "path": status.bounded(path, PATH_BYTES) or None,
        "digest": written.digest if _DIGEST.fullmatch(written.digest) else None,
        "bytes": min(max(written.size, 0), LONG_MAX),
        "reason": Reason.EXPORTED.value,
        "message": (caveat := status.bounded(written.message, MESSAGE_BYTES)) or None,
        "finished_time": times.to_text(context.now),
    }
    new = entry.model_copy(update=over)
    kind, said = EventType.NORMAL, f"step {new.step} is at {new.path or new.target}"
    if caveat:
        kind, said = EventType.WARNING, f"{said}; it {caveat}"
    note = EventNote(kind, Reason.EXPORTED, status.bounded(said))
    return context.write(EXPORTS.with_entry(context.status, new), note)


def _ended(context: Context, entry: ExportedStep, why: str, request: str | None = None) -> Plan:
    """Record a failure for good."""
    message = status.bounded(why, MESSAGE_BYTES)
    over = {"state": ExportState.FAILED, "reason": Reason.EXPORT_FAILED.value, "message": message}
    new = entry.model_copy(update=over | {"finished_time": times.to_text(context.now)})
    shown = f"step {entry.step}" if entry.step else "the best step"
    current = EXPORTS.with_entry(_with_request(context.status, request), new)
    return context.write(current, _warning(f"{shown}: {message}"))


def _with_request(current: RLJobStatus, request: str | None) -> RLJobStatus:
    """Return the status with the request that is taken up, if there is one."""
    if request is None:
        return current
    return current.model_copy(update={"export": EXPORTS.of(current).model_copy(update={"request": request})})


def _warning(message: str) -> EventNote:
    return EventNote(EventType.WARNING, Reason.EXPORT_FAILED, status.bounded(message))


def _result(end: Manifest | None) -> ExportResult | None:
    """Return what a container reports; its image is the user's, so every field is checked where it is used."""
    text = str((end or {}).get("message") or "")
    if not text or len(text) > RESULT_BYTES_MAX:
        return None
    try:
        found = ExportResult.from_json(text)
    except ContractError:
        return None
    return replace(found, reason=found.reason[:64])


def _last_words(end: Manifest | None) -> str:
    """Return how a container ended that could not report it."""
    if end is None:
        return ""
    if end.get("reason") == "OOMKilled":
        return "the conversion ran out of memory; raise export.memory"
    return f"exit code {end.get('exitCode')}: {end.get('message') or end.get('reason') or ''}"


def _last_end(pods: tuple[Manifest, ...]) -> Manifest | None:
    """Return the end of the export's container that ended last."""
    listed = [entry for pod in pods for entry in (pod.get("status") or {}).get("containerStatuses") or ()]
    ends = [end for entry in listed if (end := (entry.get("state") or {}).get("terminated"))]
    return max(ends, key=lambda end: str(end.get("finishedAt") or ""), default=None)


DECISIONS = Decisions(begin=_begin, refused=_refused, follow=_follow, failed=_ended, retry=_try_again)


@step(_looks)
def export_checkpoints(context: Context) -> Plan | None:
    """Begin an export that is due, or record how far the one under way is."""
    return advance(context, EXPORTS, DECISIONS)
