"""Reports of batches for tests: what a batch of a small job says of itself."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from weever_stream.rules import RuleFile, read_rules_text
from weever_stream.stream.progress import BatchReport

__all__ = ["RULES", "report"]

RULES: RuleFile = read_rules_text(
    """
table: packages
key: code
rules:
  - {name: zip_determines_city, fd: zip -> city}
  - {name: code_is_unique, unique: [code], severity: critical}
  - {name: never_broken, fd: zip -> state, severity: info}
"""
)


def report(batch: int, **changes: Any) -> BatchReport:
    """A batch with two violations more and one less."""
    told: dict[str, Any] = {
        "position": '{"version":7}',
        "detected_at": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "changes": 12,
        "rejected": 3,
        "added": 2,
        "removed": 1,
        "open": {"zip_determines_city": 87, "code_is_unique": 1, "never_broken": 0},
        "seconds": 1.25,
        "shard_seconds": 0.5,
        "stale": 4,
        "behind": {},
        "unlisted": {"zip_determines_city": 1000},
        "added_by_rule": {"zip_determines_city": 2},
        "removed_by_rule": {"code_is_unique": 1},
        "operations": {"put": 9, "drop": 3, "clear": 0},
        "held": {"rows": 500, "state": 4096, "files": 1 << 20},
    }
    return BatchReport(batch=batch, **{**told, **changes})
