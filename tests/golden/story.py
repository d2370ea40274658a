"""The job whose remains are kept: its rules, its rows, and what it must find. Not to be changed: releases were made of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["AFTER", "BEFORE", "COLUMNS", "LAST", "ROWS", "add", "job_text", "table"]

COLUMNS = {
    "id": "bigint", "zip": "string", "city": "string", "salary": "bigint", "rate": "double", "due": "date",
    "at": "timestamp", "price": "decimal(10,2)", "ok": "boolean",
}  # fmt: skip
BEFORE: dict[str, dict[str, Any]] = {
    "zip_determines_city": {"fd": "zip -> city"},
    "rates_rise": {"deny": "t.salary < s.salary and t.rate > s.rate", "severity": "warning"},
    "paid_later": {"deny": "t.zip = s.city and t.due < s.due and s.ok = true"},
    "price_is_positive": {"deny": "t.price < 0"},
    "hot": {"deny": "t.ok = s.ok and t.at > s.at and t.price < s.price", "spread": 2},
}
AFTER = {
    **{name: BEFORE[name] for name in ("zip_determines_city", "paid_later", "hot")},
    "keys": {"unique": ["due", "ok"]},
}
ROWS: list[dict[str, Any]] = [
    {
        "id": n, "zip": f"z{n % 3}", "city": ["z1", "Ä", "", "z0"][n % 4], "salary": 2**53 + n * 7 % 11,
        "rate": [1.5, -0.0, 2.25][n % 3], "due": f"20{10 + n % 9}-02-28", "at": f"2024-11-03T0{n % 6}:30:00Z",
        "price": ["1.20", "-3.05", "9.99", "0.00"][n * 5 % 4], "ok": n % 2 == 0,
    }
    for n in range(24)
]  # fmt: skip
LAST = [{**row, "city": "Lima", "zip": "z0"} for row in ROWS[20:]]
"""Changes that come after the checkpoint was kept."""


def job_text(folder: Path | str, rules: Mapping[str, Mapping[str, Any]]) -> str:
    """The job file; JSON is YAML."""
    return json.dumps(
        {
            "table": "golden",
            "key": "id",
            "columns": COLUMNS,
            "rules": [{"name": name, **rule} for name, rule in rules.items()],
            "source": {"kind": "files", "path": f"{folder}/feed"},
            "sinks": [{"kind": "delta", "path": f"{folder}/found"}, {"kind": "files", "path": f"{folder}/told"}],
            "state": {"checkpoint": f"{folder}/checkpoint", "shards": 4, "inline_bytes": 4000},
        }
    )


def add(folder: Path, version: int, rows: list[dict[str, Any]], gone: Sequence[int] = ()) -> None:
    """One file of changes."""
    (folder / "feed").mkdir(exist_ok=True)
    lines = [{**row, "_change_type": "upsert", "_commit_version": version} for row in rows]
    lines += [{"id": key, "_change_type": "delete", "_commit_version": version} for key in gone]
    beside = folder / "feed" / f"_{version}"
    beside.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    beside.rename(folder / "feed" / f"{version:03d}.json")


def table(*, last: bool) -> list[dict[str, Any]]:
    """The rows that are there: 3 and 8 were deleted."""
    rows = {row["id"]: row for row in [*ROWS, *(LAST if last else [])] if row["id"] not in (3, 8)}
    return list(rows.values())
