"""Those who are told: one module for each kind of target, opened by `open_target`.

A target delivers a notice by one attempt and says how it ended. Trying again, waiting and remembering is the
dispatcher's. What each sends is in docs/alert-targets.md.
"""

from __future__ import annotations

import re

from weever_stream.alerts.hosts import TargetError, allowed_hosts, check_literal, check_mail_host, read_url
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
from weever_stream.rules.references import Secret

__all__ = ["TargetError", "check_target", "open_target"]

_REFERENCE = re.compile(r"\$\{[^}]*\}")


def open_target(options: AlertOptions) -> Target:
    """The target that a job file describes, its host looked up. Raises `TargetError` if it may not be used.

    Nothing is sent, and no connection is made. A name that cannot be looked up now is tried again at the first notice.
    """
    try:
        return _opened(options)
    except TargetError as error:
        raise TargetError(f"alerts to {options.name}: {error.message}", hint=error.hint) from None


def check_target(options: AlertOptions) -> None:
    """Raises `TargetError` for an address that may not be used, as far as that is seen without looking it up.

    A part that is a reference, which may be there only where the job runs, is taken for good.
    """
    try:
        allowed = allowed_hosts(options.allow_hosts)
        if isinstance(options, EmailAlert):
            check_literal(check_mail_host(options, allowed), allowed)
        for name in ("webhook", "url"):
            url = getattr(options, name, None)
            text = url.reveal() if isinstance(url, Secret) else url
            if text is not None and not text.startswith("${"):
                check_literal(read_url(_REFERENCE.sub("x", text), allowed).host, allowed)
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
