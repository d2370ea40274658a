"""The tables and rules that every benchmark runs on. Deterministic: the same sizes give the same rows on any machine.

Three tables in the shape of those that the papers on denial constraints use, integer columns only, rows in shuffled
order of arrival. A small share of values is wrong, so that every rule has violations in numbers that are known:
`reference.json` holds the ordered pairs, counted by systems that share no code (a numpy oracle, DuckDB, differential
dataflow, Rapidash), before and after a tenth of the rows is deleted.

    table("tax", 1_000_000)      an Arrow table, generated once and kept as Parquet in the folder of `data_folder()`
    deletes(1_000_000)           the keys that are dropped afterwards
    reference("phi9", 1_000_000) the pairs that there must be
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["RULES", "Reference", "Workload", "data_folder", "deletes", "generate", "parquet", "reference", "table"]

Columns = dict[str, Any]
"""Column name to an array of integers."""
_REFERENCE = Path(__file__).with_name("reference.json")
_ARRIVAL, _DELETES = 1, 2
"""Seeds of the order of arrival and of the choice of deleted rows."""


class Workload(NamedTuple):
    """A rule, the table it is about, and the share of wrong values in that table."""

    name: str
    table: str
    predicates: tuple[tuple[str, str, str], ...]
    """Column of t, operator, column of s."""
    dirty: float = 0.0005

    @property
    def deny(self) -> str:
        """The rule as weever reads it."""
        return " and ".join(f"t.{left} {op} s.{right}" for left, op, right in self.predicates)

    @property
    def columns(self) -> list[str]:
        """The columns that it compares, each once."""
        return list(dict.fromkeys(name for left, _, right in self.predicates for name in (left, right)))

    @property
    def symmetric(self) -> bool:
        """Whether it reads the same with t and s exchanged: then its pairs are reported once."""
        swapped = {(right, _MIRRORED[op], left) for left, op, right in self.predicates}
        return swapped == set(self.predicates)

    def ordered(self, pairs: int) -> int:
        """Ordered pairs for a number of reported ones."""
        return pairs * 2 if self.symmetric else pairs

    def reported(self, pairs: int) -> int:
        """Reported pairs for a number of ordered ones."""
        return pairs // 2 if self.symmetric else pairs


_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

RULES: Mapping[str, Workload] = {
    rule.name: rule
    for rule in (
        Workload("phi7", "tax", (("areacode", "=", "areacode"), ("phone", "=", "phone"))),
        Workload("phi8", "tax", (("zip", "=", "zip"), ("city", "!=", "city"))),
        Workload(
            "phi9",
            "tax",
            (("state", "=", "state"), ("haschild", "=", "haschild"), ("childexemp", "!=", "childexemp")),
        ),
        Workload("phi10", "tax", (("state", "=", "state"), ("salary", ">", "salary"), ("rate", "<", "rate"))),
        Workload(
            "phi11",
            "flights",
            (("origin", "=", "dest"), ("dest", "=", "origin"), ("distance", "!=", "distance")),
            dirty=0.001,
        ),
        Workload("c6", "tpch", (("receiptdate", ">=", "shipdate"), ("shipdate", "<=", "receiptdate"))),
        Workload("c7", "tpch", (("extprice", ">", "extprice"), ("discount", "<", "discount"))),
    )
}


class Reference(NamedTuple):
    """Ordered pairs of a rule, before and after the deletes."""

    pairs: int
    after_deletes: int


def reference(rule: str, rows: int) -> Reference | None:
    """What there must be; None for a size that was never counted."""
    known = json.loads(_REFERENCE.read_text())["ordered_pairs"].get(rule, {}).get(str(rows))
    return None if known is None else Reference(*known)


def data_folder() -> Path:
    """Where generated tables are kept: WEEVER_BENCHMARKS_DATA, or a folder among the temporary files."""
    folder = Path(os.environ.get("WEEVER_BENCHMARKS_DATA") or Path(tempfile.gettempdir()) / "weever-benchmarks")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def parquet(name: str, rows: int, dirty: float | None = None) -> Path:
    """The table as a Parquet file; generated if it is not there yet."""
    dirty = _DIRTY[name] if dirty is None else dirty
    path = data_folder() / f"{name}-{rows}-{dirty:g}.parquet"
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}")
        pq.write_table(pa.table(generate(name, rows, dirty)), unfinished)
        unfinished.replace(path)
    return path


def table(name: str, rows: int, columns: Sequence[str] | None = None, dirty: float | None = None) -> pa.Table:
    """The table, or some of its columns, in one chunk."""
    wanted = None if columns is None else list(columns)
    return pq.read_table(parquet(name, rows, dirty), columns=wanted).combine_chunks()


def generate(name: str, rows: int, dirty: float) -> Columns:
    """The columns of a table in the order of arrival."""
    made = _TABLES[name](rows, dirty)
    arrival = np.random.default_rng(_ARRIVAL).permutation(rows)
    return {column: np.asarray(values)[arrival].astype(np.int32) for column, values in made.items()}


def deletes(rows: int) -> Any:
    """The ids of the tenth of the rows that is deleted after all are in."""
    return np.random.default_rng(_DELETES).permutation(rows)[: rows // 10].astype(np.int32)


def _tax(rows: int, dirty: float) -> Columns:
    """People, where they live, and their tax: a zip has a city, a city a state; in a state rates follow salaries."""
    draw = np.random.default_rng(7)
    states, zips_of_a_state, phones = 50, 600, 10_000_000
    state = draw.integers(0, states, rows)
    zipcode = state * zips_of_a_state + draw.integers(0, zips_of_a_state, rows)
    city = zipcode // 4
    areacode = 200 + state * 6 + draw.integers(0, 6, rows)
    phone = draw.permutation(phones)[:rows] if rows <= phones else np.arange(rows)
    haschild = draw.integers(0, 2, rows)
    childexemp = np.where(haschild == 1, 500 + 100 * (state % 17), 0)
    salary = draw.integers(50, 1000, rows) * 100 + draw.integers(0, 100, rows) * (draw.random(rows) < 0.3)
    rate = np.round((salary // 5000) * 0.25 + (state % 7) * 0.1, 2)
    if dirty > 0:
        rate = np.where(draw.random(rows) < dirty, np.round(draw.random(rows) * 5, 2), rate)
        city = np.where(draw.random(rows) < dirty, draw.integers(0, 7500, rows), city)
        childexemp = np.where(draw.random(rows) < dirty, 999, childexemp)
        phone = np.where(draw.random(rows) < dirty, draw.permutation(phone), phone)
    return {
        "id": np.arange(rows),
        "areacode": areacode,
        "phone": phone,
        "city": city,
        "state": state,
        "zip": zipcode,
        "haschild": haschild,
        "childexemp": childexemp,
        "salary": salary,
        "rate": np.rint(rate * 100),
    }


def _flights(rows: int, dirty: float) -> Columns:
    """Flights between airports of very different size; a distance is the same in both directions."""
    draw = np.random.default_rng(11)
    airports = 300
    share = 1 / np.arange(1, airports + 1)
    share /= share.sum()
    origin, dest = draw.choice(airports, rows, p=share), draw.choice(airports, rows, p=share)
    while (same := origin == dest).any():
        dest[same] = draw.choice(airports, same.sum(), p=share)
    place = draw.random((airports, 2)) * 3000
    apart = np.hypot(place[:, None, 0] - place[None, :, 0], place[:, None, 1] - place[None, :, 1])
    distance = (np.rint(apart).astype(np.int64) + 50)[origin, dest]
    distance = np.where(draw.random(rows) < dirty, distance + draw.integers(1, 500, rows), distance)
    return {
        "id": np.arange(rows),
        "origin": origin,
        "dest": dest,
        "distance": distance,
        "flights": draw.integers(1, 200, rows),
        "passengers": draw.integers(0, 20000, rows),
    }


def _tpch(rows: int, dirty: float) -> Columns:
    """Orders: intervals that do not overlap, discounts that follow the price; a wrong one meets some 500 others."""
    draw = np.random.default_rng(13)
    shipdate = 10 * np.arange(rows)
    receiptdate = shipdate + draw.integers(1, 9, rows)
    receiptdate = np.where(draw.random(rows) < dirty, shipdate + draw.integers(10, 10000, rows), receiptdate)
    rank = draw.permutation(rows)
    extprice = 90000 + 10 * rank + draw.integers(0, 10, rows)
    discount = rank // 8
    wrong = draw.random(rows) < dirty
    discount = np.where(wrong, np.maximum(0, discount + draw.integers(-250, 251, rows)), discount)
    return {
        "id": np.arange(rows),
        "shipdate": shipdate,
        "receiptdate": receiptdate,
        "extprice": extprice,
        "discount": discount,
    }


_TABLES: Mapping[str, Callable[[int, float], Columns]] = {"tax": _tax, "flights": _flights, "tpch": _tpch}
_DIRTY = {rule.table: rule.dirty for rule in RULES.values()}
