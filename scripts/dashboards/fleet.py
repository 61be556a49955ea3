"""The board of all jobs: who trains, who waits, what it cost, and what was worth it."""

from __future__ import annotations

from scripts.dashboards.parts import Board, Column, DashboardRow, Panel, Query, Text, figure, graph, jobs_table
from scripts.dashboards.queries import PLACE, PLACES, of_jobs, quantile

NONE = "No RLJob, or the operator is not scraped"
NEVER = "Not in this time"
HOURS = 3600
JOB_BOARD = (
    "/d/rljob-job?var-rljob=${__data.fields.RLJob}&var-namespace=${__data.fields.Namespace}"
    "&${datasource:queryparam}&${__url_time_range}"
)


def _all(name: str, *by: str, matchers: str = "", function: str = "sum") -> str:
    """A gauge of the operator over namespaces and queues."""
    inside = ",".join(part for part in (PLACE, matchers) if part)
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"{function}{grouped} (rljob_operator_{name}{{{inside}}})"


def _rise(name: str, *by: str, matchers: str = "", window: str = "$__range") -> str:
    """How much a counter of the operator rose."""
    inside = ",".join(part for part in (PLACE, matchers) if part)
    grouped = f" by ({', '.join(by)})" if by else ""
    return f"sum{grouped} (increase(rljob_operator_{name}{{{inside}}}[{window}]))"


def _now(title: str, about: str, expr: str, unit: str = "none", limit: float | None = None) -> Panel:
    limits = () if limit is None else ((limit, "red"),)
    return figure(Text(title, unit, about, NONE), Query(expr), width=4, limits=limits)


NOW = DashboardRow(
    "Now",
    (
        _now("Training", "Jobs whose attempt has made a step.", _all("jobs", matchers='state="Training"')),
        _now(
            "On the way",
            "Jobs that start, initialize, restart or wait for resources.",
            _all("jobs", matchers='state=~"Pending|Initializing|Queued|Starting|Restarting"'),
        ),
        _now("Standing still", "Jobs in training without a step for three usual ones.", _all("jobs_stalled"), limit=1),
        _now(
            "Silent",
            "Jobs whose head pod does not answer: whether they go on is not known.",
            _all("jobs_silent"),
            limit=1,
        ),
        _now(
            "Restarts spent",
            "Unfinished jobs whose next failure of some kind ends them.",
            _all("jobs_restart_budget_spent"),
            limit=1,
        ),
        _now("Devices held", "NPU devices that runs hold.", _all("devices_held")),
        _now(
            "Goodput",
            "Productive over held device time, of the jobs that exist, mean of the queues: starts and repeated steps "
            "are what is missing.",
            _all("goodput_ratio", function="avg"),
            "percentunit",
        ),
        _now(
            "Goodput of this time",
            "The same, of the time that is shown.",
            f"{_rise('productive_device_seconds_total')} / {_rise('device_seconds_total')}",
            "percentunit",
        ),
        _now(
            "Longest in the queue",
            "Of the jobs that wait for their queue now.",
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
            "Longest time since an attempt under way made a step.",
            _all("oldest_step_seconds", function="max"),
            "s",
        ),
        _now(
            "Most to lose",
            "Longest time since an attempt under way was saved: what a lost node would cost.",
            _all("oldest_checkpoint_seconds", function="max"),
            "s",
        ),
    ),
)
EACH = DashboardRow(
    "Jobs",
    (
        jobs_table(
            Text("Jobs that run", "short", "One row for each job whose head pod is scraped; the name opens its board."),
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
                Column(
                    "Since the last step", f"time() - {of_jobs('rljob_observed_timestamp_seconds', where=PLACE)}", "s"
                ),
                Column(
                    "Since the checkpoint",
                    f"time() - {of_jobs('rljob_checkpoint_timestamp_seconds', where=PLACE)}",
                    "s",
                ),
            ),
            JOB_BOARD,
        ),
        graph(
            Text("Jobs by state", "none", "As `kubectl get rljobs` shows them.", NONE),
            Query(f"{_all('jobs', 'state')} > 0", "{{state}}"),
            stacked=True,
        ),
        graph(
            Text("Tokens per second per card", "short", "Of whole steps, prompt and response, by job."),
            Query(
                of_jobs("rljob_tokens_per_second", 'stage="step",tokens="prompt_and_response",per="card"', where=PLACE),
                "{{rljob_namespace}}/{{rljob}}",
            ),
        ),
    ),
)
COST = DashboardRow(
    "What it cost",
    (
        graph(
            Text("Devices held", "none", "By namespace and queue.", NONE),
            Query(f"{_all('devices_held', 'rljob_namespace', 'queue')}", "{{rljob_namespace}} {{queue}}"),
            stacked=True,
        ),
        graph(
            Text("Goodput", "percentunit", "Productive over held device time, by namespace and queue.", NONE),
            Query(f"rljob_operator_goodput_ratio{{{PLACE}}}", "{{rljob_namespace}} {{queue}}"),
            top=1,
        ),
        graph(
            Text("Card hours", "h", "Held in an hour, by namespace; a card of Atlas A3 has two dies.", NONE),
            Query(f"{_rise('card_seconds_total', 'rljob_namespace', window='1h')} / {HOURS}", "{{rljob_namespace}}"),
            stacked=True,
        ),
        graph(
            Text("Card hours that were worth it", "h", "Of these, what went into steps that no attempt repeats.", NONE),
            Query(
                f"{_rise('productive_card_seconds_total', 'rljob_namespace', window='1h')} / {HOURS}",
                "{{rljob_namespace}}",
            ),
            stacked=True,
        ),
    ),
)
TROUBLE = DashboardRow(
    "Waits and failures",
    (
        graph(
            Text(
                "Wait for the queue",
                "s",
                "Until a job's queue admitted it; of those admitted in the day before.",
                NEVER,
            ),
            Query(quantile(0.5, "rljob_operator_job_queue_wait_seconds", where=PLACE, window="1d"), "p50"),
            Query(quantile(0.95, "rljob_operator_job_queue_wait_seconds", where=PLACE, window="1d"), "p95"),
        ),
        graph(
            Text(
                "Time in a state",
                "s",
                "p95 of how long jobs stayed in it, of those that left it in the day before.",
                NEVER,
            ),
            Query(
                quantile(0.95, "rljob_operator_state_duration_seconds", ("state",), where="", window="1d"), "{{state}}"
            ),
        ),
        graph(
            Text("Restarts", "none", "In an hour, by whose failure it was.", NONE),
            Query(_rise("restarts_total", "cause", window="1h"), "{{cause}}"),
            width=8,
        ),
        graph(
            Text("Ends of attempts", "none", "In an hour, by outcome; unsaved: steps were lost.", NONE),
            Query(_rise("attempts_total", "outcome", matchers='saved="true"', window="1h"), "{{outcome}}"),
            Query(_rise("attempts_total", "outcome", matchers='saved="false"', window="1h"), "{{outcome}}, unsaved"),
            width=8,
        ),
        graph(
            Text("Ends of jobs", "none", "In an hour: how jobs finished, and deadlines that passed.", NONE),
            Query(_rise("jobs_finished_total", "state", window="1h"), "{{state}}"),
            Query(_rise("deadlines_exceeded_total", "deadline", window="1h"), "{{deadline}} deadline"),
            width=8,
        ),
    ),
)
FLEET = Board(
    name="fleet",
    title="RLJob / Fleet",
    about="All jobs: who trains, who waits, what it cost, and what was worth it.",
    rows=(NOW, EACH, COST, TROUBLE),
    variables=(PLACES,),
    since="now-24h",
)
