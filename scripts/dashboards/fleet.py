"""The dashboard of all jobs: progress, waiting, cost and goodput."""

from __future__ import annotations

from scripts.dashboards.parts import Board, Column, DashboardRow, Panel, Query, Text, figure, graph, jobs_table
from scripts.dashboards.queries import PLACE, PLACES, of_jobs, quantile

NONE = "No RLJob exists, or the operator is not scraped"
NEVER = "None in this time range"
HOURS = 3600
JOB_BOARD = (
    "/d/rljob-job?var-rljob=${__data.fields.RLJob}&var-namespace=${__data.fields.Namespace}"
    "&${datasource:queryparam}&${__url_time_range}"
)


def _all(name: str, *by: str, matchers: str = "", function: str = "sum") -> str:
    """Return a gauge of the operator, summed over the selected namespaces and queues."""
    inside = ",".join(part for part in (PLACE, matchers) if part)
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"{function}{grouped} (rljob_operator_{name}{{{inside}}})"


def _rise(name: str, *by: str, matchers: str = "", window: str = "$__range") -> str:
    """Return the increase of a counter of the operator."""
    inside = ",".join(part for part in (PLACE, matchers) if part)
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouped} (increase(rljob_operator_{name}{{{inside}}}[{window}]))"


def _now(title: str, about: str, expr: str, unit: str = "none", limit: float | None = None) -> Panel:
    limits = () if limit is None else ((limit, "red"),)
    return figure(Text(title, unit, about, NONE), Query(expr), width=4, limits=limits)


NOW = DashboardRow(
    "Now",
    (
        _now("Training", "Jobs whose attempt has completed a step.", _all("jobs", matchers='state="Training"')),
        _now(
            "Pending and starting",
            "Jobs that start, initialize, restart or wait for resources.",
            _all("jobs", matchers='state=~"Pending|Initializing|Queued|Starting|Restarting"'),
        ),
        _now(
            "Stalled",
            "Jobs in training whose last step was longer ago than three times the usual step.",
            _all("jobs_stalled"),
            limit=1,
        ),
        _now(
            "Silent",
            "Jobs whose head pod does not answer. It is unknown whether they make progress.",
            _all("jobs_silent"),
            limit=1,
        ),
        _now(
            "No restarts left",
            "Unfinished jobs that the next failure of some kind will end.",
            _all("jobs_restart_budget_spent"),
            limit=1,
        ),
        _now("Devices held", "NPU devices held by runs.", _all("devices_held")),
        _now(
            "Goodput",
            "Productive device time divided by held device time of existing jobs, averaged over queues. "
            "Startup and repeated steps lower it.",
            _all("goodput_ratio", function="avg"),
            "percentunit",
        ),
        _now(
            "Goodput in this time range",
            "Productive device time divided by held device time, in the selected time range.",
            f"{_rise('productive_device_seconds_total')} / {_rise('device_seconds_total')}",
            "percentunit",
        ),
        _now(
            "Longest queue wait",
            "Of the jobs that are waiting in their queue now.",
            _all("longest_queued_seconds", function="max"),
            "s",
        ),
        _now(
            "Longest suspended",
            "Of the jobs that are suspended now.",
            _all("longest_suspended_seconds", function="max"),
            "s",
        ),
        _now(
            "Oldest step",
            "Longest time since a running attempt completed a step.",
            _all("oldest_step_seconds", function="max"),
            "s",
        ),
        _now(
            "Largest unsaved progress",
            "Longest time since a running attempt saved a checkpoint, which the loss of a node would lose.",
            _all("oldest_checkpoint_seconds", function="max"),
            "s",
        ),
    ),
)
EACH = DashboardRow(
    "Jobs",
    (
        jobs_table(
            Text(
                "Running jobs",
                "short",
                "One row for each job whose head pod is scraped. The name links to its dashboard.",
                "No job runs at the end of this time range",
            ),
            (
                Column("Step", of_jobs("rljob_step", where=PLACE), "none"),
                Column("Of", of_jobs("rljob_total_steps", where=PLACE), "none"),
                Column("Reward", of_jobs("rljob_reward_mean", where=PLACE)),
                Column(
                    "Tokens/s/card",
                    of_jobs(
                        "rljob_tokens_per_second",
                        'stage="step",tokens="prompt_and_response",per="card"',
                        where=PLACE,
                    ),
                ),
                Column("Step time", of_jobs("rljob_median_step_seconds", where=PLACE), "s"),
                Column("Idle", of_jobs("rljob_cluster_idle_ratio", where=PLACE), "percentunit"),
                Column("Since last step", f"time() - {of_jobs('rljob_observed_timestamp_seconds', where=PLACE)}", "s"),
                Column(
                    "Since last checkpoint",
                    f"time() - {of_jobs('rljob_checkpoint_timestamp_seconds', where=PLACE)}",
                    "s",
                ),
            ),
            JOB_BOARD,
        ),
        graph(
            Text("Jobs by state", "none", "States as shown by `kubectl get rljobs`.", NONE),
            Query(f"{_all('jobs', 'state')} > 0", "{{state}}"),
            stacked=True,
        ),
        graph(
            Text("Tokens per second per card", "short", "Prompt and response tokens of whole steps, by job."),
            Query(
                of_jobs("rljob_tokens_per_second", 'stage="step",tokens="prompt_and_response",per="card"', where=PLACE),
                "{{rljob_namespace}}/{{rljob}}",
            ),
        ),
    ),
)
COST = DashboardRow(
    "Cost",
    (
        graph(
            Text("Devices held", "none", "By namespace and queue.", NONE),
            Query(f"{_all('devices_held', 'rljob_namespace', 'queue')}", "{{rljob_namespace}} {{queue}}"),
            stacked=True,
        ),
        graph(
            Text(
                "Goodput",
                "percentunit",
                "Productive device time divided by held device time, by namespace and queue.",
                NONE,
            ),
            Query(
                f"max by (rljob_namespace, queue) (rljob_operator_goodput_ratio{{{PLACE}}})",
                "{{rljob_namespace}} {{queue}}",
            ),
            top=1,
        ),
        graph(
            Text(
                "Card-hours per hour",
                "none",
                "Card-hours held in the last hour, by namespace. A card of Atlas A3 has two dies.",
                NONE,
            ),
            Query(f"{_rise('card_seconds_total', 'rljob_namespace', window='1h')} / {HOURS}", "{{rljob_namespace}}"),
            stacked=True,
        ),
        graph(
            Text(
                "Productive card-hours per hour",
                "none",
                "Card-hours of the last hour spent on steps that no later attempt repeated.",
                NONE,
            ),
            Query(
                f"{_rise('productive_card_seconds_total', 'rljob_namespace', window='1h')} / {HOURS}",
                "{{rljob_namespace}}",
            ),
            stacked=True,
        ),
    ),
)
TROUBLE = DashboardRow(
    "Waiting and failures",
    (
        graph(
            Text(
                "Queue wait",
                "s",
                "Time until a job's queue admitted it, for jobs admitted in the preceding day.",
                NEVER,
            ),
            Query(quantile(0.5, "rljob_operator_job_queue_wait_seconds", where=PLACE, window="1d"), "p50"),
            Query(quantile(0.95, "rljob_operator_job_queue_wait_seconds", where=PLACE, window="1d"), "p95"),
            width=8,
        ),
        graph(
            Text(
                "Time in state",
                "s",
                "p95 of the time that jobs stayed in a state, for jobs that left it in the preceding day.",
                NEVER,
            ),
            Query(
                quantile(0.95, "rljob_operator_state_duration_seconds", ("state",), where="", window="1d"), "{{state}}"
            ),
            width=8,
        ),
        graph(
            Text(
                "Lost to recovery",
                "s",
                "Seconds of the last hour from the last step of an attempt to the first one of the next, by cause.",
                NEVER,
            ),
            Query(_rise("recovery_seconds_total", "cause", window="1h"), "{{cause}}"),
            stacked=True,
            width=8,
        ),
        graph(
            Text("Restarts", "none", "Failures per hour, by cause.", NONE),
            Query(_rise("restarts_total", "cause", window="1h"), "{{cause}}"),
            width=8,
        ),
        graph(
            Text("Ended attempts", "none", "Attempts per hour, by outcome. Unsaved: steps were lost.", NONE),
            Query(_rise("attempts_total", "outcome", matchers='saved="true"', window="1h"), "{{outcome}}"),
            Query(_rise("attempts_total", "outcome", matchers='saved="false"', window="1h"), "{{outcome}}, unsaved"),
            width=8,
        ),
        graph(
            Text("Finished jobs", "none", "Finished jobs per hour, by result, and deadlines that passed.", NONE),
            Query(_rise("jobs_finished_total", "state", window="1h"), "{{state}}"),
            Query(_rise("deadlines_exceeded_total", "deadline", window="1h"), "{{deadline}} deadline"),
            width=8,
        ),
    ),
)
FLEET = Board(
    name="fleet",
    title="RLJob / Fleet",
    about="All jobs: progress, waiting, cost and goodput.",
    rows=(NOW, EACH, COST, TROUBLE),
    variables=(PLACES,),
    since="now-24h",
)
