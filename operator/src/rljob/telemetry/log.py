"""Structured logs: one JSON object a line, a constant message and fields, so that logs can be counted and searched.

Secrets, environments and command lines never reach a line: fields with such names are replaced, texts are searched for
bearer tokens and assignments of secrets, and everything is cut to a bounded length. Records of libraries pass through
the same formatter; kopf is never heard below INFO, since it logs whole objects at DEBUG.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

TEXT_LIMIT = 1000
"""Longest text of one field."""
TRACEBACK_LIMIT = 8000

_HIDDEN = "[redacted]"
_HIDDEN_FIELDS = frozenset(
    {
        *("args", "command", "entrypoint", "env", "environment", "runtime_env"),
        *("authorization", "data", "key", "password", "secret", "string_data", "token"),
    }
)
_HIDDEN_TEXT = re.compile(
    r"(?P<keep>bearer\s+|\b[\w-]*(?:token|password|secret|api[_-]?key)[\w-]*[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]+",
    re.IGNORECASE,
)


class Log:
    """A logger that takes fields as keywords: `log.info("Resync done", kind="pods", drift=0)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, **fields: object) -> None:
        """Say what only a developer wants to know."""
        self._logger.debug(message, extra={"fields": fields})

    def info(self, message: str, **fields: object) -> None:
        """Say what happened."""
        self._logger.info(message, extra={"fields": fields})

    def warning(self, message: str, **fields: object) -> None:
        """Say what went wrong and is dealt with."""
        self._logger.warning(message, extra={"fields": fields})

    def failure(self, message: str, error: BaseException, **fields: object) -> None:
        """Say what went wrong and needs a person, with the traceback."""
        self._logger.error(message, exc_info=error, extra={"fields": fields})


class JsonFormatter(logging.Formatter):
    """Turns a record into one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line, without its end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for name, value in getattr(record, "fields", {}).items():
            line.setdefault(name, redact_field(name, value))
        if record.exc_info and record.exc_info[1] is not None:
            line["traceback"] = redact(self.formatException(record.exc_info), TRACEBACK_LIMIT)
        return json.dumps(line, ensure_ascii=False, default=str)


def redact(text: str, limit: int = TEXT_LIMIT) -> str:
    """Hide what looks like a secret and cut to the limit, keeping the end: tracebacks say the cause last."""
    text = _HIDDEN_TEXT.sub(lambda match: match["keep"] + _HIDDEN, text)
    return text if len(text) <= limit else "…" + text[-(limit - 1) :]


def redact_field(name: str, value: object) -> object:
    """Hide a field by its name, or the secrets in its text; numbers stay numbers."""
    if name.lower() in _HIDDEN_FIELDS:
        return _HIDDEN
    if value is None or isinstance(value, bool | int | float):
        return value
    return redact(str(value))


def configure(level: str, stream: TextIO = sys.stderr) -> None:
    """Send every record of the process through the formatter."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("kopf", "aiohttp", "asyncio", "kubernetes"):
        logging.getLogger(name).setLevel(max(logging.INFO, root.level))
    # At INFO it tells of every event that a handler has recorded.
    logging.getLogger("kopf.objects").setLevel(max(logging.WARNING, root.level))
