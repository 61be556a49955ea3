"""`rljob quota`: the cards of each team in Kueue, the jobs that use them and the jobs that wait.

A team is a ClusterQueue. Kueue counts devices. A ResourceFlavor of the chart states how many of them a card has (the
annotation below); elsewhere a device counts as a card. CPUs and memory are proportional to the cards and not shown.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rljob.api.quantity import quantity
from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, command
from rljob.cli.kubectl import Manifest
from rljob.cli.output import DATA, TABLE, data_page
from rljob.cli.status import table

DIES_PER_CARD = "rljob.dev/dies-per-card"
"""Annotation of a ResourceFlavor that the chart creates."""
_CLUSTER = re.compile(r"(?P<job>.+)-[0-9a-z]{5}-[0-9]+")
"""Format of RayCluster names: <job>-<uid>-<generation>."""
_UNLIMITED = "-"


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    command(
        commands,
        "quota",
        "show the cards of each team in Kueue: used, guaranteed and borrowed cards, and waiting jobs",
        _quota,
        outputs=output.FORMS,
        namespace="show only the jobs of this namespace; default: all namespaces",
        examples=(("quota", "show all teams"), ("quota -n team-a", "show only the jobs of one namespace")),
    )


def _quota(chosen: argparse.Namespace) -> int:
    """Print the shares of all teams, and the jobs of all namespaces or of one."""
    place = kubectl.Place(chosen.namespace, chosen.context)

    def read(plural: str, *options: str) -> list[dict[str, Any]]:
        return kubectl.list_items(f"{plural}.kueue.x-k8s.io", place, *options)

    where = () if chosen.namespace else ("--all-namespaces",)
    seen = Kueue(
        cluster_queues=read("clusterqueues"),
        local_queues=read("localqueues", *where),
        flavors=read("resourceflavors"),
        workloads=read("workloads", *where),
    )
    print(quota_page(seen, chosen.output))
    return 0


@dataclass(frozen=True)
class Share:
    """A team's share of one kind of cards."""

    team: str
    flavor: str
    used: float
    guaranteed: float
    borrowed: float
    may_borrow: float | None
    """None: everything that the other teams do not use."""
    waiting: int
    """Number of the team's waiting jobs, for any kind of cards."""


@dataclass(frozen=True)
class Job:
    """A job in a queue."""

    team: str
    state: str
    """Running, its position among the team's waiting jobs, or Off."""
    name: str
    namespace: str
    cards: float
    priority: int
    since: str
    why: str


@dataclass(frozen=True)
class Kueue:
    """Kueue's objects as they were read."""

    cluster_queues: Sequence[Manifest]
    local_queues: Sequence[Manifest]
    flavors: Sequence[Manifest]
    workloads: Sequence[Manifest]


def quota_page(seen: Kueue, form: str = TABLE) -> str:
    """Return the whole page."""
    shares, jobs = list(read_shares(seen)), list(read_jobs(seen))
    if form in DATA:
        names = [f"clusterqueue.kueue.x-k8s.io/{team}" for team in sorted({share.team for share in shares})]
        return data_page([{"shares": [asdict(s) for s in shares], "jobs": [asdict(j) for j in jobs]}], form, names)
    if not shares:
        return "no ClusterQueue has a quota of cards"
    pages = [_share_table(shares)]
    if jobs:
        pages.append(_job_table(jobs))
    return "\n\n".join(pages)


def read_shares(seen: Kueue) -> Iterator[Share]:
    """Return a row for each team and kind of cards, sorted by name."""
    dies = _dies(seen.flavors)
    waiting = [job.team for job in read_jobs(seen) if job.state not in ("Runs", "Off")]
    given = {
        (flavor, resource["name"])
        for queue in seen.cluster_queues
        for flavor, resource in _quotas(queue)
        if _number(resource.get("nominalQuota", 0)) > 0
    }
    for queue in sorted(seen.cluster_queues, key=_name):
        used = {
            (flavor["name"], resource["name"]): resource
            for flavor in (queue.get("status") or {}).get("flavorsReservation") or ()
            for resource in flavor.get("resources") or ()
        }
        for flavor, resource in _quotas(queue):
            if (flavor, resource["name"]) not in given:
                # The flavor has none of these cards; all flavors of a group must list every resource of the group.
                continue
            now = used.get((flavor, resource["name"]), {})
            cards = dies.get(flavor, 1)
            limit = resource.get("borrowingLimit")
            yield Share(
                team=_name(queue),
                flavor=flavor,
                used=_number(now.get("total", 0)) / cards,
                guaranteed=_number(resource.get("nominalQuota", 0)) / cards,
                borrowed=_number(now.get("borrowed", 0)) / cards,
                may_borrow=None if limit is None else _number(limit) / cards,
                waiting=waiting.count(_name(queue)),
            )


def read_jobs(seen: Kueue) -> Iterator[Job]:
    """Return the jobs of each team: running jobs, then waiting jobs in queue order, then deactivated jobs."""
    teams = {(_namespace(q), _name(q)): q["spec"].get("clusterQueue", "") for q in seen.local_queues}
    dies = _dies(seen.flavors)
    by_team: dict[str, list[Manifest]] = {}
    for workload in seen.workloads:
        if not _is(workload, "Finished"):
            named = workload["spec"].get("queueName", "")
            by_team.setdefault(teams.get((_namespace(workload), named), f"? ({named})"), []).append(workload)
    for team, workloads in sorted(by_team.items()):
        ordered = sorted(workloads, key=_queue_order)
        place = 0
        for workload in ordered:
            state = _state(workload)
            if state == "Waits":
                place += 1
                state = f"Waits {place}."
            yield _job(team, state, workload, dies)


def _job(team: str, state: str, workload: Manifest, dies: Mapping[str, int]) -> Job:
    metadata = workload["metadata"]
    owner = next((o["name"] for o in metadata.get("ownerReferences") or () if o.get("controller")), metadata["name"])
    ours = _CLUSTER.fullmatch(owner)
    condition = _condition(workload, "Admitted" if state == "Runs" else "QuotaReserved") or {}
    return Job(
        team=team,
        state=state,
        name=ours["job"] if ours else owner,
        namespace=_namespace(workload),
        cards=_cards(workload, dies),
        priority=int(workload["spec"].get("priority") or 0),
        since=str((condition if state == "Runs" else {}).get("lastTransitionTime") or metadata["creationTimestamp"]),
        why="" if state == "Runs" else _why(workload, condition),
    )


def _why(workload: Manifest, condition: Mapping[str, Any]) -> str:
    if workload["spec"].get("active") is False:
        return f"spec.active of Workload {_name(workload)} is false"
    return str(condition.get("message") or "not evaluated yet").replace("\n", " ")


def _state(workload: Manifest) -> str:
    if workload["spec"].get("active") is False:
        return "Off"
    return "Runs" if _is(workload, "QuotaReserved") else "Waits"


def _queue_order(workload: Manifest) -> tuple[int, int, str, str]:
    """Return the sort key of Kueue's queue: priority, then age."""
    rank = ("Runs", "Waits", "Off").index(_state(workload))
    metadata = workload["metadata"]
    return rank, -int(workload["spec"].get("priority") or 0), metadata["creationTimestamp"], metadata["name"]


def _cards(workload: Manifest, dies: Mapping[str, int]) -> float:
    """Count the cards that a job holds, or requests; the kind is unknown until it holds some."""
    state = workload.get("status") or {}
    assigned = (state.get("admission") or {}).get("podSetAssignments") or ()
    if assigned:
        return sum(
            _number(amount) / dies.get((entry.get("flavors") or {}).get(resource, ""), 1)
            for entry in assigned
            for resource, amount in (entry.get("resourceUsage") or {}).items()
            if _is_device(resource)
        )
    each = set(dies.values())
    total = sum(
        int(pods.get("count", 1)) * _number(amount)
        for pods in workload["spec"].get("podSets") or ()
        for container in pods["template"]["spec"]["containers"]
        for resource, amount in ((container.get("resources") or {}).get("requests") or {}).items()
        if _is_device(resource)
    )
    return total / each.pop() if len(each) == 1 else total


def _share_table(shares: Iterable[Share]) -> str:
    rows = [("TEAM", "CARDS", "USED", "GUARANTEED", "BORROWED", "MAY BORROW", "JOBS WAITING")]
    for share in shares:
        limit = _UNLIMITED if share.may_borrow is None else _text(share.may_borrow)
        figures = (_text(share.used), _text(share.guaranteed), _text(share.borrowed), limit, str(share.waiting))
        rows.append((share.team, share.flavor, *figures))
    return table(rows)


def _job_table(jobs: Iterable[Job]) -> str:
    rows = [("TEAM", "STATE", "JOB", "CARDS", "PRIORITY", "SINCE", "WHY")]
    for job in jobs:
        named = f"{job.namespace}/{job.name}"
        rows.append((job.team, job.state, named, _text(job.cards), str(job.priority), job.since, job.why))
    return table(rows)


def _quotas(queue: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for group in queue["spec"].get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                if _is_device(resource["name"]):
                    yield flavor["name"], resource


def _dies(flavors: Iterable[Manifest]) -> dict[str, int]:
    """Return the devices per card of the flavors that state it."""
    annotated = {
        _name(flavor): (flavor["metadata"].get("annotations") or {}).get(DIES_PER_CARD, "") for flavor in flavors
    }
    return {name: int(text) for name, text in annotated.items() if text.isdecimal() and int(text) > 0}


def _is_device(resource: str) -> bool:
    """Return whether the resource is an extended resource, whose name contains a domain."""
    return "/" in resource and not resource.startswith("hugepages-")


def _condition(workload: Manifest, kind: str) -> Mapping[str, Any] | None:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == kind), None)


def _is(workload: Manifest, kind: str) -> bool:
    return (_condition(workload, kind) or {}).get("status") == "True"


def _number(amount: object) -> float:
    return float(quantity(str(amount)))


def _text(number: float) -> str:
    return f"{number:g}"


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])


def _namespace(manifest: Manifest) -> str:
    return str(manifest["metadata"]["namespace"])
