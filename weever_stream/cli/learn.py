"""`weever learn`: keeps the rules of a table true while it changes, in a process of its own. See
docs/learn-on-the-stream.md.

The same query runs beside the job under `weever run`; one of both at a time. Ends by itself with `--once`; else on
SIGTERM or Ctrl-C, when the batch under way is done or half a minute has passed. Exit codes: 0 done, 3 could not run, 4
a sink could not be written, 130 on Ctrl-C, 143 on SIGTERM.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weever_stream.cli.output import Format, show_trace
from weever_stream.cli.supervising import STARTING, jvm_may_end, stoppable, wait
from weever_stream.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

    from weever_stream.cli.lessons import LessonLines
    from weever_stream.cli.supervising import Stop
    from weever_stream.job.job import Job
    from weever_stream.stream.lessons import LearnReport

__all__ = ["learn"]


def learn(
    job: Annotated[Path, typer.Argument(help="The job file, with `learn`.")],
    once: Annotated[bool, typer.Option("--once", help="Learn from what is there, then stop.")] = False,
    every: Annotated[str | None, typer.Option(help='How often to look for changes: "10 seconds".')] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Forget what was learned and begin again; decisions are kept.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Continue tables of rule events that another checkpoint wrote.")
    ] = False,
    top: Annotated[int, typer.Option(min=1, help="text: how many rules of a batch are shown.")] = 20,
    master: Annotated[str | None, typer.Option(help="The Spark master, where none is set otherwise.")] = None,
    format: Annotated[Format, typer.Option(help="How batches are told.")] = Format.text,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Tell nothing of batches that teach nothing.")] = False,
) -> int:
    """Keep the rules that hold on a table current as it changes."""
    from weever_stream.cli.lessons import LessonLines

    asked = _job(job, every, once=once)
    lines = LessonLines(as_json=format is Format.json, quiet=quiet, shown=top)
    return stoppable(
        partial(_start, asked, lines, once=once, every=every, anew=anew, take_over=take_over, master=master)
    )


def _start(
    asked: Job,
    lines: LessonLines,
    stop: Stop,
    *,
    once: bool,
    every: str | None,
    anew: bool,
    take_over: bool,
    master: str | None,
) -> int:
    """Takes the lease, starts Spark and runs the query to its end."""
    from weever_stream.state.lease import Lease
    from weever_stream.stream.places import learn_checkpoint, learn_notes_of, log_of

    with Lease(learn_notes_of(asked), "weever learn") as lease:  # before Spark starts: who is refused need not wait
        with lines.status(STARTING):
            from weever_stream.stream.learning import start_learning
            from weever_stream.stream.session import session_of

            log, app = log_of(learn_checkpoint(asked)), f"weever learn {asked.file.table}"
            spark = session_of(asked, log=log, master=master, app=app)
        with jvm_may_end(spark):
            begin = partial(start_learning, spark, asked, once=once, every=every, take_over=take_over)
            code = _supervised(begin, lines, stop, anew=anew)
        lease.check()
        return code


def _job(path: Path, every: str | None, *, once: bool) -> Job:
    from weever_stream.job.job import read_job
    from weever_stream.job.options import duration

    asked = read_job(path, os.environ)
    if asked.learn is None:
        raise RuleError(f"{path} has no `learn`", hint="add `learn: {}` to it; docs/learn-on-the-stream.md tells more")
    if once and every is not None:
        raise RuleError("--once looks for changes one time: it does not go with --every")
    if every is not None:
        try:
            duration(every)
        except ValueError as error:
            raise RuleError(f"--every: {error}") from None
    return asked


def _supervised(begin: Callable[..., StreamingQuery], lines: LessonLines, stop: Stop, *, anew: bool) -> int:
    """Runs the query to its end, and again where only the schema of its source has changed."""
    from weever_stream.stream.failures import schema_changed, texts_of, told
    from weever_stream.stream.restarts import Restarts

    observe: Callable[[LearnReport], None] = stop.observed(lines.batch)
    restarts, first = Restarts(), True
    while True:
        query = begin(observe, anew=anew and first)
        stop.running, first = True, False
        if not wait(query, stop, lambda: None):
            query.stop()
        failure = query.exception()
        if failure is None or stop.signal:
            return stop.code
        texts = texts_of(failure)
        if not schema_changed(texts):
            show_trace(failure)
            raise told(texts)
        restarts.add(query)
        lines.notice("the table has a new schema; starting again with it")
