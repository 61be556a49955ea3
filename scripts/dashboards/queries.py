"""PromQL of the dashboards. Queries use the dashboard's variables and drop the labels of the scraped pod.

After a restart a job has another head pod, and its series have another `pod` and `instance`. A line that spans restarts
must be aggregated over them.
"""

from __future__ import annotations

from collections.abc import Sequence

from scripts.dashboards.parts import Mark, variable

JOB = 'rljob_namespace=~"$namespace",rljob=~"$rljob"'
"""Matchers of a job's series; without a selection of jobs, `PLACE`."""
PLACE = 'rljob_namespace=~"$namespace"'
WHOSE = ("rljob_namespace", "rljob")
RATE = "$__rate_interval"

NAMESPACES = variable("namespace", "Namespace", "rljob_step", "rljob_namespace")
PLACES = variable("namespace", "Namespace", "rljob_operator_jobs", "rljob_namespace")
ONE_JOB = variable("rljob", "RLJob", f"rljob_step{{{PLACE}}}", "rljob", several=False)
JOBS = variable("rljob", "RLJob", f"rljob_step{{{PLACE}}}", "rljob")


def of_jobs(name: str, matchers: str = "", by: Sequence[str] = (), where: str = JOB) -> str:
    """Return a gauge of the exporter, with one series for each job and each value of the labels `by`."""
    inside = ",".join(part for part in (where, matchers) if part)
    return f"max by ({', '.join((*WHOSE, *by))}) ({name}{{{inside}}})"


def rate_of(name: str, by: Sequence[str] = (), matchers: str = "", where: str = JOB, window: str = RATE) -> str:
    """Return the rate of a counter, per second."""
    inside = ",".join(part for part in (where, matchers) if part)
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouped} (rate({name}{{{inside}}}[{window}]))"


def quantile(
    share: float, name: str, by: Sequence[str] = (), matchers: str = "", where: str = JOB, window: str = RATE
) -> str:
    """Return a quantile of a histogram."""
    return f"histogram_quantile({share}, {rate_of(f'{name}_bucket', (*by, 'le'), matchers, where, window)})"


def mean_of(name: str, by: Sequence[str] = (), matchers: str = "", where: str = JOB) -> str:
    """Return the mean of the observations of a histogram or summary."""
    return f"{rate_of(f'{name}_sum', by, matchers, where)} / {rate_of(f'{name}_count', by, matchers, where)}"


_ATTEMPT = "max by (rljob_namespace, rljob, attempt) (rljob_info{%s}%s)"
ATTEMPTS = Mark(
    name="Attempts",
    expr=f"{_ATTEMPT % (JOB, '')} unless {_ATTEMPT % (JOB, ' offset 30s')}",
    title="Attempt {{attempt}} begins",
    color="orange",
)
CHECKPOINTS = Mark(
    name="Checkpoints",
    expr=f"{of_jobs('rljob_checkpoint_timestamp_seconds')} * 1000",
    title="Checkpoint complete",
    color="green",
    value_is_time=True,
)
