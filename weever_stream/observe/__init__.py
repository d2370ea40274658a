"""What a running job tells the world about itself: metrics for Prometheus, logs for machines, lineage for catalogs.

Only numbers, names of tables, rules and targets, and ids of runs, queries and batches: never a value of a row. Nothing
here can stop a batch: what cannot be told is logged, and counted where it can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weever_stream.observe.metrics import Metrics
    from weever_stream.observe.watch import Watch, watching

__all__ = ["Metrics", "Watch", "watching"]

_HOMES = {"Metrics": "metrics", "Watch": "watch", "watching": "watch"}


def __getattr__(name: str) -> Any:
    """Imports the client of Prometheus only for those who ask for it."""
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"weever_stream.observe.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
