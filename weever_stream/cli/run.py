"""`weever run`: the job. Starts Spark, runs the query, tells of every batch, and ends in good order.

Ends by itself with `--once`; else on SIGTERM or Ctrl-C, when the batch under way is done or half a minute has passed.
What was abandoned is done again by the next start. Exit codes: 0 done, 3 could not run, 4 a sink could not be written,
130 on Ctrl-C, 143 on SIGTERM.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.output import Format, show_trace
from weever_stream.cli.supervising import STARTING, jvm_may_end, stoppable, wait
from weever_stream.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weever_stream.cli.progress import BatchLines
    from weever_stream.cli.supervising import Stop
    from weever_stream.errors import WeeverError
    from weever_stream.job.job import Job
    from weever_stream.observe.watch import Watch
    from weever_stream.state.revision import Revision
    from weever_stream.stream.beside import Beside
    from weever_stream.stream.lessons import LearnReport
    from weever_stream.stream.progress import BatchReport
    from weever_stream.stream.run import Running
    from weever_stream.stream.standing import Standing

__all__ = ["run"]


_LEARNED_SHOWN = 6
"""Learned rules of a batch that are named."""


class RuleChanges(str, Enum):
    """What is done if the rules are not those of the checkpoint."""

    ask = "ask"
    allow = "allow"
    reject = "reject"


def run(
    job: Annotated[Path, typer.Argument(help="The job file: rules with a source, sinks and state.")],
    once: Annotated[bool, typer.Option("--once", help="Process what is there, then stop.")] = False,
    from_version: Annotated[
        int | None, typer.Option(min=0, help="Delta: changes from this version on, without a snapshot first.")
    ] = None,
    every: Annotated[str | None, typer.Option(help='How often to look for changes: "10 seconds".')] = None,
    rule_changes: Annotated[
        RuleChanges | None,
        typer.Option(help="If rules are not those of the checkpoint; `state.rule_changes` of the job file, else ask."),
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Let an empty checkpoint continue sinks that another one wrote.")
    ] = False,
    master: Annotated[str | None, typer.Option(help="The Spark master, where none is set otherwise.")] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve metrics at this port; 0 takes any that is free.")
    ] = None,
    format: Annotated[Format, typer.Option(help="How batches are told.")] = Format.text,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Tell nothing of batches that change nothing.")] = False,
) -> int:
    """Run the streaming job."""
    from weever_stream.cli.progress import BatchLines
    from weever_stream.stream.places import dead_letters_of

    asked = _job(job, from_version, every, once=once)
    lines = BatchLines(as_json=format is Format.json, quiet=quiet, dead_letters=dead_letters_of(asked))
    policy = rule_changes.value if rule_changes is not None else asked.state.rule_changes
    begin = partial(_start, once=once, every=every, policy=policy, take_over=take_over, master=master)
    return stoppable(partial(begin, asked, lines, metrics_port))


def _start(
    asked: Job,
    lines: BatchLines,
    metrics_port: int | None,
    stop: Stop,
    *,
    once: bool,
    every: str | None,
    policy: str,
    take_over: bool,
    master: str | None,
) -> int:
    """Takes the lease, starts Spark and runs the query to its end."""
    from weever_stream.observe.lineage import lineage_of
    from weever_stream.observe.watch import watching
    from weever_stream.state.lease import Lease
    from weever_stream.state.notes import Notes
    from weever_stream.stream.alerting import alerting
    from weever_stream.stream.places import log_of, notes_of
    from weever_stream.stream.preflight import check_job
    from weever_stream.stream.progress import PROGRESS, backfills_of
    from weever_stream.stream.saved import read_noted
    from weever_stream.stream.standing import Standing

    settings = asked.metrics if metrics_port is None else asked.metrics.model_copy(update={"port": metrics_port})
    # All before Spark starts: who is refused should not wait for it.
    with (
        watching(
            asked.name,
            asked.file,
            settings,
            notice=lines.notice,
            lineage=partial(lineage_of, asked, os.environ),
        ) as watch,
        Lease(notes_of(asked)) as lease,
        alerting(asked, lambda: lease.ours, [watch.metrics]) as told,
    ):
        notes = Notes(notes_of(asked))
        if done := notes.read(PROGRESS) or {}:
            pending = backfills_of(read_noted(notes, asked.state.checkpoint), done)
            watch.metrics.resume({**done, "backfilling": pending})
        watch.metrics.targets(target.name for target in asked.alerts)
        approve = _once(_noted(_approval(asked, policy), watch))
        found = check_job(asked)
        for error in [*found.refusals, *([] if take_over else found.not_ours)]:
            raise error
        for warning in found.warnings:
            lines.warn(warning)
        for line in found.unchecked:
            lines.notice(f"not checked: {line}")
        if found.noted is not None and found.revision:
            approve(found.revision)
        with lines.status(STARTING):
            import weever_stream.detect.shard  # noqa: F401 - here, so that the workers find compiled kernels
            from weever_stream.stream.run import start
            from weever_stream.stream.session import session_of

            spark = session_of(asked, log=log_of(asked.state.checkpoint), master=master)
        with jvm_may_end(spark):
            begin = partial(
                start, spark, asked, once=once, every=every, also=told, approve=approve, take_over=take_over
            )
            with _learning(spark, asked, once, every, take_over, lines.notice, watch) as beside:
                code = _supervised(
                    begin,
                    watch.observed(lines.batch),
                    stop,
                    Standing(asked, done.get("position")),
                    notice=lines.notice,
                    watch=watch,
                    beside=beside,
                    once=once,
                )
        lease.check()
        return code


@contextmanager
def _learning(
    spark: Any,
    job: Job,
    once: bool,
    every: str | None,
    take_over: bool,
    notice: Callable[[str], None],
    watch: Watch,
) -> Iterator[Beside | None]:
    """What learns rules beside the job's query, if the job asks for it. Its failure is told and is not the job's."""
    if job.learn is None:
        yield None
        return
    from weever_stream.cli.lessons import report_lines
    from weever_stream.stream.beside import Beside
    from weever_stream.stream.learning import start_learning

    def observe(report: LearnReport) -> None:
        watch.learned(report.rules, [event.event for event in report.events])
        if report.events:
            notice("\n".join(report_lines(report, _LEARNED_SHOWN, pairs=False)))

    def failed(error: WeeverError) -> None:
        watch.learning_failed(error.message)
        notice(f"learning has stopped, and goes on at the next start: {error.render()}")

    begin = partial(start_learning, once=once, every=job.learn.every or every, take_over=take_over)
    beside = Beside(partial(begin, spark, job, observe), failed)
    try:
        yield beside
    finally:
        beside.stop()


def _job(path: Path, from_version: int | None, every: str | None, *, once: bool) -> Job:
    from dataclasses import replace

    from weever_stream.job.job import read_job
    from weever_stream.job.options import duration

    asked = read_job(path, os.environ)
    if once and every is not None:
        raise RuleError("--once looks for changes one time: it does not go with --every")
    if every is not None:
        try:
            duration(every)
        except ValueError as error:
            raise RuleError(f"--every: {error}") from None
    if from_version is None:
        return asked
    if asked.source.kind != "delta":
        raise RuleError("--from-version is for Delta sources", hint=f"the source is of kind {asked.source.kind}")
    return replace(asked, source=asked.source.model_copy(update={"starting_version": from_version}))


def _approval(job: Job, policy: str) -> Callable[[Revision], None]:
    """Who says whether rules may change under a checkpoint: the policy, or the person at the terminal."""
    from weever_stream.stream.run import allow, refused

    def ask(revision: Revision) -> None:
        lines = ["the rules are not those of the checkpoint:", *(f"  {line}" for line in revision.lines())]
        typer.echo("\n".join(lines))
        if not typer.confirm("change them?"):
            refused(job)(revision)

    if policy == "ask" and sys.stdin.isatty() and sys.stdout.isatty():
        return ask
    return allow if policy == "allow" else refused(job)


def _noted(approve: Callable[[Revision], None], watch: Watch) -> Callable[[Revision], None]:
    """The same, and a change that is approved of is logged."""

    def approved(revision: Revision) -> None:
        approve(revision)
        watch.rules_changed(revision.lines())

    return approved


def _once(approve: Callable[[Revision], None]) -> Callable[[Revision], None]:
    """The same, and what was approved of before Spark started is not asked again."""
    approved: list[list[str]] = []

    def ask(revision: Revision) -> None:
        if list(revision.lines()) not in approved:
            approve(revision)
            approved.append(list(revision.lines()))

    return ask


def _supervised(
    begin: Callable[[Callable[[BatchReport], None]], Running],
    observe: Callable[[BatchReport], None],
    stop: Stop,
    standing: Standing,
    *,
    notice: Callable[[str], None],
    watch: Watch,
    beside: Beside | None = None,
    once: bool = False,
) -> int:
    """Runs the query to its end, and again where only the schema of its source has changed."""
    from weever_stream.stream.failures import schema_changed, texts_of, told
    from weever_stream.stream.restarts import Restarts, SchemaChangedError

    restarts = Restarts()
    idle = _idle(watch, standing, notice, once)

    def batch(report: BatchReport) -> None:
        standing.move(report.position)
        observe(report)

    while True:
        running: Running | None = None
        with suppress(SchemaChangedError):  # of the query that brings the checkpoint to new rules
            running = begin(stop.observed(batch))
        if running is not None:
            stop.running = True
            watch.query(str(running.query.id))
            if beside is not None:
                beside.start()
            if not wait(running.query, stop, idle):
                running.stop(after=stop.batch if stop.batch_done.is_set() else None)
            failure = running.query.exception()
            if failure is None or stop.signal:
                if beside is not None and once:
                    beside.finish(stop.asked)
                if once and not standing.moved and not stop.signal:
                    notice(f"nothing new: {standing} is checked")
                return stop.code
            texts = texts_of(failure)
            if not schema_changed(texts):
                show_trace(failure)
                raise told(texts)
        restarts.add(running.query if running is not None else None)
        watch.restart()
        notice("the table has a new schema; starting again with it")


def _idle(watch: Watch, standing: Standing, notice: Callable[[str], None], once: bool) -> Callable[[], None]:
    """What is done while the query waits for changes. The first time it is said what it waits for."""
    said: list[str] = []

    def idle() -> None:
        watch.idle()
        if not said and not once:
            said.append(f"watching {standing}")
            notice(said[0])

    return idle
