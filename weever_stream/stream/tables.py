"""A whole table as a Spark DataFrame: files of a format, a Delta table, or a name of the catalog.

Paths are Spark's: folders, globs, and whatever its file systems reach. Types are those of the files; a CSV has a header
and Spark tells its types by looking at all values, which is not in every case what `weever check` makes of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from weever_stream.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Format", "read"]

Format = Literal["parquet", "csv", "json", "orc", "delta", "table"]


def read(spark: SparkSession, given: Sequence[str], form: Format, null_value: str | None = None) -> DataFrame:
    """The table. Raises `DataError` where there is none."""
    from pyspark.errors import AnalysisException

    if form in ("delta", "table") and len(given) > 1:
        raise DataError(f"{len(given)} tables are given", hint="rules are found in one at a time")
    options = {}
    if form == "csv":
        # Quotes and line breaks by RFC 4180, as everywhere else.
        options = {
            "header": "true",
            "inferSchema": "true",
            "enforceSchema": "false",
            "escape": '"',
            "multiLine": "true",
        }
        options |= {} if null_value is None else {"nullValue": null_value}
    try:
        if form == "table":
            return spark.table(given[0])
        paths = given[0] if form == "delta" else list(given)
        return spark.read.format(form).options(**options).load(paths)
    except AnalysisException as error:
        said = str(error).splitlines()[0][:300]
        raise DataError(
            f"Spark cannot read {', '.join(given)}: {said}", hint=f"is that the path, and is it {form}?"
        ) from None
