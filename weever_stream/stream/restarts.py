"""How often a query is started again because its source has a new schema.

Each change of schema stops a query once, and between two of them it makes progress: it finishes at least one batch. A
query that stops for its schema again and again without finishing a batch would do so for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weever_stream.errors import StateError
from weever_stream.feeds.delta_log import START_AGAIN

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Restarts", "SchemaChangedError"]

_WITHOUT_PROGRESS = 3
"""The first start may stop twice before it reads anything: to log the schema, and to replace it by a newer one."""


class SchemaChangedError(StateError):
    """A query that brings a checkpoint to new rules has stopped because its source has a new schema."""


class Restarts:
    """Counts restarts, and refuses one that leads nowhere."""

    def __init__(self) -> None:
        self._batch: int | None = None
        self._without_progress = 0

    def add(self, query: StreamingQuery | None = None) -> None:
        """Before a query is started again. `query`: the one that has stopped. Raises `StateError`."""
        progress = query.lastProgress if query is not None else None
        batch = None if progress is None else int(progress["batchId"])
        moved = batch is not None and batch != self._batch
        self._batch = batch if moved else self._batch
        self._without_progress = 0 if moved else self._without_progress + 1
        if self._without_progress > _WITHOUT_PROGRESS:
            raise StateError(
                "the job cannot follow a change of its source's schema: the query stops there again and again",
                hint=f"{START_AGAIN}; `WEEVER_DEBUG=1` shows what Spark says",
            )
