"""One alert to one target: what was told, what stands against telling more, and what is wanted next. Plain values.

Kept as JSON beside the checkpoint; fields that say nothing are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from weever_stream.alerts.notice import What
from weever_stream.alerts.subjects import Place

__all__ = ["Alert", "Want"]

_LONGEST_WAIT = timedelta(minutes=15)
"""Longer than anyone waits before a next try."""
_MOMENTS = ("pending", "over", "opened_at", "told_at", "resolved_at", "failing_since", "again_at")


@dataclass
class Alert:
    """What one target was told of one subject, and what has kept it from hearing more."""

    pending: datetime | None = None
    """Since when there has been enough to tell."""
    over: datetime | None = None
    """Since when there has no longer been, although it was told."""
    opened_at: datetime | None = None
    """When it was told; None: it was not, as far as is known."""
    maybe: bool = False
    """Whether an opening or an end was sent of which nobody knows whether it arrived: it may be open, or not."""
    key: str = ""
    """The dedup key under which it was opened: what follows goes to the same incident, also if the job is renamed."""
    told_at: datetime | None = None
    told_open: int = 0
    told_examples: list[str] = field(default_factory=list)
    """The ids of the violations that were shown last."""
    resolved_at: datetime | None = None
    severity: str = "error"
    hushed: str = ""
    """Why it is not told though it should be."""
    tries: int = 0
    failing_since: datetime | None = None
    again_at: datetime | None = None
    gave_up: What | Literal[""] = ""
    """What is not tried any more, until it is another that is wanted, or until the next start."""
    memory: dict[str, str] = field(default_factory=dict)
    """What the target left to be remembered."""

    def not_after(self, now: datetime) -> None:
        """Lets no moment lie in the future: the clock may have been wrong and set right."""
        for name in ("pending", "over", "told_at", "resolved_at", "failing_since"):
            if (moment := getattr(self, name)) is not None and moment > now:
                setattr(self, name, now)
        if self.again_at is not None and self.again_at > now + _LONGEST_WAIT:
            self.again_at = now

    def decided(self) -> tuple[Any, ...]:
        """What the desk decides of it: if that has changed it must be noted."""
        return (self.pending, self.over, self.hushed, self.gave_up, self.maybe, self.resolved_at)

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in asdict(self).items()
            if value not in (None, "", 0, False, {}, [])
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Alert:
        """From JSON."""
        read: dict[str, Any] = {n: datetime.fromisoformat(v) if n in _MOMENTS else v for n, v in told.items()}
        return cls(**read)


@dataclass(frozen=True)
class Want:
    """Something to be told now."""

    target: str
    place: Place
    what: What
    reason: str | None = None
