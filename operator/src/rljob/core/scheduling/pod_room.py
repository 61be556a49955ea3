"""Is any node large enough for the head and for each worker, and do they tolerate its taints?

Called by `discovery` for the nodes whose devices fit. Only the Ray containers are counted, not sidecars and helpers,
and a pod that a podSpecPatch changes is not judged: what is reported as too small never fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from rljob.api.accelerators import AcceleratorFacts
from rljob.api.pods import PodTemplate, Toleration
from rljob.api.quantity import quantity
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.fields import HEAD, WORKERS
from rljob.core.validation.violation import Violation
from rljob.render.accelerators import facts_of
from rljob.render.hardware import sized

OF_KUBERNETES = "node.kubernetes.io/"
"""Prefix of the taints that the node controller sets and removes:
https://kubernetes.io/docs/reference/labels-annotations-taints/"""
KEEPING_OFF = frozenset({"NoSchedule", "NoExecute"})
GIBIBYTE = 2**30
NAMED = 3
"""Taints that a message lists."""


class Taint(NamedTuple):
    """What keeps pods off a node that do not tolerate it."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Return it as kubectl writes it."""
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


@dataclass(frozen=True)
class Offer:
    """What a node has for pods beside devices. None: not known."""

    cpu: Fraction | None = None
    memory: Fraction | None = None
    """In bytes."""
    taints: tuple[Taint, ...] = ()

    def __str__(self) -> str:
        """Return the size in words."""
        return _size_text(self.cpu or Fraction(), self.memory or Fraction())


UNKNOWN = Offer()


@dataclass(frozen=True)
class Need:
    """What a pod requests at least."""

    cpu: Fraction
    memory: Fraction
    tolerations: tuple[Toleration, ...] = ()

    def __str__(self) -> str:
        """Return the size in words."""
        return _size_text(self.cpu, self.memory)

    def __add__(self, other: Need) -> Need:
        """Return what two pods on one node request."""
        return Need(self.cpu + other.cpu, self.memory + other.memory)

    def fits(self, offer: Offer) -> bool:
        """Report whether a node is large enough, or of unknown size."""
        return (offer.cpu is None or offer.cpu >= self.cpu) and (offer.memory is None or offer.memory >= self.memory)

    def takes(self, offer: Offer) -> bool:
        """Report whether the pod may run on a node."""
        return self.fits(offer) and not self.untolerated(offer)

    def untolerated(self, offer: Offer) -> list[Taint]:
        """Return the taints that keep the pod off a node."""
        return [taint for taint in offer.taints if not any(_tolerates(each, taint) for each in self.tolerations)]


def offer_of(manifest: Mapping[str, Any]) -> Offer:
    """Return what a node offers."""
    state, spec = manifest.get("status") or {}, manifest.get("spec") or {}
    amounts = state.get("allocatable") or {}
    taints = (
        Taint(str(taint.get("key", "")), str(taint.get("value") or ""), str(taint.get("effect", "")))
        for taint in spec.get("taints") or ()
    )
    kept = tuple(taint for taint in taints if taint.effect in KEEPING_OFF and not taint.key.startswith(OF_KUBERNETES))
    return Offer(_amount(amounts.get("cpu")), _amount(amounts.get("memory")), kept)


def unplaced(spec: RLJobSpec, offers: Sequence[Offer], fitting: Sequence[Sequence[int]]) -> Iterator[Violation]:
    """Return why workers or head find no node.

    `fitting` lists for each worker group which of the nodes' offers have the devices for one of its workers.
    """
    needs: list[Need] = []
    able = [set(here) for here in fitting]
    if spec.pod_spec_patch.workers is None:
        for (path, group), here in zip(fields.groups(spec), fitting, strict=True):
            need, mine = _need(spec, sized(spec, group), facts_of(spec).resource), [offers[at] for at in here]
            kind = f"of class {spec.accelerator.class_} "
            if (found := _lacks(f"{path}.template", kind, need, mine, group.nodes)) is not None:
                yield found
                return
            needs.append(need)
        able = [{at for at in here if need.takes(offers[at])} for need, here in zip(needs, fitting, strict=True)]
    places = _places(offers, needs, able) if needs else spec.nodes
    # Of a group with several nodes on an NPU class, each worker takes a whole one; others may share.
    if places < spec.nodes and facts_of(spec).is_npu:
        yield _too_few_for_both(spec, needs, places)
        return
    template = spec.head.template
    if spec.pod_spec_patch.head is not None or template.node_selector or template.affinity:
        return
    near = set[int]().union(*fitting)
    everywhere = [*sorted(near), *(at for at in range(len(offers)) if at not in near)]
    head, every = _need(spec, template), [offers[at] for at in everywhere]
    if (found := _lacks(HEAD, "", head, every, 1)) is not None:
        yield found
    elif needs and places == spec.nodes and not _has_place_beside(head, offers, needs, able):
        workers = " or with ".join(dict.fromkeys(map(str, needs)))
        largest = _largest([offers[at] for at in sorted(set[int]().union(*able))])
        yield Violation(
            HEAD,
            f"no node has the {head} of the head beside a worker with {workers}, and the job takes every node that "
            f"fits a worker; the largest offers {largest}; set less cpu and memory in one of the "
            f"{'two ' if len(needs) == 1 else ''}templates",
        )


def _places(offers: Sequence[Offer], needs: Sequence[Need], able: Sequence[set[int]]) -> int:
    """Return the number of workers, at most one of each group on a node, for which nodes are large enough."""
    once = set[int]().union(*able)
    twice = set[int].intersection(*able) if len(able) > 1 else set[int]()
    return len(once) + sum(sum(needs[1:], needs[0]).fits(offers[at]) for at in twice)


def _too_few_for_both(spec: RLJobSpec, needs: Sequence[Need], places: int) -> Violation:
    wanted = " and ".join(f"{each.nodes} with {need}" for each, need in zip(spec.worker_groups, needs, strict=True))
    return Violation(
        "spec.workerGroups",
        f"nodes of class {spec.accelerator.class_} take {places} workers of all groups together, but the job needs "
        f"{wanted}; add nodes, or lower nodes, cpu or memory of a group",
    )


def default_worker_unplaced(name: str, row: AcceleratorFacts, fitting: Sequence[Offer]) -> str:
    """Return why no node takes a worker of the size that a class has by default; empty if one does."""
    if row.pod is None:
        return ""
    need = Need(quantity(row.pod.cpu), quantity(row.pod.memory), (Toleration(key=row.resource),))
    found = _lacks(WORKERS, f"of class {name} ", need, fitting, 1)
    return "" if found is None else found.message


def _has_place_beside(head: Need, offers: Sequence[Offer], needs: Sequence[Need], able: Sequence[set[int]]) -> bool:
    """Report whether a node is left for the head when each that is able to has a worker."""
    taken, tolerated = set[int]().union(*able), {at for at, offer in enumerate(offers) if head.takes(offer)}
    return bool(tolerated - taken) or any(
        (head + need).fits(offers[at]) for need, here in zip(needs, able, strict=True) for at in here & tolerated
    )


def _lacks(field: str, kind: str, need: Need, offers: Sequence[Offer], count: int) -> Violation | None:
    """Return why fewer than `count` nodes take such a pod."""
    sized_right, able = [each for each in offers if need.fits(each)], [each for each in offers if need.takes(each)]
    pod, role = field.removeprefix("spec."), "the head" if field == HEAD else "a worker"
    if len(sized_right) < count:
        seen = f"{len(sized_right)} nodes {kind}have" if sized_right else f"no node {kind}has"
        wanted = f", but the job needs {count}" if sized_right else ""
        return Violation(
            field,
            f"{seen} the {need} that {role} requests{wanted}; the largest offers {_largest(offers)}; set cpu and "
            f"memory of {pod}",
        )
    if len(able) < count:
        seen = f"{len(able)} nodes {kind}take" if able else f"no node {kind}takes"
        taints = list(dict.fromkeys(str(taint) for offer in sized_right for taint in need.untolerated(offer)))
        wanted = f", but the job needs {count}" if able else ""
        return Violation(
            field,
            f"{seen} {role}, which does not tolerate the taint {', '.join(taints[:NAMED])}{wanted}; set tolerations of "
            f"{pod}",
        )
    return None


def _largest(offers: Sequence[Offer]) -> Offer:
    return max(offers, key=lambda offer: (offer.cpu or 0, offer.memory or 0))


def _need(spec: RLJobSpec, template: PodTemplate, resource: str | None = None) -> Need:
    tolerations = list(template.tolerations)
    if spec.scheduling.queue_name is not None:
        # A flavor of Kueue adds its own.
        tolerations.append(Toleration())
    if resource is not None:
        # The admission plugin ExtendedResourceToleration, where it is on.
        tolerations.append(Toleration(key=resource))
    cpu, memory = (quantity(text) if text else Fraction() for text in (template.cpu, template.memory))
    return Need(cpu, memory, tuple(tolerations))


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Apply the rules of https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/."""
    return (
        toleration.effect in (None, taint.effect)
        and toleration.key in (None, taint.key)
        and (toleration.operator == "Exists" or (toleration.value or "") == taint.value)
    )


def _amount(value: object) -> Fraction | None:
    try:
        return None if value is None else quantity(str(value))
    except (ValueError, KeyError):
        return None


def _size_text(cpu: Fraction, memory: Fraction) -> str:
    amounts = ((cpu, " CPUs"), (memory / GIBIBYTE, "Gi"))
    return " and ".join(f"{round(float(amount), 1):g}{unit}" for amount, unit in amounts if amount)
