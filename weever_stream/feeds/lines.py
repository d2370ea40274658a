"""On which line of its file a rejected record begins, for JSON lines and CSV; Parquet knows its rows by number.

Spark's readers do not say it, so the files of a batch's rejects are read once more and searched for these records. It
costs nothing in a batch without rejects. Files that are compressed or larger than `LARGEST` are not searched: there is
no `line` then, and the whole record is there as ever.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

__all__ = ["LARGEST", "add_lines", "find_csv_lines", "find_json_lines"]

LARGEST = 64 << 20
_FILE = "_weever_file"
_BOM = b"\xef\xbb\xbf"
_QUOTED_EMPTY = '"\ue000"'
_Find: TypeAlias = "Callable[[bytes, Sequence[str]], list[int | None]]"


def add_lines(rejects: DataFrame, format: str, options: Mapping[str, str]) -> DataFrame:
    """Rejects whose origin is a file, with `line` in the origin. `options` are those of Spark's reader."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    spark = rejects.sparkSession
    named = rejects.withColumn(_FILE, F.get_json_object("origin", "$.file"))
    files = [unquote(row[0]) for row in named.select(_FILE).distinct().collect() if row[0] is not None]
    reader = spark.read.format("binaryFile").option("globPaths", "false")
    try:
        contents = reader.load(files).where(F.col("length") <= LARGEST)
    except AnalysisException:  # a file is gone; its records are not
        return rejects
    contents = contents.select(F.col("_metadata.file_path").alias(_FILE), "content")
    add = _adder(_finder(format, options), rejects.columns)
    return named.groupBy(_FILE).cogroup(contents.groupBy(_FILE)).applyInArrow(add, rejects.schema)


def find_json_lines(content: bytes, records: Sequence[str], separator: str | None = None) -> list[int | None]:
    """The numbers of the lines that are these records, from 1; None for what is not there."""
    content = content.removeprefix(_BOM)
    lines = content.split(separator.encode()) if separator else content.splitlines()
    return _first_come(((at, line.decode("utf-8", "replace")) for at, line in enumerate(lines, 1)), records)


def find_csv_lines(content: bytes, records: Sequence[str], options: Mapping[str, str] = {}) -> list[int | None]:
    """The numbers of the lines on which records with the same cells begin, from 1; None for what is not there."""
    given = {name.casefold(): value for name, value in options.items()}
    separator = given.get("sep", given.get("delimiter", ","))
    quote, escape = given.get("quote", '"'), given.get("escape", '"')
    try:
        text = content.removeprefix(_BOM).decode(given.get("encoding", given.get("charset", "utf-8")), "replace")
    except LookupError:  # an encoding that only Java knows
        return [None] * len(records)
    if not len(separator) == len(quote) == len(escape) == 1:
        return [None] * len(records)
    escaped = {} if escape == quote else {"escapechar": escape, "doublequote": False}
    wanted = [next((cells for _, cells in _rows(record, delimiter=separator)), ()) for record in records]
    return _first_come(_rows(text, delimiter=separator, quotechar=quote, **escaped), wanted)


def _rows(text: str, **dialect: Any) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The cells of every record and the line on which it begins. An empty cell in quotes differs from one without."""
    sep = re.escape(dialect["delimiter"])
    lines = text.replace("\r\n", "\n")
    marked = re.sub(rf'(?:^|(?<={sep}))""(?=$|{sep})', _QUOTED_EMPTY, lines, flags=re.MULTILINE)
    csv.field_size_limit(LARGEST)
    rows = csv.reader(io.StringIO(marked, newline=""), **dialect)
    begins = 1
    with suppress(csv.Error):  # what is left cannot be told apart
        for cells in rows:
            if cells:
                yield begins, tuple(cells)
            begins = rows.line_num + 1


def _first_come(there: Iterable[tuple[int, Hashable]], wanted: Sequence[Hashable]) -> list[int | None]:
    """For each thing wanted the number of the first that is equal to it; of two equal ones each gets one of its own."""
    found: list[int | None] = [None] * len(wanted)
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for at, one in enumerate(wanted):
        waiting[one].append(at)
    for number, one in there:
        if waiting.get(one):
            found[waiting[one].popleft()] = number
    return found


def _finder(format: str, options: Mapping[str, str]) -> _Find:
    if format == "json":
        separator = options.get("lineSep")
        return lambda content, records: find_json_lines(content, records, separator)
    return lambda content, records: find_csv_lines(content, records, options)


def _adder(find: _Find, columns: Sequence[str]) -> Callable[[pa.Table, pa.Table], pa.Table]:
    """For `applyInArrow` on the rejects of a file and its content."""

    def add(rejects: pa.Table, contents: pa.Table) -> pa.Table:
        table = rejects.select(columns)
        if not contents.num_rows or not table.num_rows:
            return table
        lines = find(contents["content"][0].as_py(), [record or "" for record in table["record"].to_pylist()])
        origins = [
            origin if line is None else _with_line(origin, line)
            for origin, line in zip(table["origin"].to_pylist(), lines, strict=True)
        ]
        return table.set_column(columns.index("origin"), "origin", pa.array(origins, pa.string()))

    return add


def _with_line(origin: str, line: int) -> str:
    return json.dumps({**json.loads(origin), "line": line}, ensure_ascii=False, separators=(",", ":"))
