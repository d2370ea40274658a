"""Debezium's change events: JSON with or without the schema part, told apart record by record.

    op                before: key                              before: full
    c                 replaces whatever the key had            puts the row
    r                 replaces whatever the key had            the same
    u                 replaces whatever the key had            drops `before`, puts `after`
    d                 drops by key, wherever the row is        drops `before`
    t                 clears the table, or is rejected (`truncate`)
    m, tombstones     nothing: they are no changes of rows

`before: full` says that `before` can be trusted, and it is, as far as it goes: where it is missing, lacks a column or
holds one that does not fit, the change goes everywhere instead. PostgreSQL without REPLICA IDENTITY FULL fills the
`before` of a delete with made-up values, so nothing but the key is read from it under `before: key`. The key of a
delete is taken from `before`, else from the message key.

A value that PostgreSQL did not send (`__debezium_unavailable_value`) is taken from a full `before`, or the record is
rejected. A record is rejected as a whole: no drop without its put. A row of a snapshot may come in mid-stream, by an
incremental or blocking snapshot or a connector that lost its place, and then nothing tells the row it replaces; so `r`
goes everywhere, in the first snapshot too: nothing tells which one it is. The sequence is the Kafka offset and never an
LSN, which repeats and runs backwards.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weever_stream.feeds.changes import CLEAR, DROP, DROP_ANYWHERE, PUT, PUT_ANYWHERE
from weever_stream.feeds.connect import FIELDS, field_of, from_member, needs_schema
from weever_stream.feeds.conversion import let
from weever_stream.feeds.documents import NOT_ONE_DOCUMENT, Document, parsed, text_of
from weever_stream.feeds.messages import kafka_trace, key_readings
from weever_stream.feeds.readings import Fault, Reading, change_frame, not_sent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from weever_stream.feeds.documents import Member
    from weever_stream.rules.types import ColumnType

__all__ = ["UNAVAILABLE", "read_events"]

UNAVAILABLE = "__debezium_unavailable_value"
_BEFORE, _AFTER, _KEY = 0, 1, 2
"""Where a change's row is read from."""
_NO_OP = "there is no op: not a change event of Debezium; flattened events are read with format: json"
_NO_TRUNCATE = "the table was truncated; `truncate: clear` follows, where the topic has one partition"


def read_events(
    messages: DataFrame,
    names: Sequence[str],
    key: Sequence[str],
    columns: Mapping[str, ColumnType],
    *,
    full_before: bool,
    clear: bool,
) -> DataFrame:
    """The change frame of events: columns `key`, `value`, `topic`, `partition` and `offset`."""
    wanted = {name: columns[name] for name in dict.fromkeys((*key, *names))}
    events = _events(messages, wanted)
    rows = _rows(events, wanted, key, full_before)
    op, place = F.col("_op"), F.col("_place")
    put = (F.size("_places") == 2) | ((op == "c") if full_before else F.lit(False))
    change = (
        F.when(~op.isin("c", "r", "u", "d", "t"), F.lit(None))
        .when(op == "t", F.lit(CLEAR))
        .when(place == _BEFORE, F.lit(DROP))
        .when(place == _KEY, F.lit(DROP_ANYWHERE))
        .when(put, F.lit(PUT))
        .otherwise(F.lit(PUT_ANYWHERE))
    )
    faults = [
        Fault(F.col("_text").isNull(), "the value is not UTF-8 text"),
        Fault(~F.col("_sound"), f"the value {NOT_ONE_DOCUMENT}"),
        Fault(op.isNull(), _NO_OP),
        Fault(~op.isin("c", "r", "u", "d", "t"), "the op is none that is known"),
    ]
    if not clear:
        faults.append(Fault(op == "t", _NO_TRUNCATE))
    return change_frame(
        rows,
        [
            replace(
                _picked(i, name, wanted[name], name in key, full_before),
                fault=Fault(F.col(f"_unavailable{i}"), not_sent(name)),
            )
            for i, name in enumerate(wanted)
        ],
        key,
        names=names,
        change=change,
        sequence=F.col("offset"),
        trace=kafka_trace(),
        faults=faults,
    )


def _events(messages: DataFrame, wanted: Mapping[str, ColumnType]) -> DataFrame:
    """Each event out of its envelope: `_event`, `_op`, and of each column what the schema part says."""
    document = Document(F.col("_document"), "$[0]", F.col("value").cast("string"))
    payload = document.inner("payload").itself
    texts = messages.where(F.col("value").isNotNull()).select(
        "topic", "partition", "offset", "key", "value", text_of(F.col("value")).alias("_text")
    )
    parts = texts.withColumn("_document", parsed(F.col("_text"))).withColumns({
        "_sound": document.sound,
        "_wrapped": payload.isNotNull() & document.inner("op").itself.isNull(),
        "_fields": _fields(wanted),
    })  # fmt: skip
    event = F.when(F.col("_wrapped"), payload).otherwise(document.itself)
    told = {f"_told{i}": F.struct(*field_of(F.col("_fields"), name)) for i, name in enumerate(wanted)}
    opened = parts.withColumn("_event", F.when(F.col("_sound"), event)).withColumns({
        "_op": F.try_variant_get("_event", "$.op", "string"),
        **told,
    })  # fmt: skip
    return opened.drop("_document", "_fields", "_wrapped")


def _fields(wanted: Mapping[str, ColumnType]) -> Column:
    """The fields of the row in the schema part, if they matter. `before` and `after` have the same."""
    if not any(needs_schema(kind) for kind in wanted.values()):
        return F.lit(None).cast(FIELDS)
    parts = F.try_variant_get("_document", "$[0].schema.fields", f"array<struct<field: string, fields: {FIELDS}>>")
    return let(parts, lambda all_: F.get(all_, (F.array_position(all_["field"], "after") - 1).cast("int"))["fields"])


def _rows(events: DataFrame, wanted: Mapping[str, ColumnType], key: Sequence[str], full_before: bool) -> DataFrame:
    """One row for each row of the table that an event tells of, all read and put side by side, and its place."""
    source = F.col("value").cast("string")
    event = Document(F.col("_event"), "$", source)
    frame, new = event.inner("after").opened(events, wanted, "_new")
    frame, old = event.inner("before").opened(frame, wanted if full_before else key, "_old")
    of_message = _message_key(wanted, key)
    in_before = _all(old[name].there for name in key)
    read: dict[str, Column] = {}

    def put(part: str, i: int, reading: Reading) -> None:
        assert reading.present is not None
        read[f"_{part}{i}"], read[f"_{part}_there{i}"] = reading.value, reading.present

    for i, (name, kind) in enumerate(wanted.items()):
        after, before = _typed(new[name], kind, i), _typed(old[name], kind, i) if name in old else None
        unavailable, known = _unavailable(new[name], kind), F.lit(True)
        if full_before and before is not None:
            known = old[name].there & ~_unavailable(old[name], kind)
            after, unavailable = before.where(unavailable, after), unavailable & ~known
            put("before", i, before)
        put("after", i, after)
        read[f"_known{i}"], read[f"_unavailable{i}"] = known, unavailable
        if name in key and before is not None:
            put("key", i, before.where(in_before, of_message[name]))
    return _placed(frame.withColumns(read), [name in key for name in wanted], full_before)


def _placed(frame: DataFrame, is_key: Sequence[bool], full_before: bool) -> DataFrame:
    """A row for each place from which an event's rows are read; none for a message of the log."""

    def fits(part: str, i: int) -> Column:
        value = F.col(f"_{part}{i}").isNotNull()
        return value if is_key[i] else value | ~F.col(f"_{part}_there{i}")

    op, numbers = F.col("_op"), range(len(is_key))
    places = F.when(op == "d", F.array(F.lit(_KEY))).when(op == "m", F.array().cast("array<int>"))
    if full_before:
        old_fits = _all(F.col(f"_known{i}") & fits("before", i) for i in numbers)
        new_fits = _all(~F.col(f"_unavailable{i}") & fits("after", i) for i in numbers)
        places = (
            F.when((op == "d") & old_fits, F.array(F.lit(_BEFORE)))
            .when((op == "u") & old_fits & new_fits, F.array(F.lit(_BEFORE), F.lit(_AFTER)))
            .when(op == "d", F.array(F.lit(_KEY)))
            .when(op == "m", F.array().cast("array<int>"))
        )
    placed = frame.withColumn("_places", places.otherwise(F.array(F.lit(_AFTER))))
    # Not `explode`: Spark would infer that the array is not empty, and parse every message again to find that out.
    return placed.select("*", F.explode_outer("_places").alias("_place")).where(F.col("_place").isNotNull())


def _typed(member: Member, kind: ColumnType, i: int) -> Reading:
    told = F.col(f"_told{i}")
    return Reading(member.name, from_member(member, kind, told["name"], told["scale"]), kind, member.given)


def _unavailable(member: Member, kind: ColumnType) -> Column:
    """Whether PostgreSQL did not send the value: it is long, stored apart, and has not changed."""
    if kind.kind != "string":
        return F.lit(False)
    return F.coalesce(member.value.cast("string") == UNAVAILABLE, F.lit(False))


def _message_key(wanted: Mapping[str, ColumnType], key: Sequence[str]) -> dict[str, Reading]:
    def read(member: Member, document: Document) -> Column:
        fields = F.try_variant_get(document.inner("schema").inner("fields").itself, "$", FIELDS)
        return from_member(member, wanted[member.name], *field_of(fields, member.name))

    return key_readings(text_of(F.col("key")), key, wanted, read)


def _picked(i: int, name: str, kind: ColumnType, is_key: bool, full_before: bool) -> Reading:
    place = F.col("_place")
    reading = Reading(name, F.col(f"_after{i}"), kind, F.col(f"_after_there{i}"))
    if full_before:
        old = Reading(name, F.col(f"_before{i}"), kind, F.col(f"_before_there{i}"))
        reading = old.where(place == _BEFORE, reading)
    if is_key:
        reading = Reading(name, F.col(f"_key{i}"), kind, F.col(f"_key_there{i}")).where(place == _KEY, reading)
    return reading


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(lambda one, other: one & other, conditions, F.lit(True))
