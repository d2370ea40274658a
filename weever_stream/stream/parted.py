"""A Spark table whose rows are never brought together: what discovery asks of it, as Spark jobs.

Facts of columns, a sample, and work on parts: every pair of rows that some rules are about meets in a part
(`covering`), a part is one Arrow table in a Python worker, and what comes back is distinct evidences or sums, never
rows or pairs.

The table is kept by Spark (memory, then disk) until it is closed, so that a source is read once. Rows are told apart by
`monotonically_increasing_id`: a source must give the same rows in the same order when Spark reads it again.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from weever_stream.discover.parts import SCANNED, count_sets, evidence_against
from weever_stream.feeds.types import schema_of_spark
from weever_stream.stream.covering import Cover, Route, buckets_of, choose_routes
from weever_stream.stream.sharing import counted_values, shared_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from weever_stream.discover.predicates import Comparison
    from weever_stream.index.arrays import Ints
    from weever_stream.rules.types import ColumnType, Schema

__all__ = ["PartedTable"]

_ID, _PART, _BLOCK = "weever_id", "weever_part", "weever_block"
_MOST_BUCKETS = 1 << 14


class PartedTable:
    """Some columns of a Spark table. A part has at most about `rows_at_once` rows."""

    def __init__(self, frame: DataFrame, names: Sequence[str], rows_at_once: int, scanned: int | None = None) -> None:
        found = schema_of_spark(frame.schema)
        self.schema: Schema = {name: found[name] for name in names}
        self._types: dict[str, ColumnType] = {n: kind for n, kind in self.schema.items() if not isinstance(kind, str)}
        self._names, self._rows_at_once = list(self._types), rows_at_once
        self._used = self._names
        self._scanned = SCANNED if scanned is None else scanned
        # Columns go by their places: Spark takes `a.b` for a field of `a`.
        places = [frame.columns.index(name) for name in self._names]
        plain = frame.toDF(*(f"_{at}" for at in range(len(frame.columns)))).select(*(f"_{at}" for at in places))
        plain = plain.toDF(*(f"_{at}" for at in range(len(places))))
        self._frame = plain.withColumn(_ID, F.monotonically_increasing_id()).persist(StorageLevel.MEMORY_AND_DISK)

    def close(self) -> None:
        """Lets Spark forget the rows."""
        self._frame.unpersist()

    @cached_property
    def _counted(self) -> Mapping[str, int]:
        asked = [F.count("*").alias("rows")]
        for at in range(len(self._names)):
            asked += [F.count(f"_{at}").alias(f"has_{at}"), F.approx_count_distinct(f"_{at}").alias(f"distinct_{at}")]
        row = self._frame.agg(*asked).first()
        assert row is not None
        return {name: int(value) for name, value in row.asDict().items()}

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self._counted["rows"]

    @property
    def values(self) -> dict[str, int]:
        """How many rows have a value, for each column that can be compared."""
        return {name: self._counted[f"has_{at}"] for at, name in enumerate(self._names)}

    def rows_with(self, names: Collection[str]) -> int:
        """How many rows have a value in each of some columns."""
        one, *others = (self._names.index(name) for name in names)
        if not others:
            return self._counted[f"has_{one}"]
        present = F.col(f"_{one}").isNotNull()
        for at in others:
            present &= F.col(f"_{at}").isNotNull()
        return self._frame.where(present).count()

    @property
    def distinct(self) -> dict[str, int]:
        """About how many different values each column has."""
        return {name: self._counted[f"distinct_{at}"] for at, name in enumerate(self._names)}

    def only(self, names: Collection[str]) -> None:
        """Leaves the other columns out of what goes to parts."""
        self._used = [name for name in self._names if name in names]

    def sample(self, seed: int) -> pa.Table:
        """The columns of some rows, as many as a part may have; of all rows where they are no more."""
        chosen = self._frame.select(*self._columns())
        if self.rows > self._rows_at_once:
            chosen = chosen.sample(withReplacement=False, fraction=self._rows_at_once / self.rows, seed=seed)
        return chosen.toArrow().rename_columns(self._used)

    def shared(self, possible: Sequence[tuple[str, str, ColumnType]]) -> dict[tuple[str, str, ColumnType], float]:
        """For two columns and a type in which they meet: the share of values in common, as `predicates` defines it."""
        names, values = self._names, self.values
        counted = self._frame.select(*(f"_{at}" for at in range(len(names)))).mapInArrow(
            lambda batches: counted_values(batches, names, possible), "family int, place int, value binary, times long"
        )
        by_value = (
            counted.groupBy("family", "value", "place")
            .agg(F.sum("times").alias("times"))
            .groupBy("family", "value")
            .agg(F.collect_list(F.struct("place", "times")).alias("has"))
            .where(F.size("has") > 1)
            .select("family", "has")
        )
        common = by_value.mapInArrow(lambda batches: shared_values(batches, names, possible), "which int, common long")
        summed = common.groupBy("which").agg(F.sum("common").alias("n")).collect()
        found = {int(row["which"]): int(row["n"]) for row in summed}
        return {one: found.get(at, 0) / max(1, min(values[one[0]], values[one[1]])) for at, one in enumerate(possible)}

    @cached_property
    def _routes(self) -> dict[str | None, Route]:
        """All routes there are: none by a column where everything is one part."""
        everything = Route.of(None, np.array([self.rows]), self._rows_at_once)
        if self.rows <= self._rows_at_once:
            return {None: everything}
        buckets = min(_MOST_BUCKETS, -(-self.rows // max(1, self._rows_at_once // 2)))
        names, types = self._used, self._types

        def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sizes = np.zeros((len(names), buckets), np.int64)
            for batch in batches:
                for at, name in enumerate(names):
                    _, bucket = buckets_of(batch.column(at), types[name], buckets)
                    sizes[at] += np.bincount(bucket, minlength=buckets)
            column, bucket = np.nonzero(sizes)
            yield pa.record_batch({"at": column, "bucket": bucket, "n": sizes[column, bucket]})

        told = self._frame.select(*self._columns()).mapInArrow(count, "at long, bucket long, n long")
        found = told.groupBy("at", "bucket").agg(F.sum("n").alias("n")).toArrow()
        sizes = np.zeros((len(names), buckets), np.int64)
        sizes[found["at"].to_numpy(), found["bucket"].to_numpy()] = found["n"].to_numpy()
        routes: dict[str | None, Route] = {None: everything}
        return routes | {name: Route.of(name, sizes[at], self._rows_at_once) for at, name in enumerate(names)}

    def evidence(
        self,
        comparisons: Sequence[Comparison],
        equalities: Sequence[frozenset[str]],
        rules: NDArray[np.bool_],
        known: NDArray[np.uint64],
        deadline: float | None,
        seed: int,
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Evidence that breaks those of the rules that do not hold, and the rules there was no time for.

        `equalities` tells for each rule the columns that it wants equal; `deadline` is a time as `time.time` tells it.
        """
        cover, asked = self._cover(equalities)
        scanned, words = self._scanned, known.shape[1]

        def work(number: int, table: pa.Table, blocks: Ints) -> pa.Table:
            mine = asked[cover.part(number).route]
            found, late = evidence_against(
                table,
                comparisons,
                rules[mine],
                known,
                seed=seed + number,
                scanned=scanned,
                go_on=lambda: deadline is None or time.time() < deadline,
            )
            keys = [key.tobytes() for key in found]
            undecided = [int(mine[at]) for at in np.flatnonzero(late)]
            return pa.table(
                {
                    "key": pa.array(keys + [None] * len(undecided), pa.binary()),
                    "undecided": pa.array([None] * len(keys) + undecided, pa.int64()),
                }
            )

        told = self._parts(cover, work, "key binary, undecided long").distinct().toArrow()
        keys = b"".join(told["key"].drop_null().to_pylist())
        late = np.zeros(len(rules), np.bool_)
        late[told["undecided"].drop_null().to_numpy()] = True
        return np.frombuffer(keys, np.uint64).reshape(-1, words), late

    def counts(
        self, comparisons: Sequence[Comparison], equalities: Sequence[frozenset[str]], sets: Sequence[Sequence[int]]
    ) -> Ints:
        """How many pairs of rows satisfy each set of predicates, counted as violations of a rule are."""
        counts: Ints = np.zeros(len(sets), np.int64)
        if not sets:
            return counts
        cover, asked = self._cover(equalities)

        def work(number: int, table: pa.Table, blocks: Ints) -> pa.Table:
            part = cover.part(number)
            mine = asked[part.route]
            found = count_sets(table, blocks, part.again, comparisons, [sets[at] for at in mine])
            return pa.table({"which": mine, "n": found})

        told = self._parts(cover, work, "which long, n long")
        for row in told.groupBy("which").agg(F.sum("n").alias("n")).collect():
            counts[row["which"]] = row["n"]
        return counts

    def _cover(self, equalities: Sequence[frozenset[str]]) -> tuple[Cover, list[Ints]]:
        """The routes of some rules, and the rules that take each."""
        usable = [frozenset(name for name in one if name in self._routes) for one in equalities]
        chosen = choose_routes(usable, self._routes)
        return Cover(tuple(route for route, _ in chosen), self._types), [np.array(rules) for _, rules in chosen]

    def _columns(self) -> list[str]:
        return [f"_{self._names.index(name)}" for name in self._used]

    def _parts(self, cover: Cover, work: Callable[[int, pa.Table, Ints], pa.Table], schema: str) -> DataFrame:
        """Sends the rows to the parts of a cover, and does some work on each: its number, its rows, their blocks."""
        names, columns = self._used, self._columns()
        chosen = self._frame.select(_ID, *columns)

        def route(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                rows = pa.RecordBatch.from_arrays(batch.columns[1:], names)
                for part, block, some in cover.routed(rows, batch.column(0).to_numpy()):
                    yield pa.RecordBatch.from_arrays(
                        [pa.array(part), pa.array(block), *some.columns], [_PART, _BLOCK, *columns]
                    )

        def apply(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
            blocks = table[_BLOCK].to_numpy()
            return work(int(key[0].as_py()), table.drop_columns([_PART, _BLOCK]).rename_columns(names), blocks)

        fields = [StructField(_PART, LongType()), StructField(_BLOCK, LongType()), *chosen.schema.fields[1:]]
        return chosen.mapInArrow(route, StructType(fields)).groupBy(_PART).applyInArrow(apply, schema)
