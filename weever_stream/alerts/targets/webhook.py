"""Any server that takes JSON: one documented body for all notices, signed if there is a secret.

`X-Weever-Id` is the same whenever the same notice is sent again, so the other side can leave out what it has. The
signature covers the time and the body: `v1` is the HMAC-SHA256 of `<t>.<body>`. Compare it in constant time, and refuse
times that are minutes away.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from weever_stream.alerts.http import Post
from weever_stream.alerts.notice import Delivered, Example, Notice
from weever_stream.alerts.texts import as_json, bounded_key, one_line, title, valid
from weever_stream.job.alerts import WebhookAlert

__all__ = ["VERSION", "Webhook", "body", "notice_id", "signature"]

VERSION = 1
"""Of the body. New fields may come under the same number; a field that goes or changes its meaning raises it."""
_LONGEST = 1000


class Webhook:
    """A URL."""

    repeats: float | None = None

    def __init__(self, options: WebhookAlert, clock: Callable[[], float] = time.time) -> None:
        self.name = options.name
        self._secret = options.secret
        self._clock = clock
        self._post = Post(options.url, options)

    def send(self, notice: Notice, memory: Mapping[str, str]) -> Delivered:
        """Sends one notice."""
        told = as_json(body(notice))
        headers = {"X-Weever-Id": notice_id(notice), "X-Weever-Event": notice.what}
        if self._secret is not None:
            headers["X-Weever-Signature"] = signature(self._secret.reveal(), int(self._clock()), told)
        self._post.send(told, headers).require_ok()
        return Delivered()

    def close(self) -> None:
        """Nothing is kept open."""


def signature(secret: str, at: int, told: bytes) -> str:
    """The value of X-Weever-Signature."""
    digest = hmac.new(secret.encode("utf-8"), b"%d." % at + told, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def notice_id(notice: Notice) -> str:
    """Names one notice, however often it is sent: what it is about, what is said of it, and which time that is."""
    key = bounded_key(quote(valid(notice.dedup_key, 10_000), safe="/.-_"), 300)
    return f"{key}:{notice.what}:{quote(notice.serial or notice.at.isoformat(), safe=':.-_')}"


def body(notice: Notice) -> dict[str, Any]:
    """What is sent. Values are as they are in the rows, cut; escape them where they are shown."""
    return {
        "version": VERSION,
        "id": notice_id(notice),
        "event": notice.what,
        "trial": notice.trial,
        "dedup_key": valid(notice.dedup_key, 10_000),
        "title": title(notice),
        "job": valid(notice.job, _LONGEST),
        "table": valid(notice.table, _LONGEST),
        "rule": valid(notice.rule, _LONGEST),
        "severity": notice.severity,
        "open": notice.open,
        "backfilling": notice.backfilling,
        "opened_at": notice.opened_at.isoformat(),
        "at": notice.at.isoformat(),
        "group": _texts(notice.group),
        "group_id": valid(notice.group_id, _LONGEST) or None,
        "expression": valid(notice.expression, 4 * _LONGEST),
        "description": _text(notice.description),
        "owner": _text(notice.owner),
        "runbook": _text(notice.runbook),
        "reason": notice.reason and one_line(notice.reason),
        "source_position": _text(notice.position),
        "examples": [_example(one) for one in notice.examples],
    }


def _text(text: str | None) -> str | None:
    return None if text is None else valid(text, _LONGEST)


def _texts(values: Mapping[str, str | None] | None) -> dict[str, str | None] | None:
    if values is None:
        return None
    return {valid(name, _LONGEST): _text(value) for name, value in values.items()}


def _example(example: Example) -> dict[str, Any]:
    return {
        "violation_id": valid(example.violation_id, _LONGEST),
        "left_key": _text(example.left_key),
        "right_key": _text(example.right_key),
        "left_values": _texts(example.left_values),
        "right_values": _texts(example.right_values),
    }
