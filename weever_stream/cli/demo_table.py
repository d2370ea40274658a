"""The table of the demo, and how it changes: a Delta table with its change data feed on, or a folder of change files.

The Delta table is written without Spark, as some other program would; the stream only sees its change feed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ChangeFiles", "DeltaPackages", "Packages"]

_SCHEMA = pa.schema(
    [
        ("package_code", pa.int64()),
        ("origin", pa.string()),
        ("destination", pa.string()),
        ("zip", pa.string()),
        ("city", pa.string()),
        ("distance", pa.int64()),
        ("volume", pa.int64()),
        ("postage", pa.int64()),
    ]
)
_KEY = "package_code"


class Packages(Protocol):
    """A table that can change."""

    source: str
    """As a job file writes it."""

    def apply(self, changes: Sequence[dict[str, Any]]) -> None:
        """Rows with `_change_type`: upsert or delete."""
        ...


class DeltaPackages:
    """A Delta table."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "packages")
        self.source = f"{{kind: delta, path: {json.dumps(self._path)}}}"

    def apply(self, changes: Sequence[dict[str, Any]]) -> None:
        """One commit."""
        from deltalake import DeltaTable, write_deltalake

        puts = [row for row in changes if row["_change_type"] != "delete"]
        rows = pa.Table.from_pylist([{name: row[name] for name in _SCHEMA.names} for row in puts], _SCHEMA)
        if not DeltaTable.is_deltatable(self._path):
            write_deltalake(self._path, rows, configuration={"delta.enableChangeDataFeed": "true"})
            return
        table = DeltaTable(self._path)
        for row in changes:
            if row["_change_type"] == "delete":
                table.delete(f"{_KEY} = {int(row[_KEY])}")
        if puts:
            merge = table.merge(rows, f"t.{_KEY} = s.{_KEY}", source_alias="s", target_alias="t")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()


class ChangeFiles:
    """A folder of JSON files, one for each commit."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "changes"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._version = 0
        self.source = f"{{kind: files, path: {json.dumps(str(self._folder))}, format: json}}"

    def apply(self, changes: Sequence[dict[str, Any]]) -> None:
        """One file."""
        lines = [json.dumps({**row, "_commit_version": self._version}) for row in changes]
        beside = self._folder.parent / "changes.tmp"
        beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
        beside.replace(self._folder / f"{self._version:05d}.json")
        self._version += 1
