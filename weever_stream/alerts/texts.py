"""What is said of an alert, in plain words, and how texts of strangers are made harmless and short.

Names, values and descriptions come from job files and rows. Whatever is put in a line of text loses its control
characters, terminal codes, line ends and marks that turn the direction of writing, and is cut. What else has to be
escaped depends on the place: `for_slack`, `for_html`. Pure; costs no more than what is kept of a text, so a value of a
megabyte costs what one of a kilobyte does.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import shlex
import unicodedata
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from weever_stream.alerts.notice import Example, Notice

__all__ = [
    "TRIAL",
    "VALUE",
    "as_json",
    "bounded_key",
    "cut",
    "example_line",
    "facts",
    "for_html",
    "for_slack",
    "group_text",
    "listing",
    "moment",
    "one_line",
    "paragraphs",
    "title",
    "valid",
]

VALUE = 200
"""Characters of a key, a value or a name that are shown."""
TEXT = 1000
"""Characters of a description or an expression that are shown."""
TRIAL = "This is a trial, sent by hand to see whether it arrives. Nothing is wrong."

_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]")
_JOINERS = "\u200c\u200d"
"""Written within words of some languages and within emoji: no marks of direction."""
_SLACK = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_SURROGATE = re.compile("[\ud800-\udfff]")


def cut(text: str, limit: int) -> str:
    """At most so many characters; one that was longer ends in `…`."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


def valid(text: str, limit: int) -> str:
    """A text that can be written as UTF-8, cut, and otherwise as it is: for JSON that programs read."""
    return _SURROGATE.sub("\ufffd", cut(text, limit))


def bounded_key(dedup_key: str, limit: int) -> str:
    """The same key, or one that is as unique where it is longer than a target takes."""
    if len(dedup_key) <= limit:
        return valid(dedup_key, limit)
    digest = hashlib.sha256(dedup_key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return valid(dedup_key[: limit - 33], limit) + "/" + digest


def one_line(text: object, limit: int = VALUE) -> str:
    """A text that fits on a line and does nothing to whoever shows it."""
    kept = str(text)[: 4 * limit + 400]
    kept = "".join(map(_harmless, _TERMINAL.sub("", kept)))
    return cut(" ".join(kept.split()), limit)


def _harmless(character: str) -> str:
    if character.isascii():
        return character if character.isprintable() else " "
    kind = unicodedata.category(character)
    if kind == "Cf":
        return character if character in _JOINERS else ""
    return " " if kind in ("Cc", "Zl", "Zp", "Zs") else "\ufffd" if kind == "Cs" else character


def for_slack(text: str, limit: int) -> str:
    """A text in which Slack sees no mention, link or entity; the limit holds for what it becomes."""
    escaped = text.translate(_SLACK)
    if len(escaped) <= limit:
        return escaped
    kept: list[str] = []
    room = limit - 1
    for piece in (character.translate(_SLACK) for character in text):
        room -= len(piece)
        if room < 0:  # never within an entity
            break
        kept.append(piece)
    return "".join(kept) + "…"


def for_html(text: str) -> str:
    """A text in which a browser sees no markup."""
    return html.escape(text, quote=True)


def as_json(value: Any) -> bytes:
    """JSON, in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def moment(at: datetime) -> str:
    """A time as people write it."""
    return at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _counted(number: int) -> str:
    return f"{number:,} violation{'s' * (number != 1)}"


def group_text(notice: Notice) -> str:
    """Which group of a rule it is about; empty if it is about the whole rule."""
    if notice.group:
        pairs = (
            f"{one_line(column)} is null" if value is None else f"{one_line(column)} = {one_line(value)}"
            for column, value in notice.group.items()
        )
        return cut(", ".join(pairs), 3 * VALUE)
    if notice.group_id == "others":
        return "all other groups"
    return f"group {one_line(notice.group_id)}" if notice.group_id else ""


def title(notice: Notice, *, group: bool = True, limit: int = 1024) -> str:
    """The whole matter on one line."""
    rule, table, number = one_line(notice.rule), one_line(notice.table), _counted(notice.open)
    if notice.what == "open":
        said = f"{rule}: {number} open in {table}"
    elif notice.what == "update":
        said = f"{rule}: now {number} open in {table}"
    elif notice.reason == "rule_removed":
        said = f"{rule} is over: the rule was taken out of the job of {table}"
    elif notice.reason:
        said = f"{rule} is over: it is no longer told here, {number} open in {table}"
    elif notice.open:
        said = f"{rule} is over: {number} open in {table}, fewer than it takes"
    else:
        said = f"{rule} is fixed: no violation open in {table}"
    about = group_text(notice) if group else ""
    return cut(("[trial] " if notice.trial else "") + said + (f" ({about})" if about else ""), limit)


def facts(notice: Notice) -> list[tuple[str, str]]:
    """What there is to know, as names and texts of one line each, without the examples."""
    known: list[tuple[str, str | None]] = [
        ("Severity", notice.severity),
        ("Job", one_line(notice.job)),
        ("Table", one_line(notice.table)),
        ("Group", group_text(notice)),
        ("Open now", f"{notice.open:,}" + (", and the rule is being backfilled" if notice.backfilling else "")),
        ("Since", moment(notice.opened_at)),
        ("Over at" if notice.what == "resolve" else "As of", moment(notice.at)),
        ("Description", one_line(notice.description or "", TEXT)),
        ("Owner", one_line(notice.owner or "")),
        ("Runbook", one_line(notice.runbook or "", TEXT)),
        ("Rule", one_line(notice.expression, TEXT)),
        ("Source read up to", one_line(notice.position or "")),
    ]
    return [(name, text) for name, text in known if text]


def _values(values: Mapping[str, str | None] | None) -> str:
    return ", ".join(
        f"{one_line(name)} {'null' if value is None else one_line(value)}" for name, value in (values or {}).items()
    )


def example_line(example: Example, limit: int = TEXT) -> str:
    """One violation on one line: its keys and values as far as they may be shown, else its id."""
    keys = [f"key {one_line(key)}" for key in (example.left_key, example.right_key) if key is not None]
    values = [side for side in (_values(example.left_values), _values(example.right_values)) if side]
    told = " and ".join(keys) or f"violation {one_line(example.violation_id)}"
    return cut(f"{told}: {' | '.join(values)}" if values else told, limit)


def listing(notice: Notice) -> str:
    """The command that shows all of them."""
    return f"weever violations JOB_FILE --rule {shlex.quote(one_line(notice.rule))}"


def paragraphs(notice: Notice) -> list[list[str]]:
    """All of it as plain text: paragraphs of lines."""
    told = [[f"{name}: {text}" for name, text in facts(notice)]]
    if notice.examples:
        told.append(["For example:", *(f"- {example_line(one)}" for one in notice.examples)])
    if notice.what != "resolve":
        told.append([f"List them: {listing(notice)}"])
    return [[title(notice)], *([[TRIAL]] if notice.trial else []), *told]
