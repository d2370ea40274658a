"""Batches by hand, and a dictionary of what is open: what every sink's content is held against."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql import SparkSession

from weever_stream.detect.identity import violation_id
from weever_stream.sinks import DELTA_COLUMNS, REJECT_COLUMNS, Batch

BEGIN = datetime(2026, 3, 8, 6, 59, 58, 123456, tzinfo=timezone.utc)
"""Two seconds before New York's clocks change: times that are not kept as instants would show."""
TYPES = {"batch_id": "bigint", "detected_at": "timestamp"}
SCHEMA, REJECT_SCHEMA = (
    ", ".join(f"{name} {TYPES.get(name, 'string')}" for name in columns) for columns in (DELTA_COLUMNS, REJECT_COLUMNS)
)


@dataclass(frozen=True)
class Pair:
    """A violation; without a right key it is of one row."""

    rule: str
    left: str
    right: str | None = None
    severity: str = "error"
    city: str = "Lima"

    @property
    def id(self) -> str:
        return violation_id(self.rule, self.left, self.right)

    def row(self, change: str, batch: int, query: str) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "rule_fingerprint": f"fingerprint of {self.rule}",
            "severity": self.severity,
            "change": change,
            "violation_id": self.id,
            "left_key": self.left,
            "right_key": self.right,
            "left_values": json.dumps({"zip": "1", "city": self.city}, ensure_ascii=False),
            "right_values": None if self.right is None else json.dumps({"zip": "1", "city": "Cusco"}),
            "source_position": position(batch),
            "batch_id": batch,
            "detected_at": time_of(batch),
            "reason": None,
        }


def position(batch: int) -> str:
    return json.dumps({"version": batch * 10})


def time_of(batch: int) -> datetime:
    return BEGIN + timedelta(seconds=batch)


@dataclass
class Story:
    """Makes batches, and knows what is open after each."""

    spark: SparkSession
    query: str = "query-1"
    open: dict[str, Pair] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    log: list[tuple[int, str, str]] = field(default_factory=list)

    def batch(
        self, number: int, added: Sequence[Pair] = (), removed: Iterable[Pair] = (), rejected: Sequence[str] = ()
    ) -> Batch:
        removed = list(removed)
        for pair in removed:
            del self.open[pair.id], self.opened[pair.id]
        for pair in added:
            self.open[pair.id], self.opened[pair.id] = pair, number
        self.log += [(number, "removed", pair.id) for pair in removed] + [(number, "added", pair.id) for pair in added]
        rows = [pair.row("added", number, self.query) for pair in added]
        rows += [pair.row("removed", number, self.query) for pair in removed]
        rejects = [
            {
                "reason": "no key",
                "origin": json.dumps({"offset": at}),
                "record": text,
                "source_position": position(number),
                "batch_id": number,
                "detected_at": time_of(number),
            }
            for at, text in enumerate(rejected)
        ]
        return Batch(
            id=number,
            query_id=self.query,
            position=position(number),
            detected_at=time_of(number),
            deltas=self.spark.createDataFrame(rows, SCHEMA),
            rejects=self.spark.createDataFrame(rejects, REJECT_SCHEMA),
            added=len(added),
            removed=len(removed),
            rejected=len(rejected),
            open=Counter(pair.rule for pair in self.open.values()),
        )


NASTY = 'Ñandú "x" \\ \n\t\x07 [red]it\'s[/] 漢字 🎈'
"""What values look like in the end."""
