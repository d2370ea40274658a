"""A column declared under `columns:` takes the same values in a stream as in a table at rest: the cases are shared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.index.test_casting import FITTING, NOT_A_VALUE, NOT_WITHOUT_LOSS
from weever_stream.errors import DataError
from weever_stream.feeds.conversion import recast
from weever_stream.rules.types import type_of_arrow, type_of_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_known_to_spark(kind: pa.DataType, declared: str = "int") -> bool:
    """Whether Spark has the type. Wall times in seconds are shifted to the session zone when a frame is made of them."""
    of_its_own = kind in (pa.timestamp("s"), pa.float16(), pa.uint64(), pa.null()) or pa.types.is_dictionary(kind)
    return not of_its_own and not pa.types.is_time(kind) and str(kind)[:13] != "timestamp[ns," and declared != "time"


def test_a_declared_type_means_in_a_stream_what_it_means_at_rest(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    cases: list[tuple[pa.DataType, Any, str, Any]] = [case for case in FITTING if is_known_to_spark(case[0], case[2])]
    cases += [
        (kind, value, declared, None) for kind, (value,), declared in NOT_A_VALUE if is_known_to_spark(kind, declared)
    ]
    assert len(cases) > 50
    row = pa.table({f"c{at}": pa.array([value], kind) for at, (kind, value, _, _) in enumerate(cases)})
    columns = []
    for at, (kind, _, declared, _) in enumerate(cases):
        found, wanted = type_of_arrow(kind), type_of_name(declared)
        read = recast(F.col(f"c{at}"), found, wanted, "x") if found != wanted else F.col(f"c{at}")
        columns.append((F.unix_micros(read) if declared == "timestamp" else read).alias(f"c{at}"))
    (found_row,) = spark.createDataFrame(row).select(columns).collect()
    expected = [
        int(value.timestamp() * 1_000_000) if declared == "timestamp" and value is not None else value
        for _, _, declared, value in cases
    ]
    differ = [(case, got) for case, got, want in zip(cases, found_row, expected, strict=True) if got != want]
    assert differ == []


@pytest.mark.parametrize(("kind", "declared"), [(kind, declared) for kind, _, declared in NOT_WITHOUT_LOSS], ids=str)
def test_what_is_refused_at_rest_is_refused_in_a_stream(spark: SparkSession, kind: pa.DataType, declared: str) -> None:
    from pyspark.sql import functions as F

    with pytest.raises(DataError, match="cannot become a"):
        recast(F.col("x"), type_of_arrow(kind), type_of_name(declared), "x")
