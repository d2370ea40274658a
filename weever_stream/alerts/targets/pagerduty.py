"""PagerDuty, by its Events API v2: an alert triggers an incident and resolves it, told apart by the dedup key.

PagerDuty puts triggers of the same key together, so a notice that arrives twice pages once. 202 means that it has the
event, not yet that somebody was paged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from weever_stream.alerts.http import Answer, Post
from weever_stream.alerts.notice import Delivered, DeliveryError, Notice
from weever_stream.alerts.texts import TRIAL, as_json, bounded_key, example_line, facts, listing, one_line, title
from weever_stream.job.alerts import PagerdutyAlert

__all__ = ["Pagerduty", "event"]

_SUMMARY = 1024
_KEY = 255
"""What PagerDuty takes of a dedup key."""


class Pagerduty:
    """A service of PagerDuty."""

    repeats: float | None = None

    def __init__(self, options: PagerdutyAlert) -> None:
        self.name = options.name
        self._routing_key = options.routing_key
        self._post = Post(options.url, options)

    def send(self, notice: Notice, memory: Mapping[str, str]) -> Delivered:
        """Sends one event."""
        answer = self._post.send(as_json({"routing_key": self._routing_key.reveal(), **event(notice)}))
        answer.require_ok("is the routing key right?" if answer.status == 400 else "")
        _require_success(answer)
        return Delivered()

    def close(self) -> None:
        """Nothing is kept open."""


def event(notice: Notice) -> dict[str, Any]:
    """The event, without the routing key."""
    told: dict[str, Any] = {
        "event_action": "resolve" if notice.what == "resolve" else "trigger",
        "dedup_key": bounded_key(notice.dedup_key, _KEY),
        "payload": {
            "summary": title(notice, limit=_SUMMARY),
            "source": one_line(notice.table),
            "severity": notice.severity,
            "timestamp": notice.at.isoformat(),
            "component": one_line(notice.table),
            "group": one_line(notice.owner or notice.table),
            "class": one_line(notice.rule),
            "custom_details": _details(notice),
        },
        "client": "weever",
    }
    if notice.runbook and notice.runbook.startswith(("https://", "http://")):
        told["links"] = [{"href": one_line(notice.runbook, 1000), "text": "Runbook"}]
    return told


def _details(notice: Notice) -> dict[str, Any]:
    details: dict[str, Any] = {name.lower().replace(" ", "_"): text for name, text in facts(notice)}
    if notice.examples:
        details["examples"] = [example_line(one) for one in notice.examples]
    if notice.what != "resolve":
        details["list_them"] = listing(notice)
    return {"trial": TRIAL, **details} if notice.trial else details


def _require_success(answer: Answer) -> None:
    """An error may hide behind a good status."""
    try:
        status = json.loads(answer.body).get("status", "success")
    except (ValueError, AttributeError, RecursionError):
        return  # 202 is what the contract promises, whatever else is said
    if status != "success":
        again = not str(status).startswith("invalid")
        raise DeliveryError(f"{answer.host} answered {answer.status}, but did not take the event", again=again)
