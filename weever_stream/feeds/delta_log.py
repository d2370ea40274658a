"""What the log of a Delta table says to a job that follows the table: which table it is, and which schemas it had.

A stream reads every commit with the schema that the table had then. Delta keeps those schemas in two places: in the
`metaData` of the commits, and, for a stream, in a schema log below its checkpoint. A change of schema concerns a job
only if it concerns a column that the job reads. Such a column may become wider. Any other change is refused with its
version and column, because old rows can no longer be read in the new type, or no commit says how their values changed.

No Spark in here: `weever plan` and the checks before a start read the same files. Cost: one listing of the log, and one
small file for each commit that is looked at.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pyarrow import fs

from weever_stream.errors import StateError
from weever_stream.job.options import revealed
from weever_stream.state.store import opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from weever_stream.job.options import DeltaSource
    from weever_stream.state.store import StoreOptions
    from weever_stream.storage import Location

__all__ = [
    "START_AGAIN", "Columns", "DeltaColumn", "TableLog", "columns_of", "first_version", "may_skip",
    "refuse_changed_columns", "refuse_lost_versions", "refuse_other_table", "schema_changes", "spark_type",
    "tracked_schemas",
]  # fmt: skip

START_AGAIN = "name an empty checkpoint and start with --take-over, which finds everything again"
_COMMIT = re.compile(r"([0-9]{20})\.json")
_PHYSICAL = "delta.columnMapping.physicalName"
_WIDER = {
    "byte": {"short", "integer", "long"},
    "short": {"integer", "long"},
    "integer": {"long"},
}
"""Files of the type on the left can be read in those on the right, and both are stored in one type."""
_SPARK = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}


@dataclass(frozen=True)
class DeltaColumn:
    """A column in one of the schemas of a table."""

    type: str
    """As Delta writes it: `long`, `decimal(6,2)`; JSON for a nested one."""
    physical: str | None = None
    """Its name in the data files, where the table has column mapping. A name that is given again is another column."""
    partition: bool = False
    """Whether its values are in the log and not in the data files. Files of one kind have no value in the other."""


Columns: TypeAlias = "dict[str, DeltaColumn]"


def columns_of(schema: str, partitions: Iterable[str] = ()) -> Columns:
    """The columns of a schema in Delta's JSON."""
    names = set(partitions)
    return {str(field["name"]): _column(field, field["name"] in names) for field in json.loads(schema)["fields"]}


def _column(field: Mapping[str, Any], partition: bool) -> DeltaColumn:
    kind = field["type"] if isinstance(field["type"], str) else json.dumps(field["type"], sort_keys=True)
    return DeltaColumn(kind, (field.get("metadata") or {}).get(_PHYSICAL), partition)


def spark_type(kind: str) -> str:
    """Spark's name of a Delta type."""
    return _SPARK.get(kind, kind)


def may_skip(source: DeltaSource) -> bool:
    """Whether the stream of a source may skip commits. Delta refuses to log schemas then."""
    options = {name.lower(): value for name, value in revealed(source.options).items()}
    return options.get("failondataloss", "true").lower() == "false"


def schema_changes(commits: Iterable[tuple[int, Iterable[str]]]) -> Iterator[tuple[int, Columns]]:
    """The schemas that some commits introduce, each with its version. One that no row was written in is left out."""
    latest: tuple[int, Columns] | None = None
    for version, lines in commits:
        has_rows = False
        for line in lines:
            has_rows = has_rows or line.startswith(('{"add"', '{"remove"', '{"cdc"'))
            if '"metaData"' in line and "metaData" in (action := json.loads(line)):
                metadata = action["metaData"]
                latest = version, columns_of(metadata["schemaString"], metadata.get("partitionColumns") or ())
        if latest is not None and has_rows:
            yield latest
            latest = None
    if latest is not None:
        yield latest


def refuse_changed_columns(
    where: str, readers: Mapping[str, str], before: Columns, later: Iterable[tuple[int, Columns]]
) -> None:
    """Raises `StateError` for the first schema that changes a column that is read. `readers`: by column, who reads it.

    `before` is the schema that has been read so far; a column that it lacks has not been read, and is not compared.
    """
    for version, columns in later:
        for name, reader in readers.items():
            was, now = before.get(name), columns.get(name)
            if was is None:
                continue
            if now is None:
                what = f"drops the column {name}, which is read by {reader}"
            elif (was.physical or name) != (now.physical or name):  # turning column mapping on renames nothing
                what = f"gives the name {name} to another column; it is read by {reader}"
            elif was.partition != now.partition:
                what = f"partitions the table differently by {name}, which is read by {reader}"
            elif was.type != now.type and now.type not in _WIDER.get(was.type, ()):
                old, new = spark_type(was.type), spark_type(now.type)
                what = f"changes the column {name} from {old} to {new}; it is read by {reader}"
            else:
                continue
            raise StateError(
                f"version {version} of {where} {what}", hint=f"the job cannot follow that change: {START_AGAIN}"
            )
        before = columns


def refuse_other_table(where: str, table_id: str, begun_with: Mapping[str, Any]) -> None:
    """Raises `StateError` if a checkpoint was begun with another table. `begun_with`: the source as it was noted."""
    noted, path = begun_with.get("table"), begun_with.get("where")
    if noted in (None, table_id):
        return
    if path is not None and path != where:
        raise StateError(
            f"the checkpoint belongs to another job: it follows the table {path}, this job reads {where}",
            hint=f"give this job a `state.checkpoint` of its own; if the table has moved, {START_AGAIN}",
        )
    raise StateError(f"the table {where} was deleted and created again: its id has changed", hint=START_AGAIN)


def refuse_lost_versions(where: str, position: Mapping[str, Any] | None, first: int | None) -> None:
    """Raises `StateError` if the log, which begins with version `first`, lacks commits after the position."""
    read = (position or {}).get("version")
    if read is not None and first is not None and first > int(read) + 1:
        raise StateError(
            f"the log of {where} no longer has the versions {int(read) + 1} to {first - 1}, which the job has not read",
            hint=f"changes are lost: {START_AGAIN}; and set delta.logRetentionDuration longer",
        )


def first_version(names: Iterable[str]) -> int | None:
    """The oldest commit among the files of a log."""
    return min((int(found[1]) for name in names if (found := _COMMIT.fullmatch(name))), default=None)


class TableLog:
    """The folder `_delta_log` of a table. Raises `OSError` where it cannot be read."""

    def __init__(self, table: Location) -> None:
        self._folder = table.inside("_delta_log")
        infos = self._folder.system.get_file_info(fs.FileSelector(self._folder.path))
        self._names = [str(info.base_name) for info in infos]
        self.first = first_version(self._names)

    def commits(self, after: int, limit: int) -> Iterator[tuple[int, Sequence[str]]]:
        """The lines of the first commits after a version."""
        found = sorted((int(name[:20]), name) for name in self._names if _COMMIT.fullmatch(name))
        for version, name in [one for one in found if one[0] > after][:limit]:
            with self._folder.inside(name).open_stream() as file:
                yield version, file.read().decode().splitlines()


def tracked_schemas(folder: StoreOptions) -> list[tuple[int, Columns]]:
    """The schemas in a stream's schema log, with the version that introduced each, in the order of versions."""
    _, system, root = opened(folder)
    found: dict[int, Columns] = {}
    infos = system.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    for info in sorted((one for one in infos if one.base_name.isdecimal()), key=lambda one: int(one.base_name)):
        with system.open_input_stream(info.path) as file:
            _, entry, *_ = file.read().decode().splitlines()
        schema = json.loads(entry)
        partitions = [field["name"] for field in json.loads(schema["partitionSchemaJson"])["fields"]]
        found[int(schema["deltaCommitVersion"])] = columns_of(schema["dataSchemaJson"], partitions)
    return sorted(found.items())
