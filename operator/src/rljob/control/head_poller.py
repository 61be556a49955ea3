"""Asks head pods outside the workers, so that a head that does not answer costs no other job a round.

A head is run by a tenant: it may accept a connection and be silent. `observe` therefore never waits for one. It takes
the answer to its question if there is one; otherwise the question is asked here, the round ends without a decision, and
the job's key returns to the queue together with the answer. Requests are bounded in total and per namespace, and
a free place goes to the namespace that has the fewest.

An answer is given out once, and only for the question that the round asks now. What a round does to a head or to the
job's status therefore always precedes the request whose answer the next decision takes. A head whose requests time out
is left alone for a while that doubles up to a minute; meanwhile the answer is that there was none.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rljob.core.jitter import jittered
from rljob.core.observed import UNSEEN, RayJob, Unseen
from rljob.core.requirements import Head
from rljob.telemetry.log import Log
from rljob_runtime.contract import Progress

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rljob.control.store import Key

IN_TOTAL = 128
PER_NAMESPACE = 16
"""Requests under way. An answer takes milliseconds, so sixteen serve a thousand jobs of one namespace; a silent head
has a place for its timeouts, about four seconds."""
PAUSE_FIRST_SECONDS, PAUSE_LAST_SECONDS = 4.0, 60.0
"""As long as the timeouts of one question, and the longest interval between two requests to a head that answers
(`core.polling`): five minutes of silence are reported, so a few more seconds decide nothing."""
PAUSE_JITTER = 0.2
FRESH_SECONDS = 30.0
"""An older answer is not used: deadlines compare the time of the last step in it with the present."""

log = Log(__name__)


@dataclass(frozen=True)
class Question:
    """What a round wants to know of a head."""

    head: Head
    submission_id: str | None
    """The submission to ask the job API for."""
    progress: bool
    """Ask the exporter first, and the job API only if that leaves a question."""
    intended_submission_id: str | None
    intended_attempt: int


@dataclass(frozen=True)
class Answer:
    """What a head answered."""

    progress: Progress | Unseen = UNSEEN
    ray_job: RayJob | Unseen | None = UNSEEN
    silent: bool = False
    """Nothing was answered, and a request timed out."""


SILENT = Answer(silent=True)


@dataclass
class _Conversation:
    """What was last asked of one head pod."""

    pod_uid: str
    question: Question | None = None
    """None if the job needs no answer at present."""
    number: int = 0
    """Number of the request that asks it: the answer to an earlier request is not used."""
    answer: Answer | None = None
    answered: float = 0.0
    silences: int = 0
    """Questions in a row that nothing was answered to."""
    pause_until: float = 0.0


class HeadPoller:
    """The questions to all heads."""

    def __init__(
        self,
        ask: Callable[[Question], Awaitable[Answer]],
        ready: Callable[[Key], None],
        monotonic: Callable[[], float],
        *,
        in_total: int = IN_TOTAL,
        per_namespace: int = PER_NAMESPACE,
    ) -> None:
        self._ask, self._ready, self._monotonic = ask, ready, monotonic
        self._in_total, self._per_namespace = in_total, per_namespace
        self._conversations: dict[Key, _Conversation] = {}
        self._waiting: OrderedDict[str, OrderedDict[Key, tuple[Question, int]]] = OrderedDict()
        """Questions to be asked, by namespace; the next namespace comes first."""
        self._asking: dict[asyncio.Task[None], Key] = {}
        self._asked_of: Counter[str] = Counter()
        """Requests under way, by namespace."""

    def take(self, key: Key, question: Question) -> Answer | None:
        """Return the answer to a question. None: it is being asked, and the key is queued when the answer is there."""
        found = self._conversations.get(key)
        if found is None or found.pod_uid != question.head.pod_uid:
            found = self._conversations[key] = _Conversation(question.head.pod_uid)
        now = self._monotonic()
        if found.question == question:
            answer, found.answer = found.answer, None
            if answer is None:
                return None
            found.question = None
            if now - found.answered <= FRESH_SECONDS:
                return answer
        if now < found.pause_until:
            self.drop(key)
            return SILENT
        found.question, found.number, found.answer = question, found.number + 1, None
        self._waiting.setdefault(key.namespace, OrderedDict())[key] = question, found.number
        self._start()
        return None

    def drop(self, key: Key) -> None:
        """Forget the question of a job that needs no answer now: a later round asks it again."""
        if (found := self._conversations.get(key)) is not None:
            found.question = found.answer = None
        waiting = self._waiting.get(key.namespace)
        if waiting is not None and waiting.pop(key, None) is not None and not waiting:
            del self._waiting[key.namespace]

    def keep_only(self, keys: set[Key]) -> None:
        """Forget the jobs that are gone."""
        for key in self._conversations.keys() - keys:
            self.drop(key)
            del self._conversations[key]

    async def settle(self) -> bool:
        """Wait until every question is answered; report whether there was any."""
        there_were = bool(self._asking)
        while self._asking:
            await asyncio.wait(self._asking)
        return there_were

    async def close(self) -> None:
        """End all requests."""
        self._waiting.clear()
        for task in self._asking:
            task.cancel()
        await self.settle()

    def __len__(self) -> int:
        """Return how many questions are being asked."""
        return len(self._asking)

    def _start(self) -> None:
        """Ask what may be asked now; of namespaces with as many places, each in turn."""
        while self._waiting and len(self._asking) < self._in_total:
            namespace = min(self._waiting, key=lambda each: self._asked_of[each])
            if self._asked_of[namespace] >= self._per_namespace:
                return
            self._ask_next(namespace)

    def _ask_next(self, namespace: str) -> None:
        waiting = self._waiting[namespace]
        key, (question, number) = waiting.popitem(last=False)
        if waiting:
            self._waiting.move_to_end(namespace)
        else:
            del self._waiting[namespace]
        self._asked_of[namespace] += 1
        task = asyncio.create_task(self._run(key, question, number), name=f"head of {key}")
        self._asking[task] = key
        task.add_done_callback(self._done)

    async def _run(self, key: Key, question: Question, number: int) -> None:
        try:
            answer = await self._ask(question)
        except Exception as error:  # noqa: BLE001 - a bug must not leave a job without an answer for ever
            log.failure("Asking a head crashed", error, job=key)
            answer = Answer()
        found = self._conversations.get(key)
        if found is None or found.question is None or (found.pod_uid, found.number) != (question.head.pod_uid, number):
            # The job needs none meanwhile, or another one.
            return
        found.answer, found.answered = answer, self._monotonic()
        found.silences = found.silences + 1 if answer.silent else 0
        found.pause_until = found.answered + pause_seconds(str(key), found.silences)
        self._ready(key)

    def _done(self, task: asyncio.Task[None]) -> None:
        namespace = self._asking.pop(task).namespace
        self._asked_of[namespace] -= 1
        if not self._asked_of[namespace]:
            del self._asked_of[namespace]
        self._start()


def pause_seconds(key: str, silences: int) -> float:
    """Return how long a head is left alone after this many unanswered requests in a row; 0 after an answer."""
    if silences == 0:
        return 0.0
    base = min(PAUSE_FIRST_SECONDS * 2.0 ** min(silences - 1, 16), PAUSE_LAST_SECONDS)
    return jittered(base, f"{key}/{silences}", PAUSE_JITTER)
