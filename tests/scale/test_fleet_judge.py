"""The evaluation of a fleet finds violations, and the operator accepts the fleet's jobs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from rljob.core.validation.validate import validate
from rljob.launchers import LAUNCHER
from rljob.render.accelerator_table import AcceleratorTable, read_table
from rljob.render.accelerators import built_in_document
from tests.scale.figures import Usage
from tests.scale.fleet.history import Bounds, Cluster, Fact, Kind, Pod, Reservation, State, Thing
from tests.scale.fleet.judge import Verdict, judge, leftovers
from tests.scale.fleet.mix import TEAMS, Fault, Fleet
from tests.scale.fleet.report import REPORTS, cards_plot, jobs_plot, keep, page, standalone
from tests.scale.fleet.run import Seen
from tests.scale.plane import ROOT
from tests.scale.shapes import SUPER_POD

NODES = {"a": "0", "b": "0", "c": "1", "d": "1"}
BOUNDS = Bounds(
    quota={("red", "a3"): 32, ("blue", "a3"): 64},
    kept={("red", "a3"): 16},
    fleet={"a3": 64},
    super_pods=NODES,
    node_devices=dict.fromkeys(NODES, 16),
    flavors=dict.fromkeys(NODES, "a3"),
    blocks={"paired": 2},
    whole=frozenset({"near"}),
)


class Events:
    """A sequence of events, one per revision and second."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def add(self, kind: Kind, name: str, thing: Thing | None, at: float | None = None) -> Events:
        number = len(self.facts) + 1
        self.facts.append(Fact(number, float(number) if at is None else at, kind, name, thing))
        return self

    def gang(self, job: str, nodes: str, of: int | None = None, team: str = "red") -> Events:
        """Add a job with its quota and its pods on nodes."""
        name = f"{team}/{job}-1"
        self.add(Kind.CLUSTER, name, Cluster(job, team, of or len(nodes), off=False))
        self.add(Kind.WORKLOAD, name, Reservation(name, team, {"a3": 16 * (of or len(nodes))}, None))
        for place, node in enumerate(nodes):
            self.add(Kind.POD, f"{name}-{place}", Pod(job, name, team, node, 16, going=False))
        return self

    def judge(self) -> Verdict:
        return judge(reversed(self.facts), BOUNDS)


def found(events: Events) -> list[str]:
    return [text.partition(": ")[2] for text in events.judge().found]


def test_what_keeps_to_its_bounds_is_not_reported() -> None:
    verdict = Events().gang("paired", "ab").judge()
    assert verdict.found == []
    assert verdict.looks == 4
    assert verdict.longest_part == (1.0, "red/paired-1")


@pytest.mark.parametrize(
    ("events", "what"),
    [
        (Events().gang("large", "abc"), "red has 48 devices of a3 reserved, of 32"),
        (Events().gang("one", "abcd", team="blue"), "others than red have 64 devices of a3, of which red lends none"),
        (Events().gang("one", "ab").gang("two", "bcd", team="blue"), "80 devices of a3 are reserved, of 64"),
        (Events().gang("one", "a").gang("two", "a"), "a has 32 devices given out, of 16"),
        (
            Events().gang("paired", "bc"),
            "paired asked for blocks of 2 nodes and has {'0': 1, '1': 1} in the super-pods",
        ),
        (Events().gang("near", "bc"), "near asked for one super-pod and has {'0': 1, '1': 1}"),
    ],
)
def test_what_does_not_is(events: Events, what: str) -> None:
    assert what in found(events)


def test_a_part_of_a_gang_is_timed_while_it_holds_devices() -> None:
    events = Events().gang("slow", "a", of=2)
    events.add(Kind.POD, "red/slow-1-1", Pod("slow", "red/slow-1", "red", "b", 16, going=False), 70)
    assert events.judge().longest_part == (67.0, "red/slow-1")


def test_pods_that_outlive_their_quota_are_timed() -> None:
    events = Events().gang("old", "ab")
    events.add(Kind.WORKLOAD, "red/old-1", None, 10).add(Kind.POD, "red/old-1-0", None, 30)
    verdict = events.add(Kind.POD, "red/old-1-1", None, 35).judge()
    assert (verdict.longest_overlap, verdict.most_overlap) == ((25.0, "red/old-1"), 32)
    assert verdict.most_held == {"a3": 32}
    assert leftovers(verdict.left) == {"rayclusters": ["red/old-1"]}


def test_pods_that_outlive_their_quota_count_in_what_all_pods_hold() -> None:
    events = Events().gang("old", "abcd", team="blue").add(Kind.WORKLOAD, "blue/old-1", None)
    assert "pods hold 80 devices of a3, of 64" in found(events.gang("new", "a"))


def test_the_times_of_a_job_are_read_from_its_states_and_its_quota() -> None:
    events = Events().add(Kind.JOB, "red/one", State("Queued", "", ""), 1).gang("one", "ab")
    events.add(Kind.JOB, "red/one", State("Training", "", ""), 8)
    events.add(Kind.WORKLOAD, "red/one-1", Reservation("red/one-1", "red", {}, ("Preempted", "noon")), 9)
    verdict = events.add(Kind.JOB, "red/one", State("Succeeded", "", "Succeeded"), 12).judge()
    (times,) = verdict.job_times.values()
    assert (times.created, times.admitted, times.trained, times.ended, times.end) == (1, 3, 8, 12, "Succeeded")
    assert verdict.evictions == {"Preempted": 1}
    assert [sample.reserved.get(("red", "a3"), 0) for sample in verdict.samples][3:7] == [0, 32, 32, 32]


LEVELS = {"atlas-a3-superpod": {"topologyLevels": [SUPER_POD, "kubernetes.io/hostname"]}}
CLASSES = AcceleratorTable(read_table(built_in_document(), LEVELS))
"""The accelerator classes that the chart writes for the fleet's queues."""


@pytest.mark.parametrize("fleet", [Fleet(200, 1), Fleet(20, 1, super_pod_nodes=8, a2_nodes=4)], ids=["whole", "slice"])
def test_a_seed_means_the_same_jobs_and_each_is_one_that_fits(fleet: Fleet) -> None:
    jobs = fleet.draw()
    assert jobs == fleet.draw()
    assert len({job.name for job in jobs}) == fleet.jobs
    assert {job.fault for job in jobs} == {None, *Fault}
    assert {job.end for job in jobs} == {"Succeeded", "Failed"}
    assert {job.team for job in jobs} == {team.name for team in TEAMS}
    assert any(job.block for job in jobs)
    assert any(job.within for job in jobs)
    for job in jobs:
        assert validate(job.name, job.manifest["spec"], launcher=LAUNCHER, accelerators=CLASSES).violations == ()
    assert len(list(fleet.nodes())) >= sum(fleet.count.values())


def test_guarantees_sum_up_to_the_fleet() -> None:
    queues = Fleet(200, 1).values()["queues"]
    given = {flavor: sum(team["cards"][flavor] for team in queues["teams"].values()) for flavor in queues["flavors"]}
    assert given == {"a3": 64 * 8, "a2": 16 * 8}


def test_the_report_shows_what_was_judged_and_its_plots_are_pictures(tmp_path: Path) -> None:
    fleet = Fleet(20, 1, super_pod_nodes=8, a2_nodes=4)
    jobs = {job.name: job for job in fleet.draw()}
    events, team = Events(), TEAMS[0].name
    for number, name in enumerate(("job-000", "job-001")):
        events.add(Kind.JOB, f"{team}/{name}", State("Queued", "", "")).gang(name, "ab"[number], team=team)
        events.add(Kind.JOB, f"{team}/{name}", State("Succeeded", "", "Succeeded"))
    faulty = next(job.name for job in jobs.values() if job.fault is Fault.HEAD)
    struck = {faulty: "9 s: head deleted"}
    seen = Seen(fleet, jobs, events.facts, BOUNDS, struck, 1, [], 12.0, {"operator": Usage(1.5, 50.0, 60.0)})
    verdict = judge(events.facts, replace(BOUNDS, quota={(team, "a3"): 32}))
    made = page(seen, verdict, {"cards": "cards.svg"})
    assert "| jobs ended: Succeeded, Failed | 2, 0 | 19, 1 |" in made
    assert "| operator: CPU s, RSS MiB | 2, 50 |  |" in made
    assert f"| {faulty} | 9 s: head deleted |" in made
    assert "![cards](cards.svg)" in made
    assert re.search(r"^\| 0 \| 0 \+ 0 \|", made, re.MULTILINE)
    for plot in (cards_plot(seen, verdict), jobs_plot(verdict)):
        picture = ET.fromstring(standalone(plot))  # noqa: S314 - our own
        assert picture.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(picture.findall(".//{*}path")) >= 1
    written = keep(seen, verdict, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "fleet-cards-20.svg",
        "fleet-jobs-20.svg",
        "report-20.md",
    ]
    assert "![fleet-cards](fleet-cards-20.svg)" in written.read_text()
    assert REPORTS.relative_to(ROOT).parts[0] == "build", "a benchmark must not write to tracked folders"
