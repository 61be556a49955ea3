"""Whose failure was it, and what follows: the end of an attempt in, a verdict out.

One table classifies what the launcher, Ray, the kubelet and the operator itself say of an end; the rules of
`spec.restart` come before it, and the budgets decide last. Nothing here knows how a restart is carried out.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rljob.api.lifecycle import Restart, RestartRule
from rljob.api.status import Attempt, AttemptOutcome, Budget, FailureCause
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.jitter import jittered
from rljob.core.observed import Manifest
from rljob.core.reasons import Reason
from rljob.core.scheduling.node_faults import FaultEffect, NodeFault, class_of, listed
from rljob_runtime.contract import ExitCode, Outcome

BACKOFF_SECONDS_MAX = 600.0
"""A further failure of the same kind learns nothing from a longer wait, and the NPUs are free meanwhile."""
DRIVER_BACKOFF_SECONDS_MAX = 60.0
"""While a driver waits in its own cluster the NPUs stand idle; for longer waits they are given back."""
BACKOFF_JITTER = 0.1
INFRASTRUCTURE_RESTARTS = 3
"""Without another word: a lost node must wake nobody, and four in a row that save nothing are no bad luck."""
UNCOUNTED_MAX = 100
"""A rule that never counts is a loop all the same."""


class Action(enum.StrEnum):
    """What follows the end of an attempt."""

    FAIL = "Fail"
    STOP = "Stop"
    """The job ends as Stopped: by a rule, without blame."""
    RESTART_DRIVER = "RestartDriver"
    """Another attempt in the same cluster."""
    RESTART_CLUSTER = "RestartCluster"
    """Another attempt in a new cluster."""


@dataclass(frozen=True)
class FailureRow:
    """What one word or number says about an end."""

    cause: FailureCause
    source: str


_CONTRACT = "rljob_runtime.contract.exit_codes"
_OPERATOR = "rljob.core.reasons"
_OUTCOMES = "rljob_runtime.outcomes"
_KUBELET = "https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions"
_POD_STATUS = "kubernetes v1.36.2: pkg/kubelet/eviction, nodeshutdown, preemption; pkg/controller/nodelifecycle"
_CONTAINER = "kubernetes v1.36.2: pkg/kubelet/kuberuntime/kuberuntime_container.go"

EXIT_CODES: Mapping[int, FailureRow] = {
    ExitCode.BAD_CONFIG: FailureRow(FailureCause.CONFIGURATION, _CONTRACT),
    ExitCode.ENVIRONMENT: FailureRow(FailureCause.INFRASTRUCTURE, _CONTRACT),
    # Nobody here asked for it, or it would not be judged: a pod's hook did, because the pod had to go.
    ExitCode.STOPPED: FailureRow(FailureCause.PREEMPTION, _CONTRACT),
    ExitCode.STALLED: FailureRow(FailureCause.INFRASTRUCTURE, _CONTRACT),
    # A stop rule: no restart cures what the run's own figures say. Rules of `restart` are looked at before.
    ExitCode.RULE_MATCHED: FailureRow(FailureCause.CONFIGURATION, _CONTRACT),
}
REASONS: Mapping[str, FailureRow] = {
    Reason.CLUSTER_LOST: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.HEAD_LOST: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.DRIVER_LOST: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.HEAD_SILENT: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.START_DEADLINE_EXCEEDED: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.PROGRESS_DEADLINE_EXCEEDED: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.ACTIVE_DEADLINE_EXCEEDED: FailureRow(FailureCause.CONFIGURATION, _OPERATOR),
    Reason.DRIVER_STOPPED: FailureRow(FailureCause.CONFIGURATION, _OPERATOR),
    Reason.DEVICE_FAULT: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    "NodeLost": FailureRow(FailureCause.INFRASTRUCTURE, _OUTCOMES),
    "RayUnavailable": FailureRow(FailureCause.INFRASTRUCTURE, _OUTCOMES),
    "OutOfMemory": FailureRow(FailureCause.USER, _OUTCOMES),
    "DeviceOutOfMemory": FailureRow(FailureCause.USER, _OUTCOMES),
}
OOM_KILLED = "OOMKilled"
POD_REASONS: Mapping[str, FailureRow] = {
    # Conditions DisruptionTarget.
    "PreemptionByScheduler": FailureRow(FailureCause.PREEMPTION, _KUBELET),
    "EvictionByEvictionAPI": FailureRow(FailureCause.PREEMPTION, _KUBELET),
    "DeletionByTaintManager": FailureRow(FailureCause.INFRASTRUCTURE, _KUBELET),
    "DeletionByPodGC": FailureRow(FailureCause.INFRASTRUCTURE, _KUBELET),
    "TerminationByKubelet": FailureRow(FailureCause.INFRASTRUCTURE, _KUBELET),
    # status.reason of the pod.
    "Preempting": FailureRow(FailureCause.PREEMPTION, _POD_STATUS),
    "Evicted": FailureRow(FailureCause.INFRASTRUCTURE, _POD_STATUS),
    "NodeLost": FailureRow(FailureCause.INFRASTRUCTURE, _POD_STATUS),
    "NodeShutdown": FailureRow(FailureCause.INFRASTRUCTURE, _POD_STATUS),
    "Terminated": FailureRow(FailureCause.INFRASTRUCTURE, _POD_STATUS),
    "UnexpectedAdmissionError": FailureRow(FailureCause.INFRASTRUCTURE, _POD_STATUS),
    # Reasons of terminated containers.
    OOM_KILLED: FailureRow(FailureCause.USER, _CONTAINER),
}


@dataclass(frozen=True)
class Failure:
    """The end of an attempt, understood."""

    cause: FailureCause
    reason: str
    message: str
    exit_code: int
    rule: str | None = None
    """The rule whose pattern matched the driver's log."""
    node: str | None = None
    unfit: tuple[str, ...] = ()
    """Nodes found at fault, by the launcher's check or while the run was on them: the next cluster avoids them."""
    fault: str | None = None
    """Class of the fault, where the nodes have one."""


@dataclass(frozen=True)
class Verdict:
    """What follows."""

    action: Action
    failure: Failure
    budget: Budget
    """With this failure in it."""
    wait_seconds: float = 0.0
    exclude: bool = False
    """A rule blames the node."""
    why: str = ""
    """For people."""


def classify(outcome: Outcome, pods: Iterable[Manifest] = (), killed: Iterable[str] = ()) -> Failure:
    """Say whose failure an outcome is; the pods are those of the cluster, as far as they are still there.

    Those whose Ray the kernel killed may be gone: their names are enough.
    """
    # With a restart rule the launcher's code says only that one matched.
    code = outcome.exit_code if outcome.unruled_exit_code is None else outcome.unruled_exit_code
    failure = Failure(
        cause=FailureCause.USER,
        reason=outcome.reason or Reason.DRIVER_FAILED,
        message=outcome.message,
        exit_code=code,
        rule=outcome.rule,
        node=outcome.nodes[0] if outcome.nodes else outcome.suspect,
        unfit=outcome.nodes,
    )
    final = EXIT_CODES.get(code)
    if final is not None and final.cause is FailureCause.CONFIGURATION:
        return replace(failure, cause=final.cause)
    gone = ((OOM_KILLED, f"pod {name}: {OOM_KILLED}", None) for name in killed)
    for word, told, node in (*_evidence(pods), *gone):
        message = f"{told}; {outcome.message}" if outcome.message else told
        return replace(failure, cause=POD_REASONS[word].cause, reason=word, message=message, node=node)
    row = REASONS.get(failure.reason) or final
    return replace(failure, cause=row.cause) if row is not None else failure


DOUBTFUL = frozenset(
    {
        Reason.HEAD_LOST,
        Reason.DRIVER_LOST,
        Reason.HEAD_SILENT,
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        "NodeLost",
        "RayUnavailable",
    }
)
"""Reasons that say what was seen and not why: a fault of a node explains them."""


def with_node_faults(failure: Failure, node_faults: Sequence[NodeFault]) -> Failure:
    """Blame the nodes for an end that nothing else explains: a lost device looks like an error of whoever used it."""
    blamed = tuple(node_fault for node_fault in node_faults if node_fault.row.effect >= FaultEffect.AVOIDS)
    # What the launcher says of the place was found by a check of its own, but for what it merely saw.
    told = failure.exit_code == ExitCode.ENVIRONMENT or failure.reason in {**POD_REASONS, **REASONS}
    known = told and failure.reason not in DOUBTFUL
    if not blamed or known or failure.cause in (FailureCause.CONFIGURATION, FailureCause.PREEMPTION):
        return failure
    message = "; ".join(text for text in (listed(blamed), failure.message) if text)
    nodes = tuple(dict.fromkeys(node_fault.node for node_fault in blamed))
    reason = blamed[0].row.reason
    return replace(at_fault(blamed[0].name, nodes, message, reason), exit_code=failure.exit_code, rule=failure.rule)


UNEXPLAINED = frozenset({Reason.DRIVER_FAILED, "RunFailed"})
"""Reasons of an end that nobody has a word for (rljob_runtime.outcomes, from_error)."""


def with_doubt(failure: Failure, attempts: Sequence[Attempt], last_step: int) -> Failure:
    """Blame the place, once, for an unexplained end before the first step of an attempt after one that had trained.

    What trained before can begin: a port that was taken meanwhile, or a file system that hiccuped, must not cost the
    run. Where the next attempt dies at its start too, it is the run's own. Attempts in between that made no step, and
    whose end is explained, tell nothing of it. The last of `attempts` is the one that ended, at `last_step`.
    """
    if failure.cause is not FailureCause.USER or failure.reason not in UNEXPLAINED or len(attempts) < 2:
        return failure
    if _has_trained(attempts[-1], last_step):
        return failure
    for before in reversed(attempts[:-1]):
        if _has_trained(before, before.last_step):
            return replace(failure, cause=FailureCause.INFRASTRUCTURE)
        if before.reason in UNEXPLAINED and before.outcome not in (AttemptOutcome.STOPPED, AttemptOutcome.PREEMPTED):
            break
    return failure


def _has_trained(attempt: Attempt, last_step: int) -> bool:
    """Whether an attempt made a step; of one that told of none, the last step is that of the attempt before it."""
    return attempt.start_time is not None and last_step > attempt.resumed_from_step


def at_fault(fault: str, nodes: tuple[str, ...] = (), message: str = "", reason: str = Reason.DEVICE_FAULT) -> Failure:
    """Give the failure of a run whose hardware is at fault; the first node is the worst."""
    # A fault that a restart clears leaves the node in use.
    cleared = class_of(fault).effect is FaultEffect.RESTARTS
    return Failure(
        cause=FailureCause.INFRASTRUCTURE,
        reason=reason,
        message=message,
        exit_code=ExitCode.STOPPED,
        node=nodes[0] if nodes else None,
        unfit=() if cleared else nodes,
        fault=fault,
    )


def judge_fault(fault: str, restart: Restart, spent: Budget, saved_step: int, seed: str) -> Verdict:
    """Say what would follow if a run were stopped for a fault."""
    return judge(at_fault(fault), restart, spent, saved_step, seed)


def fault_rule(rules: Iterable[RestartRule], fault: str) -> RestartRule | None:
    """Find the rule for a class of faults."""
    return next((rule for rule in rules if rule.on_fault == fault), None)


def _evidence(pods: Iterable[Manifest]) -> Iterator[tuple[str, str, str | None]]:
    """Give what the kubelet and the scheduler say of pods, the most telling first: a disruption explains an exit."""
    found = [
        (list(POD_REASONS).index(word), word, f"pod {pod['metadata']['name']}: {word}", _node(pod))
        for pod in pods
        for word in _words(pod)
        if word in POD_REASONS
    ]
    for _, word, told, node in sorted(found, key=lambda entry: entry[:3]):
        yield word, told, node


def _words(pod: Manifest) -> Iterator[str]:
    state: Mapping[str, Any] = pod.get("status") or {}
    for entry in state.get("conditions") or ():
        if entry["type"] == "DisruptionTarget" and entry["status"] == "True":
            yield str(entry.get("reason", ""))
    yield str(state.get("reason", ""))
    for container in state.get("containerStatuses") or ():
        for when in ("state", "lastState"):
            yield str(((container.get(when) or {}).get("terminated") or {}).get("reason", ""))


def is_killed(pod: Manifest) -> bool:
    """Whether the kernel killed a container of a pod that is not started again, as Ray's is not."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = (((container.get("state") or {}).get("terminated") or {}).get("reason") for container in containers)
    return OOM_KILLED in ends


def _node(pod: Manifest) -> str | None:
    name = (pod.get("spec") or {}).get("nodeName")
    return str(name) if name else None


def restart_of(spec: RLJobSpec) -> Restart:
    """Give how a job's failures are answered: what is saved is worth going on from, unless the job says otherwise."""
    restart = spec.restart
    if restart.max_infrastructure_restarts is not None:
        return restart
    limit = INFRASTRUCTURE_RESTARTS if spec.checkpoint is not None else 0
    return restart.model_copy(update={"max_infrastructure_restarts": limit})


def judge(failure: Failure, restart: Restart, spent: Budget, saved_step: int, seed: str) -> Verdict:
    """Decide what follows a failure.

    `spent` is the budget as it stands, `saved_step` the newest checkpoint, `seed` names job and attempt: the jitter is
    a function of it. Failures before a newer checkpoint are forgiven: a run that gets ahead each time may go on for
    weeks, one that dies at the same place is soon given up.
    """
    budget = renewed(spent, saved_step)
    rule = _matching(restart.rules, failure)
    # Who asked for no restarts needs no word on why there is none.
    wanted = restart.max_restarts or restart.max_infrastructure_restarts or restart.rules
    if rule is not None and rule.action in ("Fail", "Stop"):
        action = Action.FAIL if rule.action == "Fail" else Action.STOP
        return Verdict(action, failure, budget, why=f"restart rule {rule.name}: {rule.action}")
    if rule is None and failure.cause is FailureCause.CONFIGURATION:
        return Verdict(Action.FAIL, failure, budget, why="another attempt would end alike" if wanted else "")
    counted, used_up = _count(budget, failure, restart, rule)
    if used_up:
        return Verdict(Action.FAIL, failure, counted, why=used_up if wanted else "")
    tries = counted.user_failures + counted.infrastructure_failures + counted.uncounted
    wait = _backoff(restart.backoff_seconds, tries, seed)
    action = _scope(failure, restart, counted, wait)
    exclude = rule is not None and rule.action == "ExcludeNodeAndRestart"
    named = f"restart rule {rule.name}: {rule.action}" if rule else f"counted as {failure.cause.value}"
    if exclude and failure.node is None:
        named += ", but no node is known to exclude"
    return Verdict(action, failure, counted, wait, exclude, named)


def renewed(spent: Budget, saved_step: int) -> Budget:
    """Begin a budget anew after a newer checkpoint; after a return to an older one the next newer one does."""
    if saved_step > spent.since_step:
        return Budget(since_step=saved_step)
    # Going back forgives nothing; and no checkpoint at all is nothing that anybody went back to.
    return spent.model_copy(update={"since_step": saved_step}) if saved_step > 0 else spent


def _matching(rules: Iterable[RestartRule], failure: Failure) -> RestartRule | None:
    for rule in rules:
        if failure.exit_code in rule.on_exit_codes or rule.on_reason == failure.reason:
            return rule
        if rule.on_log_pattern is not None and rule.name == failure.rule:
            return rule
        if rule.on_fault is not None and rule.on_fault == failure.fault:
            return rule
    return None


def _count(budget: Budget, failure: Failure, restart: Restart, rule: RestartRule | None) -> tuple[Budget, str]:
    """Count a failure; the words say which budget is used up, if one is."""
    if rule is not None and rule.action == "RestartWithoutCounting":
        new = budget.model_copy(update={"uncounted": budget.uncounted + 1})
        return new, _beyond(new.uncounted, UNCOUNTED_MAX, f"restarts by rule {rule.name}, which counts none,")
    if failure.cause is FailureCause.PREEMPTION:
        return budget, ""
    if failure.cause is FailureCause.INFRASTRUCTURE:
        new = budget.model_copy(update={"infrastructure_failures": budget.infrastructure_failures + 1})
        limit = restart.max_infrastructure_restarts or 0
        return new, _beyond(new.infrastructure_failures, limit, "restart.maxInfrastructureRestarts")
    new = budget.model_copy(update={"user_failures": budget.user_failures + 1})
    return new, _beyond(new.user_failures, restart.max_restarts, "restart.maxRestarts")


def _beyond(count: int, limit: int, name: str) -> str:
    if count <= limit:
        return ""
    return f"{name} {limit} used up" if limit else f"{name} is 0"


def _scope(failure: Failure, restart: Restart, counted: Budget, wait: float) -> Action:
    """A new driver in the same cluster only after a failure of the run itself, and once: then the place is doubted.

    That the devices are registered and free is checked where it can be known, by the launcher: it refuses with exit
    code 65 otherwise, and that is an infrastructure failure.
    """
    own = failure.cause is FailureCause.USER and failure.node is None and wait <= DRIVER_BACKOFF_SECONDS_MAX
    first = restart.scope == "Driver" or (restart.scope == "Auto" and counted.user_failures == 1)
    return Action.RESTART_DRIVER if own and first else Action.RESTART_CLUSTER


def _backoff(base_seconds: int, tries: int, seed: str) -> float:
    """Give the wait: doubled for each failure in a row, bounded, and not the same for jobs that fail together."""
    seconds = min(base_seconds * 2.0 ** min(max(tries - 1, 0), 32), max(BACKOFF_SECONDS_MAX, base_seconds))
    return round(jittered(seconds, seed, BACKOFF_JITTER), 1)
