"""`Client`: the methods of `AsyncClient` without `await`, also where an event loop runs, as in a notebook.

There is one implementation. A thread with an event loop of its own runs it, and each method waits for the result. The
signatures and the documentation are those of the asynchronous methods.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from contextlib import closing
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rljob.client.asynchronous import AsyncClient
from rljob.client.job import Job
from rljob.client.watching import Until

P = ParamSpec("P")
T = TypeVar("T")


class _Loop:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="rljob-client", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    @property
    def is_here(self) -> bool:
        """Return whether the caller is on the loop's thread, which cannot wait for itself."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Ctrl-C cancels it."""
        if not self._thread.is_alive() or self.is_here:
            work.close()
            raise RuntimeError("this client is closed; make a new Client()")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that frees something, also where the garbage collector calls this, on any thread."""
        if not self._thread.is_alive():
            work.close()
        elif self.is_here:
            asyncio.run_coroutine_threadsafe(work, self._loop)
        else:
            self.run(work)

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine and end the thread."""

        async def end() -> None:
            try:
                await last
            finally:
                await self._loop.shutdown_asyncgens()
                self._loop.call_soon(self._loop.stop)

        self.finish(end())
        if not self.is_here:
            self._thread.join()


def _shut(loop: _Loop, client: AsyncClient) -> None:
    loop.close(client.aclose())


def _blocking(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return the method without `await`."""

    @functools.wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._client, *args, **kwargs))

    return call


def _iterating(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T]],
) -> Callable[Concatenate[Client, P], Generator[T]]:
    """Return the method as a generator without `async`."""

    @functools.wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        return _items(self._loop, method(self._client, *args, **kwargs))

    return call


def _items(loop: _Loop, source: AsyncGenerator[T]) -> Generator[T]:
    async def following() -> tuple[T] | None:
        try:
            return (await anext(source),)
        except StopAsyncIteration:
            return None

    async def end() -> None:
        await source.aclose()

    try:
        while (found := loop.run(following())) is not None:
            yield found[0]
    finally:
        loop.finish(end())


class Client:
    """A client for the RLJobs of one cluster.

    Without arguments it uses what kubectl uses: `KUBECONFIG`, `~/.kube/config` with its current context, or in a pod
    the service account. Credential plug-ins of clouds are run as kubectl runs them, again when their token expires.

    A job is named by `NAME`, by `NAMESPACE/NAME`, or by a `Job`, which also means that no other job of that name
    is touched. Close the client with `with` or `close`. It may be used from several threads.

    Args:
        namespace: Namespace of names that state none. Defaults to that of the context or of the pod.
        kubeconfig: File to use instead.
        context: Context of the file. Defaults to the current one.
        accelerators: Files with accelerator classes of your site, which `validate` then knows.
    """

    def __init__(
        self,
        namespace: str | None = None,
        *,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
        accelerators: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        self._client = AsyncClient(namespace, kubeconfig=kubeconfig, context=context, accelerators=accelerators)
        self._loop = _Loop()
        self._end = weakref.finalize(self, _shut, self._loop, self._client)

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close the connections, and end the thread."""
        self._end()

    create = _blocking(AsyncClient.create)
    validate = _blocking(AsyncClient.validate)
    get = _blocking(AsyncClient.get)
    list = _blocking(AsyncClient.list)
    watch = _iterating(AsyncClient.watch)
    logs = _iterating(AsyncClient.logs)
    metrics = _blocking(AsyncClient.metrics)
    samples = _blocking(AsyncClient.samples)
    suspend = _blocking(AsyncClient.suspend)
    resume = _blocking(AsyncClient.resume)
    stop = _blocking(AsyncClient.stop)
    restart = _blocking(AsyncClient.restart)
    delete = _blocking(AsyncClient.delete)

    def wait(  # noqa: D102 - see below
        self,
        job: str | Job,
        *,
        timeout: float,
        until: Until | None = None,
        on_change: Callable[[Job], object] | None = None,
    ) -> Job:
        # `on_change` is called in the caller's thread, where it may use this client.
        last = None
        with closing(_items(self._loop, self._client._wait(job, until, timeout))) as changes:  # noqa: SLF001 - its half
            for last in changes:
                if on_change is not None:
                    on_change(last)
        if last is None:
            raise AssertionError("a wait without a job")
        return last


Client.wait.__doc__ = AsyncClient.wait.__doc__
