"""Values as Kafka Connect and Debezium write them: dates as days, times as numbers, decimals as base64.

What a number means comes from the declared type and, where the message carries its schema, from the type's name there:

    date                      days since 1970, or yyyy-mm-dd
    timestamp, timestamp_ntz  io.debezium.time.Timestamp and org.apache.kafka.connect.data.Timestamp: milliseconds;
                              MicroTimestamp: microseconds; NanoTimestamp: nanoseconds; no schema: microseconds.
                              ZonedTimestamp and other texts: ISO. Nanoseconds that are no whole microseconds do not fit
    decimal                   org.apache.kafka.connect.data.Decimal: base64 with the schema's scale; an object with
                              `scale` and `value` (VariableScaleDecimal); else a number, as JSON number or text

Base64 without a schema is not told from other text and mostly no number, so it is rejected: send schemas, or set
`decimal.handling.mode=string`. All in Catalyst, without a function of ours in the rows' way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weever_stream.feeds.conversion import from_text, instant, let, wall_time

if TYPE_CHECKING:
    from pyspark.sql import Column

    from weever_stream.feeds.documents import Member
    from weever_stream.rules.types import ColumnType

__all__ = ["FIELDS", "field_of", "from_member", "needs_schema"]

FIELDS = "array<struct<field: string, name: string, parameters: map<string, string>>>"
"""A schema part's fields, as far as they matter here."""
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_MILLIS = ("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp")
_NANOS = "io.debezium.time.NanoTimestamp"
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_MICROS = 86_400_000_000
_CHUNK = 14
"""Hexadecimal digits that surely fit a long."""


def needs_schema(wanted: ColumnType) -> bool:
    """Whether the schema part says more about a value of this type than the value itself."""
    return wanted.kind in ("decimal", "timestamp", "timestamp_ntz")


def field_of(fields: Column, name: str) -> tuple[Column, Column]:
    """The name of a field's type in a schema part, and the type's scale; nulls where the schema does not tell."""
    field = F.get(fields, (F.array_position(fields["field"], name) - 1).cast("int"))
    return field["name"].alias("name"), field["parameters"]["scale"].alias("scale")


def from_member(member: Member, wanted: ColumnType, type_name: Column, scale: Column) -> Column:
    """A member of a row in its declared type, null where it does not fit."""
    plain = member.scalar(wanted)
    if wanted.kind == "decimal":
        return _decimal(member, wanted, type_name, scale, plain)
    if wanted.kind in ("timestamp", "timestamp_ntz"):
        number = F.try_variant_get(member.value, "$", "bigint")
        read = let(_micros(number, type_name), instant if wanted.kind == "timestamp" else wall_time)
        return F.when(member.json_type == "BIGINT", read).otherwise(plain)
    if wanted.kind == "date":
        days = F.try_variant_get(member.value, "$", "int")
        day = F.when(days.between(_FIRST_DAY, _LAST_DAY), F.date_from_unix_date(days))
        return F.when(member.json_type == "BIGINT", day).otherwise(plain)
    return plain


def _micros(number: Column, unit: Column) -> Column:
    """Microseconds since 1970 in the years 1 to 9999."""
    thousand = F.lit(1000).cast("bigint")
    micros = (
        F.when(unit.isin(*_MILLIS), F.try_multiply(number, thousand))
        .when(unit == _NANOS, F.when(number % thousand == 0, F.call_function("div", number, thousand)))
        .otherwise(number)
    )
    return F.when(micros.between(_FIRST_DAY * _DAY_MICROS, (_LAST_DAY + 1) * _DAY_MICROS - 1), micros)


def _decimal(member: Member, wanted: ColumnType, type_name: Column, scale: Column, plain: Column) -> Column:
    def written(digits: Column, scale: Column) -> Column:
        text = F.concat(
            let(digits, _unscaled), F.lit("E"), F.try_subtract(F.lit(0), scale.try_cast("int")).cast("string")
        )
        return let(text, lambda number: from_text(number, wanted))

    value = member.value
    loose = written(F.try_variant_get(value, "$.value", "string"), F.try_variant_get(value, "$.scale", "string"))
    return (
        F.when(type_name == _DECIMAL, written(value.cast("string"), scale))
        .when(member.json_type.startswith("OBJECT<"), loose)
        .otherwise(plain)
    )


def _unscaled(base64: Column) -> Column:
    """The digits of a big-endian two's complement of up to 16 bytes. A negative x is -(~x) - 1."""
    digits = F.hex(F.try_to_binary(base64, F.lit("base64")))
    negative = digits.rlike("^[89A-F]")
    filled = F.when(negative, F.lpad(digits, 32, "F")).otherwise(F.lpad(digits, 32, "0"))
    positive = F.when(negative, F.translate(filled, "0123456789ABCDEF", "FEDCBA9876543210")).otherwise(filled)

    def part(start: int, length: int, power: int) -> Column:
        chunk = F.conv(F.substring(positive, start, length), 16, 10).try_cast("decimal(20,0)")
        return F.try_multiply(chunk, F.lit(str(2**power)).cast("decimal(38,0)"))

    total = F.try_add(F.try_add(part(1, 4, 112), part(5, _CHUNK, 56)), part(5 + _CHUNK, _CHUNK, 0))
    # No unary minus: interpreted, that of decimals calls itself without end (Spark 4.2).
    signed = F.when(negative, F.try_subtract(F.lit(-1), total)).otherwise(total)
    return F.when(F.length(digits).between(2, 32), signed.cast("string"))
