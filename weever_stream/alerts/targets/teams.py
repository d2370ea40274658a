"""Microsoft Teams: an Adaptive Card, posted to the webhook of a workflow.

Texts stand in TextRuns, in which Teams sees no markup, so nothing needs escaping. Webhooks know neither threads nor
dedup keys: each notice is a card of its own, and one of which nobody knows whether it arrived is posted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weever_stream.alerts.http import Answer, Post
from weever_stream.alerts.notice import Delivered, DeliveryError, Notice
from weever_stream.alerts.texts import TRIAL, as_json, example_line, facts, listing, one_line, title
from weever_stream.job.alerts import TeamsAlert

__all__ = ["Teams", "message"]

_LARGEST = 24_000
"""Bytes. Teams takes about 28 KB, and counts some that it adds."""
_HEADING = 200
"""Bytes of the line above the examples."""
_COLORS = {"critical": "Attention", "error": "Attention", "warning": "Warning", "info": "Accent"}
_FAILED = b"webhook message delivery failed"
"""What the older connectors of Teams say with status 200."""


class Teams:
    """A channel or chat of Teams."""

    repeats: float | None = None

    def __init__(self, options: TeamsAlert) -> None:
        self.name = options.name
        self._post = Post(options.webhook, options)

    def send(self, notice: Notice, memory: Mapping[str, str]) -> Delivered:
        """Posts one card."""
        answer = self._post.send(message(notice))
        answer.require_ok()
        _require_taken(answer)
        return Delivered()

    def close(self) -> None:
        """Nothing is kept open."""


def message(notice: Notice) -> bytes:
    """The message, with as many examples as there is room for."""
    examples = [_line(_run(example_line(one), fontType="Monospace")) for one in notice.examples]
    room = _LARGEST - len(as_json(_message(notice, facts(notice), [])))
    if room < 0:
        return as_json(_message(notice, [("Severity", notice.severity)], []))
    shown = 0
    for example in examples:
        room -= len(as_json(example)) + 1
        if room < _HEADING:
            break
        shown += 1
    return as_json(_message(notice, facts(notice), examples[:shown]))


def _message(notice: Notice, known: list[tuple[str, str]], examples: list[dict[str, Any]]) -> dict[str, Any]:
    color = "Good" if notice.what == "resolve" else _COLORS[notice.severity]
    body = [_line(_run(title(notice), weight="Bolder", size="Medium", color=color))]
    if notice.trial:
        body.append(_line(_run(TRIAL)))
    body += [_line(_run(f"{name}: ", weight="Bolder"), _run(text)) for name, text in known]
    if examples:
        body += [_line(_run("For example:", weight="Bolder")), *examples]
    if notice.what != "resolve":
        body.append(_line(_run("List them: ", weight="Bolder"), _run(listing(notice), fontType="Monospace")))
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "fallbackText": title(notice, limit=200),
        "msteams": {"width": "Full"},
        "body": body,
    }
    if notice.runbook and notice.runbook.startswith("https://"):
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Runbook", "url": one_line(notice.runbook, 1000)}]
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _run(text: str, **style: str) -> dict[str, Any]:
    return {"type": "TextRun", "text": text, **style}


def _line(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"type": "RichTextBlock", "inlines": list(runs)}


def _require_taken(answer: Answer) -> None:
    """An error may hide behind a good status."""
    if _FAILED in answer.body[:4000].lower():
        raise DeliveryError(
            f"{answer.host} answered {answer.status}, but did not post the card", again=True, unsure=True
        )
