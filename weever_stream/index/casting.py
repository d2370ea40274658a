"""Columns in the types that a rule file gives them under `columns:`, and values in the type of a stored column.

A value that does not fit is refused with its column and row: nothing becomes null, and nothing is rounded, cut off or
shifted. Whole numbers are no times, since nothing says their unit; a time without a zone is no instant. The table of
what can become what is that of the stream (`feeds.conversion.recast`):

    from text              every type, written as `spelling` says
    from numbers           every number type, where no two values would become one
    from dates             timestamps without a zone, as midnight
    to text                booleans, whole numbers, decimals, dates, timestamps without a zone

Cost: one Arrow cast a column, one more back for numbers, and a search by halving where it fails.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from weever_stream.errors import DataError
from weever_stream.index.plain import first_misfit, plain_column
from weever_stream.index.spelling import PLAINLY_TEXT, read_texts, write_texts
from weever_stream.rules.types import ColumnType, type_of_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["NUMERIC", "fit", "typed"]

NUMERIC = frozenset({"integer", "uint64", "decimal", "float"})


def typed(table: pa.Table, types: Mapping[str, ColumnType], source: str, before: int = 0) -> pa.Table:
    """The table with some columns in the given types. Raises `DataError` at the first value that does not fit.

    `before` is how many rows of the source come before these.
    """
    for at, name in enumerate(table.column_names):
        wanted, column = types.get(name), table.column(at)
        if wanted is None or type_of_arrow(column.type) == wanted:
            continue
        convert = _conversion(type_of_arrow(column.type), wanted)
        if convert is None:
            raise DataError(
                f"{source}: column {name} is of type {column.type} and cannot become a {wanted} without loss",
                hint=_hint(type_of_arrow(column.type), wanted),
            )
        column = plain_column(column, name, source, before)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        try:
            chunks = [convert(chunk) for chunk in column.chunks]
        except pa.ArrowInvalid:
            row = first_misfit(column, convert)
            raise DataError(
                f"{source}: column {name}: the value in row {before + row + 1} is not a {wanted}",
                hint="fix the value, or change the type under `columns:`",
            ) from None
        table = table.set_column(at, name, pa.chunked_array(chunks, wanted.to_arrow()))
    return table


def _conversion(found: ColumnType | str, wanted: ColumnType) -> Callable[[pa.Array], pa.Array] | None:
    """How values of one type become values of another; None where that would change their meaning."""
    if isinstance(found, str):
        return None
    kinds, target = {found.kind, wanted.kind}, wanted.to_arrow()
    if found.kind == "string":
        return partial(read_texts, wanted=wanted) if wanted.kind != "duration" else None
    if kinds <= NUMERIC:
        return lambda values: fit(values, target)
    if len(kinds) == 1 or found.kind == "null" or (found.kind, wanted.kind) == ("date", "timestamp_ntz"):
        return lambda values: values.cast(target)
    return write_texts if wanted.kind == "string" and found.kind in PLAINLY_TEXT else None


def _hint(found: ColumnType | str, wanted: ColumnType) -> str:
    kind = found if isinstance(found, str) else found.kind
    if kind in NUMERIC and wanted.kind in ("date", "time", "timestamp", "timestamp_ntz"):
        return "nothing says the unit of the numbers: convert them in the source, or compare them as numbers"
    if {kind, wanted.kind} == {"timestamp", "timestamp_ntz"}:
        return "one has a time zone and the other has none: convert it in the source"
    return "change its type under `columns:`, or cast it in the source"


def fit(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Numbers in another number type. Raises `ArrowInvalid` where a value would not come back as it was.

    So a decimal may become the nearest double as long as no digit is lost: 0.30 may, and 2^53 + 1 may not.
    """
    if pa.types.is_float16(values.type):
        values = values.cast(pa.float32())  # Arrow has few casts from half floats
    fitted = _cast_number(values, target)
    if pa.types.is_floating(values.type) or pa.types.is_floating(target):
        same = pc.equal(_cast_number(fitted, values.type), values)
        if pa.types.is_floating(values.type):
            same = pc.or_(same, pc.is_nan(values))
        if pc.all(same).as_py() is False:
            raise pa.ArrowInvalid("a value would change")
    return fitted


def _cast_number(values: pa.Array, target: pa.DataType) -> pa.Array:
    """A cast that is right or raises, but for digits that do not fit a double."""
    if pa.types.is_decimal(target) and pa.types.is_integer(values.type):
        # Arrow asks for room for every number of the type, not for those that are there.
        values = values.cast(pa.decimal128(20, 0))
    elif {pa.types.is_decimal(values.type), pa.types.is_decimal(target)} == {True, False} and (
        pa.types.is_floating(values.type) or pa.types.is_floating(target)
    ):
        # Between decimals and doubles Arrow's own cast is off by one ulp now and then; text is right, as in Spark.
        values = values.cast(pa.string())
    return values.cast(target, safe=not pa.types.is_floating(target))
