"""The error of an initializer."""

from __future__ import annotations

from rljob_runtime.contract import ExitCode


class RequestError(Exception):
    """A request cannot be fulfilled, or not by this try. Has the exit code; the message has the fix."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class StoppedError(RequestError):
    """A file was left because another one has failed."""

    def __init__(self) -> None:
        super().__init__(ExitCode.ENVIRONMENT, "another file has failed")
