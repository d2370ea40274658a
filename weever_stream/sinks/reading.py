"""Reads what the Delta and files sinks hold, without Spark: which violations are open, and every addition and removal.

What is open comes from the table `open` where there is one, else from the sum of the log. First an index of ids and
times is read, some 100 bytes a violation; keys and values are fetched only for what is asked for, in pieces. A Delta
table is read as of one version; of files only folders that hold `_SUCCESS` count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from weever_stream.errors import DataError
from weever_stream.sinks.batch import ADDED, DELTA_COLUMNS, REMOVED
from weever_stream.storage import Location, locate, open_delta, reason_of, scan_delta

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

__all__ = ["COLUMNS", "Kept", "newest", "read_sink", "selected", "sort_newest_first"]

COLUMNS = tuple("at" if name == "detected_at" else name for name in DELTA_COLUMNS)
"""Of the rows that are fetched; `at` is when the violation was added, or in the log when it was added or removed."""
_TIME = pa.timestamp("us", "UTC")
_INDEX = ("rule", "severity", "change", "violation_id", "batch_id", "at")
_IDENTITY = ("violation_id", "batch_id", "change")
"""What tells the rows of a table apart."""
_PIECE = 200_000
_COMMITS = 100


@dataclass(frozen=True)
class Kept:
    """What a sink holds."""

    path: str
    open_rows: ds.Dataset | None
    log_rows: ds.Dataset | None
    position: str | None = None
    """The position of the source that the content is about, where the sink publishes it."""
    batch: int = -1
    """The batch that published it."""

    def open_index(self) -> pa.Table:
        """Ids, rules and times of the open violations."""
        if self.open_rows is not None:
            return self._index(self.open_rows)
        return _summed(self.log_index())

    def log_index(self) -> pa.Table:
        """Ids, rules and times of all additions and removals."""
        if self.log_rows is None:
            raise DataError(f"{self.path} holds no log", hint="the job's sink says `tables: [open]`: show what is open")
        return self._index(self.log_rows)

    def _index(self, rows: ds.Dataset) -> pa.Table:
        names = [name for name in _INDEX if name in ("at", *rows.schema.names)]
        table = _as_ours(rows.to_table(columns=[_time_of(rows) if name == "at" else name for name in names]))
        return table.select(_INDEX)

    def fetch(self, index: pa.Table, *, from_log: bool) -> Iterator[pa.Table]:
        """The whole rows of some of an index, with `COLUMNS`, in pieces and in the order of the index.

        Each piece takes a pass over the table, for up to `_PIECE` rows: memory is bounded, and small answers cost one.
        """
        rows = self.log_rows if from_log or self.open_rows is None else self.open_rows
        if rows is None:
            return
        for start in range(0, index.num_rows, _PIECE):
            wanted = index.slice(start, _PIECE).select(_IDENTITY)
            whole = _as_ours(rows.to_table(filter=ds.field("violation_id").isin(pc.unique(wanted["violation_id"]))))
            places = wanted.append_column("place", pa.array(range(wanted.num_rows), pa.int64()))
            found = whole.join(places, list(_IDENTITY), join_type="inner")
            yield found.sort_by("place").select(COLUMNS)


def sort_newest_first(index: pa.Table, rules: Sequence[str]) -> pa.Table:
    """An index sorted by rule, as listed and the others by name, then by time, the newest first, then by id."""
    rank = pc.fill_null(pc.index_in(index["rule"], pa.array(rules, pa.string())), len(rules))
    keys = [("rank", "ascending"), ("rule", "ascending"), ("at", "descending"), ("batch_id", "descending")]
    keys += [("violation_id", "ascending"), ("change", "ascending")]
    return index.append_column("rank", rank).sort_by(keys).select(_INDEX)


def newest(index: pa.Table, limit: int) -> pa.Table:
    """The last rows of each rule in an index."""
    order = pc.sort_indices(index, [("rule", "ascending"), ("at", "descending"), ("violation_id", "ascending")])
    index = index.take(order)
    rules = index["rule"].to_numpy(zero_copy_only=False)
    kept, count, last = [], 0, None
    for at, rule in enumerate(rules):
        count, last = (count + 1, rule) if rule == last else (1, rule)
        if count <= limit:
            kept.append(at)
    return index.take(pa.array(kept, pa.int64()))


def selected(index: pa.Table, rules: Sequence[str] | None, since: datetime | None) -> pa.Table:
    """The part of an index that is about some rules and not older than a time."""
    if rules is not None:
        index = index.filter(pc.is_in(index["rule"], pa.array(rules, pa.string())))
    if since is not None:
        index = index.filter(pc.greater_equal(index["at"], pa.scalar(since, _TIME)))
    return index


def read_sink(path: str) -> Kept:
    """Opens what lies at the path of a sink. Raises `DataError` where there is nothing, or nothing of ours."""
    place = locate(path)
    shown = str(place)
    places = {name: place.inside(name) for name in ("open", "log")}
    tables = {name: _table(one) for name, one in places.items()}
    if any(table is not None for table in tables.values()):
        rows = {name: table and _dataset(places[name], table) for name, table in tables.items()}
        return Kept(shown, rows["open"], rows["log"], *_position(tables["open"] or tables["log"]))
    return Kept(shown, None, _files(place, _table(place) is not None))


def _table(place: Location) -> Any:
    if place.inside("_delta_log").info().type != fs.FileType.Directory:
        return None
    try:
        return open_delta(place)
    except Exception as error:  # deltalake raises what its many file systems raise
        raise DataError(f"{place} cannot be read: {reason_of(error)}", hint="check the path and the rights") from None


def _dataset(place: Location, table: Any) -> ds.Dataset:
    try:
        rows = scan_delta(table, place)
    except Exception as error:
        hint = "somebody may have turned on a feature that its reader lacks: deletion vectors, column mapping"
        raise DataError(f"{place} cannot be read: {type(error).__name__}", hint=hint) from None
    return _ours(str(place), rows)


def _ours(path: str, rows: ds.Dataset) -> ds.Dataset:
    needed = {*DELTA_COLUMNS} - {"change", "reason", "detected_at"}
    if missing := sorted(needed - {*rows.schema.names}):
        raise DataError(f"{path} is not a table of violations: it has no {', '.join(missing)}")
    return rows


def _position(table: Any) -> tuple[str | None, int]:
    """The position that the last commit of ours published, and its batch."""
    for commit in table.history(_COMMITS):
        try:
            said = json.loads(commit.get("userMetadata") or "")
            return str(said["source_position"]), int(said["batch_id"])
        except (ValueError, KeyError, TypeError):
            continue
    return None, -1


def _files(place: Location, is_table: bool) -> ds.Dataset:
    """The folders of a files sink as one dataset."""
    if is_table:
        raise DataError(f"{place} is one Delta table", hint="name the folder that holds the tables `open` and `log`")
    # What lies below `_earlier` is of a run whose place was taken over.
    names = [name.rpartition("/") for name in place.listed() if not name.startswith(("_", "."))]
    whole = {folder for folder, _, name in names if name == "_SUCCESS"}
    data = [(folder, name) for folder, _, name in names if not name.startswith(("_", "."))]
    files = [f"{place.path}/{folder}/{name}" for folder, name in data if folder in whole]
    if not files:
        raise _nothing(str(place), bool(data))
    form = "parquet" if files[0].endswith(".parquet") else "json"
    fields = [(name, _file_type(name, form)) for name in DELTA_COLUMNS]
    return ds.dataset(
        files,
        schema=pa.schema(fields),
        format=form,
        filesystem=place.system,
        partitioning=ds.partitioning(pa.schema([("batch_id", pa.int64())]), flavor="hive"),
        partition_base_dir=place.path,
    )


def _file_type(name: str, form: str) -> pa.DataType:
    if name == "batch_id":
        return pa.int64()
    return _TIME if name == "detected_at" and form == "parquet" else pa.string()


def _nothing(path: str, other_files: bool) -> DataError:
    if other_files:
        return DataError(
            f"{path} holds neither the tables `open` and `log` nor folders such as batch_id=0",
            hint="name the path of a Delta or files sink, or the job's file",
        )
    return DataError(
        f"nothing has been written to {path} yet", hint="the job writes there once it finds a violation; is it running?"
    )


def _time_of(rows: ds.Dataset) -> str:
    return "opened_at" if "opened_at" in rows.schema.names else "detected_at"


def _as_ours(table: pa.Table) -> pa.Table:
    """Rows of either table with the column `at` for its time and with a `change`."""
    names = ["at" if name in ("opened_at", "detected_at") else name for name in table.column_names]
    table = table.rename_columns(names)
    if "change" not in names:
        table = table.append_column("change", pa.repeat(pa.scalar(ADDED), table.num_rows))
    if "reason" not in names:
        table = table.append_column("reason", pa.nulls(table.num_rows, pa.string()))
    columns = {}
    for name in table.column_names:
        kind = _TIME if name == "at" else pa.int64() if name == "batch_id" else pa.string()
        columns[name] = table[name].cast(kind)
    return pa.table(columns)


def _summed(log: pa.Table) -> pa.Table:
    """What a log leaves open: of each violation that was added once more than removed, the last addition."""
    if not log.num_rows:
        return log
    log = log.sort_by([("batch_id", "ascending")])
    sign = pc.if_else(pc.equal(log["change"], REMOVED), -1, 1)
    groups = log.append_column("sign", sign).group_by(["rule", "violation_id"], use_threads=False)
    sums = groups.aggregate([("sign", "sum"), ("severity", "last"), ("batch_id", "last"), ("at", "last")])
    sums = sums.filter(pc.greater(sums["sign_sum"], 0))
    named = sums.rename_columns([name.removesuffix("_last") for name in sums.column_names])
    return named.append_column("change", pa.repeat(pa.scalar(ADDED), named.num_rows)).select(_INDEX)
