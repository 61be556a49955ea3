"""The report and the plots of a fleet run."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

from rljob.api.status import State
from rljob.cli.report.svg import WIDTH, Plot, Series, draw
from rljob.render.accelerators import BUILT_IN
from tests.scale.fleet.judge import OVERLAP_SECONDS, PART_SECONDS, JobTimes, Sample, Verdict
from tests.scale.fleet.mix import FLAVORS, PRIORITIES, TEAMS, Fault
from tests.scale.fleet.run import Seen
from tests.scale.plane import ROOT

REPORTS = ROOT / "build" / "fleet"
ROW_SECONDS = 30
GIB = 2**30
WAIT = ("New", State.PENDING, State.QUEUED)
ENDED = (State.SUCCEEDED, State.FAILED)
LOOKS = """\
A state is the cluster after one write of any watched object. Writes of all kinds are ordered by etcd revision, so no
state in between is left out. Quota is what Kueue has reserved (`status.admission`). Kueue returns it when a cluster is
deleted, or evicted before it was ready, not when the last of its pods is gone: such pods outlive their quota. Their
devices are included in what all pods held, which never exceeds the quota of all teams.
"""
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00")
"""The palette of Okabe and Ito, distinguishable for colour-blind readers (https://jfly.uni-koeln.de/color/)."""
STYLE = """text{font:13px system-ui,"DejaVu Sans",sans-serif;fill:#57606a}.grid{stroke:#d8dee4;stroke-width:.6}
.axis{stroke:#57606a;stroke-width:.8}.line{fill:none;stroke-width:1.8}.hit{fill:transparent}"""


def keep(seen: Seen, verdict: Verdict, folder: Path = REPORTS) -> Path:
    """Write the report and its plots; fleets of different sizes do not overwrite each other."""
    size = "" if seen.fleet.jobs == 200 else f"-{seen.fleet.jobs}"
    folder.mkdir(parents=True, exist_ok=True)
    names = {}
    for plot in (cards_plot(seen, verdict), jobs_plot(verdict)):
        names[plot.name] = f"{plot.name}{size}.svg"
        (folder / names[plot.name]).write_text(standalone(plot))
    path = folder / f"report{size}.md"
    path.write_text(page(seen, verdict, names))
    return path


def page(seen: Seen, verdict: Verdict, plots: dict[str, str]) -> str:
    """Return the report as Markdown."""
    pictures = "\n\n".join(f"![{name}]({file})" for name, file in plots.items())
    return "\n".join(
        [
            f"# {seen.fleet.jobs} jobs of three teams on a simulated Ascend fleet\n",
            _circumstances(seen),
            "",
            *table(("what", "seen", "bound"), _verdict_rows(seen, verdict)),
            "",
            LOOKS,
            pictures,
            "",
            "## Waiting for the queue\n",
            "Seconds from the creation of the RLJob to the first reservation of quota.\n",
            *table(("team", "priority", "jobs", "median", "longest"), _wait_rows(seen, verdict)),
            "",
            "## Faults\n",
            *table(("job", "fault", "ended as"), _fault_rows(seen, verdict)),
            "",
            "## Timeline\n",
            "Cards reserved by team (of A3 and A2), cards whose devices pods hold, and jobs.\n",
            *table(("second", *(team.name for team in TEAMS), "held", "waiting", "active", "ended", "evictions"),
                   _timeline_rows(verdict)),
            "",
        ]
    )  # fmt: skip


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    """Return the lines of a Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _verdict_rows(seen: Seen, verdict: Verdict) -> Iterator[tuple[str, ...]]:
    yield "states judged", str(verdict.looks), ""
    yield "violations of quota, cohort, nodes, blocks", str(len(verdict.found)), "0"
    seconds, whose = verdict.longest_part
    yield (
        "longest partial allocation of a gang, s",
        f"{seconds:.1f} ({whose.rpartition('/')[2]})",
        f"{PART_SECONDS:.0f}",
    )
    seconds, whose = verdict.longest_overlap
    overlap = f"{seconds:.1f} ({whose.rpartition('/')[2]})" if whose else "0"
    yield "longest that pods outlived their quota, s", overlap, f"{OVERLAP_SECONDS:.0f}"
    yield "most devices of such pods at one time", str(verdict.most_overlap), ""
    for flavor, quota in seen.bounds.fleet.items():
        yield (
            f"most devices of {flavor} held by all pods; quota of all teams",
            str(verdict.most_held[flavor]),
            str(quota),
        )
    ends = [times.end for times in verdict.job_times.values()]
    yield "jobs ended: Succeeded, Failed", f"{ends.count('Succeeded')}, {ends.count('Failed')}", _wanted(seen)
    yield "evictions by Kueue", ", ".join(f"{n} {why}" for why, n in sorted(verdict.evictions.items())) or "none", ""
    for flavor in FLAVORS:
        yield (
            f"utilisation of {flavor} while jobs were queued, %",
            f"{100 * utilisation(seen, verdict, flavor):.0f}",
            "",
        )
    yield "duration, s", f"{seen.seconds:.0f}", ""
    yield "starts of the operator", str(seen.starts), ""
    for name, used in seen.usage.items():
        yield f"{name}: CPU s, RSS MiB", f"{used.cpu_seconds:.0f}, {used.rss_mib:.0f}", ""


def _wanted(seen: Seen) -> str:
    ends = [job.end for job in seen.jobs.values()]
    return f"{ends.count('Succeeded')}, {ends.count('Failed')}"


def utilisation(seen: Seen, verdict: Verdict, flavor: str) -> float:
    """Return the fraction of a flavor's devices that pods held while at least one job was queued."""
    busy = [sample for sample in verdict.samples if sample.states.get(State.QUEUED, 0)]
    if not busy:
        return 0.0
    return statistics.fmean(sample.bound.get(flavor, 0) for sample in busy) / seen.fleet.devices(flavor)


def _wait_rows(seen: Seen, verdict: Verdict) -> Iterator[tuple[str, ...]]:
    for team in TEAMS:
        for priority in PRIORITIES:
            waits = [
                times.admitted - times.created
                for job in seen.jobs.values()
                if (job.team, job.priority) == (team.name, priority)
                and (times := _times(verdict, job.team, job.name)).admitted is not None
            ]
            if waits:
                yield team.name, priority, str(len(waits)), f"{statistics.median(waits):.0f}", f"{max(waits):.0f}"


def _times(verdict: Verdict, team: str, name: str) -> JobTimes:
    return verdict.job_times.get(f"{team}/{name}", JobTimes(0.0))


def _fault_rows(seen: Seen, verdict: Verdict) -> Iterator[tuple[str, ...]]:
    for job in seen.jobs.values():
        times = _times(verdict, job.team, job.name)
        if job.fault is not None:
            yield job.name, seen.struck.get(job.name, f"not struck ({job.fault}): it was on its way out"), times.end
        elif job.play.failure is not None:
            yield job.name, f"driver ends with {job.play.failure.code.value} after step 2, once", times.end


def _timeline_rows(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    for sample in verdict.samples[:: int(ROW_SECONDS)]:
        shares = (f"{cards(sample, team.name, 'a3')} + {cards(sample, team.name, 'a2')}" for team in TEAMS)
        held = sum(sample.bound.get(flavor, 0) // _dies(flavor) for flavor in FLAVORS)
        states = sample.states
        ended = sum(states.get(state, 0) for state in ENDED)
        waits = sum(states.get(state, 0) for state in WAIT)
        rest = sum(states.values()) - ended - waits
        yield f"{sample.seconds:.0f}", *shares, str(held), str(waits), str(rest), str(ended), str(sample.evictions)


def cards(sample: Sample, team: str, flavor: str) -> int:
    """Return the number of cards of a flavor that are reserved for a team."""
    return sample.reserved.get((team, flavor), 0) // _dies(flavor)


def _dies(flavor: str) -> int:
    return BUILT_IN[FLAVORS[flavor][0]].dies_per_card


def cards_plot(seen: Seen, verdict: Verdict) -> Plot:
    """Plot the A3 cards reserved by each team."""
    whole = seen.fleet.devices("a3") // _dies("a3")
    layers = [Series(team.name, [float(cards(s, team.name, "a3")) for s in verdict.samples]) for team in TEAMS]
    return Plot(
        "fleet-cards",
        f"A3 cards reserved, of {whole}",
        "",
        "cards",
        [sample.seconds for sample in verdict.samples],
        "seconds since the first job",
        layers,
        stacked=True,
    )


def jobs_plot(verdict: Verdict) -> Plot:
    """Plot how many jobs are queued, training and finished."""
    kinds = {"queued": (State.QUEUED,), "training": (State.TRAINING,), "finished": ENDED}
    lines = [
        Series(label, [float(sum(s.states.get(state, 0) for state in states)) for s in verdict.samples])
        for label, states in kinds.items()
    ]
    return Plot(
        "fleet-jobs",
        "Jobs",
        "",
        "jobs",
        [sample.seconds for sample in verdict.samples],
        "seconds since the first job",
        lines,
    )


def standalone(plot: Plot) -> str:
    """Return a self-contained SVG with its colours, title and legend."""
    found = re.search(r"<svg[^>]*>(.*)</svg>", draw(plot), re.DOTALL)
    assert found is not None, f"{plot.name} has nothing to draw"
    rules = "".join(
        f".line.c{number}{{stroke:{colour}}}.bar.c{number}{{fill:{colour}}}" for number, colour in enumerate(COLOURS)
    )
    legend = "".join(
        f'<rect x="{60 + 170 * number}" y="22" width="11" height="11" fill="{COLOURS[number]}"/>'
        f'<text x="{76 + 170 * number}" y="32">{series.label}</text>'
        for number, series in enumerate(plot.series)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} 296"><style>{STYLE}{rules}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/><text x="10" y="15">{plot.title}</text>{legend}'
        f'<g transform="translate(0 44)">{found[1]}</g></svg>\n'
    )


def _circumstances(seen: Seen) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    fleet = seen.fleet
    counts = {fault: sum(job.fault is fault for job in seen.jobs.values()) for fault in Fault}
    faults = ", ".join(f"{number} × {fault.value}" for fault, number in counts.items() if number)
    return (
        f"`FLEET_JOBS={fleet.jobs} FLEET_SEED={fleet.seed} make fleet` at {commit}, one run. Real: etcd, API server, "
        "scheduler, Kueue 0.16.2, KubeRay 1.6.2, this operator, the queues of its chart with the super-pod as "
        "topology. Simulated: the nodes and their kubelets, the runs (3 to 8 steps of 4 s). "
        f"{fleet.count['a3']} nodes of A3 in two super-pods and {fleet.count['a2']} of A2; jobs of 1 to "
        f"{4 * fleet.unit} nodes, {sum(job.block is not None for job in seen.jobs.values())} in blocks of "
        f"{2 * fleet.unit} nodes of one super-pod and {sum(job.within for job in seen.jobs.values())} within one "
        f"super-pod. Faults: {faults}, and drivers that fail. Machine: {os.cpu_count()} cores ({platform.machine()}), "
        f"{memory:.0f} GiB, load {os.getloadavg()[2]:.1f} in the last quarter of an hour."
    )
