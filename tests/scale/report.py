"""The report of a scale run: one table with a column per side and the targets."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from tests.scale.figures import Traffic, Usage
from tests.scale.plane import KUBERAY, OPERATOR, ROOT
from tests.scale.run import Outcome, Quantiles, Restart, Span
from tests.scale.settings import Settings

NONE = "–"
MOST_KINDS = 5
REPORTS = ROOT / "build" / "scale"
GIB = 2**30


@dataclass(frozen=True)
class Figure:
    """One row: its title, its value for a side, and its target."""

    what: str
    read: Callable[[Outcome], str]
    aim: str = ""


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _used(process: str, field: Callable[[Usage], float]) -> Callable[[Outcome], str]:
    return lambda o: _number(field(o.usage[process])) if process in o.usage else NONE


def _in_start(figure: Callable[[Span, Outcome], str]) -> Callable[[Outcome], str]:
    return lambda o: figure(o.start, o) if o.start is not None else NONE


def _in_steady(figure: Callable[[Span, Outcome], str]) -> Callable[[Outcome], str]:
    return lambda o: figure(o.steady, o) if o.steady is not None else NONE


def _after_restart(figure: Callable[[Restart], str]) -> Callable[[Outcome], str]:
    return lambda o: figure(o.restart) if o.restart is not None else NONE


def _cpu(process: str) -> Callable[[Span, Outcome], str]:
    return lambda span, _: _number(span.cpu_seconds.get(process))


def _cores(process: str) -> Callable[[Span, Outcome], str]:
    return lambda span, _: f"{span.cores(process):.2f}" if process in span.cpu_seconds else NONE


def _rate(process: str) -> Callable[[Span, Outcome], str]:
    return lambda span, _: f"{span.queries_per_second(process):.1f}" if process in span.cpu_seconds else NONE


def _others(read: Callable[[Usage], float]) -> Callable[[Outcome], str]:
    def cell(outcome: Outcome) -> str:
        found = {name: read(used) for name, used in outcome.usage.items() if name not in (OPERATOR, KUBERAY)}
        return ", ".join(f"{name} {_number(value)}" for name, value in sorted(found.items(), key=lambda item: -item[1]))

    return cell


def _kinds(span: Span, outcome: Outcome) -> str:
    asked = Counter(f"{r.verb} {r.resource}" for r in span.traffic.of(outcome.controller).requests)
    return ", ".join(f"{what} {count / span.seconds:.1f}" for what, count in asked.most_common(MOST_KINDS)) or NONE


def _queue(read: Callable[[Span], Quantiles]) -> Callable[[Span, Outcome], str]:
    def cell(span: Span, _: Outcome) -> str:
        found = read(span)
        return NONE if found.p99 is None else f"{_number(found.p50)}, {_number(found.p99)}"

    return cell


def _word(outcome: Outcome) -> str:
    seconds = outcome.seconds_to_word
    return ", ".join(_number(seconds[round(part * (len(seconds) - 1))]) for part in (0.5, 0.99)) if seconds else NONE


def writes(outcome: Outcome) -> dict[str, float]:
    """Return the writes of a job's own controller until the last job has reached its final state, by kind, per job."""
    if outcome.start is None:
        return {}
    return _of_one(outcome, outcome.start.traffic.of(outcome.controller).of_job_controller())


def writes_until_ready(outcome: Outcome) -> dict[str, float]:
    """Return the writes of a job's own controller until that job was ready, by verb and resource, per job."""
    return _of_one(outcome, outcome.until_ready)


def _of_one(outcome: Outcome, traffic: Traffic) -> dict[str, float]:
    return {what: count / outcome.settings.jobs for what, count in traffic.writes().most_common()}


def _sum(read: Callable[[Outcome], dict[str, float]], *, events: bool = True) -> Callable[[Outcome], str]:
    def cell(outcome: Outcome) -> str:
        counts = {what: count for what, count in read(outcome).items() if events or not what.endswith(" events")}
        return f"{sum(counts.values()):.1f}"

    return cell


FIGURES = (
    Figure("all created, s", lambda o: _number(o.seconds_to_create)),
    Figure("first status of a job, p50 and p99, s", _word),
    Figure("half of them ready, s", lambda o: _number(o.seconds_to_ready[len(o.seconds_to_ready) // 2])),
    Figure("all ready, s", lambda o: _number(o.seconds_to_ready[-1])),
    Figure("all training, s", lambda o: _number(o.seconds_to_training[-1]) if o.submissions else NONE),
    Figure("writes per job by its controller until ready", _sum(writes_until_ready), "RLJob ≤ RayJob"),
    Figure("… without events", _sum(writes_until_ready, events=False)),
    Figure("… until the last one trains, progress of the others included", _sum(writes)),
    Figure("CPU of the RLJob operator until then, s", _in_start(_cpu(OPERATOR))),
    Figure("CPU of KubeRay until then, s", _in_start(_cpu(KUBERAY))),
    Figure(
        "queue wait of the job's controller until then, p50 and p99, s", _in_start(_queue(lambda s: s.queue)), "p99 < 2"
    ),
    Figure(
        "… until a job is looked at, at its creation and later", _in_start(_queue(lambda s: s.looked_at)), "p99 < 2"
    ),
    Figure("… of these, started jobs", _in_start(_queue(lambda s: s.begun)), "p99 < 2"),
    Figure("… of these, new jobs", _in_start(_queue(lambda s: s.came)), "p99 < 2"),
    Figure("… wait of a new job for its turn to start", _in_start(_queue(lambda s: s.to_begin))),
    Figure(
        "steady: queue wait of the job's controller, p50 and p99, s", _in_steady(_queue(lambda s: s.queue)), "p99 < 2"
    ),
    Figure("steady: RLJob operator, cores", _in_steady(_cores(OPERATOR)), "< 0.2"),
    Figure("steady: KubeRay, cores", _in_steady(_cores(KUBERAY))),
    Figure("steady: RLJob operator, requests per second", _in_steady(_rate(OPERATOR)), "< 20"),
    Figure("… most frequent kinds, of the job's controller", _in_steady(_kinds)),
    Figure("steady: KubeRay, requests per second", _in_steady(_rate(KUBERAY))),
    Figure("RLJob operator, resident MiB", _used(OPERATOR, lambda u: u.rss_mib), "< 256"),
    Figure("RLJob operator, resident MiB at its peak", _used(OPERATOR, lambda u: u.peak_rss_mib), "< 256"),
    Figure("KubeRay, resident MiB", _used(KUBERAY, lambda u: u.rss_mib)),
    Figure("KubeRay, resident MiB at its peak", _used(KUBERAY, lambda u: u.peak_rss_mib)),
    Figure("all others until the end of the steady state, CPU s", _others(lambda u: u.cpu_seconds)),
    Figure("all others, resident MiB at their peak", _others(lambda u: u.peak_rss_mib)),
    Figure("series of the controller's metrics page", lambda o: str(o.series)),
    Figure("restart: writes to running jobs", _after_restart(lambda r: str(sum(r.writes.values()))), "0"),
    Figure("restart: ready, s", _after_restart(lambda r: _number(r.ready_seconds)), "< 15"),
    Figure("restart: every head polled again, s", _after_restart(lambda r: _number(r.polled_seconds))),
    Figure("RayClusters", lambda o: str(o.clusters), "one per job"),
    Figure("submissions", lambda o: str(sum(o.submissions)) if o.submissions else NONE, "one per job"),
    Figure("requests refused by heads", lambda o: str(o.refused) if o.submissions else NONE, "0"),
)


def table(outcomes: list[tuple[str, Outcome]]) -> str:
    """Return the Markdown table with a column for each side."""
    lines = [
        f"| | {' | '.join(name for name, _ in outcomes)} | aim |",
        f"|---|{'---:|' * len(outcomes)}---|",
    ]
    for figure in FIGURES:
        cells = [figure.read(outcome) for _, outcome in outcomes]
        if set(cells) != {NONE}:
            lines.append(f"| {figure.what} | {' | '.join(cells)} | {figure.aim} |")
    return "\n".join(lines)


def page(settings: Settings, outcomes: list[tuple[str, Outcome]]) -> str:
    """Return the report as Markdown."""
    parts = [
        f"# {date.today().isoformat()}: {settings.jobs} jobs on virtual nodes",  # noqa: DTZ011 - the reader's own day
        _circumstances(settings),
        table(outcomes),
    ]
    for name, outcome in outcomes:
        writes = ", ".join(f"{what} {count:.2f}" for what, count in writes_until_ready(outcome).items())
        parts.append(f"Writes of one {name} until ready: {writes}.")
    return "\n\n".join(parts) + "\n"


def keep(settings: Settings, outcomes: list[tuple[str, Outcome]], folder: Path = REPORTS) -> Path:
    """Write the report; runs of different sizes do not overwrite each other."""
    pace = f"-{settings.jobs_per_second}-a-second" if settings.jobs_per_second else ""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"report-{settings.jobs}x{settings.workers}{pace}.md"
    path.write_text(page(settings, outcomes))
    return path


def _circumstances(settings: Settings) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    pace = f"SCALE_JOBS_PER_SECOND={settings.jobs_per_second} " if settings.jobs_per_second else ""
    come = (
        f"{settings.jobs_per_second} jobs created per second"
        if settings.jobs_per_second
        else "all jobs created at once"
    )
    return (
        f"`{pace}SCALE_JOBS={settings.jobs} SCALE_WORKERS={settings.workers} "
        f"SCALE_STEP_SECONDS={settings.step_seconds} SCALE_STEADY_SECONDS={settings.steady_seconds} make scale` "
        f"at {commit}: one run per column, one after the other, each on a fresh control plane; "
        f"{settings.pods} pods; {come}. Machine: {os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, load "
        f"{os.getloadavg()[2]:.1f} in the last quarter of an hour. Both operators run with "
        f"default settings; a step of the virtual runs takes {settings.step_seconds} s; the steady state lasts "
        f"{settings.steady_seconds} s. A RayJob in InteractiveMode stops at `Waiting`: KubeRay polls no head, the "
        "RLJob operator polls all of them."
    )
