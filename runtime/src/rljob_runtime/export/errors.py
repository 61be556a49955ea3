"""Why an export cannot be made."""

from __future__ import annotations

from rljob_runtime.contract import ExitCode


class ExportError(Exception):
    """Has the exit code, which decides about another try, a reason, and a message with the fix."""

    def __init__(self, code: ExitCode, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
