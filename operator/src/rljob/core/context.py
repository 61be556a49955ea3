"""The parsed form of `Observed` that the steps read: identity, status, intended cluster, status writer."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Self, TypeVar

from pydantic import ValidationError

from rljob.api.evaluation import Evaluation
from rljob.api.export import Export
from rljob.api.lifecycle import Cleanup, Deadlines, Restart, Stop
from rljob.api.status import ConditionStatus, ConditionType, Intent, RLJobStatus
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import times
from rljob.core.attempts.classify import restart_of
from rljob.core.attempts.sanitize import plausible
from rljob.core.derived import Derived
from rljob.core.launcher import LauncherOf
from rljob.core.manifest_facts import is_deleted
from rljob.core.observed import Manifest, Observed, RecipeId, Unseen
from rljob.core.plan import EventNote, Plan
from rljob.core.scheduling.gang import decided_gang
from rljob.core.scheduling.node_faults import NodeFault, node_faults_of
from rljob.core.scheduling.worker_sizes import WorkerSizes
from rljob.core.spec.mutability import change_violations
from rljob.core.spec.recipes import reference_id
from rljob.core.status import Writer, condition, document
from rljob.core.validation.validate import Checked, at_once, checking, validating
from rljob.core.validation.violation import Violation
from rljob.core.watched import Watched
from rljob.render import configmap, labels
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.accelerators import class_is_known, facts_of
from rljob.render.podgroup import Gang, stated_gang
from rljob.render.ports import PortBlock
from rljob_runtime.contract import Progress

SHARED_SERVICE_KINDS = ("NetworkPolicy", "Service", "Deployment")
T = TypeVar("T", Deadlines, Cleanup, Stop, Restart)


@dataclass(frozen=True)
class Context(Watched):
    """What one round knows of one job: beyond what watches deliver, the answers to the requests."""

    observed: Observed
    launcher: LauncherOf
    accelerators: AcceleratorTable
    derived: Derived = field(compare=False, repr=False)
    """What earlier rounds derived from spec, snapshots and recipes alone; new once one of these has changed."""

    @classmethod
    def of(
        cls,
        observed: Observed,
        now: datetime,
        launcher: LauncherOf,
        accelerators: AcceleratorTable,
        derived: Derived | None = None,
    ) -> Self:
        """Return the context of a round."""
        known = (observed.job, observed.clusters, observed.head_pod, now)
        return cls(*known, observed, launcher, accelerators, derived or Derived())

    @cached_property
    def status(self) -> RLJobStatus:
        """What the operator wrote last; `control` has read it before."""
        return self.observed.status or super().status

    @cached_property
    def writer(self) -> Writer:
        """Makes the next status."""
        return Writer(generation=int(self.manifest["metadata"].get("generation", 0)), now=self.now)

    @cached_property
    def checked(self) -> Checked:
        """The spec that the next cluster generation would take."""
        return at_once(self.checking())

    def checking(self) -> Generator[None, None, Checked]:
        """Compute `checked` in parts."""
        return self.derived.checked.computing(self._checking)

    def _checking(self) -> Generator[None, None, Checked]:
        if self.reads_recipes_anew or self.below is None:
            return validating(
                self.job.name,
                self.raw_spec,
                self.observed.recipes,
                launcher=self.launcher,
                accelerators=self.accelerators,
                created=self.is_as_created,
            )
        return self._over_frozen(self.below)

    @cached_property
    def live(self) -> Checked:
        """The spec merged over the recipes of the running job: for fields that take effect at once."""
        if self.below is None or not self.reads_recipes_anew:
            return self.checked
        return at_once(self._over_frozen(self.below))

    def _over_frozen(self, frozen: configmap.Snapshot) -> Generator[None, None, Checked]:
        return checking(
            self.job.name, self.raw_spec, frozen.recipes, launcher=self.launcher, accelerators=self.accelerators
        )

    @cached_property
    def next_violations(self) -> tuple[Violation, ...]:
        """What is wrong with the spec that the next cluster generation would take."""
        wanted, frozen = self.checked, self.frozen_spec
        if wanted.spec is None or frozen is None:
            return wanted.violations
        return tuple(change_violations(frozen, wanted.spec))

    @property
    def refresh(self) -> str | None:
        """The value by which the user last asked to read the recipes again."""
        return (self.manifest["metadata"].get("annotations") or {}).get(labels.REFRESH)

    @property
    def reads_recipes_anew(self) -> bool:
        """Whether the next cluster generation takes the recipes as they are now: only when the user asks for it."""
        if self.below is None:
            return True
        taken = self.below.recipes[-1].origin if self.below.recipes else None
        named = reference_id(self.raw_spec.get("recipeRef"))
        if named != (RecipeId(taken.kind, taken.name) if taken else None):
            return True
        return self.refresh not in (None, self.below.refresh)

    @property
    def head_is_leaving(self) -> bool:
        """Whether the head pod is being deleted: the run saves, and the exporter answers for a few seconds only."""
        return self.head_pod is not None and is_deleted(self.head_pod)

    @cached_property
    def answer(self) -> Progress | None:
        """The exporter's answer, cut to plausible values; None if it did not answer."""
        return None if isinstance(self.observed.progress, Unseen) else plausible(self.observed.progress, self.now)

    def could_begin(self, cluster: Manifest) -> datetime:
        """Return when the cluster was created, or admitted by its queue if that was later."""
        begun, admitted = cluster["metadata"]["creationTimestamp"], condition(self.status, ConditionType.ADMITTED)
        if admitted is not None and admitted.status == ConditionStatus.TRUE:
            begun = max(begun, admitted.last_transition_time)
        return times.from_text(begun)

    @cached_property
    def frozen(self) -> configmap.Snapshot | None:
        """The snapshot that the job uses; None if it does not exist, was not read or is not ours."""
        return self.derived.frozen.get(lambda: self._snapshot(self.observed.snapshot))

    @cached_property
    def below(self) -> configmap.Snapshot | None:
        """The snapshot whose recipes the spec is merged over: the job's own, or the previous one until that exists."""
        return self.frozen or self._snapshot(self.observed.base_snapshot)

    def _snapshot(self, found: Manifest | Unseen | None) -> configmap.Snapshot | None:
        if not isinstance(found, Mapping) or not self.made(found):
            return None
        try:
            return configmap.read_snapshot(found, self.accelerators)
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def frozen_spec(self) -> RLJobSpec | None:
        """The spec that the job uses."""
        return self.frozen.spec if self.frozen else None

    @cached_property
    def frozen_cluster(self) -> Manifest | None:
        """The RayCluster to create; None if its ConfigMap does not exist, was not read or is not ours."""
        found = self.observed.config
        if not isinstance(found, Mapping) or not self.made(found):
            return None
        try:
            manifest = configmap.read_raycluster(found)
            metadata = manifest["metadata"]
            named = (manifest["kind"], metadata["namespace"], metadata["name"])
        except (KeyError, TypeError, ValueError):
            return None
        # A user with write access to ConfigMaps must not make the operator create anything else with its own rights.
        return manifest if named == ("RayCluster", self.job.namespace, self.intent.cluster_name) else None

    @cached_property
    def frozen_pod_group(self) -> Manifest | None:
        """The PodGroup to create before the cluster; None without Volcano. It is trusted as little as the cluster."""
        found = self.observed.config
        if self.frozen_cluster is None or not isinstance(found, Mapping):
            return None
        try:
            manifest = configmap.read_pod_group(found)
            if manifest is None:
                return None
            metadata = manifest["metadata"]
            named = (manifest["kind"], metadata["namespace"], metadata["name"])
        except (KeyError, TypeError, ValueError):
            return None
        return manifest if named == ("PodGroup", self.job.namespace, self.intent.cluster_name) else None

    @cached_property
    def frozen_services(self) -> tuple[Manifest, ...]:
        """The objects of shared services to create before the cluster, as far as the status names them."""
        found = self.observed.config
        if self.frozen_cluster is None or not isinstance(found, Mapping):
            return ()
        known = self.status.services
        allowed = {(kind, self.job.namespace, name) for kind in SHARED_SERVICE_KINDS for name in known}
        try:
            manifests = configmap.read_services(found)
            named = [(each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]) for each in manifests]
        except (KeyError, TypeError, ValueError):
            return ()
        return tuple(each for each, name in zip(manifests, named, strict=True) if name in allowed)

    @property
    def gang(self) -> Gang:
        """Which scheduler starts all pods together, as decided when the job began."""
        if (decided := decided_gang(self.resolved)) is not None:
            return decided
        return Gang.NONE if self.frozen_spec is None else stated_gang(self.frozen_spec)

    @cached_property
    def pod_group(self) -> Manifest | None:
        """The PodGroup of the intended generation."""
        return next((g for g in self.observed.pod_groups if g["metadata"]["name"] == self.intent.cluster_name), None)

    @property
    def reserved_ports(self) -> PortBlock | None:
        """The ports that this generation is rendered with; `reserve_ports` recorded them."""
        spec, network = self.frozen_spec, self.status.network
        if spec is None or spec.network.mode != "Host" or network is None:
            return None
        return PortBlock(network.port_block)

    def made(self, manifest: Manifest) -> bool:
        """Report whether this job controls an object; the chart's policies let nobody else write such a reference."""
        owners = manifest["metadata"].get("ownerReferences") or ()
        mine = {"kind": "RLJob", "uid": self.job.uid, "controller": True}.items()
        return any(mine <= owner.items() for owner in owners)

    @property
    def _at_once(self) -> RLJobSpec | None:
        """The spec for fields that take effect at once; an invalid edit falls back to what the job began with."""
        return self.live.spec or self.frozen_spec

    @property
    def deadlines(self) -> Deadlines:
        """`spec.deadlines`, which may change while the job runs."""
        return self._at_once.deadlines if self._at_once else _section(self.manifest, "deadlines", Deadlines())

    @property
    def cleanup(self) -> Cleanup:
        """`spec.cleanup`, which may change while the job runs."""
        return self._at_once.cleanup if self._at_once else _section(self.manifest, "cleanup", Cleanup())

    @property
    def export(self) -> Export | None:
        """`spec.export`, which may change while the job runs and afterwards."""
        return self._at_once.export if self._at_once else None

    @property
    def evaluation(self) -> Evaluation | None:
        """`spec.evaluation`, which may change while the job runs and afterwards."""
        return self._at_once.evaluation if self._at_once else None

    @property
    def stop(self) -> Stop:
        """`spec.stop`, which may change while the job runs."""
        return self._at_once.stop if self._at_once else _section(self.manifest, "stop", Stop())

    @property
    def restart(self) -> Restart:
        """`spec.restart`, which may change while the job runs."""
        return restart_of(self._at_once) if self._at_once else _section(self.manifest, "restart", Restart())

    @property
    def restarts_by_itself(self) -> bool:
        """Whether the operator, and not the user, starts the next attempt."""
        return self.status.next_attempt_time is not None

    @cached_property
    def node_faults(self) -> tuple[NodeFault, ...] | Unseen:
        """The faults of the running attempt's nodes, the worst first; unseen if one of the nodes was not read."""
        held, looks, spec = self.observed.held, self.observed.looks, self.frozen_spec
        if isinstance(held, Unseen) or spec is None or not class_is_known(spec):
            return Unseen.UNSEEN
        found = node_faults_of(held, looks, facts_of(spec).resource, WorkerSizes.of_spec(spec))
        # Only if every node was read can it be said that none has a fault.
        return found if found or all(place.node in looks for place in held) else Unseen.UNSEEN

    @property
    def worker_sizes(self) -> WorkerSizes | None:
        """The devices of the workers of this cluster generation; None if its spec cannot be read."""
        return WorkerSizes.of_spec(self.frozen_spec) if self.frozen_spec else None

    def timed_anew(self) -> Intent:
        """Return the intent with its start deadline counted from now."""
        return self.timed(self.intent, self.now)

    def timed(self, intent: Intent, begin: datetime) -> Intent:
        """Return an intent with its start deadline counted from `begin`."""
        seconds = self.deadlines.start_seconds
        deadline = times.to_text(begin + timedelta(seconds=seconds))
        return intent.model_copy(update={"start_deadline": deadline, "start_seconds": seconds})

    def write(self, status: RLJobStatus, *events: EventNote, requeue: float | None = None, rests: bool = False) -> Plan:
        """Plan a status write. If it would change nothing, only `requeue` remains: events and `rests` belong to it."""
        same = status is self.status or document(status) == document(self.status)
        if same and "status" in self.manifest:
            return Plan(requeue_after_seconds=requeue)
        return Plan(status=document(status), events=events, requeue_after_seconds=requeue, rests=rests)

    def write_change(self, status: RLJobStatus, *events: EventNote) -> Plan | None:
        """Plan a status write with the events that report it; None if it would change nothing."""
        plan = self.write(status, *events)
        return None if plan.empty else plan


def _section(job: Manifest, name: str, default: T) -> T:
    try:
        return type(default).model_validate((job.get("spec") or {}).get(name) or {})
    except ValidationError:
        return default
