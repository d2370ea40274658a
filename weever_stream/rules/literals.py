"""Constants in rules: reading them, writing them, and giving them the type of the column they meet.

Numbers are exact (an int, or a Decimal); text stays text until a column's type is known. A timestamp is an instant
only if it names its zone (`Z` or an offset): a zoneless one is never taken for an instant, since the answer would
depend on the session. `double 'NaN'`, `double 'Infinity'` and `double '-Infinity'` are the floats without digits.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

from weever_stream.errors import RuleError, TypeMismatchError
from weever_stream.rules.types import ColumnType, common_type

if TYPE_CHECKING:
    from weever_stream.rules.model import Literals

__all__ = [
    "MAX_DIGITS",
    "coerce",
    "normalized",
    "read_number",
    "read_text",
    "read_typed",
    "type_of_literal",
    "write_literal",
]

MAX_DIGITS = 76
MAX_EXPONENT = 400
MAX_NUMBER = 1_000
"""Characters of a number. The longest double has 767 digits."""
_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_CLOCK = r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?"
_TIME = re.compile(_CLOCK)
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](" + _CLOCK + r")\s*(Z|UTC|[-+]\d\d(?::?\d\d)?)?", re.IGNORECASE)
_FLOATS = {
    "nan": math.nan,
    "infinity": math.inf, "+infinity": math.inf, "inf": math.inf, "+inf": math.inf,
    "-infinity": -math.inf, "-inf": -math.inf,
}  # fmt: skip
_DOUBLE = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d{1,3})?", re.IGNORECASE)
_ZONE_HINT = "say which instant is meant: end it with Z or an offset, as in '2024-01-31 10:00:00Z'"


def read_number(text: str) -> int | Decimal:
    """An exact number: an int where it is whole."""
    _refuse_long(text)
    number = normalized(Decimal(text))
    assert isinstance(number, int | Decimal)
    return number


def _refuse_long(text: str) -> None:
    """Reading a number takes time that grows faster than its length, so the length is bounded."""
    if len(text) > MAX_NUMBER:
        raise RuleError(
            f"the number is {len(text):,} characters long; {MAX_NUMBER:,} are the limit", hint="write fewer digits"
        )


def read_text(text: str) -> str:
    """The text inside single quotes."""
    return text[1:-1].replace("''", "'")


def read_typed(text: str) -> Literals:
    """The value of `date '…'`, `timestamp '…'`, `timestamp_ntz '…'`, `time '…'` or `double '…'`."""
    kind, _, rest = text.partition("'")
    content = rest[: rest.index("'")].strip()
    kind = kind.strip(" (\t\r\n").lower()
    value: Literals | None
    if kind == "date":
        value = _read_date(content)
    elif kind == "time":
        value = _read_time(content)
    elif kind == "double":
        value = _read_double(content)
    else:
        value = _read_moment(content)
        if kind == "timestamp_ntz" and isinstance(value, datetime) and value.tzinfo is not None:
            raise RuleError("a timestamp_ntz has no zone", hint="write timestamp instead of timestamp_ntz")
    if value is None:
        raise RuleError(f"'{content}' is not a {kind}", hint=f"write it as {_SHAPES[kind]}")
    return value


_SHAPES = {
    "date": "date '2024-01-31'",
    "time": "time '10:00:00'",
    "timestamp": "timestamp '2024-01-31 10:00:00Z'",
    "timestamp_ntz": "timestamp_ntz '2024-01-31 10:00:00'",
    "double": "double 'NaN', double 'Infinity', double '-Infinity' or double '1.5'",
}


def _read_double(text: str) -> float | None:
    if (special := _FLOATS.get(text.lower())) is not None:
        return special
    _refuse_long(text)
    value = float(text) if _DOUBLE.fullmatch(text) else None
    if value is not None and math.isinf(value):
        raise RuleError("the number is too large for a double", hint="write double 'Infinity'")
    return value


def _read_date(text: str) -> date | None:
    if not (parts := _DATE.fullmatch(text)):
        return None
    try:
        return date(int(parts[1]), int(parts[2]), int(parts[3]))
    except ValueError:
        return None


def _read_time(text: str) -> time | None:
    parts = _TIME.fullmatch(text)
    if not parts or len(parts[4] or "") > 6:
        return None
    try:
        return time(int(parts[1]), int(parts[2]), int(parts[3] or 0), int((parts[4] or "").ljust(6, "0")))
    except ValueError:
        return None


def _read_moment(text: str) -> datetime | None:
    """A timestamp: aware and in UTC if it names a zone, else naive. A bare date is its midnight."""
    if day := _read_date(text):
        return datetime(day.year, day.month, day.day)
    if not (parts := _TIMESTAMP.fullmatch(text)):
        return None
    on, at, zone = _read_date(parts[1]), _read_time(parts[2]), (parts[7] or "").upper()
    if on is None or at is None:
        return None
    moment = datetime.combine(on, at)
    if not zone:
        return moment
    offset = "+00:00" if zone in ("Z", "UTC") else zone.replace(":", "")
    if offset != "+00:00":
        offset = f"{offset[:3]}:{offset[3:] or '00'}"
    try:
        return datetime.fromisoformat(f"{moment.isoformat()}{offset}").astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def normalized(value: Literals) -> Literals:
    """One spelling for equal values: 1.00 is 1, 10:00+02:00 is 08:00Z, -0.0 is 0.0, every NaN is one NaN.

    Raises `RuleError` for a number that is not finite, or out of the range that rules can write.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _normalized_number(Decimal(value)) if abs(value) >= 10**MAX_DIGITS else value
    if isinstance(value, Decimal):
        return _normalized_number(value)
    if isinstance(value, float):
        return math.nan if math.isnan(value) else value + 0.0
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc)
    return value


def _normalized_number(value: Decimal) -> int | Decimal:
    if not value.is_finite():
        raise RuleError("a number must be finite", hint="write double 'NaN' or double 'Infinity'")
    sign, digits, exponent = _significant(value)
    if not digits:
        return 0
    if abs(value.adjusted()) > MAX_EXPONENT or len(digits) > MAX_NUMBER:
        raise RuleError(
            "the number is too large, too small or too long",
            hint=f"exponents reach from -{MAX_EXPONENT} to {MAX_EXPONENT}, with up to {MAX_NUMBER:,} digits",
        )
    # Far exponents stay decimals: 1e300 as an int would only be a long way to write it.
    if exponent >= 0 and len(digits) + exponent <= MAX_DIGITS:
        return int(Decimal((sign, digits, exponent)))
    return Decimal((sign, digits, exponent))


def _significant(value: Decimal) -> tuple[int, tuple[int, ...], int]:
    """The sign, the digits without zeros around them, and the exponent of the last one."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    first = next((at for at, digit in enumerate(digits) if digit), len(digits))
    end = next((at for at in range(len(digits), first, -1) if digits[at - 1]), first)
    return sign, digits[first:end], exponent + len(digits) - end


def write_literal(value: Literals) -> str:
    """The constant as rule files write it: `read` of it gives the same value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return str(value).replace("E", "e") if abs(value.adjusted()) > MAX_DIGITS else f"{value:f}"
    if isinstance(value, float):
        special = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN" if math.isnan(value) else None)
        return f"double '{special or repr(value)}'"
    if isinstance(value, datetime):
        naive = value.replace(tzinfo=None).isoformat(" ")
        return f"timestamp '{naive}Z'" if value.tzinfo else f"timestamp_ntz '{naive}'"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    if isinstance(value, time):
        return f"time '{value.isoformat()}'"
    return "'" + value.replace("'", "''") + "'"


def type_of_literal(value: Literals) -> ColumnType:
    """The type of a constant taken by itself, the narrowest that holds it."""
    if isinstance(value, bool):
        return ColumnType("boolean")
    if isinstance(value, int | Decimal):
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return ColumnType("integer")
        return _decimal_type(Decimal(value))
    if isinstance(value, float):
        return ColumnType("float")
    if isinstance(value, datetime):
        return ColumnType("timestamp" if value.tzinfo else "timestamp_ntz")
    if isinstance(value, date):
        return ColumnType("date")
    if isinstance(value, time):
        return ColumnType("time")
    return ColumnType("string")


def _decimal_type(value: Decimal) -> ColumnType:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    return ColumnType("decimal", max(len(digits) + max(0, exponent), scale, 1), scale)


def coerce(value: Literals, name: str, column: ColumnType) -> tuple[Literals, ColumnType]:
    """The constant and the type in which it is compared with the column of that name and type.

    Raises `TypeMismatchError` where the two cannot be compared.
    """
    if column.kind == "null":
        return _without_column_type(value)
    if isinstance(value, str) and column.kind != "string":
        value = _text_as(value, name, column)
    own = type_of_literal(value)
    if column.kind == "uint64" and isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        own = column
    domain = common_type(column, own)
    if domain is None:
        raise _mismatch(value, name, column)
    if domain.kind == "decimal" and domain.precision > MAX_DIGITS:
        raise TypeMismatchError(
            f"column {name} is of type {column}, and the constant has too many digits for it",
            hint=f"the two together may need {MAX_DIGITS} digits at most",
        )
    inner = _as_domain(value, domain)
    if isinstance(inner, float) and math.isinf(inner) and not isinstance(value, float):
        message = f"column {name} is of type {column}, and the constant is too large for it"
        raise TypeMismatchError(message, hint="write double 'Infinity'")
    return inner, domain


def _without_column_type(value: Literals) -> tuple[Literals, ColumnType]:
    """A constant that meets a column without values: any type that takes it will do. A double takes every number."""
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return float(Decimal(value)), ColumnType("float")
    return value, type_of_literal(value)


def _mismatch(value: Literals, name: str, column: ColumnType) -> TypeMismatchError:
    own = type_of_literal(value)
    message = f"column {name} is of type {column}, which cannot be compared with a constant of type {own}"
    return TypeMismatchError(message, hint=_hint(value, column))


def _text_as(text: str, name: str, column: ColumnType) -> Literals:
    """Text that meets a date or a time is read as one."""
    value: Literals | None = None
    if column.kind in ("date", "timestamp_ntz"):
        value = _read_date(text) or _read_moment(text)
    elif column.kind == "timestamp":
        value = _read_moment(text)
    elif column.kind == "time":
        value = _read_time(text)
    else:
        raise _mismatch(text, name, column)
    if value is None:
        raise TypeMismatchError(f"column {name} is of type {column}, and the text is not one", hint=_shape(column))
    return value


def _hint(value: Literals, column: ColumnType) -> str | None:
    if column.kind == "timestamp" and isinstance(value, date):
        return _ZONE_HINT
    if column.kind == "timestamp_ntz" and isinstance(value, datetime):
        return "the column has no zone: leave the zone out"
    if column.kind == "string" and not isinstance(value, str | bool):
        return "put text in single quotes, or give the column a type under `columns:`"
    if isinstance(value, str) and column.kind in ("integer", "uint64", "decimal", "float"):
        return "write the number without quotes, or give the column the type string under `columns:`"
    if column.kind == "boolean":
        return "write true or false"
    if column.kind == "duration":
        return "a duration is compared only with another column"
    return _shape(column) if column.kind in ("date", "time", "timestamp", "timestamp_ntz") else None


def _shape(column: ColumnType) -> str:
    return "write it as " + _SHAPES[column.kind].split(" ", 1)[1]


def _as_domain(value: Literals, domain: ColumnType) -> Literals:
    if domain.kind == "decimal" and isinstance(value, int | Decimal):
        return Decimal(value)
    if domain.kind == "float" and isinstance(value, int | Decimal):
        return float(Decimal(value))
    if domain.kind == "timestamp_ntz" and isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value
