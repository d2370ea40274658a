"""Spark's column types as weever's, and back.

Every Spark type has one answer: a `ColumnType` where values compare exactly as Spark compares them, else the type's
spelling, which rules refuse by name. Texts with a collation are spelled: weever compares texts by their bytes. What a
rule file declares becomes the widest Spark type of its kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as spark_types

from weever_stream.errors import DataError
from weever_stream.rules.types import ColumnType

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from weever_stream.rules.types import Kind

__all__ = ["schema_of_spark", "spark_type", "type_of_spark"]

_BINARY_ORDER = "UTF8_BINARY"
_KINDS: dict[type[DataType], Kind] = {
    spark_types.BooleanType: "boolean",
    spark_types.ByteType: "integer",
    spark_types.ShortType: "integer",
    spark_types.IntegerType: "integer",
    spark_types.LongType: "integer",
    spark_types.FloatType: "float",
    spark_types.DoubleType: "float",
    spark_types.DateType: "date",
    spark_types.TimestampType: "timestamp",
    spark_types.TimestampNTZType: "timestamp_ntz",
    spark_types.DayTimeIntervalType: "duration",  # a whole number of microseconds
    spark_types.CharType: "string",
    spark_types.VarcharType: "string",
}
_WIDEST: dict[Kind, DataType] = {
    "boolean": spark_types.BooleanType(),
    "integer": spark_types.LongType(),
    "uint64": spark_types.DecimalType(20, 0),
    "float": spark_types.DoubleType(),
    "date": spark_types.DateType(),
    "timestamp": spark_types.TimestampType(),
    "timestamp_ntz": spark_types.TimestampNTZType(),
    "duration": spark_types.DayTimeIntervalType(),
    "string": spark_types.StringType(),
}


def type_of_spark(data_type: DataType) -> ColumnType | str:
    """The comparable type of a Spark column, or the spelling of one that cannot be compared."""
    if isinstance(data_type, spark_types.DecimalType):
        return ColumnType("decimal", data_type.precision, data_type.scale)
    if kind := _KINDS.get(type(data_type)):
        return ColumnType(kind)
    if isinstance(data_type, spark_types.StringType):
        collation = getattr(data_type, "collation", _BINARY_ORDER)
        return ColumnType("string") if collation == _BINARY_ORDER else f"string collate {collation}"
    return data_type.simpleString()


def schema_of_spark(schema: StructType) -> dict[str, ColumnType | str]:
    """The column types of a DataFrame."""
    return {field.name: type_of_spark(field.dataType) for field in schema.fields}


def spark_type(column_type: ColumnType) -> DataType:
    """The Spark type in which a declared column is read: bigint for every integer, double for every float."""
    if column_type.kind == "decimal":
        if column_type.precision > 38:
            raise DataError(f"Spark has no {column_type}", hint="decimals have at most 38 digits")
        return spark_types.DecimalType(column_type.precision, column_type.scale)
    if column_type.kind not in _WIDEST:
        raise DataError(
            f"a stream cannot read columns of type {column_type}",
            hint="declare it as string: times of day written alike sort alike",
        )
    return _WIDEST[column_type.kind]
