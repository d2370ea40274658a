"""Notices for the tests of targets, harmless and otherwise, and options as a job file gives them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from weever_stream.alerts.notice import Example, Notice
from weever_stream.job.alerts import alert_options
from weever_stream.rules.references import Secret

OPENED = datetime(2026, 3, 8, 6, 59, 59, tzinfo=timezone.utc)
KEY = "weever/packages-production/packages/zip_determines_city"


def notice(what: str = "open", **fields: Any) -> Notice:
    later = {"open": 0, "update": 60, "resolve": 120}[what]
    known: dict[str, Any] = {
        "what": what,
        "dedup_key": KEY,
        "job": "packages-production",
        "table": "packages",
        "rule": "zip_determines_city",
        "severity": "error",
        "open": 0 if what == "resolve" else 12,
        "opened_at": OPENED,
        "at": OPENED + timedelta(minutes=later),
        "serial": (OPENED + timedelta(minutes=later)).isoformat(),
        "expression": "t.city != s.city and t.zip = s.zip",
        "description": "A zip code is in one city",
        "owner": "ana",
        "runbook": "https://wiki.example.com/zip?x=1&y=2",
    }
    return Notice(**{**known, **fields})


def hostile(text: str, what: str = "open") -> Notice:
    """A notice with the same text wherever a row or a rule could have put it."""
    example = Example(text, text, text, {text: text}, {"city": text})
    return notice(
        what, group={"zip": text}, examples=(example,) * 20, description=text, owner=text, runbook=text, expression=text
    )


def options(kind: str, **fields: Any) -> Any:
    return alert_options.validate_python({"kind": kind, **fields})


def local(kind: str, **fields: Any) -> Any:
    """For a server on loopback."""
    return options(kind, **{"allow_hosts": ["127.0.0.1"], "timeout": "5 seconds", **fields})


secret = Secret
