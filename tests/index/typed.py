"""Every comparable Arrow type: how to draw its values, make a column of them, and what the oracle compares instead.

A value is drawn as a whole number, float, text or decimal that says exactly what it is; times are counts of their
unit. `truth` gives what stands for it in the oracle: times become nanoseconds, so that units can be mixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

__all__ = ["TYPED", "Typed"]

_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY = 86_400
_YEAR_1, _YEAR_10000 = -719_162 * _DAY, 2_932_897 * _DAY
_NEW_YORK = [1_730_611_800, 1_730_615_400, 1_730_619_000, 1_710_054_000, 1_710_057_600]
"""Half past one twice, an hour apart, as clocks go back; and around the hour they skip."""


@dataclass(frozen=True)
class Typed:
    """A type with its values."""

    name: str
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    ns: int = 0
    """Nanoseconds in one unit, for types of time."""

    def array(self, values: list[Any]) -> pa.Array:
        """A column of drawn values and nulls."""
        if pa.types.is_float16(self.arrow):
            return pa.array([None if value is None else np.float16(value) for value in values], self.arrow)
        if pa.types.is_dictionary(self.arrow):
            return pa.array(values, pa.string()).dictionary_encode().cast(self.arrow)
        return pa.array(values, self.arrow)

    def truth(self, value: Any) -> Any:
        """What the oracle compares."""
        return value * self.ns if self.ns and value is not None else value


def _whole(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    near = [n for n in (low, low + 1, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, high - 1, high) if low <= n <= high]
    return st.one_of(st.sampled_from(near), st.integers(low, high))


def _floats(width: int) -> st.SearchStrategy[float]:
    few = [0.0, -0.0, 1.0, float("nan"), float("inf"), float("-inf"), 2.0**-14, 2.0**-24, -(2.0**-24)]
    return st.one_of(st.sampled_from(few), st.floats(width=width))  # type: ignore[arg-type]


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    near = sorted({0, 1, -1, 35 % 10**precision, most, most - 1, -most, 10 ** min(scale, precision) % (most + 1)})
    unscaled = st.one_of(st.sampled_from(near), st.integers(-most, most), st.integers(-min(most, 999), min(most, 999)))
    return unscaled.map(lambda n: Decimal(f"{n}e-{scale}"))


def _moments(unit: str) -> st.SearchStrategy[int]:
    per = 10**9 // _NS[unit]
    # Times beyond the range of nanoseconds are cut to its two ends when they meet them: those two are left out.
    low, high = (1 - 2**63, 2**63 - 2) if unit == "ns" else (_YEAR_1 * per, _YEAR_10000 * per - 1)
    near = [low, high, 0, -1, *(second * per for second in _NEW_YORK), 19_782 * _DAY * per]
    return st.one_of(st.sampled_from(near), st.integers(low, high), st.integers(-3, 3).map(lambda n: n * _DAY * per))


_DAYS = st.one_of(st.sampled_from([_YEAR_1 // _DAY, _YEAR_10000 // _DAY - 1, -1, 0, 19_782]), st.integers(-3, 3))
_TEXTS = st.one_of(
    st.sampled_from(
        ["", "a", "A", "a\0", "ä", "a\u0308", "a ", "\ue000", "\U0001f600", "longer than 8", "longer than 9"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)


def _all() -> list[Typed]:
    made = []
    for bits in (8, 16, 32, 64):
        made.append(Typed(f"int{bits}", getattr(pa, f"int{bits}")(), _whole(bits, signed=True)))
        made.append(Typed(f"uint{bits}", getattr(pa, f"uint{bits}")(), _whole(bits, signed=False)))
    made += [Typed(f"float{bits}", getattr(pa, f"float{bits}")(), _floats(bits)) for bits in (16, 32, 64)]
    made += [
        Typed(f"decimal({precision},{scale})", pa.decimal128(precision, scale), _decimals(precision, scale))
        for precision, scale in ((1, 0), (5, 2), (18, 0), (18, 18), (19, 4), (38, 0), (38, 38), (38, 10))
    ]
    made.append(Typed("boolean", pa.bool_(), st.booleans()))
    made.append(Typed("date32", pa.date32(), _DAYS, _DAY * 10**9))
    made.append(Typed("date64", pa.date64(), _DAYS.map(lambda day: day * _DAY * 1000), 10**6))
    for unit in ("s", "ms", "us", "ns"):
        made += [
            Typed(f"timestamp({unit},{zone})", pa.timestamp(unit, zone), _moments(unit), _NS[unit])
            for zone in (None, "UTC", "America/New_York")
        ]
        duration = st.one_of(st.integers(-3, 3), st.integers(-(10**15), 10**15))
        made.append(Typed(f"duration({unit})", pa.duration(unit), duration, _NS[unit]))
        of_day = st.integers(0, _DAY * 10**9 // _NS[unit] - 1)
        kind = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
        made.append(Typed(f"time({unit})", kind, st.one_of(st.integers(0, 3), of_day), _NS[unit]))
    made.append(Typed("string", pa.string(), _TEXTS))
    made.append(Typed("large_string", pa.large_string(), _TEXTS))
    made.append(Typed("string_view", pa.string_view(), _TEXTS))
    made.append(Typed("dictionary", pa.dictionary(pa.int32(), pa.string()), _TEXTS))
    return made


TYPED = {typed.name: typed for typed in _all()}
