"""Tables that tests of discovery share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["dirty"]


def dirty(rows: int = 300, seed: int = 3) -> pa.Table:
    """zip determines city, rate rises with salary within a city, with some wrong values."""
    chance = np.random.default_rng(seed)
    zips = chance.integers(0, 30, rows)
    city = zips // 3
    salary = chance.integers(0, 200, rows)
    rate = salary // 20 + city % 3
    wrong = chance.choice(rows, 3, replace=False)
    city[wrong] = 99
    return pa.table({"zip": zips, "city": city, "salary": salary, "rate": rate})
