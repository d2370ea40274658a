"""What is done with every batch of the query that learns rules: changes in, the rules that hold then, events out.

In this order: the changes are applied to the learner in memory and noted in the journal; events are written to the
sinks; the note of the rules that hold is replaced, if they have changed; the learner is dumped, if it is time. A batch
that was cut off anywhere is done again as a whole: the journal leads back to the learner before it, so nothing is
applied twice, and the events are those of the first time. Delta takes them once, Kafka may get them again.

The first batch with rows builds the learner, by a discovery over them; its rules are all told as added, without a pair.
Cost of another batch: its changes cross to the driver, what the learner needs for them, and one small file.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from weever_stream.errors import StateError
from weever_stream.learn.events import RuleEvent, as_table, key_text, values_text
from weever_stream.learn.holding import HOLDING, Holding, Moment
from weever_stream.learn.together import Together
from weever_stream.learn.weighing import weigh
from weever_stream.sinks.ruleevents import RuleEvents
from weever_stream.stream.collecting import TYPE, UPSERT, VERSION, collected
from weever_stream.stream.failures import shorten_failures
from weever_stream.stream.position import planned, read_text
from weever_stream.stream.progress import PROGRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from weever_stream.learn import Learned, Learner, RuleChange
    from weever_stream.learn.about import About
    from weever_stream.learn.together import Companion
    from weever_stream.sinks.ruleevents import EventSink
    from weever_stream.state.journal import Journal
    from weever_stream.state.lease import Lease
    from weever_stream.state.notes import Notes
    from weever_stream.stream.logbook import Logbook
    from weever_stream.stream.position import Planned

__all__ = ["BEFORE", "BEGUN", "LearnReport", "Lessons"]

BEFORE = "before.json"
"""The note of the rules that held when all was begun anew: the first batch tells what became of them."""
_WEIGHING = 20.0
"""Rules that come are weighed again after so many times the time that it took last; until then they have no score."""
BEGUN = "begun.json"
"""Which batch the learner was built from."""


@dataclass(frozen=True)
class LearnReport:
    """One batch, done."""

    batch: int
    position: str
    detected_at: datetime
    changes: int
    rejected: int
    rows: int
    """That the learner holds."""
    rules: int
    """That hold."""
    events: tuple[RuleEvent, ...]
    first: bool
    """Whether the learner was built from this batch."""
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """As one JSON object."""
        events = [vars(event) for event in self.events]
        return {**vars(self), "detected_at": self.detected_at.isoformat(), "events": events}


@dataclass
class Lessons:
    """What is done with every batch. `settings`: further arguments of a learner."""

    spark: SparkSession
    checkpoint: str
    about: About
    notes: Notes
    journal: Journal
    logbook: Logbook
    lease: Lease
    sinks: Sequence[EventSink]
    observe: Callable[[LearnReport], None]
    settings: Mapping[str, Any]
    companions: Callable[[], Sequence[Companion]] = tuple
    """Makes what is kept beside a learner."""
    _held: Together | None = field(default=None, init=False)
    _holding: Holding | None = field(default=None, init=False)
    _weigh_after: float = field(default=0.0, init=False)
    _at: int | None = field(default=None, init=False)
    """The batch that is held last."""

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """For `foreachBatch`."""
        with shorten_failures():
            self._learn(frame, batch)

    def _learn(self, frame: DataFrame, batch: int) -> None:
        began = time.perf_counter()
        self.lease.check()
        when = planned(self.spark, self.checkpoint, batch)
        held = self._before(batch)
        taken = collected(frame, self.about.key, self.about.columns)
        self._at = None  # until the batch is done, what is in memory is neither before it nor after
        first, learned, told = held is None, None, list[RuleEvent]()
        if held is None:
            held, told = self._built(taken.changes)
        else:
            changes = taken.after_clearing(self._keys(held.learner))
            learned, told = held.apply(changes)
            self.lease.check()
            self.journal.note(batch, changes)
        learner = None if held is None else held.learner
        holding, events = self._told(learner, learned, when, batch)
        events += told
        self.lease.check()  # learning may have taken minutes
        self._write(events, when, batch, frame.sparkSession)
        self._note(holding, events, learner, when, batch, first)
        if held is not None and self.journal.due(batch):
            self.lease.check()
            self.journal.dump(batch, held.dump)
        self.journal.tidy(batch)
        self.observe(
            LearnReport(
                batch=batch,
                position=when.position,
                detected_at=when.at,
                changes=taken.records,
                rejected=taken.rejected,
                rows=0 if learner is None else len(learner),
                rules=len(holding.rules),
                events=tuple(events),
                first=first and learner is not None,
                seconds=round(time.perf_counter() - began, 6),
            )
        )
        self._held, self._holding, self._at = held, holding, batch

    def _before(self, batch: int) -> Together | None:
        """What was held before a batch; None if nothing was learned yet."""
        if self._at is not None and self._at == batch - 1:
            return self._held
        self._held = self._holding = None  # one at a time fits the memory
        found = self.journal.restore(batch, lambda path: Together.load(path, self.companions), Together.apply)
        begun = (self.notes.read(BEGUN) or {}).get("batch")
        if found is None and begun is not None and begun < batch:
            raise StateError(
                f"the dumps of the learner under {self.checkpoint} are gone",
                hint="restore them from a copy of the checkpoint, or `weever learn --anew` begins again",
            )
        self.journal.forget(batch)
        return found

    def _keys(self, learner: Learner) -> pa.Table:
        return learner.table().select(list(self.about.key))

    def _built(self, changes: pa.Table) -> tuple[Together | None, list[RuleEvent]]:
        """What is learned from the first rows; nothing where there are none."""
        puts = pc.equal(changes.column(TYPE), UPSERT)
        first = changes.filter(puts).drop_columns([TYPE])
        if not first.num_rows:
            return None, []
        held, events = Together.build(first, VERSION, self.companions(), key=list(self.about.key), **self.settings)
        held.apply(changes.filter(pc.invert(puts)))  # nothing goes, but what comes late is known to be late
        return held, events

    def _told(
        self, learner: Learner | None, learned: Learned | None, when: Planned, batch: int
    ) -> tuple[Holding, list[RuleEvent]]:
        """The rules that hold after a batch, and what is told of it."""
        at = Moment(batch, when.position, when.at.isoformat())
        if learner is None:
            return Holding(self.about.table, self._query_id, 0, (), at), []
        if learned is None:
            before = Holding(self.about.table, self._query_id, 0, learner.columns, at)
        else:
            before = self._holding or self._noted()
        if learned is not None and not learned.added and not learned.dropped:
            holding, events = replace(before, rows=len(learner), at=at), []
        else:
            holding = before.advanced(((rule, rule.description or "") for rule in learner.rules), len(learner), at)
            holding = self._weighed(holding, learner)
            events = self._first_events(holding) if learned is None else _events(before, holding, learned)
            holding = holding.without(event for event in events if event.event == "dropped")
        return holding, events

    def _weighed(self, holding: Holding, learner: Learner) -> Holding:
        """The note with the weights of rules that are new, unless that has taken more than its share of the time."""
        began = time.monotonic()
        new = [rule for rule in learner.rules if (held := holding.of(rule.fingerprint)) and held.score is None]
        if not new or began < self._weigh_after:
            return holding
        weighed = holding.weighing(weigh(learner, new))
        self._weigh_after = time.monotonic() + _WEIGHING * (time.monotonic() - began)
        return weighed

    def _noted(self) -> Holding:
        noted = self.notes.read(HOLDING)
        if noted is None:
            raise StateError(
                f"the note {HOLDING} under {self.checkpoint} is missing",
                hint="restore it from a copy of the checkpoint, or `weever learn --anew` begins again",
            )
        return Holding.of_json(noted, self.checkpoint)

    def _first_events(self, holding: Holding) -> list[RuleEvent]:
        """All rules of the first batch are new, but for those that were told before all was begun anew."""
        noted = self.notes.read(BEFORE)
        before = Holding.of_json(noted, self.checkpoint).rules if noted else ()
        known = {one.fingerprint for one in before}
        gone = [one for one in before if holding.of(one.fingerprint) is None]
        came = [one for one in holding.rules if one.fingerprint not in known]
        came.sort(key=lambda one: -(one.score or 0.0))
        dropped = [RuleEvent("dropped", one.name, one.fingerprint, one.deny, one.words) for one in gone]
        return dropped + [RuleEvent("added", one.name, one.fingerprint, one.deny, one.words) for one in came]

    def _write(self, events: list[RuleEvent], when: Planned, batch: int, session: SparkSession) -> None:
        # The query's own session: what another query sets for a transaction of its own must not show here.
        told = RuleEvents(batch, self._query_id, when.position, when.at, as_table(events), session)
        self.logbook.write(told)
        for sink in self.sinks:
            sink.write(told)

    def _note(
        self,
        holding: Holding,
        events: list[RuleEvent],
        learner: Learner | None,
        when: Planned,
        batch: int,
        first: bool,
    ) -> None:
        if first and learner is not None:
            self.notes.write(BEGUN, {"batch": batch})
        if learner is not None and (first or any(event.event in ("added", "dropped") for event in events)):
            self.notes.write(HOLDING, holding.to_json(), compact=True)
        self.notes.write(
            PROGRESS,
            {
                "batch": batch,
                "position": when.position,
                "detected_at": when.at.isoformat(),
                "rows": 0 if learner is None else len(learner),
                "rules": len(holding.rules),
            },
        )

    @cached_property
    def _query_id(self) -> str:
        """The id that the query keeps for the life of its checkpoint."""
        return str(json.loads(read_text(self.spark, f"{self.checkpoint}/metadata"))["id"])


def _events(before: Holding, after: Holding, learned: Learned) -> list[RuleEvent]:
    """What a batch changed of the rules, drops first, under the names that the notes give."""
    dropped = [_event("dropped", change, before) for change in learned.dropped]
    return dropped + [_event("added", change, after) for change in learned.added]


def _event(kind: Any, change: RuleChange, names: Holding) -> RuleEvent:
    rule, pair = change.rule, None
    if change.left_key is not None:
        pair = (
            key_text(change.left_key),
            key_text(change.right_key),
            values_text(change.left_values, rule.columns),
            values_text(change.right_values, rule.columns),
        )
    return replace(RuleEvent.of(kind, rule, change.words, pair=pair), rule=names.name_of(rule.fingerprint) or rule.name)
