"""The changes of a source up to a position, each judged as it was judged when it arrived.

A record that did not fit a column was rejected on arrival if a rule read that column then, and changed nothing for any
rule. If no rule did, it replaced the row of its key, although it does not fit the column that a new rule reads now.
Which columns were read is noted with the position from which they were (`Noted.reads`), so the history is read in
parts, one for each set of columns, and every part tells the two kinds of records apart. A source that has only the
table as it is, and not its changes, is read in one part. Cost: one read of the source.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from weever_stream.feeds.changes import CHANGE, ORIGIN, REASON, RECORD, REJECT, SEQUENCE
from weever_stream.feeds.readings import column, reasons_of
from weever_stream.state.noted import Read
from weever_stream.stream.position import files_read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import Any

    from weever_stream.stream.query import Context

    Position = dict[str, Any]

__all__ = ["LETTER", "judged_history"]

LETTER = "_weever_letter"
"""Whether a record that cannot be read is to become a dead letter: it is none yet."""


def judged_history(context: Context, names: Sequence[str], reads: Sequence[Read], until: Position) -> DataFrame:
    """All changes up to a position, and as rejects the records that replaced a row and cannot be read now.

    `names`: the key and the columns that are read.
    """
    parts = (
        _part(context, names, read.columns, lettered, _listed(context, read.since), _listed(context, end) or {})
        for read, lettered, end in _stretches(reads, until, whole=not context.feed.replays)
    )
    return reduce(DataFrame.unionByName, parts)


def _stretches(reads: Sequence[Read], until: Position, *, whole: bool) -> Iterator[tuple[Read, set[str], Position]]:
    """Each set of columns that was read, with those that were read then or later, and where that ended."""
    if whole:
        yield Read(None, ()), {name for one in reads for name in one.columns}, until
        return
    ends = [*(read.since for read in reads[1:]), until]
    for at, (read, end) in enumerate(zip(reads, ends, strict=True)):
        if end is not None and end != read.since:
            yield read, {name for one in reads[at:] for name in one.columns}, end


def _part(
    context: Context,
    names: Sequence[str],
    judged: Collection[str],
    lettered: Collection[str],
    since: Position | None,
    until: Position,
) -> DataFrame:
    """Changes between two positions. `judged`: columns for which records were rejected on arrival.

    `lettered`: columns for which records have become dead letters, on arrival or in an earlier backfill.
    """
    key, declared = context.job.file.key, context.job.file.columns
    known = [name for name in judged if name in declared and name not in key]
    # A record has the reason of the first column that it does not fit.
    more = sorted((name for name in names if name not in (*known, *key)), key=lambda name: name not in lettered)
    reasons = {name: reasons_of(name, declared.get(name)) for name in more}
    replaced = F.col(REASON).isin([reason for found in reasons.values() for reason in found])
    fresh = F.col(REASON).isin([reason for name in more if name not in lettered for reason in reasons[name]])
    for name in key:
        replaced = replaced & column(name).isNotNull()
    frame = context.feed.history([*key, *known, *more], until, since)
    return frame.where((F.col(CHANGE) != REJECT) | replaced).select(
        *(column(name) for name in names),
        *(F.col(name) for name in (CHANGE, SEQUENCE, REASON, ORIGIN, RECORD)),
        ((F.col(CHANGE) == REJECT) & F.coalesce(fresh, F.lit(False))).alias(LETTER),
    )


def _listed(context: Context, position: Position | None) -> Position | None:
    """A position with the paths of the files that were read, for a source of files."""
    if position is None or "entry" not in position:
        return position
    return {**position, "paths": files_read(context.spark, context.checkpoint, position["entry"])}
