"""Run a function that reads a volume, with a deadline: a volume may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Call(Generic[T]):
    def __init__(self, do: Callable[[], T]) -> None:
        self._do = do
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._do()
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            self.error = error


def within(seconds: float, do: Callable[[], T]) -> T:
    """Return what `do` returns, or raise what it raises. Raises TimeoutError after `seconds`; the thread continues."""
    call = _Call(do)
    thread = threading.Thread(target=call.run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {seconds:g} s")
    if call.error is not None:
        raise call.error
    return call.result  # type: ignore[return-value] # without an error there is a result
