"""Column types that rules can compare, and the common type in which two of them are compared.

The laws are Spark SQL's (ANSI): integers and decimals compare exactly, anything with a float compares as doubles,
dates compare with zoneless timestamps at midnight, and a string compares only with a string. A timestamp with a zone
is an instant and never meets one without. Struct, array, map, binary and the like cannot be compared at all. A column
that has no value yet, and so no type, compares with everything: null satisfies no comparison.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from weever_stream.errors import TypeMismatchError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

__all__ = ["ColumnType", "Kind", "Schema", "common_type", "schema_of", "type_of_arrow", "type_of_name"]

Kind = Literal[
    "boolean",
    "integer",
    "uint64",
    "decimal",
    "float",
    "date",
    "time",
    "timestamp",
    "timestamp_ntz",
    "duration",
    "string",
    "null",
]
_CUT_OFF = "inside braces a comma ends the value: put the type in quotes, 'decimal(10,2)'"
Schema: TypeAlias = "Mapping[str, ColumnType | str]"
"""Column name to its type, or to the spelling of a type that rules cannot compare."""


@dataclass(frozen=True)
class ColumnType:
    """A comparable type. `precision` and `scale` matter for decimals, `unit` for times ("s", "ms", "us", "ns")."""

    kind: Kind
    precision: int = 0
    scale: int = 0
    unit: str = "us"

    def __str__(self) -> str:
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return {"integer": "bigint", "float": "double"}.get(self.kind, self.kind)

    def to_arrow(self) -> pa.DataType:
        """The widest Arrow type of this kind: what rows given as dicts and CSV columns are read as."""
        import pyarrow as pa

        if self.kind == "decimal":
            return pa.decimal128(self.precision, self.scale) if self.precision <= 38 else pa.decimal256(76, self.scale)
        return {
            "boolean": pa.bool_(),
            "integer": pa.int64(),
            "uint64": pa.uint64(),
            "float": pa.float64(),
            "date": pa.date32(),
            "time": pa.time64("us"),
            "timestamp": pa.timestamp(self.unit, "UTC"),
            "timestamp_ntz": pa.timestamp(self.unit),
            "duration": pa.duration(self.unit),
            "string": pa.string(),
            "null": pa.null(),
        }[self.kind]


_NAMES: dict[str, Kind] = {
    "boolean": "boolean", "bool": "boolean",
    "tinyint": "integer", "smallint": "integer", "int": "integer", "integer": "integer", "bigint": "integer",
    "long": "integer", "short": "integer", "byte": "integer", "int8": "integer", "int16": "integer",
    "int32": "integer", "int64": "integer", "uint8": "integer", "uint16": "integer", "uint32": "integer",
    "uint64": "uint64",
    "float": "float", "double": "float", "real": "float", "float16": "float", "float32": "float", "float64": "float",
    "date": "date", "date32": "date", "time": "time",
    "timestamp": "timestamp", "timestamp_ltz": "timestamp", "timestamptz": "timestamp",
    "timestamp_ntz": "timestamp_ntz", "datetime": "timestamp_ntz",
    "string": "string", "varchar": "string", "char": "string", "text": "string", "utf8": "string",
}  # fmt: skip
_DECIMAL = re.compile(r"(?:decimal|numeric|dec)\s*(?:\(\s*([0-9]{1,9})\s*(?:,\s*([0-9]{1,9})\s*)?\))?")
_SIZED_TEXT = re.compile(r"(?:var)?char\s*\(\s*\d+\s*\)")


def type_of_name(spelling: str) -> ColumnType:
    """The type that a rule file's `columns:` names, in Spark's or Arrow's spelling: `bigint`, `decimal(10,2)`, …"""
    name = spelling.strip().lower()
    if kind := _NAMES.get(name):
        return ColumnType(kind)
    if decimal := _DECIMAL.fullmatch(name):
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return ColumnType("decimal", precision, scale)
        raise TypeMismatchError(f"{_cut(spelling)} is not a decimal type", hint="decimal(p,s) with 1 <= s <= p <= 38")
    if _SIZED_TEXT.fullmatch(name):
        return ColumnType("string")
    raise TypeMismatchError(
        f"{_cut(spelling)!r} is not a type that rules can compare",
        hint=_CUT_OFF
        if re.fullmatch(r"(decimal|numeric)\(\d+", name)
        else did_you_mean(name, _NAMES)
        or "one of " + ", ".join(sorted({str(ColumnType(kind)) for kind in _NAMES.values()} | {"decimal(p,s)"})),
    )


def _cut(spelling: str) -> str:
    return spelling if len(spelling) <= 80 else f"{spelling[:80]}…"


def type_of_arrow(arrow: pa.DataType) -> ColumnType | str:
    """The comparable type of an Arrow column, or the spelling of one that cannot be compared."""
    import pyarrow.types as is_a

    if is_a.is_dictionary(arrow):
        return type_of_arrow(arrow.value_type)
    if is_a.is_null(arrow):
        return ColumnType("null")
    if is_a.is_boolean(arrow):
        return ColumnType("boolean")
    if is_a.is_uint64(arrow):
        return ColumnType("uint64")
    if is_a.is_integer(arrow):
        return ColumnType("integer")
    if is_a.is_floating(arrow):
        return ColumnType("float")
    if is_a.is_decimal(arrow):
        return ColumnType("decimal", arrow.precision, arrow.scale)
    if is_a.is_date(arrow):
        return ColumnType("date")
    if is_a.is_time(arrow):
        return ColumnType("time", unit=arrow.unit)
    if is_a.is_timestamp(arrow):
        return ColumnType("timestamp" if arrow.tz else "timestamp_ntz", unit=arrow.unit)
    if is_a.is_duration(arrow):
        return ColumnType("duration", unit=arrow.unit)
    if is_a.is_string(arrow) or is_a.is_large_string(arrow) or str(arrow) == "string_view":
        return ColumnType("string")
    return str(arrow)


def schema_of(arrow: pa.Schema) -> dict[str, ColumnType | str]:
    """The column types of an Arrow schema."""
    return {field.name: type_of_arrow(field.type) for field in arrow}


_UNITS = ("s", "ms", "us", "ns")
_DIGITS: dict[str, int] = {"integer": 19, "uint64": 20}


def common_type(one: ColumnType, other: ColumnType) -> ColumnType | None:
    """The type in which the two are compared, or None where they cannot be."""
    if one.kind == other.kind:
        if one.kind == "decimal":
            return _wider_decimal(one, other)
        unit = max(one.unit, other.unit, key=_UNITS.index)
        return ColumnType(one.kind, unit=unit)
    kinds = {one.kind, other.kind}
    if "null" in kinds:
        return other if one.kind == "null" else one
    if "float" in kinds and kinds <= {"float", "integer", "uint64", "decimal"}:
        return ColumnType("float")
    if kinds <= {"integer", "uint64", "decimal"}:
        return _wider_decimal(_as_decimal(one), _as_decimal(other))
    if kinds == {"date", "timestamp_ntz"}:
        return one if one.kind == "timestamp_ntz" else other
    return None


def _as_decimal(numeric: ColumnType) -> ColumnType:
    return numeric if numeric.kind == "decimal" else ColumnType("decimal", _DIGITS[numeric.kind], 0)


def _wider_decimal(one: ColumnType, other: ColumnType) -> ColumnType:
    """A decimal that holds every value of both, so that nothing is rounded. `bind` refuses more than 76 digits."""
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    return ColumnType("decimal", whole + scale, scale)
