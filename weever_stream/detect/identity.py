"""Names of rows and violations that stay the same for ever: printable keys and violation ids.

A key of one column is its plain text, a composite key the JSON array of its values. A violation's id is the leading
128 bits, in hex, of the SHA-256 of the JSON array [rule, left key, right key], so anybody can compute it again, in
Spark SQL too: `left(sha2(to_json(array(rule, left_key, right_key)), 256), 32)`. A rule on one row has null for the
right key.
"""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from hashlib import sha256
from math import isfinite

import pyarrow as pa

from weever_stream.index.codes import flatten

__all__ = ["json_value", "plain", "python_values", "violation_id"]


def violation_id(rule: str, left_key: str, right_key: str | None) -> str:
    """The stable id of a violation.

    >>> violation_id("zip_determines_city", "2", "4")
    '32c360c9017c0b02a1c6f641b946078e'
    """
    return sha256(_json([rule, left_key, right_key]).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=json_value)


def json_value(value: object) -> object:
    """A value as JSON can hold it: exact, so decimals, times and what is not a finite number become text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value + 0.0 if isfinite(value) else plain(value)
    return plain(value)


def plain(value: object) -> str:
    """A value as one would write it by hand: ISO dates, UTC instants with Z, decimals without exponent."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        value += 0.0  # -0.0 and 0.0 are one value, so they have one text
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat()
        return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
        sign, whole, part = "-" if micros < 0 else "", *divmod(abs(micros), 10**6)
        return f"{sign}{whole}.{part:06d}s" if part else f"{sign}{whole}s"
    return str(value)


def python_values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """Python values of a column; what Python's own times cannot hold (nanoseconds, the year 10000) as ISO text."""
    array = flatten(column)
    kind = array.type
    zoned = getattr(kind, "tz", None) is not None
    if zoned and kind.tz != "UTC":
        array = array.cast(pa.timestamp(kind.unit, "UTC"))
    if getattr(kind, "unit", None) != "ns":
        try:
            return list(array.to_pylist())
        except (OverflowError, ValueError):
            pass
    texts = array.cast(pa.string()).to_pylist()
    return [None if text is None else text.rstrip("Z").replace(" ", "T") + ("Z" if zoned else "") for text in texts]
