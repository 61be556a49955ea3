"""Judges of the claims about the job that the run trains. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rljob.cli.conformance.facts import Facts, Fault, PodFacts, Waited
from rljob.cli.conformance.verdict import Verdict, confirmed, failed, not_applicable, not_run
from rljob.reading import figures

HCCL_ROWS = ("interface", "device links", "device addresses", "ports")
"""Rows of the node checks about HCCL (rljob_runtime.node_checks.evaluate.Check)."""
TPS = "rljob_tokens_per_second"
IDLE = ("rljob_first_dp_idle_ratio", "rljob_cluster_idle_ratio")
"""rljob_runtime.exporter.catalogue."""
NOT_STARTED = not_run("the job was not created")
NO_PODS = "the pods of the job were not read"


def judge_accepted(facts: Facts) -> Verdict:
    """Judge whether the operator validated the job."""
    started = facts.started
    if started is None:
        return NOT_STARTED
    found = _condition(started.status, "Validated")
    if "Validated" in started.conditions:
        return confirmed(str(found.get("message") or "the operator accepted the job"))
    if found:
        return failed(str(found.get("message", "")), "see `rljob validate`")
    return failed("the operator has not judged the job", started.why or "look into the operator's log")


def judge_initializer(facts: Facts) -> Verdict:
    """Judge whether an initializer of the job made the model on the volume."""
    return _by_condition(
        facts.started, "Initialized", "the initializer made model, tokenizer and prompts on the volume"
    )


def judge_pods(facts: Facts) -> Verdict:
    """Judge whether all pods of the RayCluster became ready."""
    return _by_condition(facts.started, "ClusterReady", "head and worker are ready")


def judge_preflight(facts: Facts) -> Verdict:
    """Judge the checks of the nodes."""
    table = facts.pods.progress.get("preflight") if facts.pods else None
    if table is None:
        if facts.started is not None and not facts.started.reached:
            return failed(facts.started.why)
        return not_run(f"the node checks could not be read: {facts.pods.problem if facts.pods else NO_PODS}")
    checks = table["checks"]
    bad = [row for row in checks if row["failed"]]
    if bad:
        return failed("; ".join(f"{row['check']}: {row['seen']}" for row in bad), "see docs/guides/ascend-nodes.md")
    warned = [f"{row['check']}: {row['seen']}" for row in checks if row["warned"]]
    warnings = f"; warnings: {'; '.join(warned)}" if warned else ""
    return confirmed(f"{len(checks)} checks passed on {table['nodes']} nodes in {table['seconds']:g} s{warnings}")


def judge_first_step(facts: Facts) -> Verdict:
    """Judge whether the first step came."""
    started = facts.started
    if started is None:
        return NOT_STARTED
    if not started.reached:
        return failed(started.why)
    return confirmed(f"the first step was complete {started.seconds:.0f} s after the job was created")


def judge_hccl(facts: Facts) -> Verdict:
    """Judge what nodes and worker report about HCCL."""
    pods = facts.pods
    table = pods.progress.get("preflight") if pods else None
    if pods is None or table is None:
        return not_run(NO_PODS)
    rows = [row for row in table["checks"] if row["check"] in HCCL_ROWS]
    bad = [row for row in rows if row["failed"]]
    if bad:
        return failed("; ".join(f"{row['check']}: {row['seen']}" for row in bad), "see docs/guides/ascend-nodes.md")
    if not rows:
        return not_run("the node checks of this image have no row about links, addresses and interfaces")
    seen = [f"{row['check']} {row['seen'] or 'not read'}" for row in rows]
    if any(row["warned"] or not row["seen"] for row in rows):
        return not_run("; ".join(seen))
    seen += [f"{name}={value}" for name, value in sorted(pods.hccl.items())]
    return confirmed("; ".join(seen))


def judge_binding(facts: Facts) -> Verdict:
    """Judge whether every process keeps to the planned CPUs."""
    if facts.pods is None:
        return not_run(NO_PODS)
    found = facts.pods.progress.get("coreBinding")
    if found is None:
        return failed("the runtime reports no core binding", "check optimizations.coreBinding")
    plans = "; ".join([*found.get("plans", ()), *found.get("notes", ())])
    if found["plannedNodes"] < found["nodes"]:
        return failed(
            f"{found['plannedNodes']} of {found['nodes']} nodes have a plan: {plans}", "give devices five CPUs"
        )
    bound, strayed = found.get("boundProcesses"), found.get("strayedProcesses")
    if bound is None:
        return failed(f"no process was observed; planned: {plans}", "look for `core binding` in the driver's log")
    if strayed or not bound:
        return failed(
            f"{bound} processes keep to their plan, {strayed} do not: {plans}", "see docs/guides/ascend-nodes.md"
        )
    return confirmed(f"{bound} processes keep to their plan: {plans}")


def judge_trains(facts: Facts) -> Verdict:
    """Judge whether steps are recorded with a reward."""
    trained = facts.trained
    if trained is None:
        return NOT_STARTED
    progress = trained.status.get("progress") or {}
    if not trained.reached:
        return failed(trained.why)
    reward = _number(progress.get("reward"))
    if reward is None:
        return failed(f"step {progress.get('step')} has no reward", "look into the driver's log")
    return confirmed(f"step {progress.get('step')} of {progress.get('totalSteps')}, reward {reward:g}")


def judge_metrics(facts: Facts) -> Verdict:
    """Judge throughput and idle ratios of exporter and status."""
    if facts.trained is None or facts.pods is None:
        return not_run(NO_PODS)
    progress, samples = facts.trained.status.get("progress") or {}, facts.pods.metrics
    status_tps = _number(progress.get("tokensPerSecondPerCard"))
    if status_tps is None or status_tps <= 0:
        return failed(f"status.progress.tokensPerSecondPerCard is {progress.get('tokensPerSecondPerCard')}")
    if not samples:
        return failed(f"the exporter was not read: {facts.pods.problem}", "check the container exporter of the head")
    tps = samples.get(TPS) or ()
    if not tps or min(tps) <= 0:
        return failed(f"{TPS} of the exporter is {list(tps)}")
    idle = {name: samples.get(name) or () for name in IDLE}
    wrong = [name for name, values in idle.items() if not values or not all(0 <= value <= 1 for value in values)]
    if wrong:
        return failed("; ".join(f"{name} is {list(idle[name])}, expected within 0 to 1" for name in wrong))
    shown = ", ".join(f"{name} {values[0]:g}" for name, values in idle.items())
    return confirmed(f"{status_tps:g} tokens/s per card in the status; {len(tps)} samples of {TPS}; {shown}")


def judge_checkpoints(facts: Facts) -> Verdict:
    """Judge whether the status and the folder agree about a complete checkpoint."""
    trained = facts.trained
    if trained is None:
        return NOT_STARTED
    saved = trained.status.get("checkpoint")
    if not saved:
        return failed("no checkpoint was saved", trained.why)
    if facts.pods is None or facts.pods.problem:
        return not_run(f"the folder was not read: {facts.pods.problem if facts.pods else NO_PODS}")
    tracker, steps = facts.pods.tracker, facts.pods.checkpoints
    if not tracker.isdigit() or int(tracker) not in steps or int(tracker) < saved["step"]:
        return failed(
            f"the status has step {saved['step']}, and {saved['path']} has steps {list(steps)} with the tracker "
            f"{tracker or 'missing'}",
            "check the volume",
        )
    return confirmed(
        f"step {saved['step']}, {saved.get('bytes', '?')} bytes in {saved.get('seconds', '?')} s; in the "
        f"folder: {', '.join(map(str, steps))}"
    )


def judge_killed(facts: Facts) -> Verdict:
    """Judge whether a new attempt resumes at the saved step after the worker pod was killed."""
    fault = facts.killed
    if fault is None:
        return not_run("no pod was killed")
    if not fault.after.reached:
        return failed(f"after {fault.target} was killed: {fault.after.why}")
    attempts = fault.after.status["attempts"]
    lost, resumed = attempts[-2], int(attempts[-1].get("resumedFromStep") or 0)
    saved = _saved_step(fault)
    if resumed < saved:
        return failed(f"attempt {attempts[-1]['number']} resumed from step {resumed}, and step {saved} was saved")
    cause = f"{lost.get('outcome')} ({lost.get('reason')})"
    return confirmed(
        f"pod {fault.target} killed: attempt {lost['number']} {cause}, attempt {attempts[-1]['number']} resumed from "
        f"step {resumed} and trains after {fault.after.seconds:.0f} s"
    )


def judge_suspended(facts: Facts) -> Verdict:
    """Judge whether a suspension frees the pods and the job resumes from the step that it saved."""
    fault = facts.suspended
    if fault is None or fault.suspended is None:
        return not_run("the job was not suspended")
    if not fault.suspended.reached:
        return failed(f"spec.suspend was set: {fault.suspended.why}")
    if fault.pods_left:
        return failed(f"the suspended job has pods: {', '.join(fault.pods_left)}", "see `rljob describe`")
    if not fault.after.reached:
        return failed(f"spec.suspend was removed: {fault.after.why}")
    saved = int((fault.suspended.status.get("checkpoint") or {}).get("step") or 0)
    last = fault.after.status["attempts"][-1]
    resumed = int(last.get("resumedFromStep") or 0)
    if resumed != saved:
        return failed(f"attempt {last['number']} resumed from step {resumed}, and step {saved} was saved")
    return confirmed(
        f"its pods were gone after {fault.suspended.seconds:.0f} s; "
        f"attempt {last['number']} resumed from step {resumed}"
    )


def judge_completes(facts: Facts) -> Verdict:
    """Judge whether the job succeeded with all steps."""
    finished = facts.finished
    if finished is None:
        return NOT_STARTED
    progress = finished.status.get("progress") or {}
    if not finished.reached:
        return failed(finished.why)
    if int(progress.get("step", 0)) != facts.plan.steps:
        return failed(f"the job succeeded at step {progress.get('step')} of {facts.plan.steps}")
    usage = finished.status.get("usage") or {}
    return confirmed(
        f"{figures.count(facts.plan.steps, 'step')} in "
        f"{figures.count(len(finished.status.get('attempts') or ()), 'attempt')}, reward "
        f"{figures.reward(progress.get('reward'))}, goodput {usage.get('goodput', '?')}"
    )


def judge_cleanup(facts: Facts) -> Verdict:
    """Judge whether everything that the run created is gone."""
    if facts.plan.keep:
        return not_applicable("--keep was passed")
    if facts.left is None:
        return not_run("nothing was created")
    if facts.left:
        return failed(
            f"left: {', '.join(facts.left)}", "delete them with kubectl; docs/guides/conformance.md has the command"
        )
    return confirmed("no object of the run is left")


def _by_condition(started: Waited | None, kind: str, seen: str) -> Verdict:
    if started is None:
        return NOT_STARTED
    if kind in started.conditions:
        return confirmed(seen)
    return failed(started.why or str(_condition(started.status, kind).get("message", "")))


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((one for one in status.get("conditions") or () if one["type"] == kind), {})


def _saved_step(fault: Fault) -> int:
    return int((fault.before.get("checkpoint") or {}).get("step") or 0)


def _number(value: object) -> float | None:
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def bound_is_known(pods: PodFacts) -> bool:
    """Return whether the processes of the run have been compared with their plan, if there is one."""
    found = pods.progress.get("coreBinding")
    return found is None or found.get("boundProcesses") is not None


def names_of(pods: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of objects."""
    return sorted(pod["metadata"]["name"] for pod in pods)
