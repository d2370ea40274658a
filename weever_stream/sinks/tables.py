"""The Delta tables that sinks write: their columns with a comment on each, how they are made, and what was published.

A table is made once, with an explicit schema, so that DESCRIBE tells what it is. A table that is there already must
have just these columns; anything else is refused before the first batch. Tables hold no deletion vectors, so that every
Delta reader can read them. Small files are compacted by Delta itself after a write (`delta.autoOptimize.autoCompact`).
They are not partitioned by rule: a batch that is about hundreds of rules would write, and compact, a file for each.

Each commit carries, as its user metadata, `{"query_id", "batch_id", "source_position"}`: what the table holds and the
position of its content become visible in one step.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from delta.tables import DeltaTable

from weever_stream.errors import OutputError
from weever_stream.sinks.batch import DELTA_COLUMNS, EVENT_COLUMNS, REJECT_COLUMNS
from weever_stream.sinks.failures import writing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from weever_stream.sinks.batch import Identified

__all__ = [
    "EVENTS",
    "LOG",
    "OPEN",
    "QUARANTINE",
    "REJECTS",
    "Layout",
    "Published",
    "make_table",
    "metadata_of",
    "published",
]

_COMMITS = 100
"""How many of the last commits are searched for one of ours; the others are OPTIMIZE and its like."""


class _Column(NamedTuple):
    type: str
    comment: str


_MEANING = {
    "rule": _Column("string", "Name of the rule"),
    "rule_fingerprint": _Column("string", "Fingerprint of the rule's normal form: another one, another rule"),
    "severity": _Column("string", "info, warning, error or critical"),
    "change": _Column("string", "added: the violation is there from this batch on; removed: it is over"),
    "violation_id": _Column("string", "Id of the pair under the rule, the same for ever: a hash of rule and keys"),
    "left_key": _Column("string", "Key of the row t; a JSON array if it has several columns"),
    "right_key": _Column("string", "Key of the row s; null for a rule on one row"),
    "left_values": _Column("string", "JSON object: what the rule reads of the row t"),
    "right_values": _Column("string", "JSON object: what the rule reads of the row s; null for a rule on one row"),
    "source_position": _Column("string", "JSON: the position of the source that the batch completed"),
    "batch_id": _Column("bigint", "Number of the micro-batch"),
    "detected_at": _Column("timestamp", "When the batch was planned"),
    "opened_at": _Column("timestamp", "When the batch that added the violation was planned"),
    "key": _Column("string", "Key of the row in quarantine; a JSON array if it has several columns"),
    "other_key": _Column("string", "Key of the other row of the violation; null for a rule on one row"),
    "since": _Column("timestamp", "When the batch that added the violation was planned"),
    "reason": _Column("string", "Why a record was rejected; why a violation is over although no row has changed"),
    "origin": _Column(
        "string", "JSON: where the record came from: topic, partition, offset; file and line or row; or version"
    ),
    "record": _Column("string", "The record as far as it is text"),
    "event": _Column(
        "string", "added, dropped: the rule holds from this batch on, or no more; error: how many violate it"
    ),
    "deny": _Column("string", "The rule, as rule files write it: what no two different rows t and s may satisfy"),
    "words": _Column("string", "The rule in words"),
    "error": _Column("double", "The share of pairs of rows that violate the rule; null where none does"),
}


@dataclass(frozen=True)
class Layout:
    """One kind of table."""

    columns: tuple[str, ...]
    comment: str
    change_feed: bool = False

    def types(self) -> dict[str, str]:
        """Spark's name of each column's type."""
        return {name: _MEANING[name].type for name in self.columns}


_LOG_ONLY = ("change", "reason")
LOG = Layout(DELTA_COLUMNS, "Violations of denial constraints: every addition and every removal")
OPEN = Layout(
    tuple("opened_at" if name == "detected_at" else name for name in DELTA_COLUMNS if name not in _LOG_ONLY),
    "Violations of denial constraints that are there now",
    change_feed=True,
)
REJECTS = Layout(REJECT_COLUMNS, "Records of the source that could not be read")
EVENTS = Layout(EVENT_COLUMNS, "Rules that were learned from the table: from when on they hold, and why no more")
QUARANTINE = Layout(
    ("key", "rule", "severity", "violation_id", "other_key", "since", "source_position", "batch_id"),
    "Rows in open violations: one row for each of them and each violation that it is in",
    change_feed=True,
)


def make_table(spark: SparkSession, path: str, layout: Layout) -> None:
    """Makes the table if it is not there; refuses one that has other columns."""
    with writing(f"the Delta table {path}", {"NON_EMPTY_LOCATION": "the folder holds other files: name another path"}):
        if DeltaTable.isDeltaTable(spark, path):
            found = {
                field.name: field.dataType.simpleString() for field in DeltaTable.forPath(spark, path).toDF().schema
            }
            _same_columns(path, found, layout.types())
            return
        maker = DeltaTable.createIfNotExists(spark).location(path).comment(layout.comment)
        for name in layout.columns:
            maker = maker.addColumn(name, _MEANING[name].type, comment=_MEANING[name].comment)
        for name, value in _properties(layout).items():
            maker = maker.property(name, value)
        maker.execute()


def _properties(layout: Layout) -> dict[str, str]:
    return {
        "delta.enableChangeDataFeed": str(layout.change_feed).lower(),
        "delta.enableDeletionVectors": "false",
        "delta.autoOptimize.autoCompact": "true",
    }


def _same_columns(path: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    if found == wanted:
        return
    missing = [name for name in wanted if name not in found]
    extra = [name for name in found if name not in wanted]
    other = [
        f"{name} is {found[name]}, not {wanted[name]}"
        for name in wanted
        if found.get(name, wanted[name]) != wanted[name]
    ]
    told = [
        *([f"{', '.join(missing)} missing"] if missing else []),
        *([f"{', '.join(extra)} unknown"] if extra else []),
    ]
    raise OutputError(
        f"{path} holds a Delta table with other columns: {'; '.join([*told, *other])}",
        hint="name another path for the sink, or move that table away",
    )


class Published(NamedTuple):
    """What the last commit of ours says about the content of a table."""

    query_id: str
    batch_id: int
    position: str


def metadata_of(batch: Identified) -> str:
    """The text that the commits of a batch carry."""
    return json.dumps(
        {"query_id": batch.query_id, "batch_id": batch.id, "source_position": batch.position}, separators=(",", ":")
    )


def published(spark: SparkSession, path: str, *, all_commits: bool = False) -> Published | None:
    """The last batch in a table, if one of the last commits names it: for positions, never for who owns the table."""
    table = DeltaTable.forPath(spark, path)
    history = (table.history() if all_commits else table.history(_COMMITS)).select("version", "userMetadata")
    for row in sorted(history.collect(), key=lambda row: row["version"], reverse=True):
        try:
            said = json.loads(row["userMetadata"] or "")
            return Published(str(said["query_id"]), int(said["batch_id"]), str(said["source_position"]))
        except (ValueError, KeyError, TypeError):
            continue  # a commit of somebody else, who may write into this text what he likes
    return None
