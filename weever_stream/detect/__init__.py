"""Incremental detection without Spark: a set of rows kept under changes, and the violations that come and go.

Names are loaded when they are first used: what `check` needs of this package does not load the compiled engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weever_stream.detect.detector import Detector
    from weever_stream.detect.plan import Plan
    from weever_stream.detect.shard import Shard, Tally
    from weever_stream.detect.violations import OUTPUT_SCHEMA, Deltas, Violation, Violations

__all__ = ["OUTPUT_SCHEMA", "Deltas", "Detector", "Plan", "Shard", "Tally", "Violation", "Violations"]

_HOMES = {
    "detector": ("Detector",),
    "plan": ("Plan",),
    "shard": ("Shard", "Tally"),
    "violations": ("OUTPUT_SCHEMA", "Deltas", "Violation", "Violations"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"weever_stream.detect.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
