"""The last step of every feed: readings of a record's columns become a change, or a reject with its reason.

Rejected is a record that the feed found a fault in, whose change is unknown, whose sequence is missing or out of
range, that has no key, or that holds a value which does not fit its declared type. Reasons name columns and types,
never values. Rejects are rows of the same frame. Costs a projection: the parts are put in stages so that Catalyst
evaluates each costly expression once, and what tells the origin is made only for rejects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from weever_stream.errors import DataError, did_you_mean
from weever_stream.feeds.changes import CHANGE, CLEAR, DROP_ANYWHERE, ORIGIN, REASON, RECORD, REJECT, SEQUENCE
from weever_stream.rules.reserved import refuse_reserved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from weever_stream.rules.types import ColumnType

__all__ = [
    "Fault", "Reading", "Trace", "change_frame", "changes_by_name", "check_names", "column", "does_not_fit",
    "first_fault", "not_sent", "not_utf8", "reasons_of",
]  # fmt: skip

_LAST_SEQUENCE = 2**62 - 1


@dataclass(frozen=True)
class Fault:
    """A condition under which a record is rejected, and the reason that is given."""

    condition: Column
    reason: str


@dataclass(frozen=True)
class Trace:
    """Where a record came from, for the reject that it may become."""

    origin: Mapping[str, Column]
    """What says where, by the name it gets in JSON."""
    record: Column
    """The record as text."""
    needed: tuple[str, ...] = ()
    """Columns of the frame that `record` reads."""


@dataclass(frozen=True)
class Reading:
    """How a column is read from a record."""

    name: str
    value: Column
    wanted: ColumnType | None = None
    """The declared type, where the value may not fit it."""
    present: Column | None = None
    """Whether the record holds a value at all: present and null means that it does not fit."""
    fault: Fault | None = None
    """Another fault of the column: one of `reasons_of`."""

    def where(self, condition: Column, other: Reading) -> Reading:
        """This reading where the condition holds, else the other."""
        value = F.when(condition, self.value).otherwise(other.value)
        if self.present is None or other.present is None:
            return Reading(self.name, value)
        return Reading(self.name, value, self.wanted, F.when(condition, self.present).otherwise(other.present))


def does_not_fit(name: str, wanted: ColumnType | None) -> str:
    """The reason of a record that holds a value which is not of the declared type."""
    return f"column {name}: the value is not a {wanted}"


def not_utf8(name: str) -> str:
    """The reason of a record with bytes that are no text."""
    return f"column {name}: the text is not UTF-8"


def reasons_of(name: str, wanted: ColumnType | None) -> tuple[str, ...]:
    """All reasons that are about one column: a record is rejected for them only if the column is read."""
    return does_not_fit(name, wanted), not_utf8(name), not_sent(name)


def not_sent(name: str) -> str:
    """The reason of a record that lacks a value which the database did not send."""
    return f"column {name} was not sent: set REPLICA IDENTITY FULL on the table and `before: full` in the source"


def column(name: str) -> Column:
    """A column by its exact name, whatever characters it holds."""
    return F.col("`" + name.replace("`", "``") + "`")


def check_names(names: Iterable[str], known: Mapping[str, ColumnType | str], where: str) -> None:
    """Raises for the first name that the source does not have, and for columns of it, read or not, that are ours."""
    refuse_reserved(known)
    for name in names:
        refuse_reserved([name])
        if name not in known:
            raise DataError(
                f"{where} has no column {name}", hint=did_you_mean(name, known) or "it has " + ", ".join(known)
            )


def changes_by_name(name: Column, changes: Mapping[str, int]) -> Column:
    """The change that a word such as `insert` stands for, null for one that is not known."""
    return F.coalesce(*(F.when(name == word, F.lit(change)) for word, change in changes.items()))


def first_fault(faults: Iterable[Fault]) -> Column:
    """The reason of the first fault whose condition holds, else null."""
    return F.coalesce(*(F.when(fault.condition, F.lit(fault.reason)) for fault in faults), F.lit(None).cast("string"))


def change_frame(
    frame: DataFrame,
    readings: Sequence[Reading],
    key: Sequence[str],
    *,
    names: Sequence[str],
    change: Column,
    sequence: Column,
    trace: Trace,
    faults: Sequence[Fault] = (),
) -> DataFrame:
    """The change frame of a source's records. `change` is null where it is not known; faults are tried in order."""
    # Columns go by number until the end, so that names that differ only in case never meet.
    at = {reading.name: f"_weever_v{i}" for i, reading in enumerate(readings)}
    held = {reading.name: f"_weever_p{i}" for i, reading in enumerate(readings) if reading.present is not None}
    read = frame.select(
        *(reading.value.alias(at[reading.name]) for reading in readings),
        *(reading.present.alias(held[reading.name]) for reading in readings if reading.present is not None),
        *(reading.fault.condition.alias(f"_weever_f{i}") for i, reading in enumerate(readings) if reading.fault),
        change.cast("tinyint").alias(CHANGE),
        sequence.cast("bigint").alias(SEQUENCE),
        first_fault(faults).alias(REASON),
        *(part.alias(f"_weever_o_{name}") for name, part in trace.origin.items()),
        *trace.needed,
    )
    kind, number, reason = F.col(CHANGE), F.col(SEQUENCE), F.col(REASON)
    known = [
        Fault(kind.isNull(), "the change is none that is known"),
        Fault(number.isNull(), "the sequence is missing or not a whole number"),
        Fault(~number.between(0, _LAST_SEQUENCE), "the sequence is negative or too large"),
    ]

    def faults_of(i: int, reading: Reading) -> Iterator[Fault]:
        if reading.fault:
            yield Fault(F.col(f"_weever_f{i}"), reading.fault.reason)
        if reading.name not in held:
            return
        wrong = F.col(held[reading.name]) & F.col(at[reading.name]).isNull()
        # A drop by key says nothing by its other columns.
        wrong = wrong if reading.name in key else wrong & (kind != DROP_ANYWHERE)
        yield Fault(wrong, does_not_fit(reading.name, reading.wanted))

    # The key first, then column by column: a record that is rejected for one of them is known to have a key, and to
    # fit the columns before it (see `stream.history`).
    of_columns = [(reading.name in key, [*faults_of(i, reading)]) for i, reading in enumerate(readings)]
    known += [fault for is_key, found in of_columns if is_key for fault in found]
    known += [
        Fault((kind != CLEAR) & F.col(at[name]).isNull(), f"key column {name} is null or missing") for name in key
    ]
    known += [fault for is_key, found in of_columns if not is_key for fault in found]
    judged = read.withColumn(REASON, F.coalesce(reason, first_fault(known)))
    rejected = reason.isNotNull()
    origin = F.struct(*(F.col(f"_weever_o_{name}").alias(name) for name in trace.origin))
    return judged.select(
        *(F.col(at[name]).alias(name) for name in names),
        F.when(rejected | kind.isNull(), F.lit(REJECT).cast("tinyint")).otherwise(kind).alias(CHANGE),
        F.when(number.between(0, _LAST_SEQUENCE), number).otherwise(F.lit(0).cast("bigint")).alias(SEQUENCE),
        reason,
        F.when(rejected, F.to_json(origin)).alias(ORIGIN),
        F.when(rejected, trace.record).alias(RECORD),
    )
