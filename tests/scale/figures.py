"""Sources of measurements: /proc for CPU and memory, the audit log for requests, metrics pages for waiting times."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.scale.plane import OPERATOR

TICKS = os.sysconf("SC_CLK_TCK")
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
OWN_LEASE = ("coordination.k8s.io", "leases")
_BUCKET = re.compile(r'_bucket\{.*?le="(?P<bound>[^"]+)".*?\} (?P<count>\S+)')


@dataclass(frozen=True)
class Usage:
    """Resource use of a process so far."""

    cpu_seconds: float
    rss_mib: float
    peak_rss_mib: float


def usage(pid: int) -> Usage:
    """Read the resource use of a process."""
    # The command name may contain spaces and brackets and ends at the last bracket. Fields 14 and 15: utime and stime.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    memory = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Usage(
        cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS,
        rss_mib=int(memory["VmRSS"].split()[0]) / 1024,
        peak_rss_mib=int(memory["VmHWM"].split()[0]) / 1024,
    )


@dataclass(frozen=True)
class Request:
    """One request of an operator, as recorded by the API server."""

    user: str
    verb: str
    group: str
    resource: str
    name: str
    time: float
    code: int
    about: str = ""
    """For an event: the kind of its object."""
    subject: str = ""
    """Name of the object, or of an event's object."""

    @property
    def writes(self) -> bool:
        """Whether it was a committed write."""
        return self.verb in WRITES and self.code < 300

    @property
    def about_a_job(self) -> bool:
        """Whether it belongs to a job's own controller rather than to that of RayClusters, which exists on both sides.

        KubeRay is one process for both. Its RayJob controller writes RayJobs, the RayClusters themselves (but not their
        status), and events about RayJobs.
        """
        if self.user == OPERATOR:
            return (self.group, self.resource) != OWN_LEASE
        if self.resource == "events":
            return self.about == "RayJob"
        return self.resource.startswith("rayjobs") or (self.resource == "rayclusters" and self.verb == "create")


def read_audit_log(path: Path) -> Iterator[Request]:
    """Yield the requests of both operators, without watches."""
    with path.open() as lines:
        for line in lines:
            # The last line may be incomplete.
            if line.endswith("}\n") and (found := _request(json.loads(line))) is not None:
                yield found


def _request(entry: dict[str, Any]) -> Request | None:
    target, code = entry.get("objectRef"), (entry.get("responseStatus") or {}).get("code")
    if target is None or code is None or entry["verb"] == "watch":
        return None
    body = entry.get("requestObject") or {}
    about = body.get("regarding") or body.get("involvedObject") or {}
    return Request(
        user=entry["user"]["username"],
        verb=entry["verb"],
        group=target.get("apiGroup", ""),
        resource="/".join(part for part in (target["resource"], target.get("subresource")) if part),
        name=target.get("name", ""),
        time=datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp(),
        code=code,
        about=about.get("kind", ""),
        subject=about.get("name") or target.get("name", ""),
    )


@dataclass(frozen=True)
class Traffic:
    """The requests of one run."""

    requests: tuple[Request, ...]

    def between(self, start: float, end: float) -> Traffic:
        """Return the requests in a time span."""
        return Traffic(tuple(request for request in self.requests if start <= request.time < end))

    def until(self, moments: Mapping[str, float]) -> Traffic:
        """Return the requests about each of these jobs or its objects, up to the job's time."""
        return Traffic(tuple(r for r in self.requests if r.time <= moments.get(job_of(r.subject), -math.inf)))

    def of(self, user: str) -> Traffic:
        """Return the requests of one operator."""
        return Traffic(tuple(request for request in self.requests if request.user == user))

    def of_job_controller(self) -> Traffic:
        """Return the requests that belong to a job's own controller."""
        return Traffic(tuple(request for request in self.requests if request.about_a_job))

    def writes(self) -> Counter[str]:
        """Count writes by verb and resource."""
        return Counter(f"{request.verb} {request.resource}" for request in self.requests if request.writes)

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.requests)


def job_of(name: str) -> str:
    """Return the job of an object: names of all its objects start with the job's name, `run-0001`."""
    return "-".join(name.split("-")[:2])


def traffic(path: Path) -> Traffic:
    """Read the whole audit log."""
    return Traffic(tuple(read_audit_log(path)))


Buckets = dict[float, float]


def buckets(page: str, metric: str, *labels: str, some: tuple[str, ...] = ("",)) -> Buckets:
    """Return a metrics page's histogram as counts by bound, over label sets with all of `labels` and one of `some`."""
    found: Buckets = defaultdict(float)
    for line in page.splitlines():
        wanted = line.startswith(f"{metric}_bucket") and all(label in line for label in labels)
        wanted = wanted and any(text in line for text in some)
        if wanted and (match := _BUCKET.search(line)):
            found[float(match["bound"])] += float(match["count"])
    return found


def total(page: str, metric: str) -> float:
    """Return the sum of a gauge or counter of a metrics page over its label sets."""
    wanted = (f"{metric}{{", f"{metric} ")
    return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(wanted))


def series(page: str) -> int:
    """Count the series of a metrics page."""
    return sum(bool(line) and not line.startswith("#") for line in page.splitlines())


def quantile(part: float, later: Buckets, earlier: Buckets | None = None) -> float | None:
    """Estimate a quantile as Prometheus does: linear within its bucket. Return None without observations."""
    counts = [(bound, count - (earlier or {}).get(bound, 0.0)) for bound, count in sorted(later.items())]
    if not counts or counts[-1][1] == 0:
        return None
    wanted = part * counts[-1][1]
    low, below = 0.0, 0.0
    for bound, count in counts:
        if count >= wanted:
            # It is unknown how far above the last bound it is.
            return low if bound == float("inf") else low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    raise AssertionError("the last bucket holds everything")
