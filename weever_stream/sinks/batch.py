"""What a sink gets: one micro-batch of violation deltas, computed once, with the position that it completes.

A sink's `write` may be called again for the same batch after a crash, with the same content, and must then leave what
one call would have left (Delta, files) or repeat itself under the same ids (Kafka). A batch with nothing in it is
written too: sinks return at once unless they publish positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from pyspark.sql import DataFrame

__all__ = ["ADDED", "DELTA_COLUMNS", "EVENT_COLUMNS", "REJECT_COLUMNS", "REMOVED", "Batch", "Identified", "Sink"]

DELTA_COLUMNS = (
    "rule", "rule_fingerprint", "severity", "change", "violation_id", "left_key", "right_key", "left_values",
    "right_values", "source_position", "batch_id", "detected_at", "reason",
)  # fmt: skip
"""All strings but `batch_id` (bigint) and `detected_at` (timestamp); `right_key` and `right_values` may be null.

`reason` is null where rows have changed; it says why a violation is over although none did (`rule_removed`).
"""
ADDED, REMOVED = "added", "removed"
"""What `change` says."""
REJECT_COLUMNS = ("reason", "origin", "record", "source_position", "batch_id", "detected_at")
EVENT_COLUMNS = (
    "event", "rule", "rule_fingerprint", "deny", "words", "error", "left_key", "right_key", "left_values",
    "right_values", "source_position", "batch_id", "detected_at",
)  # fmt: skip
"""What is told of rules that a job learns. All strings but `error` (double), `batch_id` and `detected_at`."""


class Identified(Protocol):
    """What names a micro-batch of a query for ever, so that it is not written twice."""

    @property
    def id(self) -> int:
        """Its number."""
        ...

    @property
    def query_id(self) -> str:
        """That of the streaming query."""
        ...

    @property
    def position(self) -> str:
        """The source position that it completes."""
        ...


@dataclass(frozen=True)
class Batch:
    """One micro-batch."""

    id: int
    query_id: str
    """The id of the streaming query: the same for the life of a checkpoint."""
    position: str
    """The source position that this batch completes, as JSON: the same on every replay."""
    detected_at: datetime
    """When Spark planned the batch, in UTC: the same on every replay."""
    deltas: DataFrame
    """`DELTA_COLUMNS`. Reading it does not run the state operator again."""
    rejects: DataFrame
    """`REJECT_COLUMNS`."""
    added: int = 0
    removed: int = 0
    rejected: int = 0
    open: Mapping[str, int] = field(default_factory=dict)
    """Open violations of every rule after this batch."""
    unlisted: Mapping[str, int] = field(default_factory=dict)
    """Further ones that are only counted."""
    collected: bool = False
    """Whether the deltas are few enough bytes for the driver, where they are already."""
    backfilling: Collection[str] = ()
    """Rules that are being backfilled: what is open of them may not be all."""

    @property
    def open_before(self) -> int:
        """Violations that were open before this batch."""
        return sum(self.open.values()) - self.added + self.removed


class Sink(Protocol):
    """Takes batches in their order."""

    def write(self, batch: Batch) -> None:
        """Writes a batch; see the module's text for what a second call with the same batch must do."""
        ...
