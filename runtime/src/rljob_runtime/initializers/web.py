"""Requests to a hub: retries with growing pauses, a token that stays with its host, and bounded answers.

urllib follows redirects with all headers, and hubs redirect large files to other hosts, which must not see the token
and refuse a request that has one. So the token is sent to the endpoint's own host only.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from rljob_runtime.contract import ExitCode
from rljob_runtime.contract.downloads import Hub
from rljob_runtime.initializers.error import RequestError, StoppedError
from rljob_runtime.initializers.target import say

T = TypeVar("T")
SOCKET_SECONDS = 60.0
"""Longest silence of a server."""
TRIES = 8
"""Requests without a byte of progress before giving up: two minutes with the pauses below, and eight more if each is
silent for SOCKET_SECONDS."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
ANSWER_BYTES = 64 * 2**20
"""Largest listing that is read."""
PERMANENT = {401, 403, 404, 410}
"""Statuses that do not change with another request."""
ADVICE = "; is the name right, and does the repository need a token (download.credentials)?"
TRANSIENT = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError)


class _SameHostToken(urllib.request.HTTPRedirectHandler):
    """Follow redirects; one within the same origin keeps the token."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and urlsplit(newurl)[:2] == urlsplit(req.full_url)[:2]:
            for name, value in req.unredirected_hdrs.items():
                following.add_unredirected_header(name, value)
        return following


@dataclass
class Client:
    """A hub or its mirror."""

    hub: Hub
    endpoint: str
    token: str = field(default="", repr=False)
    stopped: threading.Event = field(default_factory=threading.Event)
    """Ends all pauses, because another transfer has failed."""
    _opener: urllib.request.OpenerDirector = field(init=False)

    def __post_init__(self) -> None:
        """Build the opener, which honours the variables of proxies."""
        self._opener = urllib.request.build_opener(_SameHostToken)

    def json(self, place: str) -> tuple[Any, Mapping[str, str]]:
        """Return the JSON at a path below the endpoint, and the headers."""
        return self.with_retries(place, lambda: self._json(place))

    def _json(self, place: str) -> tuple[Any, Mapping[str, str]]:
        with self.open(place) as answer:
            data = answer.read(ANSWER_BYTES + 1)
            headers = dict(answer.headers.items())
        if len(data) > ANSWER_BYTES:
            raise RequestError(ExitCode.ENVIRONMENT, f"{self.endpoint}{place} answers more than 64 MiB; is it a hub?")
        try:
            return json.loads(data), headers
        except ValueError:
            raise RequestError(
                ExitCode.ENVIRONMENT, f"{self.endpoint}{place} does not answer JSON; is it a hub?"
            ) from None

    def open(self, place: str, start: int = 0) -> http.client.HTTPResponse:
        """Begin an answer, at a byte of the file. Raises RequestError for a status that will not change."""
        request = urllib.request.Request(  # noqa: S310 - the specification allows http and https only
            self.endpoint.rstrip("/") + place, headers={"User-Agent": "rljob", "Accept-Encoding": "identity"}
        )
        if start:
            request.add_header("Range", f"bytes={start}-")
        if self.token:
            name, value = ("Authorization", f"Bearer {self.token}")
            if self.hub is Hub.MODEL_SCOPE:
                name, value = ("Cookie", f"m_session_id={self.token}")
            request.add_unredirected_header(name, value)
        try:
            answer: http.client.HTTPResponse = self._opener.open(request, timeout=SOCKET_SECONDS)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in PERMANENT:
                raise
            raise RequestError(
                ExitCode.BAD_CONFIG,
                f"{self.endpoint}{place.partition('?')[0]}: HTTP {error.code} {error.reason}{ADVICE}",
            ) from None
        return answer

    def with_retries(self, what: str, work: Callable[[], T], progress: Callable[[], int] = lambda: 0) -> T:
        """Call until it succeeds. Give up after TRIES calls in a row in which `progress` did not grow."""
        pause, failures, before = FIRST_PAUSE_SECONDS, 0, progress()
        while True:
            try:
                return work()
            except TRANSIENT as error:
                if (now := progress()) > before:
                    pause, failures, before = FIRST_PAUSE_SECONDS, 0, now
                failures += 1
                problem = self._problem(what, error, failures)
                if failures >= TRIES:
                    raise RequestError(ExitCode.ENVIRONMENT, problem) from None
                if failures > 1:
                    # The status shows it, where silent servers would take TRIES times SOCKET_SECONDS to be given up.
                    say(problem)
            if self.stopped.wait(pause):
                raise StoppedError
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _problem(self, what: str, error: Exception, failures: int) -> str:
        place, text = f"{self.endpoint}{what.partition('?')[0]}", " ".join(str(error).split())[:200]
        other = " or download.source: ModelScope" if self.hub is Hub.HUGGING_FACE else ""
        return (
            f"{place}: {text or type(error).__name__}, {failures} times in a row; is it reachable from this pod, and "
            f"does it need a proxy (HTTPS_PROXY) or a mirror (download.endpoint){other}?"
        )
