"""A small made-up change feed: parcels on the road, with mistakes that appear and are mended.

The first batch is a table that obeys all rules; each later one is a short story of one or two changes. Deterministic:
the same feed every time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

__all__ = ["COLUMNS", "RULE_FILE", "Step", "feed", "parcels"]

RULE_FILE = """\
table: packages
key: package_code
rules:
  - name: zip_determines_city
    fd: zip -> city
  - name: distance_is_symmetric
    deny: t.origin = s.destination and t.destination = s.origin and t.distance != s.distance
    severity: critical
  - name: bigger_parcel_costs_more
    deny: t.distance = s.distance and t.volume < s.volume and t.postage > s.postage
    severity: warning
    description: Of two parcels that travel equally far the smaller one must not cost more.
"""
COLUMNS = {
    "package_code": "bigint", "origin": "string", "destination": "string", "zip": "string", "city": "string",
    "distance": "bigint", "volume": "bigint", "postage": "bigint",
}  # fmt: skip
_CITIES = {"London": (0, 0), "Lima": (-70, -63), "Cape Town": (18, -85), "New Delhi": (77, -23), "Monaco": (7, -8)}
_ZIPS = {"E1": "London", "15001": "Lima", "8001": "Cape Town", "110001": "New Delhi", "98000": "Monaco"}


@dataclass(frozen=True)
class Step:
    """Some changes, and what happened in the world."""

    story: str
    changes: list[dict[str, Any]]


def parcels(count: int = 400) -> list[dict[str, Any]]:
    """Rows that obey all rules: postage follows volume and distance, and a way is as long there as back."""
    chance = random.Random(7)
    rows = []
    for code in range(count):
        origin, destination = chance.sample(sorted(_CITIES), 2)
        zip_code = next(zip_code for zip_code, city in _ZIPS.items() if city == destination)
        (x, y), (u, v) = _CITIES[origin], _CITIES[destination]
        distance, volume = 100 * round(((x - u) ** 2 + (y - v) ** 2) ** 0.5), chance.randrange(1, 60)
        rows.append(
            {
                "package_code": code,
                "origin": origin,
                "destination": destination,
                "zip": zip_code,
                "city": destination,
                "distance": distance,
                "volume": volume,
                "postage": 5 + volume * 2 + distance // 100,
            }
        )
    return rows


def feed() -> list[Step]:
    """The feed: the table, then what goes wrong and what is mended."""
    rows = parcels()
    to_lima = next(row for row in rows if row["destination"] == "Lima")
    from_monaco = next(row for row in rows if row["origin"] == "Monaco")
    small = min((row for row in rows if row["distance"] == to_lima["distance"]), key=lambda row: row["volume"])
    new = {**to_lima, "package_code": 400, "volume": 61, "postage": 5 + 122 + to_lima["distance"] // 100}
    put, drop = {"_change_type": "upsert"}, {"_change_type": "delete"}
    return [
        Step(f"the table as it is: {len(rows)} parcels", [{**row, **put} for row in rows]),
        Step("a clerk mistypes a city", [{**to_lima, "city": "Limaa", **put}]),
        Step(
            "a new parcel arrives for the same zip; its row is right, and so contradicts the mistyped one",
            [{**new, **put}],
        ),
        Step("the clerk sees the alert and mends the city", [{**to_lima, **put}]),
        Step("a survey says Monaco is farther away", [{**from_monaco, "distance": 12_345, **put}]),
        Step("somebody charges a small parcel far too much", [{**small, "postage": 9_999, **put}]),
        Step("that parcel is cancelled", [{"package_code": small["package_code"], **drop}]),
        Step("the survey is taken back", [{**from_monaco, **put}]),
    ]
