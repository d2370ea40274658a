"""What can be known of a job before Spark starts: is its table there, does it fit the rules, would a start be refused?

`check_job` looks at a Delta table through `deltalake` and at the metadata files beside the checkpoint, with the code
that the start itself uses. It raises nothing: `run` raises the first refusal, `plan`, `validate` and `doctor` list all.
What cannot be looked at in this way (a table of a catalog, a store that needs Spark's settings, a topic) is named in
`unchecked`; the start checks it then. So is a table that is missing, or is another one, where Spark's settings may lead
the path elsewhere. Cost: about a second, five where a remote store does not answer. Keys are read
only of tables of up to two million rows in up to a thousand files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from weever_stream.alerts.targets import TargetError, check_target
from weever_stream.errors import DataError, StateError, WeeverError
from weever_stream.feeds.delta_log import (
    START_AGAIN,
    Columns,
    TableLog,
    columns_of,
    may_skip,
    refuse_changed_columns,
    refuse_lost_versions,
    refuse_other_table,
    schema_changes,
    spark_type,
    tracked_schemas,
)
from weever_stream.job.options import DeltaSource
from weever_stream.rules.types import ColumnType, schema_of
from weever_stream.state.noted import ABOUT, Noted
from weever_stream.state.notes import Notes
from weever_stream.state.revision import Revision, refusals, revise
from weever_stream.state.store import opened
from weever_stream.storage import is_uri, locate, open_delta, scan_delta
from weever_stream.stream.columns import key_types, needed, readers_of, refuse_types, stored_schema
from weever_stream.stream.places import notes_of, offsets_of, schemas_of
from weever_stream.stream.preflight_places import is_elsewhere, sink_refusals, source_refusal
from weever_stream.stream.progress import PROGRESS, backfills_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deltalake import DeltaTable

    from weever_stream.job.job import Job

__all__ = ["SOURCE", "Preflight", "check_job"]

SOURCE = "source.json"
"""The note of which topic or table it is that the checkpoint was begun with."""
_ROWS, _FILES = 2_000_000, 1_000
"""Up to which size of a table its keys are read."""
_SECONDS = 5
"""How long a remote store is waited for."""
_COMMITS = 1_000
"""How many unread commits are looked at for changes of schema. The stream stops at each, and looks again."""
_SPARK = {"uint64": "decimal(20,0)", "duration": "interval day to second"}
"""Spark's names of types that rule files call otherwise."""
_PROPERTY = "delta.enableChangeDataFeed"


@dataclass
class Preflight:
    """What was found."""

    noted: Noted | None = None
    """What the checkpoint was made for; None for an empty one."""
    revision: Revision = field(default_factory=Revision)
    """What the job file changes of its rules."""
    open: dict[str, int] = field(default_factory=dict)
    """Open violations of each rule."""
    backfilling: dict[str, float] = field(default_factory=dict)
    """Rules that are being backfilled, each with the share that is done."""
    refusals: list[WeeverError] = field(default_factory=list)
    """Why a start would be refused."""
    not_ours: list[WeeverError] = field(default_factory=list)
    """Sinks that belong to another run: a start is refused unless it takes over."""
    warnings: list[str] = field(default_factory=list)
    """What a start accepts, and what makes its answers wrong or incomplete."""
    unchecked: list[str] = field(default_factory=list)
    """What could not be looked at, and why."""
    table_version: int | None = None


def check_job(job: Job) -> Preflight:
    """Looks at a job's checkpoint and at its table."""
    found, notes = Preflight(), Notes(notes_of(job))
    done: dict[str, Any] = {}
    try:
        done = notes.read(PROGRESS) or {}
        noted = notes.read(ABOUT) if _begun(job) else None
        found.noted = None if noted is None else Noted.of_json(noted, job.state.checkpoint)
        found.revision = _revision(job, found.noted)
    except WeeverError as error:
        found.refusals.append(error)
    except (OSError, pa.ArrowException) as error:
        found.unchecked.append(f"the checkpoint {job.state.checkpoint} cannot be read: {type(error).__name__}")
    found.open, found.backfilling = dict(done.get("open", {})), backfills_of(found.noted, done)
    if found.noted is not None:
        named = (job.file.table, job.source.kind, job.file.key, job.state.shards, _spark_version())
        found.refusals += refusals(found.noted, *named)
    for target in job.alerts:
        try:
            check_target(target)
        except TargetError as error:
            found.refusals.append(error)
    for refusal, taken_over in sink_refusals(job):
        (found.not_ours if taken_over else found.refusals).append(refusal)
    if (missing := source_refusal(job)) is not None:
        found.refusals.append(missing)
    if isinstance(job.source, DeltaSource):
        if job.source.path is None:
            found.unchecked.append(f"{job.source.table} is a table of a catalog: it is checked when Spark has started")
        elif not found.refusals:
            _check_table(job, job.source.path, found, notes, done)
    return found


def _check_table(job: Job, path: str, found: Preflight, notes: Notes, done: Mapping[str, Any]) -> None:
    """Looks at a Delta table. A store that does not answer, for want of credentials say, is not waited for."""
    mine = Preflight(found.noted, found.revision)
    check = _TableCheck(job, path, mine, notes, done)
    if is_uri(path) and not path.startswith("file:"):
        looking = Thread(target=check.run, name="weever preflight", daemon=True)
        looking.start()
        looking.join(_SECONDS)
        if looking.is_alive():
            found.unchecked.append(f"{path} did not answer within {_SECONDS} seconds: it is checked by the start")
            return
    else:
        check.run()
    found.refusals += mine.refusals
    found.warnings += mine.warnings
    found.unchecked += mine.unchecked
    found.table_version = mine.table_version


def _begun(job: Job) -> bool:
    """Whether a batch was ever planned."""
    _, system, folder = opened(offsets_of(job))
    infos = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return any(info.base_name.isdecimal() for info in infos)


def _revision(job: Job, noted: Noted | None) -> Revision:
    if noted is None:
        return Revision(added=tuple(rule.name for rule in job.file.rules))
    return revise(noted, job.file.rules)


def _spark_version() -> str | None:
    try:
        return ".".join(version("pyspark").split(".")[:2])
    except PackageNotFoundError:
        return None


@dataclass
class _TableCheck:
    """A look at a Delta table."""

    job: Job
    path: str
    found: Preflight
    notes: Notes
    done: Mapping[str, Any]

    def run(self) -> None:
        from deltalake.exceptions import TableNotFoundError

        try:
            table = open_delta(locate(self.path))
        except TableNotFoundError:
            missing = DataError(f"there is no Delta table {self.path}", hint="check the path")
            self._refuse_or_skip(missing)
            return
        except Exception as error:  # deltalake raises what its many file systems raise
            self._skip("the table", error)
            return
        try:
            self._identity(table)
        except WeeverError as error:
            self._refuse_or_skip(error)
            return
        self.found.table_version = table.version()
        for check in (self._history, self._feed, self._columns):
            try:
                check(table)
            except WeeverError as error:
                self.found.refusals.append(error)
                return
        self._keys(table)

    def _refuse_or_skip(self, error: WeeverError) -> None:
        """The table is not there, or is another one: a refusal, unless Spark may find it elsewhere."""
        if not is_elsewhere(self.job, self.path):
            self.found.refusals.append(error)
            return
        self.found.unchecked.append(
            f"{self.path} is not found without Spark's settings of its file systems: it is checked by the start"
        )

    def _skip(self, what: str, error: Exception) -> None:
        self.found.unchecked.append(
            f"{what} of {self.path} cannot be read without Spark ({type(error).__name__}): it is checked by the start"
        )

    def _position(self) -> Mapping[str, Any] | None:
        position: Mapping[str, Any] | None = json.loads(self.done.get("position", "null"))
        return position

    def _identity(self, table: DeltaTable) -> None:
        if self.found.noted is not None and (begun_with := self.notes.read(SOURCE)) is not None:
            refuse_other_table(self.path, str(table.metadata().id), begun_with)

    def _feed(self, table: DeltaTable) -> None:
        if table.metadata().configuration.get(_PROPERTY, "false").lower() != "true":
            raise DataError(
                f"the change data feed of {self.path} is off",
                hint=f"ALTER TABLE delta.`{self.path}` SET TBLPROPERTIES ({_PROPERTY} = true); "
                "changes are kept from then on, the snapshot holds what was before",
            )

    def _history(self, table: DeltaTable) -> None:
        """The commits that the job has not read: are they there, and do they change columns that it reads?"""
        position = self._position()
        if self.found.noted is None or position is None:
            return
        try:
            log, schemas = TableLog(locate(self.path)), tracked_schemas(schemas_of(self.job))
            unread = list(schema_changes(log.commits(int(position["version"]), _COMMITS)))
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            self._skip("the log", error)
            return
        refuse_lost_versions(self.path, position, log.first)
        before = [columns for at, columns in schemas if at <= int(position["version"])]
        if before:
            living = [rule for rule in self.job.file.rules if rule.name in self.found.revision.kept]
            readers = {name: readers_of(living, name) for name in needed(living, self.job.file.key)}
            refuse_changed_columns(self.path, readers, before[-1], unread)
        elif unread and isinstance(self.job.source, DeltaSource) and may_skip(self.job.source):
            self._refuse_without_schema_log(int(position["version"]), unread)

    def _refuse_without_schema_log(self, read: int, unread: list[tuple[int, Columns]]) -> None:
        """A stream that may skip commits follows only columns that are added, whether a rule reads them or not."""
        try:
            at = open_delta(locate(self.path), read)
        except Exception as error:  # the log of that version is gone: the stream follows what it tracked itself
            self._skip("the schema", error)
            return
        before = columns_of(at.schema().to_json(), at.metadata().partition_columns)
        for commit, columns in unread:
            changed = sorted(name for name, column in before.items() if columns.get(name) != column)
            if changed:
                raise StateError(
                    f"version {commit} of {self.path} drops or changes the column {changed[0]}, which a source with "
                    "`failOnDataLoss: false` cannot follow",
                    hint=f"without that option, changes of columns that no rule reads are followed; now {START_AGAIN}",
                )
            before = columns

    def _columns(self, table: DeltaTable) -> None:
        """Key and rules fit the columns, and those the types in which they are stored."""
        job, noted = self.job, self.found.noted
        found = schema_of(pa.schema(table.schema().to_arrow()))
        schema = job.file.schema(found)
        job.file.bind(schema)
        key_types(job.file.key, schema)
        if noted is None:
            return
        kinds = {name: spark_type(column.type) for name, column in columns_of(table.schema().to_json()).items()}
        for name, wanted in job.file.columns.items():
            before = found.get(name)  # as the feed does: a type of the same kind is left as it is
            if not isinstance(before, ColumnType) or before.kind != wanted.kind or wanted.kind == "decimal":
                kinds[name] = _SPARK.get(wanted.kind, str(wanted))
        try:
            now = stored_schema((name, kinds[name]) for name in needed(job.file.rules, job.file.key))
        except KeyError as error:  # a type that no stream reads
            self._skip("the types", error)
            return
        refuse_types(now, noted.columns, job.file.rules, job.state.checkpoint)

    def _keys(self, table: DeltaTable) -> None:
        """Warns of keys that are null or not unique."""
        key = list(self.job.file.key)
        try:
            if too_large := _too_large(table):
                self.found.unchecked.append(
                    f"{self.path} has {too_large}: its keys were not checked for duplicates and nulls"
                )
                return
            keys = scan_delta(table, locate(self.path)).to_table(columns=key)
        except Exception as error:  # deltalake's errors share no root with anything
            self._skip("the keys", error)
            return
        named = ", ".join(key)
        null = _any_null(keys)
        whole = keys.filter(pc.invert(null))
        if lacking := keys.num_rows - whole.num_rows:
            self.found.warnings.append(f"{lacking:,} rows of {self.path} have no key ({named}): they are rejected")
        sizes = whole.group_by(key).aggregate([([], "count_all")])["count_all"]
        if repeated := pc.sum(pc.greater(sizes, 1)).as_py():
            self.found.warnings.append(
                f"{repeated:,} keys ({named}) of {self.path} belong to more than one row:"
                " a key must be unique, or violations are missed or never resolved"
            )


def _too_large(table: DeltaTable) -> str | None:
    """How large a table is whose keys would take too long to read. From its log alone."""
    files = pa.table(table.get_add_actions(flatten=True))
    rows = pc.sum(files["num_records"]).as_py() or 0
    if files.num_rows > _FILES:
        return f"{files.num_rows:,} files (limit: {_FILES:,})"
    return f"{rows:,} rows (limit: {_ROWS:,})" if rows > _ROWS else None


def _any_null(table: pa.Table) -> pa.ChunkedArray:
    null = pc.is_null(table.column(0))
    for column in table.columns[1:]:
        null = pc.or_(null, pc.is_null(column))
    return null
