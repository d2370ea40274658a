"""The lane: a folder beside the checkpoint through which the driver sends messages to shards.

It is a second source of every query of a job, always there and nearly always empty: Spark refuses a checkpoint whose
query has other sources than before, and a rule that comes later must find its way in. A file holds messages as the
router makes them. Files carry the revision of the rules that they belong to; those of a revision that was never noted
are left over from a change that did not come to its end, and are deleted before a query starts.

Cost: one listing of a small folder a batch; Spark takes an empty source out of the plan. Filling reads the table once.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from weever_stream.errors import OutputError
from weever_stream.feeds.changes import (
    CHANGE,
    CLEAR,
    DROP_ANYWHERE,
    PUT,
    PUT_ANYWHERE,
    SEQUENCE,
)  # fmt: skip
from weever_stream.state.store import force, opened
from weever_stream.stream.operator import (
    ASIDE,
    FILLED,
    ROUTED,
    UNFILLED,
    filler,
    mapped,
    read_counts,
    reject_filler,
)  # fmt: skip
from weever_stream.stream.routing import Router

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from weever_stream.state.store import StoreOptions
    from weever_stream.stream.setup import Setup

__all__ = ["Lane", "Table", "table_of"]

FILES_A_BATCH = 4
_MESSAGES_A_FILE = 64
"""A message holds up to 131,072 rows divided among the shards: a file is a million rows under eight shards."""
_MESSAGES_A_GROUP = 16
_COUNT_BYTES = 4096
"""A message that only counts is smaller."""
_NAME = re.compile(r"r(\d+)-.*\.parquet")
_SCHEMA = pa.schema([("shard", pa.int32()), ("body", pa.binary())])
_PUT, _LAST = "_weever_put", "_weever_last"
_BEGIN = "_lane"
"""Object stores know no empty folder; Spark does not read files whose name begins so."""


class Lane:
    """The lane of one checkpoint."""

    def __init__(self, spark: SparkSession, folder: str, notes: StoreOptions) -> None:
        """`folder` as Spark names it; `notes` opens the same folder without Spark."""
        self._spark, self._notes = spark, notes
        self._folder = f"{folder}/lane"
        self._aside = f"{folder}/filling"
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._path: Any = self._jvm.org.apache.hadoop.fs.Path(self._folder)
        self._fs = self._path.getFileSystem(spark._jsc.hadoopConfiguration())

    def tidy(self, revision: int) -> None:
        """Makes the folder if it is not there, and deletes what belongs to no revision that was noted."""
        begin = self._jvm.org.apache.hadoop.fs.Path(self._path, _BEGIN)
        if not self._fs.exists(begin):
            self._fs.create(begin, True).close()
        for status in self._fs.listStatus(self._path):
            found = _NAME.fullmatch(str(status.getPath().getName()))
            if found and int(found[1]) > revision:
                self._fs.delete(status.getPath(), False)
        self._fs.delete(self._jvm.org.apache.hadoop.fs.Path(self._aside), True)

    def messages(self) -> DataFrame:
        """The streaming source."""
        reader = self._spark.readStream.schema(ROUTED).option("maxFilesPerTrigger", str(FILES_A_BATCH))
        # Spark forgets files by age, a week by default: a job that stood still for longer must still be filled.
        return reader.options(maxFileAge="3650d", cleanSource="delete").parquet(self._folder)

    def call(self, setup: Setup, revision: int, shards: int) -> None:
        """Sends every shard a message without changes, so that all of them see that rules have ended."""
        body = Router(setup).nothing().pack()
        self.send(((shard, body) for shard in range(shards)), revision)

    def send(self, messages: Iterable[tuple[int, bytes]], revision: int) -> None:
        """Sends messages that must come in one batch: all in one file, a piece at a time."""
        local, files, root = opened(self._notes)
        name = f"r{revision:05d}-{uuid4().hex}.parquet"
        files.create_dir(f"{root}/filling", recursive=True)
        with pq.ParquetWriter(f"{root}/filling/{name}", _SCHEMA, filesystem=files) as writer:
            for some in _in_pieces(messages):
                shards, bodies = zip(*some, strict=True)
                writer.write_table(
                    pa.table([pa.array(shards, pa.int32()), pa.array(bodies, pa.binary())], schema=_SCHEMA)
                )
        if local:  # the note that relies on it is forced to the disk too
            force(Path(root, "filling", name))
        files.move(f"{root}/filling/{name}", f"{root}/lane/{name}")
        if local:
            force(Path(root, "lane"))

    def fill(
        self, table: Table, setup: Setup, generation: int, revision: int, judge: Callable[[int, int], None]
    ) -> tuple[int, ...]:
        """Sends the rows of a table to the families of a generation. How many messages each shard gets.

        Records that cannot be read come with them as rejects of the batch that takes them; `judge` gets the number of
        those and of all, and raises if they are too many.
        """
        messages = mapped(table.rows, filler(setup, generation), ROUTED)
        if table.rejects is not None:
            messages = messages.unionByName(mapped(table.rejects, reject_filler(setup), ROUTED))
        messages.write.mode("overwrite").option("maxRecordsPerFile", _MESSAGES_A_FILE).parquet(self._aside)
        written = self._spark.read.schema(ROUTED).parquet(self._aside)
        counts = {row.shard: row.n for row in written.groupBy("shard").agg(F.count("*").alias("n")).collect()}
        self._judge(written, judge)
        path = self._jvm.org.apache.hadoop.fs.Path
        for status in self._fs.listStatus(path(self._aside)):
            name = str(status.getPath().getName())
            target = path(self._path, f"r{revision:05d}-{name}")
            if name.endswith(".parquet") and not self._fs.rename(status.getPath(), target):
                raise OutputError(f"{name} could not be moved into {self._folder}", hint="check the store's rights")
        self._fs.delete(path(self._aside), True)
        return tuple(counts.get(shard, 0) for shard in range(setup.shards))

    def _judge(self, written: DataFrame, judge: Callable[[int, int], None]) -> None:
        said = written.where((F.col("shard") == ASIDE) & (F.octet_length("body") < _COUNT_BYTES)).collect()
        counts: Counter[str] = Counter()
        for row in said:
            counts.update(read_counts(bytes(row.body)))
        judge(counts[UNFILLED], counts[UNFILLED] + counts[FILLED])


def _in_pieces(messages: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """So many at a time as are worth a row group: Spark reads one as a whole."""
    some: list[tuple[int, bytes]] = []
    for message in messages:
        some.append(message)
        if len(some) == _MESSAGES_A_GROUP:
            yield some
            some = []
    if some:
        yield some


@dataclass(frozen=True)
class Table:
    """A table as it is at a position of the source."""

    rows: DataFrame
    """A change frame of puts."""
    rejects: DataFrame | None = None
    """Records of its history that cannot be read now and could be before: reason, origin and record."""


def table_of(history: DataFrame, key: Sequence[str], names: Sequence[str], *, anywhere: bool = False) -> DataFrame:
    """The rows of a table after all changes of its history (see `stream.history`), as a change frame of puts.

    `anywhere`: for jobs whose changes may come late. Every shard is told of every key, and of those that are gone.
    A record that cannot be read replaced the row of its key all the same. The row is then left out: an older one is
    known not to be in the table any more.
    """
    cleared = history.where(F.col(CHANGE) == CLEAR).agg(F.max(SEQUENCE).alias("at")).first()
    since = -1 if cleared is None or cleared["at"] is None else int(cleared["at"])
    put = F.col(CHANGE).isin(PUT, PUT_ANYWHERE)
    changes = history.where((F.col(CHANGE) != CLEAR) & (F.col(SEQUENCE) >= since))
    keys = [F.col(_quoted(name)) for name in key]
    row = F.struct(put.alias(_PUT), F.col(SEQUENCE), *(F.col(_quoted(name)) for name in names))
    order = 2 * F.col(SEQUENCE) + put.cast("bigint")
    last = changes.groupBy(*keys).agg(F.max_by(row, order).alias(_LAST))
    kind = F.when(F.col(f"{_LAST}.{_PUT}"), PUT_ANYWHERE).otherwise(DROP_ANYWHERE) if anywhere else F.lit(PUT)
    return (last if anywhere else last.where(f"{_LAST}.{_PUT}")).select(
        *(F.col(f"{_LAST}.{_quoted(name)}").alias(name) for name in names),
        kind.cast("tinyint").alias(CHANGE),
        F.col(f"{_LAST}.{SEQUENCE}").alias(SEQUENCE),
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
