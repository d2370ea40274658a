"""Prometheus Alertmanager, by its API v2: it groups, silences and tells people as it is set up to.

Labels say which alert it is, so they are the same for all notices of one alert: those that the first was sent with are
remembered, whatever becomes of the job file. Alertmanager takes an alert of which it hears nothing more for over, so
what is open is told again, four times before that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from weever_stream.alerts.hosts import TargetError
from weever_stream.alerts.http import Post
from weever_stream.alerts.notice import Delivered, Notice
from weever_stream.alerts.texts import (
    TRIAL,
    as_json,
    bounded_key,
    cut,
    example_line,
    facts,
    group_text,
    listing,
    one_line,
    title,
)
from weever_stream.job.alerts import AlertmanagerAlert
from weever_stream.job.options import duration

__all__ = ["Alertmanager"]

_API = "/api/v2/alerts"
_OURS = frozenset({"alertname", "rule", "job_name", "table", "severity", "owner", "group", "dedup_key", "trial"})
_TOLD_PER_LIFE = 4
_TRIAL = timedelta(minutes=5)
_SHORTEST = timedelta(seconds=1)


def _now() -> datetime:
    return datetime.now(timezone.utc)


class Alertmanager:
    """One Alertmanager. Of a cluster, name each member: they put together what they hear."""

    def __init__(self, options: AlertmanagerAlert, now: Callable[[], datetime] = _now) -> None:
        self.name = options.name
        for label in options.labels:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", label) or label in _OURS:
                raise TargetError(
                    f"the label {label[:60]!r} cannot be set",
                    hint="labels are letters, digits and _; not taken are any but " + ", ".join(sorted(_OURS)),
                )
        self._labels = options.labels
        self._expires = timedelta(seconds=duration(options.expires))
        if self._expires < _SHORTEST:
            raise TargetError("`expires` of an Alertmanager is a second at least", hint="write 1 hour")
        self.repeats: float | None = self._expires.total_seconds() / _TOLD_PER_LIFE
        self._now = now
        self._post = Post(options.url, options, _path)

    def send(self, notice: Notice, memory: Mapping[str, str]) -> Delivered:
        """Sends one alert."""
        labels = _remembered(memory) if notice.what != "open" else None
        labels = labels or self.labels_of(notice)
        self._post.send(as_json([self.alert(notice, labels)])).require_ok()
        return Delivered({"labels": json.dumps(labels, sort_keys=True)})

    def close(self) -> None:
        """Nothing is kept open."""

    def alert(self, notice: Notice, labels: Mapping[str, str]) -> dict[str, Any]:
        """The alert as the API takes it. Its end is in the past when it is over, else when it would be forgotten."""
        lives = min(self._expires, _TRIAL) if notice.trial else self._expires
        ends = max(notice.at, notice.opened_at) if notice.what == "resolve" else self._now() + lives
        return {
            "labels": dict(labels),
            "annotations": _annotations(notice),
            "startsAt": notice.opened_at.isoformat(),
            "endsAt": max(ends, notice.opened_at).isoformat(),
        }

    def labels_of(self, notice: Notice) -> dict[str, str]:
        """Which alert it is."""
        own = {
            "alertname": one_line(notice.rule),
            "rule": one_line(notice.rule),
            "job_name": one_line(notice.job),
            "table": one_line(notice.table),
            "severity": notice.severity,
            "owner": one_line(notice.owner or ""),
            "group": group_text(notice),
            "dedup_key": bounded_key(notice.dedup_key, 1000),
            "trial": "true" if notice.trial else "",
        }
        return {name: value for name, value in {**self._labels, **own}.items() if value}


def _path(target: str) -> str:
    """Where alerts are posted to, under the URL that people know: http://alertmanager:9093."""
    path, _, query = target.partition("?")
    path = path.rstrip("/")
    return (path if path.endswith(_API) else path + _API) + (f"?{query}" if query else "")


def _remembered(memory: Mapping[str, str]) -> dict[str, str] | None:
    try:
        found = json.loads(memory["labels"])
        return {str(name): str(value) for name, value in found.items()}
    except (KeyError, ValueError, AttributeError):
        return None


def _annotations(notice: Notice) -> dict[str, str]:
    told = {name.lower().replace(" ", "_"): text for name, text in facts(notice)}
    told |= {"summary": title(notice), "list_them": listing(notice)}
    if "runbook" in told:
        told["runbook_url"] = told.pop("runbook")
    if notice.examples:
        told["examples"] = cut("\n".join(example_line(one) for one in notice.examples), 8000)
    return {"trial": TRIAL, **told} if notice.trial else told
