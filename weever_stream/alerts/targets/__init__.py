"""Those who are told: one module for each kind of target, opened by `open_target`.

A target delivers a notice by one attempt and says how it ended. Trying again, waiting and remembering is the
dispatcher's. What each sends is in docs/alert-targets.md.
"""

from __future__ import annotations

from weever_stream.alerts.hosts import TargetError
from weever_stream.alerts.notice import Target
from weever_stream.job.alerts import (
    AlertmanagerAlert,
    AlertOptions,
    EmailAlert,
    LogAlert,
    PagerdutyAlert,
    SlackAlert,
    TeamsAlert,
    WebhookAlert,
)

__all__ = ["TargetError", "open_target"]


def open_target(options: AlertOptions) -> Target:
    """The target that a job file describes, its host looked up. Raises `TargetError` if it may not be used.

    Nothing is sent, and no connection is made. A name that cannot be looked up now is tried again at the first notice.
    """
    try:
        return _opened(options)
    except TargetError as error:
        raise TargetError(f"alerts to {options.name}: {error.message}", hint=error.hint) from None


def _opened(options: AlertOptions) -> Target:
    if isinstance(options, PagerdutyAlert):
        from weever_stream.alerts.targets.pagerduty import Pagerduty

        return Pagerduty(options)
    if isinstance(options, AlertmanagerAlert):
        from weever_stream.alerts.targets.alertmanager import Alertmanager

        return Alertmanager(options)
    if isinstance(options, SlackAlert):
        from weever_stream.alerts.targets.slack import Slack

        return Slack(options)
    if isinstance(options, TeamsAlert):
        from weever_stream.alerts.targets.teams import Teams

        return Teams(options)
    if isinstance(options, WebhookAlert):
        from weever_stream.alerts.targets.webhook import Webhook

        return Webhook(options)
    if isinstance(options, EmailAlert):
        from weever_stream.alerts.targets.email import Email

        return Email(options)
    if isinstance(options, LogAlert):
        from weever_stream.alerts.targets.log import Log

        return Log(options)
    raise TargetError(f"there is no target of kind {options.kind}")
