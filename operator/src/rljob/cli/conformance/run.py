"""Go through the stages: create the job, disturb it, and delete everything at the end, whatever happened.

Every wait has a deadline, and ends earlier when the job has failed or cannot start for a reason that does not go away
by itself. Writes only objects that carry the label of the run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rljob.api.accelerators import AcceleratorFacts
from rljob.api.status import State
from rljob.api.v1alpha1 import GROUP
from rljob.cli import kubectl
from rljob.cli.conformance import gather, image_pod
from rljob.cli.conformance.claims import Row, Stage, first_blocker, judge_all
from rljob.cli.conformance.clock import POLL_SECONDS, Clock, Trouble
from rljob.cli.conformance.cluster_judges import fitting_nodes, image_of
from rljob.cli.conformance.facts import ConformancePlan, Facts, Fault, ImageFacts, Waited
from rljob.cli.conformance.manifests import LABEL, manifests
from rljob.cli.conformance.run_judges import bound_is_known
from rljob.cli.describe import why
from rljob.cli.errors import UsageError
from rljob.cli.status import ENDED
from rljob.cli.world import read_world
from rljob.core.attempts.start_diagnosis import PROBLEMS
from rljob.core.reasons import Reason
from rljob.render import labels

SAY_SECONDS = 20.0
"""Maximum interval between two lines about a wait."""
SECONDS = {
    Stage.START: 1500.0,
    Stage.TRAIN: 600.0,
    Stage.KILL: 900.0,
    Stage.SUSPEND: 900.0,
    Stage.FINISH: 900.0,
    Stage.CLEANUP: 240.0,
}
"""Deadline of each wait. START includes pulling the image on other nodes and making the model."""
BINDING_SECONDS = 60.0
HOPELESS = frozenset(
    {
        *PROBLEMS,
        Reason.WAITING_FOR_KUBERAY,
        Reason.WAITING_FOR_NODES,
        Reason.WAITING_FOR_DEVICES,
        Reason.NO_WORKLOAD,
        Reason.DEACTIVATED,
        Reason.GANG_UNAVAILABLE,
        Reason.CONFIG_MAP_REFUSED,
        Reason.SECRET_REFUSED,
        Reason.JOB_REFUSED,
        Reason.POD_GROUP_REFUSED,
        Reason.RAY_CLUSTER_REFUSED,
    }
)
UNANSWERED_MAX = 5
"""Consecutive polls that kubectl may fail."""

Status = Mapping[str, Any]
CheckImage = Callable[[ConformancePlan, str, Sequence[str], kubectl.Place, Clock], ImageFacts]
MakeObjects = Callable[[ConformancePlan, AcceleratorFacts], Sequence[Mapping[str, Any]]]


def say(text: str) -> None:
    """Print a line of progress. Standard output is for the result."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Run:
    """One run. `facts` and `done` grow with every stage."""

    facts: Facts
    accelerator: AcceleratorFacts
    place: kubectl.Place
    clock: Clock = field(default_factory=Clock)
    make_objects: MakeObjects = manifests
    """Objects to create; the end-to-end tests replace the trainer."""
    check_image: CheckImage = image_pod.check_image
    """Check of the image; the end-to-end tests check for another launcher."""
    last: Stage = Stage.FINISH
    """Last stage before the cleanup."""
    done: set[Stage] = field(default_factory=set)
    created: bool = False

    @property
    def plan(self) -> ConformancePlan:
        """Return what the run uses."""
        return self.facts.plan

    def rows(self) -> list[Row]:
        """Judge what was gathered so far."""
        return judge_all(self.facts, frozenset(self.done))

    def go(self) -> list[Row]:
        """Go through all stages and return every claim with its verdict."""
        try:
            for stage, gather_facts in self._stages():
                say(f"{stage}: {TITLES[stage]}")
                self._gather(stage, gather_facts)
                for row in self.rows():
                    if row.claim.stage is stage:
                        say(f"  {row.verdict.result}: {row.claim.id}: {row.verdict.text}")
                if stage is self.last or first_blocker(self.rows()) is not None:
                    break
        except KeyboardInterrupt:
            say("interrupted")
            self.facts = replace(self.facts, interrupted=True)
        finally:
            self._clean()
        return self.rows()

    def _stages(self) -> Sequence[tuple[Stage, Callable[[], None]]]:
        return (
            (Stage.CLUSTER, self._cluster),
            (Stage.IMAGE, self._image),
            (Stage.START, self._start),
            (Stage.TRAIN, self._train),
            (Stage.KILL, self._kill),
            (Stage.SUSPEND, self._suspend),
            (Stage.FINISH, self._finish),
        )

    def _gather(self, stage: Stage, gather_facts: Callable[[], None]) -> None:
        try:
            gather_facts()
        except UsageError as error:
            # What the caller may not read is no error there: the cluster was not reached, so nothing can be claimed.
            if stage is Stage.CLUSTER:
                raise
            self.facts = replace(self.facts, errors={**self.facts.errors, stage: str(error)})
        self.done.add(stage)

    def _cluster(self) -> None:
        self.facts = replace(self.facts, cluster=gather.read_cluster(self.place))

    def _image(self) -> None:
        operators = self.facts.cluster.operators if self.facts.cluster else None
        if not operators:
            found = ImageFacts(skipped="the operator's image, which brings the check, could not be read")
        elif len({image_of(each) for each in operators}) > 1:
            # Any tenant can label a Deployment of theirs.
            found = ImageFacts(skipped="Deployments with the labels of the operator have different images")
        else:
            self.created = True
            found = self.check_image(
                self.plan, image_of(operators[0]), fitting_nodes(self.facts), self.place, self.clock
            )
        self.facts = replace(self.facts, image=found)

    def _start(self) -> None:
        self.created = True
        for manifest in self.make_objects(self.plan, self.accelerator):
            say(f"  creating {manifest['kind']} {manifest['metadata']['name']}")
            kubectl.create(manifest, self.place)
        started = self._follow(Stage.START, lambda status: _step(status) >= 1)
        self.facts = replace(self.facts, started=started)
        if started.status.get("attempts"):
            self.facts = replace(self.facts, pods=gather.read_pods(self.plan.name, self.place))

    def _train(self) -> None:
        trained = self._follow(Stage.TRAIN, lambda status: bool(status.get("checkpoint")))
        self.facts = replace(self.facts, trained=trained)
        deadline = self.clock.now() + BINDING_SECONDS
        pods = gather.read_pods(self.plan.name, self.place)
        while not bound_is_known(pods) and self.clock.now() < deadline:
            self.clock.sleep(POLL_SECONDS)
            pods = gather.read_pods(self.plan.name, self.place)
        self.facts = replace(self.facts, pods=pods)

    def _kill(self) -> None:
        before = self._status()
        pod = gather.kill_worker(self.plan.name, self.place)
        say(f"  killed every process of pod {pod} at step {_step(before)}")
        after = self._follow(Stage.KILL, _trains_again(before))
        self.facts = replace(self.facts, killed=Fault(before, after, target=pod))

    def _suspend(self) -> None:
        before = self._status()
        say(f"  suspending the job at step {_step(before)}")
        self._set_suspend(suspend=True)
        suspended = self._follow(Stage.SUSPEND, lambda status: status.get("state") == State.SUSPENDED)
        left, after = gather.ray_pods(self.plan.name, self.place), suspended
        if suspended.reached:
            say(f"  resuming the job, {len(left)} pods are left")
            self._set_suspend(suspend=False)
            after = self._follow(Stage.SUSPEND, _trains_again(before))
        self.facts = replace(self.facts, suspended=Fault(before, after, pods_left=tuple(left), suspended=suspended))

    def _finish(self) -> None:
        finished = self._follow(Stage.FINISH, lambda status: status.get("state") == State.SUCCEEDED)
        self.facts = replace(self.facts, finished=finished)

    def _set_suspend(self, *, suspend: bool) -> None:
        patch = json.dumps({"spec": {"suspend": suspend}})
        kubectl.run(["patch", f"rljobs.{GROUP}", self.plan.name, "--type=merge", "--patch", patch], self.place)

    def _status(self) -> Status:
        return kubectl.get_job(self.plan.name, self.place).get("status") or {}

    def _follow(self, stage: Stage, until: Callable[[Status], bool]) -> Waited:
        """Poll the job until it is there, has ended, cannot continue, or the deadline is over."""
        begin, shown, said, trouble, silent = self.clock.now(), "", 0.0, Trouble(), 0
        seen: set[str] = set()
        status: Status = {}
        end = ""
        while True:
            try:
                status, silent = self._status(), 0
            except UsageError:
                silent += 1
                if silent > UNANSWERED_MAX:
                    raise
            now = self.clock.now()
            seen |= {one["type"] for one in status.get("conditions") or () if one["status"] == "True"}
            if until(status):
                return Waited(status, reached=True, seconds=now - begin, conditions=frozenset(seen))
            line = _line(status)
            if line != shown or now - said >= SAY_SECONDS:
                say(f"  {now - begin:4.0f} s  {line}")
                shown, said = line, now
            trouble = trouble.next(now, troubled=status.get("reason") in HOPELESS)
            if status.get("state") in ENDED:
                break
            if trouble.lasts(self.clock):
                end = f"for {self.clock.patience_seconds:.0f} s"
                break
            if now - begin >= SECONDS[stage]:
                end = f"after {now - begin:.0f} s"
                break
            self.clock.sleep(POLL_SECONDS)
        return Waited(status, reached=False, seconds=now - begin, conditions=frozenset(seen), why=self._why(end))

    def _why(self, end: str) -> str:
        try:
            reason = why(read_world(kubectl.get_job(self.plan.name, self.place), self.place))
        except UsageError as error:
            reason = str(error)
        return f"{reason.rstrip('.')} ({end})" if end else reason

    def _clean(self) -> None:
        """Delete what was created; a second Ctrl-C leaves it and says how to delete it."""
        if not self.created:
            self.done.add(Stage.CLEANUP)
            return
        selector, name = f"{LABEL}={self.plan.run}", self.plan.name
        chosen = (("namespace", self.place.namespace), ("context", self.place.context))
        place = "".join(f" --{option} {value}" for option, value in chosen if value)
        by_hand = f"kubectl delete {','.join(gather.CREATED)}{place} --selector {selector}"
        if self.plan.keep:
            say(f"kept; to delete: {by_hand}")
            self.done.add(Stage.CLEANUP)
            return
        say("cleanup: deleting what the run created")
        try:
            left = self._delete(selector, name)
        except (UsageError, KeyboardInterrupt) as error:
            cause = str(error) or "interrupted"
            say(f"cleanup was not completed ({cause}); to delete the rest: {by_hand}")
            left = [f"objects with the label {selector} (not looked for: {cause})"]
        self.facts = replace(self.facts, left=tuple(left))
        self.done.add(Stage.CLEANUP)

    def _delete(self, selector: str, name: str) -> list[str]:
        job = f"rljobs.{GROUP}"
        if kubectl.list_items(job, self.place, "--selector", selector):
            forced = f"{labels.FORCE_DELETE}=true"
            kubectl.run(["annotate", "--overwrite", job, name, forced], self.place)
        for resource in gather.CREATED:
            # --ignore-not-found holds for selectors by itself.
            kubectl.run(["delete", resource, "--selector", selector, "--wait=false"], self.place)
        deadline = self.clock.now() + SECONDS[Stage.CLEANUP]
        left = gather.left_objects(self.plan.run, name, self.place)
        while left and self.clock.now() < deadline:
            self.clock.sleep(POLL_SECONDS)
            left = gather.left_objects(self.plan.run, name, self.place)
        return left


TITLES = {
    Stage.CLUSTER: "reading API, operator, KubeRay, storage and nodes",
    Stage.IMAGE: "checking the image",
    Stage.START: "creating a job that makes its model, and waiting for its first step",
    Stage.TRAIN: "waiting for its first checkpoint",
    Stage.KILL: "killing the processes of its worker pod, and waiting until it trains again",
    Stage.SUSPEND: "suspending it, and waiting until it trains again",
    Stage.FINISH: "waiting for its last step",
}


def _step(status: Status) -> int:
    return int((status.get("progress") or {}).get("step") or 0)


def _trains_again(before: Status) -> Callable[[Status], bool]:
    """Return whether a later attempt has completed a step of its own."""
    last = int(before["attempts"][-1]["number"])

    def until(status: Status) -> bool:
        attempts = status.get("attempts") or ()
        if not attempts or int(attempts[-1]["number"]) <= last:
            return False
        resumed = int(attempts[-1].get("resumedFromStep") or 0)
        # Until the trainer has loaded, the status has neither.
        return resumed > 0 and _step(status) > resumed and status.get("state") not in (State.STARTING, State.RESTARTING)

    return until


def _line(status: Status) -> str:
    state = f"{status.get('state', 'no status yet')}"
    progress = (status.get("progress") or {}).get("summary")
    step = f", step {progress}" if progress else ""
    message = " ".join(str(status.get("message") or "").split())
    return f"{state}{step}: {message}"[:160].rstrip(": ")
