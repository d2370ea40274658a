"""Values in the types that a rule file declares: exact, or null where a value does not fit.

Spark's own casts say too much yes for a watch over data: `2024-01-05 junk` and `epoch` are dates to them, `5d` is a
number, `1.239` becomes 1.24, and a timestamp without a zone takes the session's. Here a text must be written as its
type is, nothing is rounded, and what does not fit is null, which `readings` turns into a reject. Costs a pattern match
and a cast a value, all in Catalyst.

    integer         digits with a sign; a fraction of zeros is allowed
    decimal(p,s)    plain or scientific notation; more than s significant decimals do not fit
    float           any number, NaN, Infinity; a number beyond the largest double does not fit
    boolean         true, false, t, f, yes, no, y, n, 1, 0
    date            yyyy-mm-dd
    timestamp       yyyy-mm-dd hh:mm:ss with up to six decimals and a zone: Z, UTC or an offset
    timestamp_ntz   the same without a zone; a date alone is its midnight
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weever_stream.errors import DataError
from weever_stream.feeds.types import spark_type
from weever_stream.index.casting import NUMERIC
from weever_stream.index.spelling import DATE, NOT_FINITE, NUMBER, PLAINLY_TEXT, TIME, ZONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from weever_stream.rules.types import ColumnType

__all__ = ["from_text", "instant", "let", "recast", "wall_time", "whole"]

_PARTS = r"^[+-]?([0-9]*)[.]?([0-9]*)(?:[eE]([+-]?[0-9]{1,6}))?$"
_LARGEST_UINT64 = "18446744073709551615"


def from_text(text: Column, wanted: ColumnType) -> Column:
    """The value that a text means in the wanted type; null where it is not written as that type is."""
    if wanted.kind == "string":
        return text
    value = text.try_cast(spark_type(wanted))
    if wanted.kind == "boolean":
        return value
    if wanted.kind == "integer":
        # Spark allows a sign and blanks here, and nothing else that is not a whole number.
        return F.coalesce(value, F.regexp_replace(text, r"[.]0+$", "").try_cast("bigint"))
    if wanted.kind in ("decimal", "uint64"):
        rare = let(text, lambda number: F.when(_scientific(number, wanted.scale), number.try_cast(spark_type(wanted))))
        held = F.when(_plain(text, wanted.scale), value).otherwise(rare)
        return _unsigned(held) if wanted.kind == "uint64" else held
    if wanted.kind == "float":
        finite = text.rlike(NUMBER) & (F.abs(value) != float("inf"))
        return F.when(finite | text.rlike(NOT_FINITE), value)
    written = {"date": DATE, "timestamp": DATE + TIME + ZONE, "timestamp_ntz": f"{DATE}({TIME})?"}
    return F.when(text.rlike(f"^{written[wanted.kind]}$"), value)


def _plain(number: Column, scale: int) -> Column:
    """Whether a text is a number in plain notation with at most so many significant decimals."""
    if not scale:
        return number.rlike(r"^[+-]?[0-9]+([.]0*)?$")
    return number.rlike(rf"^[+-]?([0-9]+([.][0-9]{{0,{scale}}}0*)?|[.][0-9]{{1,{scale}}}0*)$")


def _scientific(number: Column, scale: int) -> Column:
    """Whether a text is a number with at most so many significant decimals once its exponent is applied."""
    fraction = F.regexp_extract(number, _PARTS, 2)
    digits = F.concat(F.regexp_extract(number, _PARTS, 1), fraction)
    significant = F.rtrim(digits, F.lit("0"))
    exponent = F.coalesce(F.regexp_extract(number, _PARTS, 3).try_cast("int"), F.lit(0))
    needed = F.length(fraction) - (F.length(digits) - F.length(significant)) - exponent
    return number.rlike(NUMBER) & ((needed <= scale) | (significant == ""))


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """A value used several times, in a rare case. Spark interprets this instead of generating code for it: code that
    is hardly run would make the method of the whole stage too large for the JVM's compiler.
    """
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _unsigned(value: Column) -> Column:
    return F.when(value.between(F.lit(0), F.lit(_LARGEST_UINT64).cast("decimal(20,0)")), value)


def recast(value: Column, found: ColumnType | str, wanted: ColumnType, name: str) -> Column:
    """A typed value in another type, null where that would change it. Raises where no cast is exact by nature."""
    if isinstance(found, str):
        raise DataError(
            f"column {name} is of type {found} and cannot become a {wanted}", hint="change its type under `columns:`"
        )
    if found == wanted or (found.kind == wanted.kind and wanted.kind != "decimal"):
        return value
    if found.kind == "string":
        return from_text(value, wanted)
    if {found.kind, wanted.kind} <= NUMERIC:
        cast = value.try_cast(spark_type(wanted))
        if wanted.kind == "float":
            # Compared as doubles they would be equal; cast back, a value that was rounded differs. But for 2^63, which
            # Spark casts to the largest bigint.
            same = cast.try_cast(spark_type(found)) == value
            return F.when(same & (cast < 2.0**63) if found.kind == "integer" else same, cast)
        # Compared in their common type: what was rounded or cut off differs.
        held = F.when(cast == value, cast)
        return _unsigned(held) if wanted.kind == "uint64" else held
    if (found.kind, wanted.kind) == ("date", "timestamp_ntz"):
        return value.cast("timestamp_ntz")
    if wanted.kind == "string" and found.kind in PLAINLY_TEXT:
        return value.cast("string")
    raise DataError(
        f"column {name} is of type {found} and cannot become a {wanted} without loss",
        hint="change its type under `columns:`, or cast it in the source",
    )


def whole(text: Column) -> Column:
    """The 64-bit integer that a text of digits is, else null."""
    return F.when(text.rlike("^-?[0-9]{1,19}$"), text.try_cast("bigint"))


def instant(micros: Column) -> Column:
    """A timestamp from microseconds since 1970 in UTC."""
    return F.timestamp_micros(micros)


def wall_time(micros: Column) -> Column:
    """A zoneless timestamp from microseconds since 1970. The session's zone plays no part."""
    return F.timestamp_add("MICROSECOND", micros, F.lit("1970-01-01 00:00:00").cast("timestamp_ntz"))
