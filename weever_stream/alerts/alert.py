"""One alert to one target: what was told, what stands against telling more, and what is wanted next. Plain values.

Kept as JSON beside the checkpoint; fields that say nothing are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from weever_stream.alerts.notice import What
from weever_stream.alerts.subjects import Place

__all__ = ["Alert", "Want"]

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
    """Whether it was sent and nobody knows whether it arrived: then its end must be told too."""
    told_at: datetime | None = None
    told_open: int = 0
    resolved_at: datetime | None = None
    severity: str = "error"
    hushed: str = ""
    """Why it is not told though it should be."""
    tries: int = 0
    failing_since: datetime | None = None
    again_at: datetime | None = None
    gave_up: bool = False
    memory: dict[str, str] = field(default_factory=dict)
    """What the target left to be remembered."""

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in asdict(self).items()
            if value not in (None, "", 0, False, {})
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
