"""Violation deltas of a streaming DataFrame of changes: for people who build their own job, and for ours.

    deltas = detect(changes, "rules.yaml", store="/lake/_runs/packages")

`changes` has the table's columns with `_change_type` and `_commit_version`, as Delta's change data feed and the files
feed do. The deltas of a micro-batch are net but for pairs whose two rows both moved to another shard: those are told as
removed and added in the same batch. `net` sets them off inside `foreachBatch`; summing the log does, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from weever_stream.detect.violations import OUTPUT_SCHEMA
from weever_stream.errors import DataError
from weever_stream.feeds.changes import CHANGE, CONTROL, DROP, DROP_ANYWHERE, PUT, PUT_ANYWHERE, WORDS
from weever_stream.rules.arguments import as_key, as_rule_file
from weever_stream.state.store import StoreOptions
from weever_stream.stream.columns import key_types, needed, stored_schema
from weever_stream.stream.operator import DELTAS, OUTPUT, REJECTS, ROUTED, STATE, mapped, router, unpacker, worker
from weever_stream.stream.setup import Setup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, Row

    from weever_stream.rules import RuleFile, RulesLike
    from weever_stream.rules.types import Schema

__all__ = [
    "DELTA_SCHEMA",
    "applied",
    "detect",
    "in_any_order",
    "net",
    "setup_for",
    "stored_columns",
    "unpacked",
    "unpacked_here",
]

DELTA_SCHEMA = ", ".join(f"{name} string" for name in (*OUTPUT_SCHEMA.names, "reason"))
_UNPACKED = f"{DELTA_SCHEMA}, moving boolean"


def detect(
    changes: DataFrame,
    rules: RulesLike,
    *,
    store: str,
    key: str | Sequence[str] | None = None,
    shards: int = 8,
    spread: Mapping[str, int] | None = None,
    remember_drops: int = 100_000,
) -> DataFrame:
    """The deltas of a stream of changes, one row for each violation that a batch added or removed.

    `store` is a folder for run files, best beside the checkpoint of the query; it belongs to that query alone. A change
    that cannot be read (no key, an unknown `_change_type`) fails the query: filter such rows out before.
    """
    from weever_stream.feeds.delta import read_commits
    from weever_stream.feeds.readings import check_names
    from weever_stream.feeds.types import schema_of_spark

    if not changes.isStreaming:
        raise DataError(
            "the frame of changes is not a streaming one",
            hint="read it with spark.readStream; `weever_stream.check` takes a table that does not change",
        )
    file = as_rule_file(rules)
    names = as_key(key) or file.key
    given = schema_of_spark(changes.schema)
    found = file.schema(given)
    columns = needed(file.rules, names)
    check_names(["_change_type", "_commit_version", *columns], given, "the frame of changes")
    frame = read_commits(changes, columns, names, given, file.columns, WORDS)
    setup = setup_for(
        file,
        names,
        found,
        frame,
        StoreOptions(store),
        shards=shards,
        spread=spread or {},
        remember_drops=remember_drops,
    )
    pieces = applied(in_any_order(frame) if remember_drops else frame, setup)
    return unpacked(pieces, setup, strict=True).drop("moving", "reason")


def setup_for(
    file: RuleFile, key: Sequence[str], found: Schema, frame: DataFrame, store: StoreOptions, **options: object
) -> Setup:
    """Binds the rules to what the feed brings."""
    types = key_types(key, found)
    return Setup(rules=file.bind(found), key=types, columns=stored_columns(frame), store=store, **options)  # type: ignore[arg-type]


def stored_columns(frame: DataFrame) -> pa.Schema:
    """The table's columns in a change frame, in the types in which they are stored."""
    return stored_schema((name, kind) for name, kind in frame.dtypes if name not in CONTROL)


def in_any_order(frame: DataFrame) -> DataFrame:
    """The change frame of a feed whose changes may come late: no old row is taken on trust.

    A new row may come before the old one is told to go, and would meanwhile be held twice, in two shards. So every
    shard hears of every change of a key, and remembers the drops.
    """
    kind = F.col(CHANGE)
    anywhere = F.when(kind == PUT, PUT_ANYWHERE).when(kind == DROP, DROP_ANYWHERE).otherwise(kind)
    return frame.withColumn(CHANGE, anywhere.cast("tinyint"))


def applied(frame: DataFrame, setup: Setup, lane: DataFrame | None = None) -> DataFrame:
    """A change frame through the shards: pieces of deltas, tallies and rejects (`operator.OUTPUT`)."""
    routed = mapped(frame, router(setup), ROUTED)
    if lane is not None:
        routed = routed.unionByName(lane)
    return routed.groupBy("shard").applyInPandasWithState(worker(setup), OUTPUT, STATE, "append", "NoTimeout")


def unpacked(pieces: DataFrame, setup: Setup, *, strict: bool = False) -> DataFrame:
    """Violations in full, with `moving` behind their columns. `strict`: what was rejected fails the query."""
    kinds = [DELTAS, REJECTS] if strict else [DELTAS]
    told = pieces.where(F.col("kind").isin(kinds)).select("kind", "rule", "sign", "pairs", "moving", "body")
    return told.mapInArrow(unpacker(setup), _UNPACKED)


def unpacked_here(told: Iterable[Row], setup: Setup) -> pa.Table:
    """The violations of a batch's pieces, in full and net, in this process: for batches that are small."""
    columns = list(zip(*((r.kind, r.rule, r.sign, r.pairs, r.moving, bytes(r.body)) for r in told), strict=True))
    names = ["kind", "rule", "sign", "pairs", "moving", "body"]
    pieces = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names)
    table = pa.Table.from_batches(list(unpacker(setup)([pieces])))
    moving = table.column("moving")
    if not pc.any(moving).as_py():
        return table.drop_columns("moving")
    return pa.concat_tables([table.filter(pc.invert(moving)), _net(table.filter(moving))]).drop_columns("moving")


def _net(table: pa.Table) -> pa.Table:
    """`net`, in this process."""
    sign = pc.if_else(pc.equal(table.column("change"), "added"), 1, -1)
    place = pa.array(range(table.num_rows), pa.int64())
    rows = pa.table({"id": table.column("violation_id"), "sign": sign, "place": place})
    sums = rows.group_by("id", use_threads=False).aggregate([("sign", "sum")])
    total = sums.column("sign_sum").take(pc.index_in(rows.column("id"), sums.column("id").combine_chunks()))
    left = rows.filter(pc.equal(total, pc.cast(sign, pa.int64()))).group_by("id", use_threads=False)
    return table.take(left.aggregate([("place", "min")]).column("place_min"))


def net(deltas: DataFrame) -> DataFrame:
    """The deltas of one batch, each violation once: those that are removed as often as added are left out."""
    columns = F.struct(*(F.col(name) for name in deltas.columns))
    added = F.col("change") == "added"
    said = deltas.groupBy("violation_id").agg(
        F.sum(F.when(added, 1).otherwise(-1)).alias("_net"),
        F.first(F.when(added, columns), ignorenulls=True).alias("_added"),
        F.first(F.when(~added, columns), ignorenulls=True).alias("_removed"),
    )
    left = said.where("_net != 0").select(
        F.when(F.col("_net") > 0, F.col("_added")).otherwise(F.col("_removed")).alias("_")
    )
    return left.select("_.*")
