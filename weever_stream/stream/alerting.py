"""The stream's side of alerts: what each batch says is handed to the dispatch, as the last of the batch's sinks.

So an alert is about what all sinks hold. A batch that is repeated after a crash says the same again and is passed over
by its number. Cost: one pass over the deltas of a batch that has any; in the driver, if they are few.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weever_stream.alerts.news import NEWS_COLUMNS, count, joined
from weever_stream.stream.places import notes_of

if TYPE_CHECKING:
    import pyarrow as pa

    from weever_stream.alerts.dispatch import Dispatch, Watcher
    from weever_stream.alerts.news import Question
    from weever_stream.job.job import Job
    from weever_stream.sinks.batch import Batch, Sink

__all__ = ["AlertIntake", "alerting"]

_MESSAGES = {
    "alert_failed": "{target} does not take alerts, and is tried again: {reason}",
    "alert_still_failing": "{target} has not taken an alert in {attempts} attempts: {reason}",
    "alert_sent_again": "{target} takes alerts again, after {attempts} failed attempts",
    "alert_gave_up": "{target} does not take an alert of {rule}, and is not tried again: {reason}",
    "alerts_not_noted": "alerts cannot be noted beside the checkpoint, and none is sent until they can: {reason}",
    "alerts_noted_again": "alerts can be noted again, and are sent",
    "silences_unreadable": "the silences cannot be read, and those that were read before stay in force: {reason}",
    "silences_read_again": "the silences can be read again",
    "alerts_disturbed": "something unexpected happened while alerts were sent to {target}, which goes on: {reason}",
}
_SECONDS_TO_END = 10.0
_FEW = 20_000
"""Deltas up to which they are looked at in the driver, if they are there: a job on workers takes longer to start."""


@dataclass(frozen=True)
class AlertIntake:
    """Takes batches as a sink does."""

    dispatch: Dispatch

    def write(self, batch: Batch) -> None:
        """Tells the dispatch of a batch. Raises `OutputError` if it cannot be noted."""
        asked = self.dispatch.question()
        if not asked.by:
            return
        counts = {rule: n + batch.unlisted.get(rule, 0) for rule, n in batch.open.items()}
        parts = _parts(batch, asked) if batch.added or batch.removed else []
        self.dispatch.take(joined(parts, asked, batch.id, batch.position, counts, batch.backfilling))


def _parts(batch: Batch, asked: Question) -> list[dict[str, Any]]:
    """What the deltas say, counted in one part or in one for each partition."""
    deltas = batch.deltas.select(*NEWS_COLUMNS)
    if batch.collected and batch.added + batch.removed <= _FEW:
        return [count(deltas.toArrow().to_pydict(), asked)]
    return [json.loads(row.said) for row in deltas.mapInArrow(_counting(asked), "said string").collect()]


def _counting(asked: Question) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from weever_stream.alerts.news import count

        for batch in batches:
            said = json.dumps(count(batch.to_pydict(), asked))
            yield pa.RecordBatch.from_pydict({"said": [said]})

    return counted


def _message(event: str, about: Mapping[str, Any]) -> str:
    """What is logged of an event, as a sentence, with what to do about it if that is known."""
    said = _MESSAGES.get(event, "").format(**about)
    return f"{said} (hint: {about['hint']})" if said and about.get("hint") else said


@contextmanager
def alerting(job: Job, ours: Callable[[], bool], watchers: Sequence[Watcher] = ()) -> Iterator[list[Sink]]:
    """Sends the alerts of a job within the block: yields what its batches are to be told to, if it has any targets.

    Addresses are looked up and refused here, before Spark starts. At the end what is due is sent, for a short while.
    """
    if not job.alerts:
        yield []
        return
    from weever_stream.alerts.dispatch import Dispatch
    from weever_stream.alerts.targets import open_target
    from weever_stream.observe import logs
    from weever_stream.state.notes import Notes

    log = logs.get("alerts")

    def tell(event: str, about: Mapping[str, Any]) -> None:
        say = log.info if event in ("alert_sent", "alert_retried") else log.warning
        say(event, _message(event, about), **about)

    targets = [open_target(options) for options in job.alerts]
    notes = Notes(notes_of(job))
    names = [rule.name for rule in job.file.rules]
    with Dispatch(
        job.file.table,
        job.routes,
        targets,
        notes,
        job=job.name,
        watchers=watchers,
        log=tell,
        ours=ours,
        rules=names,
    ) as dispatch:
        yield [AlertIntake(dispatch)]
        dispatch.drain(_SECONDS_TO_END)
