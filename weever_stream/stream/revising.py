"""Brings a checkpoint to the rules of a job file, however it was left, in steps that may each be the last.

    a batch that was planned and not finished   is finished with the rules that it was planned with
    rules that end                              are noted as ended; shards close what is open under them
    rules that come                             are filled from the table as it is where the job stands

    rules that are built again                  are filled beside their old state, which reports until that is done

Rules that come form families of their own, so those that stay are not touched. The fill goes through the lane while
changes go on arriving; a change that overtakes the row that it changes is remembered until all rows have come. At
every batch boundary what is open under a rule that is being filled is true; when all messages have come it is also all.
(A change that is older than the row it overtakes cannot be told from a newer one until that row has come. Only files
come late in this way.)
A rule that ends and comes again under the same name is closed in an earlier batch than it is filled. A rule that is
built again is not closed: when all of its rows have come to a shard, what they show takes the place of what was open
there, in one batch, and only the difference is emitted.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from weever_stream.errors import DataError, StateError, WeeverError
from weever_stream.feeds.changes import CHANGE, ORIGIN, PUT, PUT_ANYWHERE, REASON, RECORD
from weever_stream.state.noted import Generation, Noted, NotedRule
from weever_stream.state.revision import REBUILT, refusals, revise
from weever_stream.stream.batches import too_many
from weever_stream.stream.columns import needed
from weever_stream.stream.failures import explained, lost, schema_changed, texts_of, told
from weever_stream.stream.history import LETTER, judged_history
from weever_stream.stream.jvm import log_file
from weever_stream.stream.lane import Table, table_of
from weever_stream.stream.position import last_batches, planned
from weever_stream.stream.progress import PROGRESS, backfills_of
from weever_stream.stream.query import ONE_BATCH, WHAT_IS_THERE
from weever_stream.stream.restarts import SchemaChangedError
from weever_stream.stream.saved import read_noted, write_noted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import Any

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from weever_stream.rules.model import Rule
    from weever_stream.state.revision import Revision
    from weever_stream.stream.query import Context

__all__ = ["agreed", "finish", "settle", "spark_version"]


def agreed(context: Context, approve: Callable[[Revision], None], again: Collection[str] = ()) -> Noted:
    """The note that a query is started from. Where rules have changed, `approve` raises if they may not."""
    job, checkpoint = context.job, context.checkpoint
    noted = read_noted(context.notes, checkpoint)
    begun = last_batches(context.spark, checkpoint)[0] >= 0
    if noted is None and begun:
        raise StateError(
            f"the checkpoint {checkpoint} has batches, and no note of what it was made for",
            hint="restore `weever/job.json` from a copy of the checkpoint, or name an empty one",
        )
    if noted is None or not begun:
        noted = _fresh(context)
        write_noted(context.notes, noted)
        return noted
    named = (job.file.table, job.source.kind, job.file.key, job.state.shards, spark_version(context.spark))
    for refusal in refusals(noted, *named):
        raise refusal
    noted = settle(context, noted)
    revision = revise(noted, job.file.rules, again)
    if not revision:
        return noted
    approve(revision)
    return _changed(context, noted, revision)


def spark_version(spark: SparkSession) -> str:
    """Major and minor."""
    return ".".join(spark.version.split(".")[:2])


def _fresh(context: Context) -> Noted:
    """The note of a checkpoint that has seen nothing yet."""
    job = context.job
    noted = Noted(
        table=job.file.table,
        source=job.source.kind,
        key=tuple(job.file.key),
        shards=job.state.shards,
        spark=spark_version(context.spark),
        columns=context.columns(job.file.rules),
        generations=(Generation(0, tuple(NotedRule.of(rule) for rule in job.file.rules)),),
    )
    return _with_families(context, noted.reading(None))


def _with_families(context: Context, noted: Noted) -> Noted:
    families = context.setup(replace(noted, families=())).families
    return replace(noted, families=tuple(family.identity for family in families))


def _changed(context: Context, noted: Noted, revision: Revision) -> Noted:
    last, finished = last_batches(context.spark, context.checkpoint)
    if last > finished:
        _finish_planned(context, noted, last)
    rules = [rule for rule in context.job.file.rules if rule.name in set(revision.filled)]
    if rules:  # before anything ends: what cannot be filled leaves all as it is
        _, table = _table(context, noted, rules)
        if revision.reasons and table is not None and table.rejects is not None:
            with _unreadable():
                rows = table.rows.where(F.col(CHANGE).isin(PUT, PUT_ANYWHERE)).count()
                _judge(context)(rejected := table.rejects.count(), rejected + rows)
    if {noted.rules[old].name for old in noted.rebuilding} & {*revision.rebuilt}:
        finish(context, noted, WHAT_IS_THERE)  # it is being built again already
        noted = settle(context, noted)
    noted = _end(context, noted, revision.reasons)
    come = [rule for rule in rules if rule.name not in revision.rebuilt]
    if {rule.name for rule in come} & {rule.name for rule in noted.rules if rule.ended is not None}:
        # Closed first, in an earlier batch than it is filled, also where an earlier start was cut off in between.
        finish(context, noted, WHAT_IS_THERE)
    noted = _filled(context, noted, come) if come else noted
    for rule in rules:
        noted = _rebuilt(context, noted, rule) if rule.name in revision.rebuilt else noted
    return noted


def settle(context: Context, noted: Noted) -> Noted:
    """Ends the old state of rules that were built again, if that is complete in every shard."""
    last, finished = last_batches(context.spark, context.checkpoint)
    pending = backfills_of(noted, context.notes.read(PROGRESS))
    if not noted.rebuilding or last > finished or any(noted.rules[old].name in pending for old in noted.rebuilding):
        return noted
    noted = replace(noted.settling(REBUILT), revision=noted.revision + 1)
    write_noted(context.notes, noted)
    return noted


def _end(context: Context, noted: Noted, reasons: Mapping[str, str]) -> Noted:
    """Notes rules as ended, and lets every shard know."""
    if not reasons:
        return noted
    noted = replace(noted.ending(reasons).reading(_position(context)), revision=noted.revision + 1)
    context.lease.check()
    context.lane.tidy(noted.revision - 1)
    context.lane.call(context.setup(noted), noted.revision, noted.shards)
    write_noted(context.notes, noted)
    return noted


def _finish_planned(context: Context, noted: Noted, batch: int) -> None:
    """Finishes a batch with the rules that it was planned with, also those that are to end."""
    try:
        query = context.start(noted, ONE_BATCH).query
    except (DataError, StateError) as error:  # a column of a rule that ends is gone, most likely, or another one now
        raise StateError(
            f"batch {batch} was planned with the rules as they were, and must be finished with them before they change:"
            f" {error.message}",
            hint="give the job file, or the source, once more what the old rules read, until the job has started; or "
            "name an empty checkpoint and start with --take-over",
        ) from None
    _ended(query)


def finish(context: Context, noted: Noted, trigger: str) -> None:
    """Runs the query of a note to its end."""
    _ended(context.start(noted, trigger).query)


def _ended(query: StreamingQuery) -> None:
    try:
        query.awaitTermination()
    except Exception as error:
        texts = texts_of(error)
        if schema_changed(texts):  # what is noted of the new rules is taken up by the next start
            raise SchemaChangedError("the source has a new schema", hint="start the job again") from None
        raise told(texts) from None


def _filled(context: Context, noted: Noted, rules: list[Rule]) -> Noted:
    """Another generation, with its messages in the lane."""
    columns, table = _table(context, noted, rules)
    return _fill(context, noted, noted.adding(rules, columns), table)


def _rebuilt(context: Context, noted: Noted, rule: Rule) -> Noted:
    """Another generation for a rule that stays, which takes its place when all messages have come."""
    columns, table = _table(context, noted, [rule])
    born = noted.rebuilding_again(rule, columns)
    setup = context.setup(replace(born, families=()))
    new = len(born.rules) - 1
    if not setup.family_of(new).meets_like(setup.family_of(setup.replaces[new])):
        # Its pairs would meet in other shards than those that have them open: they are closed there first.
        noted = _end(context, noted, {rule.name: REBUILT})
        finish(context, noted, WHAT_IS_THERE)
        return _filled(context, noted, [rule])
    return _fill(context, noted, born, table, call=True)


def _fill(context: Context, noted: Noted, born: Noted, table: Table | None, *, call: bool = False) -> Noted:
    """Sends rows to the last generation, and notes it. `call`: every shard is to look at it, also without rows."""
    born = replace(born.reading(_position(context)), revision=noted.revision + 1)
    context.lane.tidy(noted.revision)
    if table is not None:
        generation, setup = born.generations[-1], context.setup(replace(born, families=()))
        with _unreadable():
            fills = context.lane.fill(table, setup, generation.number, born.revision, _judge(context))
        born = replace(born, generations=(*born.generations[:-1], replace(generation, fills=fills)))
    born = _with_families(context, born)
    context.lease.check()
    if call:
        context.lane.call(context.setup(born), born.revision, born.shards)
    write_noted(context.notes, born)
    return born


def _judge(context: Context) -> Callable[[int, int], None]:
    """Refuses a backfill that cannot read too large a share of the records, or that took longer than its lease."""
    rejects = context.job.source.rejects

    def judge(rejected: int, all_of: int) -> None:
        context.lease.check()
        if too_many(rejects, rejected, all_of):
            raise DataError(
                f"{rejected} of {all_of} records do not fit the columns that the new rules read, more than a share of "
                f"{rejects.max_share:g}",
                hint="check the types of these columns under `columns:`, or raise `source.rejects.max_share`",
            )

    return judge


def _table(context: Context, noted: Noted, rules: list[Rule]) -> tuple[pa.Schema, Table | None]:
    """The columns that are stored with some rules more, and the table at the position of the last finished batch."""
    job = context.job
    columns = _joined(noted.columns, context.columns(rules), context.checkpoint)
    position = _position(context)
    if position is None:
        return columns, None
    names = needed(rules, job.file.key)
    with _unreadable():
        history = judged_history(context, names, noted.reads, position)
        rows = table_of(history, job.file.key, names, anywhere=bool(job.remember_drops))
        read = {*job.file.key, *(name for one in noted.reads for name in one.columns)}
        fresh = [name for name in names if name in job.file.columns and name not in read]
        return columns, Table(rows, _letters(history) if fresh else None)


def _letters(history: DataFrame) -> DataFrame:
    """The records that are rejected by a backfill, and were not before."""
    return history.where(LETTER).select(REASON, ORIGIN, RECORD)


@contextmanager
def _unreadable() -> Iterator[None]:
    """Whatever Spark says of a table that cannot be read any more, in our words; other failures as they are."""
    try:
        yield
    except WeeverError:
        raise
    except Exception as error:
        texts = texts_of(error)
        if (failure := explained(texts)) is not None:
            raise failure from None
        log, missing = log_file(), lost(texts)
        newer = (
            "a column that is newer than that? Start the job with its old rules to let it catch up, then change them; "
            "or name an empty checkpoint and start with --take-over, which finds everything again"
        )
        raise DataError(
            f"the table cannot be read as it was where the job stands: {told(texts).message}",
            hint=((missing.hint if missing else None) or newer) + (f". Spark's messages are in {log}" if log else ""),
        ) from None


def _position(context: Context) -> dict[str, Any] | None:
    """Where the job stands: the position of the last batch that was finished."""
    _, finished = last_batches(context.spark, context.checkpoint)
    if finished < 0:
        return None
    position: dict[str, Any] | None = json.loads(planned(context.spark, context.checkpoint, finished).position)
    return position


def _joined(before: pa.Schema, more: pa.Schema, where: str) -> pa.Schema:
    """The columns that are stored, and further ones."""
    for field in more:
        if field.name in before.names and before.field(field.name).type != field.type:
            raise StateError(
                f"the column {field.name} is stored as {before.field(field.name).type} under {where},"
                f" and now it is {field.type}",
                hint="declare its old type under `columns:`, or name an empty checkpoint and start with --take-over",
            )
    return pa.schema([*before, *(field for field in more if field.name not in before.names)])
