"""How values are written as text, by type, and Arrow columns of text read as such values and back.

The patterns are those of every reader, on Spark too (`feeds.conversion`): a column declared under `columns:` takes the
same texts in a stream and in a table at rest, CSV included (`check.delimited`). Arrow's own casts take more (`0x1F` for
31) and less (`+1`, `2024-1-5`).
Cost: a pattern match and a cast a value.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

    from weever_stream.rules.types import ColumnType

__all__ = ["DATE", "NOT_FINITE", "NUMBER", "PLAINLY_TEXT", "TIME", "ZONE", "read_texts", "write_texts"]

NUMBER = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,6})?$"
NOT_FINITE = r"(?i)^([+-]?(inf|infinity)|nan)$"
DATE = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
TIME = r"[T ][0-9]{1,2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6}0*)?"
ZONE = r" ?(Z|UTC|GMT|[+-][0-9]{2}(:?[0-9]{2})?)"
PLAINLY_TEXT = frozenset({"boolean", "integer", "uint64", "decimal", "date", "timestamp_ntz"})
"""The types whose values have one plain text: a double has many, and an instant one for each zone."""
_BLANKS = "".join(map(chr, [*range(0x21), 0x7F]))
"""What Spark trims from whole numbers and booleans."""
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


def read_texts(texts: pa.Array, wanted: ColumnType) -> pa.Array:
    """The values that texts mean. Raises `ArrowInvalid` where one is not written as its type is."""
    reader = _READERS.get(wanted.kind)
    if reader is None:
        raise pa.ArrowNotImplementedError(f"texts of type {wanted}")
    return reader(texts.cast(pa.string()) if not pa.types.is_string(texts.type) else texts, wanted.to_arrow())


def write_texts(values: pa.Array) -> pa.Array:
    """The texts of values of a type that is `PLAINLY_TEXT`, as Spark writes them."""
    texts = values.cast(pa.string())
    if pa.types.is_timestamp(values.type):
        return pc.replace_substring_regex(texts, r"[.]?0+$", "") if values.type.unit != "s" else texts
    if pa.types.is_decimal(values.type) and pc.any(pc.match_substring(texts, "E")).as_py():
        return pa.array([None if text is None else f"{Decimal(text):f}" for text in texts.to_pylist()], pa.string())
    return texts


def _require(texts: pa.Array, pattern: str) -> None:
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        raise pa.ArrowInvalid("not written as its type is")


def _read_whole(texts: pa.Array, target: pa.DataType) -> pa.Array:
    plain = pc.replace_substring_regex(pc.utf8_trim(texts, _BLANKS), "[.]0+$", "")
    _require(plain, "^[+-]?[0-9]+$")
    return pc.replace_substring_regex(plain, "^[+]", "").cast(target)


def _read_unsigned(texts: pa.Array, target: pa.DataType) -> pa.Array:
    return _read_decimal(texts, pa.decimal128(38, 0)).cast(target)


def _read_decimal(texts: pa.Array, target: pa.DataType) -> pa.Array:
    _require(texts, NUMBER)
    # Zeros at the end are no digits that a decimal must have room for. Arrow wants one digit at least: `.0` is `0.`.
    plain = pc.replace_substring_regex(texts, r"^([^eE]*[.][0-9]*?)0+$", r"\1")
    return pc.replace_substring_regex(plain, "^([+-]?)[.]", r"\10.").cast(target)


def _read_float(texts: pa.Array, target: pa.DataType) -> pa.Array:
    special = pc.match_substring_regex(texts, NOT_FINITE)
    if pc.all(pc.or_(special, pc.match_substring_regex(texts, NUMBER))).as_py() is False:
        raise pa.ArrowInvalid("not a number")
    values = texts.cast(target)
    if pc.any(pc.and_(pc.is_inf(values), pc.invert(special))).as_py():
        raise pa.ArrowInvalid("beyond the largest double")
    return values


def _read_boolean(texts: pa.Array, target: pa.DataType) -> pa.Array:
    plain = pc.utf8_lower(pc.utf8_trim(texts, _BLANKS))
    yes, no = (pc.is_in(plain, pa.array(words, pa.string())) for words in (_TRUE, _FALSE))
    values = pc.if_else(yes, True, pc.if_else(no, False, None))
    if values.null_count > texts.null_count:
        raise pa.ArrowInvalid("not a boolean")
    return values


def _read_date(texts: pa.Array, target: pa.DataType) -> pa.Array:
    _require(texts, f"^{DATE}$")
    return _padded(texts).cast(target)


def _read_wall_time(texts: pa.Array, target: pa.DataType) -> pa.Array:
    _require(texts, f"^{DATE}({TIME})?$")
    return _padded(texts).cast(target)


def _read_instant(texts: pa.Array, target: pa.DataType) -> pa.Array:
    _require(texts, f"^{DATE}{TIME}{ZONE}$")
    zoned = pc.replace_substring_regex(texts, " ?(UTC|GMT|Z)$", "Z")
    return _padded(pc.replace_substring_regex(zoned, " ([+-][0-9:]+)$", r"\1")).cast(target)


def _padded(texts: pa.Array) -> pa.Array:
    """Dates and times with two digits for months, days and hours, and six at most after the second: Arrow's form."""
    for pattern, full in (
        (r"^([0-9]{4})-([0-9])-", r"\1-0\2-"),
        (r"^([0-9]{4}-[0-9]{2})-([0-9])($|[T ])", r"\1-0\2\3"),
        (r"^([0-9-]{10}[T ])([0-9]):", r"\10\2:"),
        (r"([.][0-9]{6})0+", r"\1"),
    ):
        texts = pc.replace_substring_regex(texts, pattern, full)
    return texts


def _read_time(texts: pa.Array, target: pa.DataType) -> pa.Array:
    _require(texts, "^[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?$")
    return pc.binary_join_element_wise("1970-01-01", texts, " ").cast(pa.timestamp("us")).cast(target)


_READERS: dict[str, Callable[[pa.Array, pa.DataType], pa.Array]] = {
    "integer": _read_whole,
    "uint64": _read_unsigned,
    "decimal": _read_decimal,
    "float": _read_float,
    "boolean": _read_boolean,
    "date": _read_date,
    "timestamp_ntz": _read_wall_time,
    "timestamp": _read_instant,
    "time": _read_time,
}
