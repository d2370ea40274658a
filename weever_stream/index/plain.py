"""Columns in forms that Arrow can take from, filter and cast.

Some forms are legal in Arrow but few of its functions know them: views of text, dictionaries of views or of nothing,
dates in milliseconds, decimals with a negative scale. Each has a plain form that holds the same values.
Cost: nothing for a plain column, one cast for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from weever_stream.errors import DataError
from weever_stream.rules.types import type_of_arrow

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_DIGITS", "decimal_of", "decoded", "first_misfit", "plain_column", "plain_table", "plain_type"]

MOST_DIGITS = 76
"""The most that a decimal can have."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The plain form of a type: itself, for most."""
    if pa.types.is_dictionary(kind):
        value = plain_type(kind.value_type)
        return kind if value == kind.value_type and not pa.types.is_null(value) else value
    if str(kind) == "string_view":
        return pa.large_string()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_decimal(kind) and kind.scale < 0 and kind.precision - kind.scale <= MOST_DIGITS:
        return decimal_of(kind.precision - kind.scale, 0)
    return kind


def decimal_of(precision: int, scale: int) -> pa.DataType:
    """The decimal type with this number of digits."""
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def plain_table(table: pa.Table, source: str, before: int = 0) -> pa.Table:
    """The table with every column in its plain form. Raises `DataError` for a date that is not at midnight.

    `before` is how many rows of the source come before these.
    """
    for at, name in enumerate(table.column_names):
        column = table.column(at)
        if plain_type(column.type) != column.type:
            table = table.set_column(at, name, plain_column(column, name, source, before))
    return table


def plain_column(column: pa.ChunkedArray, name: str, source: str, before: int = 0) -> pa.ChunkedArray:
    """A column in its plain form."""
    target = plain_type(column.type)
    if target == column.type:
        return column
    try:
        return pa.chunked_array([decoded(chunk).cast(target) for chunk in column.chunks], target)
    except pa.ArrowInvalid:
        row = first_misfit(column, lambda chunk: decoded(chunk).cast(target))
        raise DataError(
            f"{source}: column {name}: the value in row {before + row + 1} is not a {type_of_arrow(target)}",
            hint="a date64 must be at midnight: make it a timestamp, or cut the time of day off",
        ) from None


def decoded(array: pa.Array) -> pa.Array:
    """A dictionary's values. Arrow cannot take views, so their dictionary is made plain first."""
    if not pa.types.is_dictionary(array.type):
        return array
    if pa.types.is_null(array.type.value_type):
        return pa.nulls(len(array))
    values = array.dictionary.cast(plain_type(array.type.value_type))
    return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()


def first_misfit(column: pa.ChunkedArray, convert: Callable[[pa.Array], pa.Array]) -> int:
    """The first row that cannot be converted, by halving."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            for chunk in column.slice(low, middle - low).chunks:
                convert(chunk)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low
