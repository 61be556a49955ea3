"""The board of the operator itself: does it lead, is it well, what does it cost the API server."""

from __future__ import annotations

from scripts.dashboards.parts import Board, DashboardRow, Query, Text, figure, graph
from scripts.dashboards.queries import mean_of, quantile, rate_of

NONE = "The operator is not scraped"


def _rate(name: str, *by: str, matchers: str = "") -> str:
    return rate_of(f"rljob_operator_{name}", by, matchers, where="")


def _quantiles(
    name: str, where: str = "", of: str = "", shares: tuple[float, ...] = (0.5, 0.95, 0.99)
) -> tuple[Query, ...]:
    return tuple(
        Query(quantile(share, f"rljob_operator_{name}", where=where), f"p{share * 100:.0f}{of}") for share in shares
    )


NOW = DashboardRow(
    "Now",
    (
        figure(
            Text("Leaders", "none", "Processes that hold the Lease. Exactly one works at a time; 0: nobody.", NONE),
            Query("sum(rljob_operator_leader)"),
            limits=((0, "red"), (1, "green"), (2, "red")),
        ),
        figure(
            Text("Since the last resync", "s", "Everything is compared with the API server at this interval.", NONE),
            Query("time() - max(rljob_operator_resync_last_success_timestamp_seconds)"),
        ),
        figure(
            Text(
                "Jobs that wait", "none", "Jobs in the operator's queue; more than a few for long: it falls back.", NONE
            ),
            Query("sum(rljob_operator_queue_depth)"),
        ),
        figure(
            Text("Workers at work", "none", "Of `operator.workers`. All of them for long: something is slow.", NONE),
            Query("sum(rljob_operator_active_workers)"),
        ),
        figure(
            Text(
                "Oldest round", "s", "A round takes milliseconds; a minute means that something does not answer.", NONE
            ),
            Query("max(rljob_operator_queue_longest_running_seconds)"),
            limits=((60, "red"),),
        ),
        figure(
            Text("Objects in memory", "none", "What the watches hold, of all kinds.", NONE),
            Query("sum(rljob_operator_store_objects)"),
        ),
    ),
)
ROUNDS = DashboardRow(
    "Rounds",
    (
        graph(
            Text("Rounds by result", "ops", "How often jobs are looked at, and what came of it.", NONE),
            Query(_rate("reconcile_total", "result"), "{{result}}"),
        ),
        graph(
            Text(
                "Rounds that fail", "ops", "By type of error; the log names job and error of each.", "No round failed"
            ),
            Query(_rate("reconcile_errors_total", "reason"), "{{reason}}"),
        ),
        graph(
            Text("Time of a round", "s", "From reading the job to the last write.", NONE),
            *_quantiles("reconcile_duration_seconds"),
        ),
        graph(
            Text(
                "Wait for a worker",
                "s",
                "From an event about a job until a worker looks; then new jobs wait for their turn to begin.",
                NONE,
            ),
            *_quantiles("queue_duration_seconds", 'lane="begun"'),
            *_quantiles("queue_duration_seconds", 'lane="new"', " of new jobs", (0.99,)),
            *_quantiles("queue_duration_seconds", 'lane="to_begin"', " of turns to begin", (0.99,)),
        ),
    ),
)
API = DashboardRow(
    "API server",
    (
        graph(
            Text("Requests", "reqps", "By verb. What runs on needs little: jobs that begin make most of them.", NONE),
            Query(_rate("api_requests_total", "verb"), "{{verb}}"),
        ),
        graph(
            Text(
                "Answers that are no success",
                "reqps",
                "409 is a conflict that is tried again, 429 a server that asks for patience; others deserve a look.",
                "Every request succeeded",
            ),
            Query(_rate("api_requests_total", "code", "resource", matchers='code!~"[23].."'), "{{code}} {{resource}}"),
        ),
        graph(
            Text("Writes", "ops", "That the API server committed, by kind of object.", NONE),
            Query(_rate("api_writes_total", "verb", "resource"), "{{verb}} {{resource}}"),
        ),
        graph(
            Text("Time of a request", "s", "p95 by verb.", NONE),
            Query(quantile(0.95, "rljob_operator_api_request_duration_seconds", ("verb",), where=""), "{{verb}}"),
        ),
        graph(
            Text(
                "Held back by the own limit", "s", "Mean wait of a request for `operator.apiRequestsPerSecond`.", NONE
            ),
            Query(mean_of("rljob_operator_api_throttle_seconds", where=""), "wait"),
        ),
        graph(
            Text("Requests to head pods", "reqps", "Ray's job API and the exporters, by call and answer.", NONE),
            Query(_rate("ray_requests_total", "call", "code"), "{{call}} {{code}}"),
        ),
    ),
)
WATCHES = DashboardRow(
    "Watches",
    (
        graph(
            Text("Events", "ops", "That watches delivered, by kind.", NONE),
            Query(_rate("watch_events_total", "kind"), "{{kind}}"),
            width=8,
        ),
        graph(
            Text(
                "Changes that no watch told",
                "none",
                "What a resync found that no watch had delivered, in an hour. A few after an outage are normal.",
                "Nothing was missed",
            ),
            Query("sum by (kind, drift) (increase(rljob_operator_resync_drift_total[1h]))", "{{kind}} {{drift}}"),
            width=8,
        ),
        graph(
            Text("Since the last event", "s", "By kind; no alarm: a quiet cluster has few.", NONE),
            Query("time() - max by (kind) (rljob_operator_watch_last_event_timestamp_seconds)", "{{kind}}"),
            width=8,
        ),
    ),
)
OPERATOR = Board(
    name="operator",
    title="RLJob / Operator",
    about="The operator itself: does it lead, is it well, what does it cost the API server.",
    rows=(NOW, ROUNDS, API, WATCHES),
)
