"""Kafka messages whose value is the whole row as a JSON object; a message without a value removes the row of its key.

The key of a removed row comes from the message key: an object with the key columns, or, where the key is one column,
the value itself as text or JSON. Either may stand in the envelope of Kafka Connect, `{"schema": …, "payload": …}`.
Other messages are read from their value alone. The sequence is the offset: a key has one partition, so its changes
have one order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weever_stream.feeds.changes import DROP_ANYWHERE, PUT_ANYWHERE
from weever_stream.feeds.conversion import from_text, let
from weever_stream.feeds.documents import NOT_ONE_DOCUMENT, OBJECT, Document, Member, parsed, text_of
from weever_stream.feeds.readings import Fault, Reading, Trace, change_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from weever_stream.rules.types import ColumnType

    Reader = Callable[[Member, Document], Column]

__all__ = ["kafka_trace", "key_readings", "read_messages"]


def read_messages(
    messages: DataFrame, names: Sequence[str], key: Sequence[str], columns: Mapping[str, ColumnType]
) -> DataFrame:
    """The change frame of messages: columns `key`, `value`, `topic`, `partition` and `offset`."""
    wanted = list(dict.fromkeys((*key, *names)))
    removed, text, source = F.col("value").isNull(), F.col("_text"), F.col("value").cast("string")
    texts = messages.select("topic", "partition", "offset", "key", "value", text_of(F.col("value")).alias("_text"))
    row = Document(F.col("_document"), "$[0]", source)
    documents = texts.withColumn("_document", parsed(text)).withColumn("_sound", row.sound)
    opened, members = row.opened(documents, wanted, "_member")
    of_key = key_readings(text_of(F.col("key")), key, columns)
    readings = []
    for name in wanted:
        put, drop = members[name].read(columns[name]), of_key.get(name)
        readings.append(put if drop is None else drop.where(removed, put))
    return change_frame(
        opened,
        readings,
        key,
        names=names,
        change=F.when(removed, F.lit(DROP_ANYWHERE)).otherwise(F.lit(PUT_ANYWHERE)),
        sequence=F.col("offset"),
        trace=kafka_trace(),
        faults=[
            Fault(removed & F.col("key").isNull(), "the message has neither key nor value"),
            Fault(removed & text_of(F.col("key")).isNull(), "the message key is not UTF-8 text"),
            Fault(~removed & text.isNull(), "the value is not UTF-8 text"),
            Fault(~removed & ~F.col("_sound"), f"the value {NOT_ONE_DOCUMENT}"),
            Fault(~removed & ~text.rlike(OBJECT), "the value is not a JSON object"),
        ],
    )


def key_readings(
    text: Column, key: Sequence[str], columns: Mapping[str, ColumnType], read: Reader | None = None
) -> dict[str, Reading]:
    """The key columns from the text of a message key, which may stand in an envelope.

    For the few messages that need it: the key is parsed anew for each column. `read` reads a member of the key, if it
    is an object, with the whole key at hand.
    """

    def value(name: str) -> Column:
        return let(parsed(text), lambda document: _from_key(Document(document, "$[0]", text), name, len(key) == 1))

    def _from_key(document: Document, name: str, alone: bool) -> Column:
        payload, wanted = document.inner("payload"), columns[name]
        wrapped = payload.itself.isNotNull() & document.inner("schema").itself.isNotNull()
        inside = F.when(wrapped, payload.itself).otherwise(document.itself)
        found = let(inside, lambda variant: _member(Document(variant, "$", text), document, name))
        if not alone:
            return F.when(document.sound, found)
        bare = let(inside, lambda variant: _alone(variant, name, wanted))
        # What is no JSON is taken as it stands, and so is all that is not quoted where the key is a text.
        return F.when(document.sound, F.coalesce(found, bare)).otherwise(from_text(text, wanted))

    def _member(inside: Document, document: Document, name: str) -> Column:
        member = inside.member(name)
        return member.scalar(columns[name]) if read is None else read(member, document)

    def _alone(variant: Column, name: str, wanted: ColumnType) -> Column:
        json_type = F.schema_of_variant(variant)
        quoted = F.when(json_type == "STRING", from_text(variant.cast("string"), wanted))
        if wanted.kind == "string":
            return quoted.when(~json_type.startswith("OBJECT<"), text)
        return quoted.otherwise(Member(name, variant, json_type, text).scalar(wanted))

    return {name: Reading(name, value(name), columns[name], F.lit(False)) for name in key}


def kafka_trace() -> Trace:
    """Where a message is, and its text: its value, or its key where it has none. Bad UTF-8 shows as U+FFFD."""
    record = F.make_valid_utf8(F.coalesce(F.col("value"), F.col("key")).cast("string"))
    return Trace({name: F.col(name) for name in ("topic", "partition", "offset")}, record, ("key", "value"))
