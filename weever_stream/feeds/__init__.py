"""Feeds: every source of changes as one kind of streaming DataFrame (see `changes`).

`open_feed` looks at the source at once, so that a missing table, a table without a change feed or an undeclared column
is an error before a stream is started. `Feed.changes` costs nothing until the stream runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from weever_stream.job.options import DeltaSource, FilesSource, KafkaSource
    from weever_stream.rules.types import ColumnType
    from weever_stream.state.store import StoreOptions

__all__ = ["Feed", "open_feed"]


class Feed(Protocol):
    """A source of changes."""

    @property
    def schema(self) -> dict[str, ColumnType | str]:
        """The table's columns with their types; the spelling of a type that rules cannot compare."""
        ...

    def recognize(self, noted: Mapping[str, Any] | None, position: Mapping[str, Any] | None) -> dict[str, Any]:
        """Refuses a source that is another under the same name, or that lost what comes behind a position.

        `noted` is what this said when the checkpoint was begun, None for a new one; `position` is that of the last
        batch that was finished. Asks the source, so it is called when a query is about to start, before `changes`.
        """
        ...

    def changes(self, names: Sequence[str]) -> DataFrame:
        """A streaming change frame with exactly these columns and `changes.CONTROL`."""
        ...

    @property
    def replays(self) -> bool:
        """Whether the history is that of all changes, and not the table as it is."""
        ...

    def history(
        self, names: Sequence[str], position: Mapping[str, Any], since: Mapping[str, Any] | None = None
    ) -> DataFrame:
        """A change frame, not a streaming one, whose changes lead to the table as it is at a position.

        It begins where the job began, or, if the feed `replays`, after another position. May hold more than the last
        change of a key, in any order. Refuses where the source no longer has what is needed.
        """
        ...

    def locate(self, rejects: DataFrame) -> DataFrame:
        """Rejects of a batch (reason, origin, record) with what a second look at the source adds to the origin."""
        ...


def open_feed(
    spark: SparkSession,
    source: DeltaSource | KafkaSource | FilesSource,
    key: Sequence[str],
    columns: Mapping[str, ColumnType],
    *,
    tracking: StoreOptions | None = None,
) -> Feed:
    """The feed of a source. `columns` are declared types; `tracking` is a folder below the checkpoint (see `delta`)."""
    if source.kind == "delta":
        from weever_stream.feeds.delta import DeltaFeed

        return DeltaFeed(spark, source, key, columns, tracking)
    if source.kind == "kafka":
        from weever_stream.feeds.kafka import KafkaFeed

        return KafkaFeed(spark, source, key, columns)
    from weever_stream.feeds.files import FilesFeed

    return FilesFeed(spark, source, key, columns)
