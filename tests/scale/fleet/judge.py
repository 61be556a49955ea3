"""Evaluate a history: every violation, how long gangs were partial, and statistics of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.scale.fleet.history import Bounds, Fact, Kind, Reservation, State, World, in_order, violations

SAMPLE_SECONDS = 1.0
PART_SECONDS = 90.0
"""Pods of a gang are created, bound and deleted one by one. An unreachable node keeps its pod for 28 s of this time."""
OVERLAP_SECONDS = 90.0
"""Kueue releases quota when a cluster is deleted; its pods terminate after that."""


@dataclass(frozen=True)
class Sample:
    """The fleet at one time."""

    seconds: float
    reserved: dict[tuple[str, str], int]
    """Devices by team and flavor."""
    bound: dict[str, int]
    """Devices held by pods, by flavor."""
    states: dict[str, int]
    """Jobs by state."""
    evictions: int
    """Number so far."""


@dataclass
class JobTimes:
    """Times and end of a job."""

    created: float
    admitted: float | None = None
    trained: float | None = None
    ended: float | None = None
    end: str = ""


@dataclass
class Verdict:
    """Result of the evaluation."""

    looks: int = 0
    found: list[str] = field(default_factory=list)
    """Each violation once, with time and revision."""
    longest_part: tuple[float, str] = (0.0, "")
    """Longest time for which a gang held devices while incomplete, and the gang."""
    longest_overlap: tuple[float, str] = (0.0, "")
    """Longest time for which pods held devices whose quota had been released."""
    most_overlap: int = 0
    """Number of such devices at one time."""
    most_held: Counter[str] = field(default_factory=Counter)
    """Largest number of devices held by pods at one time, including terminating pods, by flavor."""
    evictions: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    job_times: dict[str, JobTimes] = field(default_factory=dict)
    left: World = field(default_factory=World)


def judge(facts: Iterable[Fact], bounds: Bounds) -> Verdict:
    """Evaluate the history, revision by revision."""
    verdict, world = Verdict(), World()
    parts, overlaps, evicted = _Spans(), _Spans(), set[tuple[str, str, str]]()
    reported: set[str] = set()
    next_sample = 0.0
    for fact in in_order(facts):
        while fact.seconds >= next_sample:
            verdict.samples.append(_sample(next_sample, world, bounds, len(evicted)))
            next_sample += SAMPLE_SECONDS
        world.take(fact)
        verdict.looks += 1
        _follow(verdict, fact, world)
        if isinstance(fact.thing, Reservation) and fact.thing.evicted is not None:
            evicted.add((fact.name, *fact.thing.evicted))
        for what in violations(world, bounds):
            if what not in reported:
                reported.add(what)
                verdict.found.append(f"{fact.seconds:.1f} s, revision {fact.revision}: {what}")
        gangs = world.gangs()
        whole = {name for name, cluster in world.clusters.items() if len(gangs.get(name, ())) >= cluster.nodes}
        parts.keep(set(gangs) - whole, fact.seconds)
        holders = {entry.cluster for entry in world.reservations.values() if entry.devices}
        overlaps.keep(set(gangs) - holders, fact.seconds)
        over = sum(pod.devices for name, pods in gangs.items() if name not in holders for pod in pods)
        verdict.most_overlap = max(verdict.most_overlap, over)
        verdict.most_held |= world.held(bounds.flavors)
    verdict.longest_part, verdict.longest_overlap = parts.longest, overlaps.longest
    verdict.evictions = Counter(reason for _, reason, _ in evicted)
    verdict.left = world
    return verdict


@dataclass
class _Spans:
    """How long a condition has held, by name."""

    since: dict[str, float] = field(default_factory=dict)
    longest: tuple[float, str] = (0.0, "")

    def keep(self, names: set[str], now: float) -> None:
        """Set the names for which the condition holds now."""
        for name, began in list(self.since.items()):
            self.longest = max(self.longest, (now - began, name))
            if name not in names:
                del self.since[name]
        for name in names:
            self.since.setdefault(name, now)


def _follow(verdict: Verdict, fact: Fact, world: World) -> None:
    if isinstance(fact.thing, State):
        times = verdict.job_times.setdefault(fact.name, JobTimes(fact.seconds))
        if fact.thing.state == "Training" and times.trained is None:
            times.trained = fact.seconds
        if fact.thing.end and times.ended is None:
            times.ended, times.end = fact.seconds, fact.thing.end
    elif isinstance(fact.thing, Reservation) and fact.thing.devices:
        cluster = world.clusters.get(fact.thing.cluster)
        waits = verdict.job_times.get(f"{cluster.team}/{cluster.job}") if cluster is not None else None
        if waits is not None and waits.admitted is None:
            waits.admitted = fact.seconds


def _sample(seconds: float, world: World, bounds: Bounds, evictions: int) -> Sample:
    states = Counter(state.state or "New" for state in world.jobs.values())
    return Sample(seconds, dict(world.reserved()), dict(world.held(bounds.flavors)), dict(states), evictions)


def leftovers(world: World) -> dict[str, list[str]]:
    """Return the names of remaining objects, by kind."""
    kinds = {
        Kind.POD.value: sorted(world.pods),
        Kind.CLUSTER.value: sorted(world.clusters),
        Kind.WORKLOAD.value: sorted(world.reservations),
        Kind.JOB.value: sorted(world.jobs),
    }
    return {kind: names for kind, names in kinds.items() if names}
