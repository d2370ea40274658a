"""Which Python values an Arrow type takes as they are.

Left alone Arrow takes bytes for text, ticks for times and truth for numbers. It cuts fractions off, and it mixes times
with and without a zone. So every kind of column has a list of the Python types that it takes. Cost: some steps a value.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["UNFIT", "unbent"]

UNFIT = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    UnicodeEncodeError,
    TypeError,
    ValueError,
)
"""What Arrow raises for a value that is not of the type."""
_MICROSECONDS = {"s": 10**6, "ms": 10**3, "us": 1, "ns": 1}
_DOUBLES = (float, np.float16, np.float32)
_WHOLE = (int, np.integer)


def unbent(value: Any, kind: pa.DataType) -> bool:
    """Whether Arrow would keep the value's meaning, or would refuse it."""
    if value is None or isinstance(value, pa.Scalar):
        return True
    if isinstance(value, (bool, np.bool_)):
        return bool(pa.types.is_boolean(kind))
    test = _TESTS.get(kind.id)
    return test is None or test(value, kind)


def _whole(value: Any, kind: pa.DataType) -> bool:
    return isinstance(value, _WHOLE) and not isinstance(value, np.timedelta64)


def _real(value: Any, kind: pa.DataType) -> bool:
    if not isinstance(value, _DOUBLES):
        return _whole(value, kind)  # Arrow refuses whole numbers that a double cannot tell apart
    if pa.types.is_float64(kind) or value != value:
        return True
    with np.errstate(over="ignore"):
        return float(np.float64(value).astype(kind.to_pandas_dtype())) == float(value)


def _decimal(value: Any, kind: pa.DataType) -> bool:
    return isinstance(value, (int, Decimal))


def _day(value: Any, kind: pa.DataType) -> bool:
    return isinstance(value, date) and not isinstance(value, datetime)


def _moment(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, np.datetime64):
        return kind.tz is None  # Arrow refuses one of another unit
    return isinstance(value, datetime) and (value.tzinfo is None) == (kind.tz is None) and _in_unit(value, kind)


def _clock(value: Any, kind: pa.DataType) -> bool:
    return isinstance(value, time) and value.tzinfo is None and _in_unit(value, kind)


def _span(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, np.timedelta64):
        return True
    return isinstance(value, timedelta) and value.microseconds % _MICROSECONDS[kind.unit] == 0 and _no_less(value, kind)


def _in_unit(value: Any, kind: pa.DataType) -> bool:
    return bool(value.microsecond % _MICROSECONDS[kind.unit] == 0) and _no_less(value, kind)


def _no_less(value: Any, kind: pa.DataType) -> bool:
    """Whether nothing stands behind the microseconds that the type has no room for: times of pandas may have more."""
    behind = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
    return not behind or kind.unit == "ns"


def _text(value: Any, kind: pa.DataType) -> bool:
    return isinstance(value, str)


def _bytes(value: Any, kind: pa.DataType) -> bool:
    return isinstance(value, (bytes, bytearray, memoryview))


def _nothing(value: Any, kind: pa.DataType) -> bool:
    return False


_KINDS: dict[Callable[[Any, pa.DataType], bool], tuple[str, ...]] = {
    _whole: ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
    _real: ("HALF_FLOAT", "FLOAT", "DOUBLE"),
    _decimal: ("DECIMAL32", "DECIMAL64", "DECIMAL128", "DECIMAL256"),
    _day: ("DATE32", "DATE64"),
    _moment: ("TIMESTAMP",),
    _clock: ("TIME32", "TIME64"),
    _span: ("DURATION",),
    _text: ("STRING", "LARGE_STRING", "STRING_VIEW"),
    _bytes: ("BINARY", "LARGE_BINARY", "BINARY_VIEW", "FIXED_SIZE_BINARY"),
    _nothing: ("BOOL", "NA"),
}
_TESTS = {
    getattr(pa.lib, f"Type_{name}"): test
    for test, names in _KINDS.items()
    for name in names
    if hasattr(pa.lib, f"Type_{name}")
}
"""By the id of the type: asking for that costs a fraction of the predicates in `pa.types`."""
