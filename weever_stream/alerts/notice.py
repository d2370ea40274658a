"""What is told of an alert, to whichever target: one `Notice`, plain and frozen, and how its delivery ended.

A notice holds only what may be shown: whoever makes it has left out or masked the values that may not leave the job.
Targets escape and cut what is in it for the place where they put it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from weever_stream.rules.model import Severity

__all__ = ["Delivered", "DeliveryError", "Example", "Notice", "Target", "What"]

What = Literal["open", "update", "resolve"]


@dataclass(frozen=True)
class Example:
    """One violation of those that an alert is about. Keys and values are None where they may not be shown."""

    violation_id: str
    left_key: str | None = None
    right_key: str | None = None
    left_values: Mapping[str, str | None] | None = None
    right_values: Mapping[str, str | None] | None = None


@dataclass(frozen=True)
class Notice:
    """What a target is told."""

    what: What
    dedup_key: str
    """The same for all that is ever said of this alert, also after a restart."""
    table: str
    rule: str
    severity: Severity
    open: int
    """Violations open now: 0, or fewer than it takes, when it resolves."""
    opened_at: datetime
    """When the alert was first told, or is told now; UTC."""
    at: datetime
    """When this was decided; UTC."""
    group: Mapping[str, str | None] = field(default_factory=dict)
    """Columns and their values for which it is, None for a null; empty for the whole rule, or where values may not be
    shown."""
    group_id: str = ""
    """Tells groups of a rule apart where their values may not be shown; "others" for those without an alert of their
    own; empty for the whole rule."""
    examples: tuple[Example, ...] = ()
    expression: str = ""
    """The rule as it is written."""
    description: str | None = None
    owner: str | None = None
    runbook: str | None = None
    reason: str | None = None
    """Why it is over although no row was mended: `rule_removed`, `not_routed`."""
    position: str | None = None
    """The source position up to which this was seen."""
    serial: str = ""
    """The same each time one notice is tried, and another for every notice of an alert."""
    backfilling: bool = False
    """Whether the rule is being backfilled, so that there may be more violations than are known."""
    job: str = ""
    """The name of the job."""
    trial: bool = False
    """Sent by hand, to see whether it arrives."""


@dataclass(frozen=True)
class Delivered:
    """A notice has arrived."""

    memory: Mapping[str, str] = field(default_factory=dict)
    """What the target needs to know of it next time, a thread's number for example. Kept with the alert."""


class DeliveryError(Exception):
    """A notice has not arrived, or nobody knows. Its text is shown and logged: no secret, no row value, no URL path."""

    def __init__(self, reason: str, *, again: bool, after: float | None = None, unsure: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again
        """Whether it makes sense to try again as it is."""
        self.after = after
        """Seconds to wait before, if the other side has said so. Capped already."""
        self.unsure = unsure
        """Whether it may have arrived all the same: an answer that did not come in time, a 500."""


class Target(Protocol):
    """Someone who is told. One thread calls it at a time."""

    name: str
    repeats: float | None
    """Seconds after which an open alert is told again, changed or not, because the other side forgets; None: never."""

    def send(self, notice: Notice, memory: Mapping[str, str]) -> Delivered:
        """Delivers one notice, trying once. Raises `DeliveryError`. `memory`: what the last delivery of it left."""
        ...

    def close(self) -> None:
        """Lets go of connections."""
        ...
