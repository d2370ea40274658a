"""Spark's types and weever's."""

from __future__ import annotations

import pytest

from weever_stream.errors import DataError
from weever_stream.feeds.types import schema_of_spark, spark_type, type_of_spark
from weever_stream.rules.types import ColumnType, type_of_name

COMPARABLE = {
    "boolean": "boolean", "tinyint": "bigint", "smallint": "bigint", "int": "bigint", "bigint": "bigint",
    "float": "double", "double": "double", "decimal(38,10)": "decimal(38,10)", "date": "date", "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz", "string": "string", "varchar(10)": "string", "char(3)": "string",
    "interval day to second": "duration",
}  # fmt: skip
SPELLED = {
    "binary": "binary", "array<int>": "array<int>", "struct<a:int>": "struct<a:int>", "map<string,int>": "map<string,int>",
    "variant": "variant", "interval year to month": "interval year to month",
    "string collate UNICODE_CI": "string collate UNICODE_CI",
}  # fmt: skip


def test_every_type_of_spark_has_one_of_ours_or_its_spelling(spark):
    columns = ", ".join(f"`{i}.x` {kind}" for i, kind in enumerate((*COMPARABLE, *SPELLED)))
    from pyspark.sql.types import StructType

    found = list(schema_of_spark(StructType.fromDDL(columns)).values())
    assert [str(kind) for kind in found] == [*COMPARABLE.values(), *SPELLED.values()]
    assert all(isinstance(kind, ColumnType) for kind in found[: len(COMPARABLE)])
    assert all(isinstance(kind, str) for kind in found[len(COMPARABLE) :])


@pytest.mark.parametrize(
    "name", ["boolean", "bigint", "double", "decimal(10,2)", "date", "timestamp", "timestamp_ntz", "string"]
)
def test_a_declared_type_is_the_type_that_comes_back(name):
    assert type_of_spark(spark_type(type_of_name(name))) == type_of_name(name)


def test_times_of_day_are_refused():
    with pytest.raises(DataError, match="cannot read columns of type time"):
        spark_type(type_of_name("time"))
