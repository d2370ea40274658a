"""One POST to a pinned host: what came back, or why it did not arrive. No redirect is followed, no proxy used.

Everything together, from the connection to the end of the answer, takes no longer than the timeout. Of the answer at
most `LONGEST_ANSWER` bytes are read. Each POST has a connection of its own: alerts are few. What is told of a failure
is the host and the status: paths of webhooks are secrets, and answers may repeat what was sent.
"""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from weever_stream.alerts.hosts import Pin, Site, TargetError, allowed_hosts, read_url
from weever_stream.alerts.notice import DeliveryError
from weever_stream.alerts.wire import Deadline, Wire, failure, trust
from weever_stream.job.alerts import AlertOptions
from weever_stream.job.options import duration, revealed
from weever_stream.rules.references import Secret

__all__ = [
    "LONGEST_ANSWER",
    "LONGEST_WAIT",
    "Answer",
    "Post",
    "checked_headers",
    "retry_after",
    "timeout_of",
    "user_agent",
]

LONGEST_ANSWER = 64 << 10
LONGEST_WAIT = 600.0
"""Seconds: what another side asks to wait beyond this is not believed."""
_AGAIN = frozenset({408, 425, 429})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_OURS = frozenset({"host", "connection", "content-length", "content-type", "transfer-encoding", "user-agent", "expect"})


@cache
def user_agent() -> str:
    """What we call ourselves."""
    try:
        return f"weever/{version('weever-stream')}"
    except PackageNotFoundError:  # the package is used from a folder
        return "weever"


def retry_after(value: str | None, now: datetime) -> float | None:
    """The seconds that a Retry-After header asks for, never more than `LONGEST_WAIT`; None if it says nothing."""
    text = (value or "").strip()
    if re.fullmatch(r"[0-9]{1,400}", text):
        return min(float(text), LONGEST_WAIT)
    try:
        until = parsedate_to_datetime(text)
        aware = until if until.tzinfo else until.replace(tzinfo=timezone.utc)
        return min(max((aware - now).total_seconds(), 0.0), LONGEST_WAIT)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


@dataclass(frozen=True)
class Answer:
    """What came back."""

    host: str
    status: int
    body: bytes
    """Its beginning; all that came, where it broke off."""
    whole: bool
    after: float | None = None

    def require_ok(self, detail: str = "") -> None:
        """Raises `DeliveryError` unless the status says that all is well."""
        if 200 <= self.status < 300:
            return
        more = f" ({detail})" if detail else ""
        if 300 <= self.status < 400:
            raise DeliveryError(
                f"{self.host} answered {self.status}, a redirect, which is not followed{more}", again=False
            )
        ill = self.status >= 500  # and may have done what was asked before it fell ill
        reason = f"{self.host} answered {self.status}{more}"
        raise DeliveryError(reason, again=ill or self.status in _AGAIN, after=self.after, unsure=ill)


def timeout_of(options: AlertOptions) -> float:
    """The seconds that one try may take."""
    seconds = duration(options.timeout)
    if seconds <= 0:
        raise TargetError("a target's `timeout` must be longer than 0", hint="write 10 seconds")
    return seconds


def _utc() -> datetime:
    return datetime.now(timezone.utc)


class Post:
    """Sends to one URL."""

    def __init__(self, url: str | Secret, options: AlertOptions, path: Callable[[str], str] | None = None) -> None:
        """Reads the URL and looks its host up. Raises `TargetError` for what may not be used."""
        allowed = allowed_hosts(options.allow_hosts)
        self._site: Site = read_url(url.reveal() if isinstance(url, Secret) else url, allowed)
        self._target = path(self._site.target) if path else self._site.target
        self._tls: ssl.SSLContext | None = trust(options.ca_file) if self._site.scheme == "https" else None
        self._timeout = timeout_of(options)
        self._extra = _own(revealed(getattr(options, "headers", {})))
        self._pin = Pin(self._site.host, self._site.port, allowed)

    @property
    def host(self) -> str:
        """Who is sent to."""
        return self._site.host

    def send(self, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """Sends JSON, once. Raises `DeliveryError` if no answer came; whatever its status, an answer is returned."""
        deadline = Deadline(self._timeout)
        head = _head(self._target, {**self._fixed(len(body)), **self._extra, **(headers or {})})
        wire: Wire | None = None
        try:
            wire = Wire.to(self._pin, deadline, self._tls)
            wire.sendall(head + body)
            response = http.client.HTTPResponse(wire, method="POST")  # type: ignore[arg-type]
            response.begin()
            answer = _answer(self._site.host, response)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._pin.failed()
            raise failure(error, self._site.host, self._timeout, sent=wire is not None) from None
        finally:
            if wire is not None:
                wire.close()
        self._pin.answered()
        return answer

    def _fixed(self, length: int) -> dict[str, str]:
        return {
            "Host": self._site.netloc,
            "User-Agent": user_agent(),
            "Content-Type": "application/json; charset=utf-8",
            "Content-Length": str(length),
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }


def _head(target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("ascii")


def _answer(host: str, response: http.client.HTTPResponse) -> Answer:
    after = retry_after(response.getheader("Retry-After"), _utc())
    pieces: list[bytes] = []
    room, whole = LONGEST_ANSWER, False
    try:
        while room > 0 and (piece := response.read1(room)):
            pieces.append(piece)
            room -= len(piece)
        whole = room > 0 and not response.length
    except (OSError, http.client.HTTPException, ValueError):
        pass  # the status has come, which is enough for most targets
    return Answer(host, response.status, b"".join(pieces), whole, after)


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The same headers. Raises `TargetError` if a value would begin another one; it shows no value."""
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not re.fullmatch(r"[\t -~]{0,8192}", value):
            raise TargetError(
                f"the header {name} holds a character that headers may not hold"
                if _TOKEN.fullmatch(name)
                else "a header's name holds a character that headers may not hold",
                hint="headers are printable ASCII on one line",
            )
    return dict(headers)


def _own(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers of the job file."""
    for name in headers:
        if name.lower() in _OURS or name.lower().startswith("x-weever-"):
            raise TargetError(f"the header {name[:60]} cannot be set: it is written for each message")
    return checked_headers(headers)
