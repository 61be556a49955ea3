"""Late binding: requests wait until a replica has room, and the longest go first. Pure; used by `late_router`.

A router that sends each request on at once decides by counts, before any length is known, and a replica that was given
the long responses works while the others are idle. Here a request is bound to a replica when it can run there, so the
replicas end together if the last requests are short. Lengths are not known either, but the responses to one prompt have
similar ones: one request of each prompt goes first, and the rest are ordered by what their group has generated so far.
The sources are named in docs/design/0019-late-binding.md.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

ENGINE_SPARE = 2
"""Requests beyond its sequences that an engine has at least, so that none of them is idle during a round trip."""
ROUND_TRIP_SECONDS = 0.05
"""From the end of a response until the next request is in the engine, a busy actor included."""
BURST_FACTOR = 2.5
"""Spare requests for each response that ended within a round trip, on average. Of n that end at once the average counts
the first as 1 and the last as n; those of equal lengths do end at once."""
BURST_DECAY = 0.9
"""Weight of the responses before the last one in that average."""
UNKNOWN_WEIGHT = 0.5
"""Responses for which the mean of all prompts counts in the estimate of a prompt's length."""
HISTORY_WEIGHT = 2.0
"""Responses for which the mean of the same prompt in its last step counts."""
HISTORY_MAX = 100_000
"""Prompts whose mean length is remembered, the most recent ones."""
SESSIONS_MAX = 10_000
"""Requests whose replica is remembered at least, the most recent ones: as many as in verl's router (router.py:28)."""
RANKS_SPARE = 1_000
"""Outdated entries of the order that are kept; beyond them it is rebuilt."""
SETTLE_SECONDS = 0.05
"""A step's requests arrive one by one. Until none has arrived for this long, only first requests of groups are
placed."""
ARRIVAL_SECONDS = 1.0
"""… but no longer than this after the first."""
DECAY = 0.999
"""Weight of the responses before the last one in means over all prompts, which follow the policy."""


@dataclass(frozen=True)
class Limits:
    """What the replicas take."""

    sequences: int
    """Sequences that each engine runs at a time."""
    engines: int
    """Data-parallel engines of a replica."""
    requests: int
    """Most requests that the trainer sends at a time. More than that never wait."""

    @property
    def running(self) -> int:
        """Return the number of requests that a replica runs at a time."""
        return self.sequences * self.engines

    @property
    def spare(self) -> int:
        """Return the number of requests that a replica has beyond these at least, while others wait."""
        return self.engines * ENGINE_SPARE


@dataclass(frozen=True)
class Placed:
    """Where a request goes."""

    ticket: int
    replica: str | None
    """None: nowhere. It was abandoned, or there are no replicas."""


@dataclass(eq=False)
class _Request:
    """One that waits."""

    ticket: int
    name: str
    group: _Group
    placed_before: int
    """Number of requests that had been placed when it arrived."""
    gone: bool = False


@dataclass(eq=False)
class _Group:
    """The requests of one prompt that wait or run."""

    key: str | None
    arrived: int
    prior: float | None
    """Mean length in an earlier step."""
    waiting: deque[_Request] = field(default_factory=deque)
    started: int = 0
    live: int = 0
    begun: float = 0.0
    """Sum of the times at which its live requests began."""
    finished: int = 0
    tokens: int = 0
    """Of all its responses."""
    ranked: int = 0
    """How often it was ranked. Only its last rank counts."""

    @property
    def unknown(self) -> bool:
        """Whether nothing is known about its lengths."""
        return self.prior is None and self.finished == 0


@dataclass(frozen=True)
class _Running:
    """A request that a replica has."""

    group: _Group
    begun: float
    first: bool
    """Whether it is the first turn."""


class _Mean:
    """Tokens per response and per second over the responses of all prompts."""

    def __init__(self) -> None:
        self._responses = self._tokens = self._seconds = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Count a response."""
        self._responses = self._responses * DECAY + 1
        self._tokens = self._tokens * DECAY + tokens
        self._seconds = self._seconds * DECAY + seconds

    @property
    def length(self) -> float:
        """Return the tokens of a response; 1 before the first."""
        return self._tokens / self._responses if self._responses else 1.0

    @property
    def rate(self) -> float:
        """Return the tokens per second of a response."""
        return self._tokens / self._seconds if self._seconds > 0 else 0.0


class _Bursts:
    """How many responses of a replica end within a round trip."""

    def __init__(self) -> None:
        self.mean = 0.0
        self._last: dict[str, tuple[float, int]] = {}
        """When the last burst of a replica began, and its responses so far."""

    def add(self, replica: str, now: float) -> None:
        """Count a response."""
        begun, count = self._last.get(replica, (now, 0))
        if now - begun > ROUND_TRIP_SECONDS:
            begun, count = now, 0
        self._last[replica] = begun, count + 1
        self.mean = self.mean * BURST_DECAY + (count + 1) * (1 - BURST_DECAY)


class LateBinding:
    """Places requests. After each change, `placed` returns those whose place is decided."""

    def __init__(self, replicas: Iterable[str], limits: Limits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._load = dict.fromkeys(replicas, 0)
        self._running: dict[tuple[str, str], list[_Running]] = {}
        """By replica and name."""
        self._sessions: OrderedDict[str, tuple[str, str | None]] = OrderedDict()
        """Name of a request to its replica and its group, for later turns."""
        self._groups: dict[str, _Group] = {}
        self._history: OrderedDict[str, float] = OrderedDict()
        self._mean = _Mean()
        self._bursts = _Bursts()
        self._order: deque[_Request] = deque()
        self._ranks: list[tuple[int, float, int, int, _Group]] = []
        self._decided: list[Placed] = []
        self._tickets = self._placed = self._waiting = 0
        self._first_arrival = self._last_arrival = -ARRIVAL_SECONDS
        self._closed = False

    # What is known.

    @property
    def load(self) -> dict[str, int]:
        """Return the number of requests that each replica has."""
        return dict(self._load)

    @property
    def waiting(self) -> int:
        """Return the number of requests that wait."""
        return self._waiting

    @property
    def closed(self) -> bool:
        """Return whether requests go nowhere."""
        return self._closed

    @property
    def settles_in(self) -> float:
        """Return the seconds until the requests that have arrived count as all; 0 if they do already."""
        settled = min(self._last_arrival + SETTLE_SECONDS, self._first_arrival + ARRIVAL_SECONDS)
        return max(0.0, settled - self._clock())

    # Changes.

    def arrive(self, name: str, group: str | None) -> int:
        """Return the ticket of a request. A later turn of a request goes where its cache is, at once.

        The group is a name for the prompt; None if it is not known which requests belong together.
        """
        self._tickets += 1
        ticket = self._tickets
        if self._closed or not self._load:
            self._decided.append(Placed(ticket, None))
            return ticket
        replica, known = self._sessions.get(name, (None, group))
        request = _Request(ticket, name, self._group(known), self._placed)
        if replica in self._load:
            self._begin(request, replica)
            return ticket
        if self.settles_in == 0 and not self._waiting:
            self._first_arrival = self._clock()
        self._last_arrival = self._clock()
        request.group.waiting.append(request)
        if len(request.group.waiting) == 1:
            self._rank(request.group)
        self._order.append(request)
        self._waiting += 1
        return ticket

    def finish(self, replica: str, name: str, tokens: int | None) -> bool:
        """Take a response, or the end of a request without one (None). Return whether the replica had the request."""
        running = self._running.get((replica, name))
        if not running:
            return False
        self._end(running.pop(), tokens)
        if not running:
            del self._running[replica, name]
        self._load[replica] -= 1
        self._bursts.add(replica, self._clock())
        return True

    def add(self, replicas: Iterable[str]) -> None:
        """Add replicas."""
        for name in replicas:
            self._load.setdefault(name, 0)

    def remove(self, replicas: Iterable[str]) -> None:
        """Remove replicas and their requests. The later turns of these choose other replicas."""
        gone = {name for name in replicas if self._load.pop(name, None) is not None}
        for place in [place for place in self._running if place[0] in gone]:
            for request in self._running.pop(place):
                self._end(request, None)
        if not self._load:
            self._end_waiting()

    def close(self) -> int:
        """End what waits, and what arrives until `open`. Return how many requests waited."""
        self._closed = True
        return self._end_waiting()

    def open(self) -> None:
        """Place requests again."""
        self._closed = False

    def forget_sessions(self) -> int:
        """Let every later turn choose its replica again. Return how many requests were remembered."""
        count = len(self._sessions)
        self._sessions.clear()
        return count

    # Decisions.

    def placed(self) -> list[Placed]:
        """Return the requests whose place is decided since the last call."""
        while self._waiting:
            replica = min(self._load, key=self._load.__getitem__)
            full = self._load[replica] >= self._room()
            if full and self._waiting <= self._limits.requests:
                break
            request = self._next()
            if self.settles_in > 0 and (request.group.started or not request.group.unknown):
                break
            self._begin(self._take(request), replica)
        decided, self._decided = self._decided, []
        return decided

    def _room(self) -> int:
        """Return how many requests a replica may have.

        Spare requests are bound early. That costs nothing while others wait behind them; the last ones are shared out
        evenly instead.
        """
        running = self._limits.running
        if self._waiting <= running * len(self._load):
            return running
        return running + max(self._limits.spare, min(running, int(self._bursts.mean * BURST_FACTOR)))

    def _next(self) -> _Request:
        """Return the request that goes first."""
        while self._order[0].gone:
            self._order.popleft()
        oldest = self._order[0]
        # In one step no request waits for more others than the trainer sends. It may where requests keep coming.
        if self._placed - oldest.placed_before >= self._limits.requests:
            return oldest
        while not self._is_current(self._ranks[0]):
            heapq.heappop(self._ranks)
        return self._ranks[0][-1].waiting[0]

    def _rank(self, group: _Group) -> None:
        """Put a group that waits into its place in the order.

        First those of which nothing is known, one request of each before a second of any: the first request of a group
        shows whether the others are worth preferring, and where it still runs it has outlasted those of the groups
        that are known. Then the longest.
        """
        group.ranked += 1
        place = (0, group.started) if group.unknown else (1, -self._estimate(group))
        heapq.heappush(self._ranks, (*place, group.arrived, group.ranked, group))
        if len(self._ranks) > RANKS_SPARE + 2 * self._waiting:
            self._ranks = [rank for rank in self._ranks if self._is_current(rank)]
            heapq.heapify(self._ranks)

    @staticmethod
    def _is_current(rank: tuple[int, float, int, int, _Group]) -> bool:
        *_, ranked, group = rank
        return group.ranked == ranked and bool(group.waiting)

    def _estimate(self, group: _Group) -> float:
        """Return the expected length of a response of the group, in tokens.

        The mean of a distribution of lifetimes, of which some have not ended: all tokens, also those of the requests
        that run, by the number of responses that ended. What is expected beforehand counts as some responses.
        """
        if group.prior is None:
            prior, weight = self._mean.length, UNKNOWN_WEIGHT
        else:
            prior, weight = group.prior, HISTORY_WEIGHT
        so_far = (group.live * self._clock() - group.begun) * self._mean.rate if group.live else 0.0
        return (prior * weight + group.tokens + so_far) / (weight + group.finished)

    # Bookkeeping.

    def _group(self, key: str | None) -> _Group:
        if key is None:
            return _Group(None, self._tickets, None)
        if key not in self._groups:
            self._groups[key] = _Group(key, self._tickets, self._history.get(key))
        return self._groups[key]

    def _take(self, request: _Request) -> _Request:
        """Take the first waiting request of its group out of the queues."""
        request.group.waiting.popleft()
        request.gone = True
        self._waiting -= 1
        return request

    def _begin(self, request: _Request, replica: str) -> None:
        """Give a request to the replica; to that of an earlier turn if there is one."""
        earlier, _ = self._sessions.get(request.name, (replica, None))
        first = request.name not in self._sessions or earlier not in self._load
        replica = replica if first else earlier
        self._sessions[request.name] = (replica, request.group.key)
        self._sessions.move_to_end(request.name)
        if len(self._sessions) > max(SESSIONS_MAX, self._limits.requests):
            self._sessions.popitem(last=False)
        now, group = self._clock(), request.group
        group.started += 1
        group.live += 1
        group.begun += now
        if group.waiting and group.unknown:
            self._rank(group)
        self._running.setdefault((replica, request.name), []).append(_Running(group, now, first))
        self._load[replica] += 1
        self._placed += 1
        self._decided.append(Placed(request.ticket, replica))

    def _end(self, request: _Running, tokens: int | None) -> None:
        """Count a response for its group."""
        group = request.group
        group.live -= 1
        group.begun -= request.begun
        if tokens is not None:
            self._mean.add(tokens, self._clock() - request.begun)
            group.finished += request.first
            group.tokens += tokens
        if group.waiting:
            self._rank(group)
        else:
            self._retire(group)

    def _retire(self, group: _Group) -> None:
        """Move a group without requests to the history."""
        if group.live or group.waiting or group.key is None:
            return
        del self._groups[group.key]
        if not group.unknown:
            self._history[group.key] = self._estimate(group)
            self._history.move_to_end(group.key)
            if len(self._history) > HISTORY_MAX:
                self._history.popitem(last=False)

    def _end_waiting(self) -> int:
        count = self._waiting
        for request in self._order:
            if not request.gone:
                self._decided.append(Placed(self._take(request).ticket, None))
                self._retire(request.group)
        self._order.clear()
        self._ranks.clear()
        return count
