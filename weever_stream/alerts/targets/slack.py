"""Slack: messages by an incoming webhook, or by a bot's token, which answers in the thread of the first message.

Texts are escaped, so no value mentions a channel or becomes a link; values stand in preformatted blocks, where nothing
is markup. Slack knows no dedup key: a notice of which nobody knows whether it arrived is posted again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from weever_stream.alerts.hosts import TargetError
from weever_stream.alerts.http import Answer, Post, checked_headers
from weever_stream.alerts.notice import Delivered, DeliveryError, Notice
from weever_stream.alerts.texts import (
    TRIAL,
    as_json,
    example_line,
    facts,
    for_slack,
    group_text,
    listing,
    one_line,
    title,
)
from weever_stream.job.alerts import SlackAlert

__all__ = ["Slack", "message"]

_BLOCK = 3000
"""Characters that Slack takes in one block; fifty blocks in a message, of which we use a few."""
_PREFORMATTED = 2400
"""Fewer, because all blocks together may be refused from about 13,000 on (`msg_blocks_too_long`)."""
_TRANSIENT = frozenset(
    {"ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout"}
)
_HALFWAY = frozenset({"internal_error", "fatal_error", "request_timeout"})
"""Of these Slack says that some of it may have been done."""
_THREAD_GONE = frozenset(
    {"thread_not_found", "message_not_found", "invalid_thread_ts", "cannot_reply_to_message"}
    | {"restricted_action_thread_locked", "restricted_action_thread_only_channel"}
)
_KNOWN = (
    _TRANSIENT
    | _THREAD_GONE
    | {"channel_not_found", "not_in_channel", "is_archived", "channel_is_archived", "no_service", "no_service_id"}
    | {"not_authed", "invalid_auth", "token_revoked", "token_expired", "account_inactive", "missing_scope", "no_text"}
    | {"invalid_blocks", "invalid_payload", "invalid_token", "action_prohibited", "restricted_action", "no_permission"}
    | {"msg_too_long", "msg_blocks_too_long", "posting_to_general_channel_denied", "team_disabled", "rollup_error"}
    | {"user_not_found", "no_active_hooks", "too_many_attachments", "no_team", "access_denied", "ekm_access_denied"}
)
"""Names of errors that are shown. Others are not: an answer may repeat what was sent."""
_LABELS = {
    "critical": ":rotating_light:",
    "error": ":red_circle:",
    "warning": ":warning:",
    "info": ":information_source:",
}


class Slack:
    """A channel of Slack."""

    repeats: float | None = None

    def __init__(self, options: SlackAlert) -> None:
        self.name = options.name
        self._channel = options.channel
        self._headers: dict[str, str] = {}
        if options.token is not None:
            self._headers = checked_headers({"Authorization": f"Bearer {options.token.reveal()}"})
        elif options.webhook is None:
            raise TargetError("Slack needs a webhook, or a token and a channel")
        self._post = Post(options.url if options.webhook is None else options.webhook, options)

    def send(self, notice: Notice, memory: Mapping[str, str]) -> Delivered:
        """Posts one message: in the thread of the alert's first one where there is a token."""
        if not self._headers:
            answer = self._post.send(as_json(message(notice)))
            answer.require_ok(_error_name(answer))
            _require_taken(answer)
            return Delivered()
        thread = memory.get("ts") if notice.what != "open" and memory.get("to") == self._channel else None
        try:
            return self._in_channel(notice, memory.get("channel") if thread else None, thread)
        except _ThreadGoneError:
            return self._in_channel(notice, None, None)

    def close(self) -> None:
        """Nothing is kept open."""

    def _in_channel(self, notice: Notice, channel: str | None, thread: str | None) -> Delivered:
        told = {"channel": channel or self._channel, **message(notice)}
        if thread is not None:
            told |= {"thread_ts": thread, "reply_broadcast": False}
        answer = self._post.send(as_json(told), self._headers)
        answer.require_ok(_error_name(answer))
        said = _said(answer)
        if said.get("ok") is not True:
            raise _refused(answer, thread is not None)
        found = {"ts": thread or str(said.get("ts", "")), "channel": str(said.get("channel", "")), "to": self._channel}
        return Delivered({name: value for name, value in found.items() if value and len(value) <= 100})


class _ThreadGoneError(Exception):
    """The message to answer to is no longer there."""


def message(notice: Notice) -> dict[str, Any]:
    """The message: a line for notifications, and blocks."""
    sign = ":white_check_mark:" if notice.what == "resolve" else _LABELS[notice.severity]
    head = f"{sign} *{_plain(title(notice, group=False), 1000)}*"
    blocks = [_section(head)]
    if notice.trial:
        blocks.append(_section(TRIAL))
    if about := group_text(notice):
        blocks.append(_section(_preformatted([about])))
    blocks.append(_section(_facts(notice)))
    if notice.expression:
        blocks.append(_section(_preformatted([one_line(notice.expression, 1000)])))
    if notice.examples:
        blocks.append(_section("For example:\n" + _preformatted([example_line(one) for one in notice.examples])))
    if notice.what != "resolve":
        blocks.append(_section("List them:\n" + _preformatted([listing(notice)])))
    text = _plain(title(notice), 1500)
    return {"text": text, "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _section(text: str) -> dict[str, Any]:
    # verbatim: nothing that looks like a channel, a name or a URL becomes one
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _facts(notice: Notice) -> str:
    """The facts, one a line, as many as fit in a block."""
    lines: list[str] = []
    for name, text in facts(notice):
        if name not in ("Group", "Rule"):
            link = name == "Runbook" and re.fullmatch(r"https?://[^\s<>|\"'`\\]{1,900}", text)
            lines.append(f"*{name}*: " + (f"<{text.replace('&', '&amp;')}>" if link else _plain(text, 1000)))
    while sum(map(len, lines)) + len(lines) > _BLOCK:
        lines.pop()
    return "\n".join(lines)


def _preformatted(lines: list[str]) -> str:
    """A block in which nothing is markup. Backticks would end it."""
    return f"```{_plain(chr(10).join(lines), _PREFORMATTED)}```"


def _plain(text: str, limit: int) -> str:
    return for_slack(text.replace("`", "ˋ"), limit)


def _said(answer: Answer) -> dict[str, Any]:
    try:
        said = json.loads(answer.body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        reason = "broke off its answer" if not answer.whole else "gave an answer that is none"
        raise DeliveryError(
            f"{answer.host} {reason}: nobody knows whether the message is there", again=True, unsure=True
        )
    return said


def _error_name(answer: Answer) -> str:
    """The error that Slack names, if it is one that we know."""
    try:
        said = json.loads(answer.body)
        name = said.get("error") if isinstance(said, dict) else None
    except (ValueError, RecursionError):
        name = answer.body[:100].decode("ascii", "replace").strip()
    return name if isinstance(name, str) and name in _KNOWN else ""


def _refused(answer: Answer, in_thread: bool) -> Exception:
    name = _error_name(answer)
    if in_thread and name in _THREAD_GONE:
        return _ThreadGoneError()
    again = name in _TRANSIENT
    reason = f"{answer.host} did not take the message ({name or 'an error without a known name'})"
    return DeliveryError(reason, again=again, after=answer.after, unsure=name in _HALFWAY)


def _require_taken(answer: Answer) -> None:
    """A webhook answers `ok`, in plain text; some that speak its language answer as the API does."""
    try:
        said = json.loads(answer.body)
    except (ValueError, RecursionError):
        said = None
    refused = isinstance(said, dict) and said.get("ok") is False
    if refused or _error_name(answer):
        raise _refused(answer, in_thread=False)
