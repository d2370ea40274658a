"""The job: from a job file to a running query.

`start` takes the lease of the checkpoint, opens the source, compares the job with what the checkpoint was made for,
brings the one to the other where only rules have changed, and starts the query. The lease is let go of when the query
ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weever_stream.errors import StateError
from weever_stream.state.lease import Lease
from weever_stream.stream.owner import locked_by_jvm, released_with
from weever_stream.stream.places import folder, notes_of, runs_of
from weever_stream.stream.query import WHAT_IS_THERE, Running, open_context
from weever_stream.stream.revising import agreed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from weever_stream.job.job import Job
    from weever_stream.sinks.batch import Sink
    from weever_stream.state.revision import Revision
    from weever_stream.stream.progress import BatchReport

__all__ = ["Running", "allow", "folder", "notes_of", "refused", "runs_of", "start"]


def start(
    spark: SparkSession,
    job: Job,
    observe: Callable[[BatchReport], None],
    *,
    once: bool = False,
    every: str | None = None,
    also: Sequence[Sink] = (),
    approve: Callable[[Revision], None] | None = None,
    take_over: bool = False,
) -> Running:
    """Starts the job's query. `once`: what is there now is processed, and the query ends. `also`: further sinks.

    `approve` is asked if the rules are not those of the checkpoint, and raises if they may not change; without it they
    may not. `take_over`: Delta tables of another checkpoint are continued.
    """
    lease = Lease(notes_of(job)).take()
    try:
        locked_by_jvm(spark, lease)
        context = open_context(spark, job, lease, observe, also=also, take_over=take_over)
        noted = agreed(context, approve or refused(job))
        running = context.start(noted, WHAT_IS_THERE if once else every)
    except BaseException:
        lease.release()
        raise
    released_with(running.query, lease)
    return running


def allow(revision: Revision) -> None:
    """Approves of any change."""


def refused(job: Job) -> Callable[[Revision], None]:
    """Approves of no change."""

    def refuse(revision: Revision) -> None:
        raise StateError(
            f"the checkpoint {job.state.checkpoint} was made for other rules: {', '.join(revision.lines())}",
            hint="`weever plan` shows what that would do; `weever run --rule-changes allow` does it",
        )

    return refuse
