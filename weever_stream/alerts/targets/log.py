"""The job's own log: an alert is an event of it, for whoever collects logs anyway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weever_stream.alerts.notice import Delivered, Notice
from weever_stream.alerts.texts import example_line, group_text, title
from weever_stream.job.alerts import LogAlert
from weever_stream.observe import logs

__all__ = ["Log"]

_EVENTS = {"open": "alert_opened", "update": "alert_updated", "resolve": "alert_resolved"}


class Log:
    """The log. An alert that is over is a warning too: below that a terminal shows nothing."""

    repeats: float | None = None

    def __init__(self, options: LogAlert) -> None:
        self.name = options.name
        self._log = logs.get("alerts")

    def send(self, notice: Notice, memory: Mapping[str, str]) -> Delivered:
        """Logs one event."""
        severe = notice.what != "resolve" and notice.severity in ("error", "critical")
        say = self._log.error if severe else self._log.warning
        fields: dict[str, Any] = {"target": self.name, "rule": notice.rule, "table": notice.table, "open": notice.open}
        known = {
            "job": notice.job,
            "severity": notice.severity,
            "group": group_text(notice),
            "dedup_key": notice.dedup_key,
            "owner": notice.owner,
            "runbook": notice.runbook,
            "reason": notice.reason,
            "examples": [example_line(one) for one in notice.examples],
            "trial": notice.trial,
        }
        fields |= {name: value for name, value in known.items() if value}
        say(_EVENTS[notice.what], title(notice), **fields)
        return Delivered()

    def close(self) -> None:
        """Nothing is kept open."""
