"""Whose failure was it, and what follows: from the end of an attempt to a verdict.

One table classifies what the launcher, Ray, the kubelet and the operator report about an end. The rules of
`spec.restart` take precedence, and the restart budgets decide last. How a restart is executed is not known here.
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
"""A longer wait does not help against another failure of the same kind, and the NPUs are free meanwhile."""
KEPT_BACKOFF_SECONDS_MAX = 60.0
"""While a cluster waits for its next driver the NPUs are idle; for longer waits they are freed."""
BACKOFF_JITTER = 0.1
INFRASTRUCTURE_RESTARTS = 3
"""The default: one lost node needs no attention, but four losses in a row without a checkpoint do."""
UNCOUNTED_MAX = 100
"""Restarts by a rule that counts none are bounded as well."""


class Action(enum.StrEnum):
    """What follows the end of an attempt."""

    FAIL = "Fail"
    STOP = "Stop"
    """The job ends as Stopped: by a rule, not as a failure."""
    RESTART_DRIVER = "RestartDriver"
    """Another attempt in the same cluster."""
    RESTART_WORKERS = "RestartWorkers"
    """Another attempt in the same cluster, once KubeRay has replaced the workers that were lost."""
    RESTART_CLUSTER = "RestartCluster"
    """Another attempt in a new cluster."""


@dataclass(frozen=True)
class FailureRow:
    """What a reason or an exit code means."""

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
    # The operator did not ask for this stop, or the end would not be classified: the preStop hook of a pod did.
    ExitCode.STOPPED: FailureRow(FailureCause.PREEMPTION, _CONTRACT),
    ExitCode.STALLED: FailureRow(FailureCause.INFRASTRUCTURE, _CONTRACT),
    # A stop rule: a restart does not change the metrics of the run. Restart rules are applied before.
    ExitCode.RULE_MATCHED: FailureRow(FailureCause.CONFIGURATION, _CONTRACT),
}
REASONS: Mapping[str, FailureRow] = {
    Reason.CLUSTER_LOST: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.HEAD_LOST: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.DRIVER_LOST: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.WORKER_LOST: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.HEAD_SILENT: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.START_DEADLINE_EXCEEDED: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.CONTAINER_CANNOT_START: FailureRow(FailureCause.CONFIGURATION, _OPERATOR),
    Reason.PROGRESS_DEADLINE_EXCEEDED: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    Reason.ACTIVE_DEADLINE_EXCEEDED: FailureRow(FailureCause.CONFIGURATION, _OPERATOR),
    Reason.DRIVER_STOPPED: FailureRow(FailureCause.CONFIGURATION, _OPERATOR),
    Reason.DEVICE_FAULT: FailureRow(FailureCause.INFRASTRUCTURE, _OPERATOR),
    "NodeLost": FailureRow(FailureCause.INFRASTRUCTURE, _OUTCOMES),
    "ProcessLost": FailureRow(FailureCause.INFRASTRUCTURE, _OUTCOMES),
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


LOSES_PODS = frozenset(
    {
        *(Reason.WORKER_LOST, "NodeLost", OOM_KILLED),
        *("EvictionByEvictionAPI", "DeletionByTaintManager", "DeletionByPodGC", "TerminationByKubelet"),
        *("Evicted", "NodeShutdown", "Terminated"),
    }
)
"""Reasons for which pods are gone and the others are as good as before. Not a preemption by the scheduler: a pod of
higher priority has the place, and the devices of the others would wait for another one."""


DELETED = "a pod of the cluster was deleted, so that its preStop hook stopped the run"


@dataclass(frozen=True)
class Failure:
    """The classified end of an attempt."""

    cause: FailureCause
    reason: str
    message: str
    exit_code: int
    rule: str | None = None
    """The rule whose pattern matched the driver's log."""
    node: str | None = None
    unfit: tuple[str, ...] = ()
    """Faulty nodes, found by the launcher's check or during the run; the next cluster avoids them."""
    fault: str | None = None
    """Class of the nodes' fault, if they have one."""


@dataclass(frozen=True)
class Verdict:
    """What follows."""

    action: Action
    failure: Failure
    budget: Budget
    """The budget after this failure."""
    wait_seconds: float = 0.0
    exclude: bool = False
    """A rule attributes the failure to the node."""
    why: str = ""
    """Message for the user."""
    first: bool = False
    """Whether no failure preceded it since the last checkpoint."""


def classify(outcome: Outcome, pods: Iterable[Manifest] = (), killed: Iterable[str] = ()) -> Failure:
    """Classify an outcome; `pods` are those of the cluster that still exist.

    Pods whose Ray the kernel killed may be gone; their names suffice.
    """
    # With a restart rule the exit code only means that a rule matched.
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
    for word, seen, node in (*_evidence(pods), *gone):
        message = f"{seen}; {outcome.message}" if outcome.message else seen
        return replace(failure, cause=POD_REASONS[word].cause, reason=word, message=message, node=node)
    if code == ExitCode.STOPPED:
        return replace(failure, cause=FailureCause.PREEMPTION, message=f"{DELETED}; {outcome.message}")
    row = REASONS.get(failure.reason) or final
    return replace(failure, cause=row.cause) if row is not None else failure


DOUBTFUL = frozenset(
    {
        Reason.WORKER_LOST,
        Reason.HEAD_LOST,
        Reason.DRIVER_LOST,
        Reason.HEAD_SILENT,
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        "NodeLost",
        "ProcessLost",
        "RayUnavailable",
    }
)
"""Reasons that state a symptom and no cause: the fault of a node explains them."""


def with_node_faults(failure: Failure, node_faults: Sequence[NodeFault]) -> Failure:
    """Attribute an unexplained end to faulty nodes: a lost device looks like an error of the process that used it."""
    blamed = tuple(node_fault for node_fault in node_faults if node_fault.row.effect >= FaultEffect.AVOIDS)
    # The launcher found a fault of its nodes by a check of its own, except where it reports a symptom only.
    conclusive = failure.exit_code == ExitCode.ENVIRONMENT or failure.reason in {**POD_REASONS, **REASONS}
    known = conclusive and failure.reason not in DOUBTFUL
    if not blamed or known or failure.cause in (FailureCause.CONFIGURATION, FailureCause.PREEMPTION):
        return failure
    message = "; ".join(text for text in (listed(blamed), failure.message) if text)
    nodes = tuple(dict.fromkeys(node_fault.node for node_fault in blamed))
    reason = blamed[0].row.reason
    return replace(at_fault(blamed[0].name, nodes, message, reason), exit_code=failure.exit_code, rule=failure.rule)


UNEXPLAINED = frozenset({Reason.DRIVER_FAILED, "RunFailed"})
"""Reasons of an end that nothing classified (rljob_runtime.outcomes, from_error)."""


def with_doubt(failure: Failure, attempts: Sequence[Attempt], last_step: int) -> Failure:
    """Attribute an unexplained end before the first step to the infrastructure, once, if an earlier attempt trained.

    A run that has trained before can start: a port that was taken meanwhile or a short outage of a file system must not
    cost it a restart of its own. If the next attempt fails at its start as well, it is a failure of the run. Attempts
    in between that made no step and whose end is explained do not count. The last of `attempts` is the one that ended,
    at `last_step`.
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
    """Report whether an attempt made a step; without a step it carries the last step of the attempt before."""
    return attempt.start_time is not None and last_step > attempt.resumed_from_step


def at_fault(fault: str, nodes: tuple[str, ...] = (), message: str = "", reason: str = Reason.DEVICE_FAULT) -> Failure:
    """Return the failure of a run on faulty hardware; the first node is the worst."""
    # A node whose fault a restart clears stays in use.
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
    """Return what would follow if a run were stopped for a fault."""
    return judge(at_fault(fault), restart, spent, saved_step, seed)


def fault_rule(rules: Iterable[RestartRule], fault: str) -> RestartRule | None:
    """Return the rule for a class of faults."""
    return next((rule for rule in rules if rule.on_fault == fault), None)


def _evidence(pods: Iterable[Manifest]) -> Iterator[tuple[str, str, str | None]]:
    """Yield what the kubelet and the scheduler report about pods, disruptions first, because they explain an exit."""
    found = [
        (list(POD_REASONS).index(word), word, f"pod {pod['metadata']['name']}: {word}", _node(pod))
        for pod in pods
        for word in _words(pod)
        if word in POD_REASONS
    ]
    for _, word, seen, node in sorted(found, key=lambda entry: entry[:3]):
        yield word, seen, node


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
    """Report whether the kernel killed a container that is not restarted, such as Ray's."""
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = (((container.get("state") or {}).get("terminated") or {}).get("reason") for container in containers)
    return OOM_KILLED in ends


def _node(pod: Manifest) -> str | None:
    name = (pod.get("spec") or {}).get("nodeName")
    return str(name) if name else None


def restart_of(spec: RLJobSpec) -> Restart:
    """Return the restart policy of a job: with checkpoints it restarts after losses unless the job says otherwise."""
    restart = spec.restart
    if restart.max_infrastructure_restarts is not None:
        return restart
    limit = INFRASTRUCTURE_RESTARTS if spec.checkpoint is not None else 0
    return restart.model_copy(update={"max_infrastructure_restarts": limit})


def judge(failure: Failure, restart: Restart, spent: Budget, saved_step: int, seed: str) -> Verdict:
    """Decide what follows a failure.

    `spent` is the current budget, `saved_step` the newest checkpoint, and `seed` names job and attempt; the jitter is a
    function of it. A newer checkpoint resets the budget: a run that makes progress each time may continue for weeks,
    while one that fails at the same place is soon given up.
    """
    budget = renewed(spent, saved_step)
    rule = _matching(restart.rules, failure)
    # Without restarts configured there is nothing to explain.
    wanted = restart.max_restarts or restart.max_infrastructure_restarts or restart.rules
    if rule is not None and rule.action in ("Fail", "Stop"):
        action = Action.FAIL if rule.action == "Fail" else Action.STOP
        return Verdict(action, failure, budget, why=f"restart rule {rule.name}: {rule.action}")
    if rule is None and failure.cause is FailureCause.CONFIGURATION:
        return Verdict(Action.FAIL, failure, budget, why="another attempt would end the same way" if wanted else "")
    counted, used_up = _count(budget, failure, restart, rule)
    if used_up:
        return Verdict(Action.FAIL, failure, counted, why=used_up if wanted else "")
    tries = counted.user_failures + counted.infrastructure_failures + counted.uncounted
    wait = _backoff(restart.backoff_seconds, tries, seed)
    first = tries <= (failure.cause is not FailureCause.PREEMPTION)
    action = _scope(failure, restart, wait, first=first)
    exclude = rule is not None and rule.action == "ExcludeNodeAndRestart"
    named = f"restart rule {rule.name}: {rule.action}" if rule else _counted(failure.cause, counted, restart)
    if exclude and failure.node is None:
        named += ", but the node to exclude is not known"
    return Verdict(action, failure, counted, wait, exclude, named, first)


def _counted(cause: FailureCause, counted: Budget, restart: Restart) -> str:
    """Return what a restart costs."""
    if cause is FailureCause.PREEMPTION:
        return "counts against no limit of restarts"
    if cause is FailureCause.INFRASTRUCTURE:
        number, limit = counted.infrastructure_failures, restart.max_infrastructure_restarts
        return f"{number} of {limit} by restart.maxInfrastructureRestarts"
    return f"{counted.user_failures} of {restart.max_restarts} by restart.maxRestarts"


def renewed(spent: Budget, saved_step: int) -> Budget:
    """Reset a budget after a newer checkpoint; after a return to an older one, the next newer one resets it."""
    if saved_step > spent.since_step:
        return Budget(since_step=saved_step)
    # Going back does not reset the budget, and without a checkpoint there is nothing to go back to.
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
    """Count a failure; the text names the budget that is used up, if one is."""
    if rule is not None and rule.action == "RestartWithoutCounting":
        new = budget.model_copy(update={"uncounted": budget.uncounted + 1})
        return new, _beyond(new.uncounted, UNCOUNTED_MAX, f"restarts by rule {rule.name}, which are not counted,")
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


def _scope(failure: Failure, restart: Restart, wait: float, *, first: bool) -> Action:
    """Keep the cluster after the first failure of the run itself, or the first loss of pods; then replace it.

    The launcher checks that the devices are registered and free. If not, it refuses with exit code 65, which is an
    infrastructure failure.
    """
    keeps = first if restart.scope == "Auto" else restart.scope != "Cluster"
    if loses_pods(failure) and restart.scope != "Driver":
        # The first time, the replacement of the pods is all that is waited for.
        keeps = keeps and (first or wait <= KEPT_BACKOFF_SECONDS_MAX)
        return Action.RESTART_WORKERS if keeps else Action.RESTART_CLUSTER
    own = failure.cause is FailureCause.USER and failure.node is None and wait <= KEPT_BACKOFF_SECONDS_MAX
    return Action.RESTART_DRIVER if own and keeps else Action.RESTART_CLUSTER


def loses_pods(failure: Failure) -> bool:
    """Report whether an attempt ended because pods are gone, and nothing speaks against the others."""
    if failure.unfit or failure.fault is not None:
        return False
    # A stop that the operator did not ask for comes from the hook of a pod that is being deleted.
    asked = failure.cause is FailureCause.PREEMPTION and failure.exit_code == ExitCode.STOPPED
    return failure.reason in LOSES_PODS or (asked and failure.reason not in POD_REASONS)


def _backoff(base_seconds: int, tries: int, seed: str) -> float:
    """Return the wait: doubled for each failure in a row, bounded, and with jitter for jobs that fail together."""
    seconds = min(base_seconds * 2.0 ** min(max(tries - 1, 0), 32), max(BACKOFF_SECONDS_MAX, base_seconds))
    return round(jittered(seconds, seed, BACKOFF_JITTER), 1)
