"""The dashboard of the operator: leadership, health and load on the API server."""

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
            Text("Leaders", "none", "Processes that hold the Lease. Exactly one is active at a time; 0: none.", NONE),
            Query("sum(rljob_operator_leader)"),
            limits=((0, "red"), (1, "green"), (2, "red")),
        ),
        figure(
            Text(
                "Since last resync", "s", "The operator compares its memory with the API server at this interval.", NONE
            ),
            Query("time() - max(rljob_operator_resync_last_success_timestamp_seconds)"),
        ),
        figure(
            Text(
                "Waiting jobs",
                "none",
                "Jobs in the operator's queue. A persistent backlog means that the operator is too slow.",
                NONE,
            ),
            Query("sum(rljob_operator_queue_depth)"),
        ),
        figure(
            Text("Busy workers", "none", "Of `operator.workers`. If all are busy for long, some call is slow.", NONE),
            Query("sum(rljob_operator_active_workers)"),
        ),
        figure(
            Text(
                "Longest running reconciliation",
                "s",
                "A reconciliation takes milliseconds; a minute means that a call does not return.",
                NONE,
            ),
            Query("max(rljob_operator_queue_longest_running_seconds)"),
            limits=((60, "red"),),
        ),
        figure(
            Text("Objects in memory", "none", "Objects in the caches of the watches, by kind.", NONE),
            Query("sum(rljob_operator_store_objects)"),
        ),
    ),
)
ROUNDS = DashboardRow(
    "Reconciliation",
    (
        graph(
            Text("Reconciliations by result", "ops", "Rate of reconciliations, by result.", NONE),
            Query(_rate("reconcile_total", "result"), "{{result}}"),
        ),
        graph(
            Text(
                "Failed reconciliations",
                "ops",
                "By type of error. The log contains job and error of each.",
                "No reconciliation failed",
            ),
            Query(_rate("reconcile_errors_total", "reason"), "{{reason}}"),
        ),
        graph(
            Text("Reconciliation time", "s", "From reading the job to the last write.", NONE),
            *_quantiles("reconcile_duration_seconds"),
        ),
        graph(
            Text(
                "Wait for a worker",
                "s",
                "From an event about a job until a worker handles it, and the time that new jobs wait to start.",
                NONE,
            ),
            *_quantiles("queue_duration_seconds", 'lane="begun"'),
            *_quantiles("queue_duration_seconds", 'lane="new"', " of new jobs", (0.99,)),
            *_quantiles("queue_duration_seconds", 'lane="to_begin"', " to start", (0.99,)),
        ),
    ),
)
API = DashboardRow(
    "API server",
    (
        graph(
            Text(
                "Requests", "reqps", "By verb. Running jobs need few requests; starting jobs cause most of them.", NONE
            ),
            Query(_rate("api_requests_total", "verb"), "{{verb}}"),
        ),
        graph(
            Text(
                "Failed requests",
                "reqps",
                "409 is a conflict that is retried, and 429 means that the server throttles. Investigate any "
                "other code.",
                "Every request succeeded",
            ),
            Query(_rate("api_requests_total", "code", "resource", matchers='code!~"[23].."'), "{{code}} {{resource}}"),
        ),
        graph(
            Text("Writes", "ops", "Writes that the API server committed, by kind of object.", NONE),
            Query(_rate("api_writes_total", "verb", "resource"), "{{verb}} {{resource}}"),
        ),
        graph(
            Text("Request duration", "s", "p95 by verb.", NONE),
            Query(quantile(0.95, "rljob_operator_api_request_duration_seconds", ("verb",), where=""), "{{verb}}"),
        ),
        graph(
            Text("Client-side throttling", "s", "Mean delay of a request by `operator.apiRequestsPerSecond`.", NONE),
            Query(mean_of("rljob_operator_api_throttle_seconds", where=""), "wait"),
        ),
        graph(
            Text("Requests to head pods", "reqps", "Ray's job API and the exporters, by call and result.", NONE),
            Query(_rate("ray_requests_total", "call", "code"), "{{call}} {{code}}"),
        ),
    ),
)
WATCHES = DashboardRow(
    "Watches",
    (
        graph(
            Text("Events", "ops", "Events delivered by watches, by kind.", NONE),
            Query(_rate("watch_events_total", "kind"), "{{kind}}"),
            width=8,
        ),
        graph(
            Text(
                "Missed changes",
                "none",
                "Changes that a resync found and no watch had delivered, per hour. A few after an outage are normal.",
                "No change was missed",
            ),
            Query("sum by (kind, drift) (increase(rljob_operator_resync_drift_total[1h]))", "{{kind}} {{drift}}"),
            width=8,
        ),
        graph(
            Text("Since last event", "s", "By kind. Not an alert, because a quiet cluster has few events.", NONE),
            Query("time() - max by (kind) (rljob_operator_watch_last_event_timestamp_seconds)", "{{kind}}"),
            width=8,
        ),
    ),
)
OPERATOR = Board(
    name="operator",
    title="RLJob / Operator",
    about="The operator: leadership, health and load on the API server.",
    rows=(NOW, ROUNDS, API, WATCHES),
)
