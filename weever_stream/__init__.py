"""Tells you, the moment it happens, that two rows of your data contradict each other, and again when it is fixed.

    from weever_stream import Detector
    from weever_stream.check import check

    check("rules.yaml", "packages.parquet")      # a whole table at once
    Detector("rules.yaml").insert(rows).added    # rows and changes as they come

Importing the package is cheap: Arrow and the compiled kernels are loaded when one of these names is first used, Spark
and pandas never by them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weever_stream.detect import Deltas, Detector, Violation, Violations
    from weever_stream.discover import Discovery, discover
    from weever_stream.errors import WeeverError
    from weever_stream.rules import Rule, RuleFile, fd, order, parse_rule, read_rules, unique

__all__ = [
    "Deltas",
    "Detector",
    "Discovery",
    "Rule",
    "RuleFile",
    "Violation",
    "Violations",
    "WeeverError",
    "discover",
    "fd",
    "order",
    "parse_rule",
    "read_rules",
    "unique",
]

_HOMES = {
    "detect": ("Deltas", "Detector", "Violation", "Violations"),
    "discover": ("Discovery", "discover"),
    "errors": ("WeeverError",),
    "rules": ("Rule", "RuleFile", "fd", "order", "parse_rule", "read_rules", "unique"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"weever_stream.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
