"""The table of a run, and the page that keeps it: both sides in one table, figures beside their aims."""

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
EVIDENCE = ROOT / "docs" / "evidence"
GIB = 2**30


@dataclass(frozen=True)
class Figure:
    """One row: what, how it is read from a side, and what it should be."""

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
    def told(outcome: Outcome) -> str:
        found = {name: read(used) for name, used in outcome.usage.items() if name not in (OPERATOR, KUBERAY)}
        return ", ".join(f"{name} {_number(value)}" for name, value in sorted(found.items(), key=lambda item: -item[1]))

    return told


def _kinds(span: Span, outcome: Outcome) -> str:
    asked = Counter(f"{r.verb} {r.resource}" for r in span.traffic.of(outcome.controller).requests)
    return ", ".join(f"{what} {count / span.seconds:.1f}" for what, count in asked.most_common(MOST_KINDS)) or NONE


def _queue(read: Callable[[Span], Quantiles]) -> Callable[[Span, Outcome], str]:
    def told(span: Span, _: Outcome) -> str:
        found = read(span)
        return NONE if found.p99 is None else f"{_number(found.p50)}, {_number(found.p99)}"

    return told


def _word(outcome: Outcome) -> str:
    seconds = outcome.seconds_to_word
    return ", ".join(_number(seconds[round(part * (len(seconds) - 1))]) for part in (0.5, 0.99)) if seconds else NONE


def writes(outcome: Outcome) -> dict[str, float]:
    """Give the writes of a job's own controller until the last of all came as far as it can, by kind, for one job."""
    if outcome.start is None:
        return {}
    return _of_one(outcome, outcome.start.traffic.of(outcome.controller).of_job_controller())


def writes_until_ready(outcome: Outcome) -> dict[str, float]:
    """Give the writes of a job's own controller until that job was ready, by verb and resource, for one job."""
    return _of_one(outcome, outcome.until_ready)


def _of_one(outcome: Outcome, traffic: Traffic) -> dict[str, float]:
    return {what: count / outcome.settings.jobs for what, count in traffic.writes().most_common()}


def _sum(read: Callable[[Outcome], dict[str, float]], *, events: bool = True) -> Callable[[Outcome], str]:
    def told(outcome: Outcome) -> str:
        counts = {what: count for what, count in read(outcome).items() if events or not what.endswith(" events")}
        return f"{sum(counts.values()):.1f}"

    return told


FIGURES = (
    Figure("all made, s", lambda o: _number(o.seconds_to_create)),
    Figure("from a job's creation to the first word of its controller, p50 and p99, s", _word),
    Figure("half of them ready, s", lambda o: _number(o.seconds_to_ready[len(o.seconds_to_ready) // 2])),
    Figure("all ready, s", lambda o: _number(o.seconds_to_ready[-1])),
    Figure("all training, s", lambda o: _number(o.seconds_to_training[-1]) if o.submissions else NONE),
    Figure("writes a job by its own controller until it is ready", _sum(writes_until_ready), "RLJob ≤ RayJob"),
    Figure("… without events", _sum(writes_until_ready, events=False)),
    Figure("… until the last one trains, the news of those that train before with it", _sum(writes)),
    Figure("CPU of the RLJob operator until then, s", _in_start(_cpu(OPERATOR))),
    Figure("CPU of KubeRay until then, s", _in_start(_cpu(KUBERAY))),
    Figure(
        "queue of the job's own controller until then, p50 and p99, s", _in_start(_queue(lambda s: s.queue)), "p99 < 2"
    ),
    Figure("… until a job is looked at, when it came and later", _in_start(_queue(lambda s: s.looked_at)), "p99 < 2"),
    Figure("… of these, jobs that have begun", _in_start(_queue(lambda s: s.begun)), "p99 < 2"),
    Figure("… of these, jobs that came", _in_start(_queue(lambda s: s.came)), "p99 < 2"),
    Figure("… of jobs that were looked at, for their turn to begin", _in_start(_queue(lambda s: s.to_begin))),
    Figure(
        "steady: queue of the job's own controller, p50 and p99, s", _in_steady(_queue(lambda s: s.queue)), "p99 < 2"
    ),
    Figure("steady: RLJob operator, cores", _in_steady(_cores(OPERATOR)), "< 0.2"),
    Figure("steady: KubeRay, cores", _in_steady(_cores(KUBERAY))),
    Figure("steady: RLJob operator, requests a second", _in_steady(_rate(OPERATOR)), "< 20"),
    Figure("… the most by kind, of the job's own controller", _in_steady(_kinds)),
    Figure("steady: KubeRay, requests a second", _in_steady(_rate(KUBERAY))),
    Figure("RLJob operator, resident MiB", _used(OPERATOR, lambda u: u.rss_mib), "< 256"),
    Figure("RLJob operator, resident MiB at its peak", _used(OPERATOR, lambda u: u.peak_rss_mib), "< 256"),
    Figure("KubeRay, resident MiB", _used(KUBERAY, lambda u: u.rss_mib)),
    Figure("KubeRay, resident MiB at its peak", _used(KUBERAY, lambda u: u.peak_rss_mib)),
    Figure("all others until the end of the steady state, CPU s", _others(lambda u: u.cpu_seconds)),
    Figure("all others, resident MiB at their peak", _others(lambda u: u.peak_rss_mib)),
    Figure("series of the controller's metrics page", lambda o: str(o.series)),
    Figure("restart: writes to running jobs", _after_restart(lambda r: str(sum(r.writes.values()))), "0"),
    Figure("restart: ready, s", _after_restart(lambda r: _number(r.ready_seconds)), "< 15"),
    Figure("restart: every head asked again, s", _after_restart(lambda r: _number(r.polled_seconds))),
    Figure("RayClusters", lambda o: str(o.clusters), "one a job"),
    Figure("submissions", lambda o: str(sum(o.submissions)) if o.submissions else NONE, "one a job"),
    Figure("requests that heads refused", lambda o: str(o.refused) if o.submissions else NONE, "0"),
)


def table(outcomes: list[tuple[str, Outcome]]) -> str:
    """Give the Markdown table, a column a side."""
    lines = [
        f"| | {' | '.join(name for name, _ in outcomes)} | aim |",
        f"|---|{'---:|' * len(outcomes)}---|",
    ]
    for figure in FIGURES:
        told = [figure.read(outcome) for _, outcome in outcomes]
        if set(told) != {NONE}:
            lines.append(f"| {figure.what} | {' | '.join(told)} | {figure.aim} |")
    return "\n".join(lines)


def page(settings: Settings, outcomes: list[tuple[str, Outcome]]) -> str:
    """Give the page of evidence."""
    parts = [
        f"# {date.today().isoformat()}: {settings.jobs} jobs on KWOK, beside KubeRay's RayJob",  # noqa: DTZ011
        _circumstances(settings),
        table(outcomes),
    ]
    for name, outcome in outcomes:
        told = ", ".join(f"{what} {count:.2f}" for what, count in writes_until_ready(outcome).items())
        parts.append(f"Writes of one {name} until it is ready: {told}.")
    return "\n\n".join(parts) + "\n"


def keep(settings: Settings, outcomes: list[tuple[str, Outcome]]) -> Path:
    """Write the page; a run of another size goes beside it."""
    pace = f"-{settings.jobs_per_second}-a-second" if settings.jobs_per_second else ""
    name = f"{date.today().isoformat()}-scale-{settings.jobs}x{settings.workers}{pace}.md"  # noqa: DTZ011
    path = EVIDENCE / name
    path.write_text(page(settings, outcomes))
    return path


def _circumstances(settings: Settings) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    pace = f"SCALE_JOBS_PER_SECOND={settings.jobs_per_second} " if settings.jobs_per_second else ""
    come = f"{settings.jobs_per_second} jobs come each second" if settings.jobs_per_second else "all jobs come at once"
    return (
        f"`{pace}SCALE_JOBS={settings.jobs} SCALE_WORKERS={settings.workers} "
        f"SCALE_STEP_SECONDS={settings.step_seconds} SCALE_STEADY_SECONDS={settings.steady_seconds} make scale` "
        f"at {commit}: one run a column, "
        "one after the other, each on a fresh control plane; "
        f"{settings.pods} pods; {come}. Machine: {os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, load "
        f"{os.getloadavg()[2]:.1f} in the last quarter of an hour. Both operators with the settings they have by "
        f"default; a step of the virtual runs takes {settings.step_seconds} s; the steady state is "
        f"{settings.steady_seconds} s long. A RayJob of InteractiveMode ends its way in `Waiting`: KubeRay asks no "
        "head, ours asks every one."
    )
