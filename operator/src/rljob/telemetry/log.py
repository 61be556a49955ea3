"""Structured logs: one JSON object per line, with a constant message and fields, so that they can be counted.

Secrets, environments and command lines never reach a line: fields with such names are replaced, the end of each text is
searched for bearer tokens and assignments of secrets, and everything has a bounded length. Texts come from pods of any
tenant, so the patterns are linear and see a bounded part of a text. Records of libraries pass through the same
formatter; kopf's level is at least INFO, since it logs whole objects at DEBUG.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from rljob.api.printing import printable
from rljob.api.secret_shapes import ANY

TEXT_LIMIT = 1000
"""Maximum length of the text of one field."""
TRACEBACK_LIMIT = 8000
MARGIN = 2000
"""Characters searched before those that are shown, so that what is hidden at a cut is rarely among the latter."""

_HIDDEN = "[redacted]"
_HIDDEN_FIELDS = frozenset(
    {
        *("args", "command", "entrypoint", "env", "environment", "runtime_env"),
        *("authorization", "data", "key", "password", "secret", "string_data", "token"),
    }
)
# A name is tried only at its first character and no repetition gives anything back, so the work is linear in the text.
_ASSIGNS = r"[\"']?+\s*+[=:]\s*+[\"']?+"
_RUN = r"[^\s\"',;&]"
_SECRET = re.compile(
    r"(?P<keep>bearer\s++|(?<![\w-])(?=[\w-]*?(?:token|password|secret|api[_-]?key))[\w-]++" + _ASSIGNS + f"){_RUN}++",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"-----BEGIN (?:[A-Z]{1,16} ){0,3}PRIVATE KEY-----[^-]*+|"
    r"(?P<keep>authorization[\"']?+\s*+[=:]\s*+[\"']?+basic\s++"
    r"|(?<![\w-])--(?:[\w-]*?[_-])?(?:token|password|passwd|secret|api[_-]?key)\s++)"
    f"{_RUN}++|{ANY.pattern}",
    re.IGNORECASE,
)
"""What is no assignment: tokens by their formats, an option with its value, and the contents of a private key."""
_TORN = re.compile(
    rf"{_RUN}*+[\"']?+\s*+[=:]?+\s*+[\"']?+{_RUN}*+"
    rf"(?:{_ASSIGNS}{_RUN}++|(?<=[=:])\s*+[\"']?+{_RUN}++|(?<=bearer)\s++{_RUN}++)*+",
    re.IGNORECASE,
)
"""The start of a text that was cut in front, up to where no match of `_SECRET` can still be open.

The rest of a match that the cut splits has at most two runs of characters of a value: of the name and of the value. A
run behind an assignment or `bearer` may be the value of a name that was just skipped, so it is skipped as well.
"""


class Log:
    """A logger that takes fields as keywords: `log.info("Resync done", kind="pods", drift=0)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, **fields: object) -> None:
        """Log details for developers."""
        self._logger.debug(message, extra={"fields": fields})

    def info(self, message: str, **fields: object) -> None:
        """Log a normal event."""
        self._logger.info(message, extra={"fields": fields})

    def warning(self, message: str, **fields: object) -> None:
        """Log a problem that the operator handles."""
        self._logger.warning(message, extra={"fields": fields})

    def failure(self, message: str, error: BaseException, **fields: object) -> None:
        """Log a problem that needs attention, with the traceback."""
        self._logger.error(message, exc_info=error, extra={"fields": fields})


class JsonFormatter(logging.Formatter):
    """Formats a record as one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a newline."""
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
        # JSON escapes C0 only; what else controls a terminal gets escapes of JSON too.
        return printable(json.dumps(line, ensure_ascii=False, default=str))


def redact(text: str, limit: int = TEXT_LIMIT) -> str:
    """Hide what looks like a secret and keep at most `limit` characters of the end: a traceback ends with its cause."""
    text = redacted_end(text, limit + MARGIN)
    return text if len(text) <= limit else "…" + text[-(limit - 1) :]


def redacted_end(text: str, size: int) -> str:
    """Return the last `size` characters with secrets hidden, including one that begins before them.

    Apart from the marker at the cut, the result is the end of the whole text, redacted.
    """
    if len(text) <= size:
        return _hidden(text)
    end = text[-size:]
    torn = _TORN.match(end)
    return f"…{_HIDDEN}{_hidden(end[torn.end() if torn else 0 :])}"


def _hidden(text: str) -> str:
    return _TOKEN.sub(_hide, _SECRET.sub(_hide, text))


def _hide(found: re.Match[str]) -> str:
    return (found["keep"] or "") + _HIDDEN


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
    # At INFO, kopf logs every event that a handler has recorded.
    logging.getLogger("kopf.objects").setLevel(max(logging.WARNING, root.level))
