"""Tables of few values and many types, for a learner to be driven with: what a comparison may get wrong is in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.detect.drawn import other_sizes
from weever_stream.learn import cover, keeper, labels

__all__ = ["KEYS", "KEY_VALUES", "SHAPES", "Shape", "few_samples", "narrow_labels"]

LEAST, MOST = -(2**63), 2**63 - 1
INT = (pa.int64(), [0, 1, 2, 5, LEAST, MOST, None])
SMALL_INT = (pa.int32(), [0, 1, 2, None])
FLOAT = (pa.float64(), [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), None])
TEXT = (pa.string(), ["", "a", "b", "ä", None])
LONG = (
    pa.large_string(),
    ["the same first eight bytes", "the same first eight bytes!", "z", "\0", "\U0001f600", "\uffff"],
)
DAY = (pa.date32(), [date(2024, 2, 28), date(2024, 2, 29), date(9999, 12, 31), date(1, 1, 1), None])
NARROW = (pa.decimal128(6, 2), [Decimal("1.00"), Decimal("1.50"), Decimal("-2.00"), None])
FINER = (pa.decimal128(10, 4), [Decimal("1.0000"), Decimal("1.5000"), Decimal("1.5001")])
WIDE = (pa.decimal128(38, 10), [Decimal("1.5"), Decimal(f"{10**37}e-10"), Decimal(f"{10**37 + 1}e-10"), None])
FLAG = (pa.bool_(), [True, False, None])
AT = (pa.timestamp("us"), [datetime(2024, 2, 29), datetime(2024, 2, 29, 0, 0, 0, 1), datetime(9999, 12, 31), None])
ZONED = (pa.timestamp("ms", "Europe/Berlin"), [datetime(2024, 10, 27, at, tzinfo=timezone.utc) for at in (0, 1, 2)])
NANOS = (pa.timestamp("ns"), [datetime(2024, 2, 29), datetime(2024, 3, 1), None])
CONSTANT = (pa.int64(), [7])
MORE = (pa.int64(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])


@dataclass(frozen=True)
class Shape:
    """Columns with their types and values, the options that make a space of them, and whether brute force can."""

    columns: dict[str, tuple[pa.DataType, list[Any]]]
    options: dict[str, Any] = field(default_factory=dict)
    brute: bool = False

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [("id", pa.int64()), ("name", pa.string()), *((name, kind) for name, (kind, _) in self.columns.items())]
        )


CROSS, APART, TEXTS = {"shared": 0}, {"cross": False}, {"cross": False, "order_text": True}
SHAPES: dict[str, Shape] = {
    "number and float": Shape({"a": INT, "f": FLOAT}, APART, brute=True),
    "number, text, flag": Shape({"a": INT, "c": TEXT, "y": FLAG}, APART, brute=True),
    "texts": Shape({"c": TEXT, "d": TEXT, "e": LONG, "k": CONSTANT}, APART, brute=True),
    "ordered text": Shape({"e": LONG, "y": FLAG}, TEXTS, brute=True),
    "texts that meet": Shape({"c": TEXT, "d": TEXT}, CROSS, brute=True),
    "numbers that meet": Shape({"a": INT, "b": SMALL_INT}, CROSS),
    "numbers and decimals that meet": Shape({"a": SMALL_INT, "d": NARROW, "w": WIDE}, CROSS),
    "ordered texts that meet": Shape({"c": TEXT, "e": LONG}, {**CROSS, "order_text": True}),
    "days and times": Shape({"day": DAY, "at": AT, "zoned": ZONED}, APART),
    "days that meet": Shape({"day": DAY, "other": DAY, "y": FLAG}, CROSS),
    "wide and narrow": Shape({"w": WIDE, "d": NARROW, "e": FINER, "n": NANOS}, APART),
    "scales that meet": Shape({"d": NARROW, "e": FINER, "c": TEXT}, CROSS),
    "floats that meet": Shape({"f": FLOAT, "g": FLOAT}, CROSS),
    "many values": Shape({"a": MORE, "b": MORE, "c": TEXT}, APART),
    "many values that meet": Shape({"a": MORE, "b": MORE}, {}),
    "a column that nothing compares": Shape({"a": INT, "raw": (pa.binary(), [b"", b"x", None])}, APART, brute=True),
}
KEYS: dict[str, tuple[str, ...]] = {"number": ("id",), "two columns": ("name", "id"), "none": ()}
KEY_VALUES: dict[str, list[Any]] = {"id": [*range(8), MOST], "name": ["", "a"]}


@contextmanager
def narrow_labels(spread: int = 64) -> Iterator[None]:
    """Labels with so little room between them that they are given out anew all the time."""
    with other_sizes([(labels, "_FRONT", 2), (labels, "_SPREAD", spread), (labels, "_HOT", spread // 4)]):
        yield


@contextmanager
def few_samples(pairs: int = 4) -> Iterator[None]:
    """So few random pairs that most evidence is met only where it is looked for."""
    with other_sizes([(cover, "_SAMPLE", pairs), (keeper, "_WITNESSED", pairs)]):
        yield
