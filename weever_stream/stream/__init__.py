"""The stream: routing, the shard operator, and the job that runs them on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weever_stream.stream.deltas import detect

__all__ = ["detect"]


def __getattr__(name: str) -> Any:
    """Imports Spark only for those who ask for it."""
    if name == "detect":
        from weever_stream.stream.deltas import detect

        return detect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
