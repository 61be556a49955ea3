"""The watches: kopf delivers events and the handlers record them; nothing else happens here.

kopf lists each kind in pages and watches it from there, with bookmarks; it lists again after 410 Gone, reconnects after
errors and silence with backoff, obeys Retry-After, and logs in again when credentials expire (kopf/_cogs/clients).
Nothing else of kopf is used: no finalizers, peering, annotations, posting or scanning.

There is one handler per kind. It has no await, no patch and no result, so it can neither fail nor be slow. kopf runs on
a thread and an event loop of its own, because when it ends it cancels every task of its loop that is younger than
itself (kopf/_core/reactor/running.py, `run_tasks`). It can therefore be stopped and started again while running jobs
are still reconciled, which is how a CRD that is installed later gets its watch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import kopf

from rljob.cluster.kinds import WATCHED, Kind, Watch
from rljob.cluster.kube import PAGE
from rljob.core.observed import Manifest
from rljob.telemetry.log import Log

if TYPE_CHECKING:
    from rljob.control.resync import Resync

STOP_SECONDS = 10.0

Feed = Callable[[str, Kind, Manifest], None]
Login = Callable[[], Awaitable[kopf.AiohttpSession]]

log = Log(__name__)


class WatchEndedError(Exception):
    """kopf ended without being asked to."""


async def watch(resync: Resync, feed: Feed, login: Login) -> NoReturn:
    """Watch the kinds that are served, forever; restart when that set changes."""
    while True:
        resync.served_changed.clear()
        served = tuple(watch for watch in WATCHED if watch.kind in resync.reconciler.store.served)
        watcher = Watcher(served, resync.namespace, feed, login)
        watcher.start()
        ended = asyncio.ensure_future(watcher.ended)
        changed = asyncio.create_task(resync.served_changed.wait())
        try:
            await asyncio.wait((ended, changed), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                raise WatchEndedError("the watches ended; the restart lists and watches again") from ended.exception()
        finally:
            changed.cancel()
            await watcher.stop()


@dataclass
class Watcher:
    """One run of kopf on its own thread."""

    watches: tuple[Watch, ...]
    namespace: str | None
    feed: Feed
    login: Login

    def start(self) -> None:
        """Start the thread."""
        self._ours = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._ours.create_future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._failure: Exception | None = None
        # A daemon thread, so that a kopf that does not stop in time cannot keep a process alive that has lost its
        # Lease.
        threading.Thread(target=self._run, name="watches", daemon=True).start()

    async def stop(self) -> None:
        """Ask kopf to stop and wait for it, with a timeout."""
        if self._loop is not None and not self.ended.done():
            self._loop.call_soon_threadsafe(self._stop.set)
        done, _ = await asyncio.wait((self.ended,), timeout=STOP_SECONDS)
        if not done:
            log.warning("The watches did not stop in time", seconds=STOP_SECONDS)
        elif (error := self.ended.exception()) is not None:
            log.info("The watches ended with an error", error=str(error))

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._operate())
        except BaseException as raised:  # noqa: BLE001 - a thread must hand everything over, or it would be lost
            error = raised
        self._ours.call_soon_threadsafe(self._finish, error)

    def _finish(self, error: BaseException | None) -> None:
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)

    async def _operate(self) -> None:
        self._loop = asyncio.get_running_loop()
        if not self.watches:
            await self._stop.wait()
            return
        await kopf.operator(
            registry=self._registry(),
            settings=make_settings(self.watches),
            clusterwide=self.namespace is None,
            namespaces=() if self.namespace is None else (self.namespace,),
            standalone=True,
            stop_flag=self._stop,
        )
        if self._failure is not None:
            raise self._failure

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        async def login(**_: Any) -> kopf.AiohttpSession:  # noqa: ANN401 - kopf's calling convention
            try:
                return await self.login()
            except Exception as error:
                # kopf would wait for credentials forever without any log; a process without credentials should be
                # restarted.
                self._failure = error
                self._stop.set()
                raise

        kopf.on.login(registry=registry, id="login", errors=kopf.ErrorsMode.PERMANENT)(login)
        for watch in self.watches:
            kind = watch.kind
            on_event = kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)
            on_event(self._handler(kind))
        return registry

    def _handler(self, kind: Kind) -> Callable[..., Awaitable[None]]:
        async def record(event: dict[str, Any], **_: Any) -> None:  # noqa: ANN401 - kopf's calling convention
            manifest = {"apiVersion": kind.api_version, "kind": kind.kind, **event["object"]}
            # kopf adds no apiVersion and kind to the objects of its first LIST.
            self._ours.call_soon_threadsafe(self.feed, event["type"] or "LISTED", kind, manifest)

        return record


class NoEssence(kopf.DiffBaseStorage):  # type: ignore[misc] # mypy does not read kopf
    """Compares nothing. kopf copies each object as a whole to detect changes, which only change handlers need.

    There are none here (kopf/_core/reactor/processing.py, `_detect_causes`).
    """

    def build(self, **_: Any) -> kopf.BodyEssence:  # noqa: ANN401 - kopf's calling convention
        """Return nothing."""
        return {}

    def fetch(self, **_: Any) -> None:  # noqa: ANN401 - kopf's calling convention
        """Return None."""

    def store(self, **_: Any) -> None:  # noqa: ANN401 - kopf's calling convention
        """Store nothing."""


def make_settings(watches: tuple[Watch, ...]) -> kopf.OperatorSettings:
    """Return kopf's settings: only watching, filtered on the server and in pages."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.persistence.finalizer = "rljob.dev/kopf-is-never-to-set-this"
    settings.persistence.diffbase_storage = NoEssence()
    settings.watching.server_timeout = 290
    settings.watching.inactivity_timeout = 70
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = PAGE
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.enforce_retry_after = True
    # `Watcher.stop` bounds the time to stop.
    settings.process.ultimate_exiting_timeout = None
    for watch in watches:
        if watch.label_selector:
            settings.watching.label_selectors[watch.kind.group, watch.kind.version, watch.kind.plural] = (
                watch.label_selector
            )
    return settings
