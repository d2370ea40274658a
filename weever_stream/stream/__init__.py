"""The stream: routing, the shard operator, and the job that runs them on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weever_stream.stream.deltas import detect, net

__all__ = ["detect", "net"]


def __getattr__(name: str) -> Any:
    """Imports Spark only for those who ask for it."""
    if name in __all__:
        from weever_stream.stream import deltas

        return getattr(deltas, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
