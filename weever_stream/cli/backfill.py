"""`weever backfill`: brings a checkpoint to the rules of the job file while the job is stopped, without running it.

`weever run --rule-changes allow` does the same and goes on. Here it can be done in its own time, with more memory or on
another machine. The rows are put into the lane beside the checkpoint; the next start of the job takes them in while
changes go on arriving. With `--rule` a rule is built again from the table although it has not changed: for a rule whose
state is in doubt. Its violations and alerts stay open meanwhile, and only the difference is emitted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weever_stream.cli.supervising import jvm_may_end
from weever_stream.errors import RuleError, did_you_mean

if TYPE_CHECKING:
    from weever_stream.job.job import Job
    from weever_stream.state.noted import Noted, NotedRule

__all__ = ["backfill"]


def backfill(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    rule: Annotated[list[str] | None, typer.Option(help="Build this rule again although it has not changed.")] = None,
    master: Annotated[str | None, typer.Option(help="The Spark master, where none is set otherwise.")] = None,
) -> int:
    """Backfill new and changed rules from the table while the job is stopped."""
    from weever_stream.cli.progress import BatchLines
    from weever_stream.job.job import read_job
    from weever_stream.state.lease import Lease
    from weever_stream.stream.alerting import alerting
    from weever_stream.stream.places import log_of, notes_of

    asked, lines = read_job(job, os.environ), BatchLines()
    again = _named(asked, rule or [])
    # A batch that was left half done is finished first, and its alerts are sent like those of any other.
    with Lease(notes_of(asked), "weever backfill") as lease, alerting(asked, lambda: lease.ours) as told:
        with lines.status("starting Spark"):
            from weever_stream.stream.session import session_of

            spark = session_of(asked, log=log_of(asked.state.checkpoint), master=master)
        with jvm_may_end(spark):
            from weever_stream.stream.owner import locked_by_jvm
            from weever_stream.stream.query import open_context
            from weever_stream.stream.revising import agreed
            from weever_stream.stream.run import allow
            from weever_stream.stream.saved import read_noted

            locked_by_jvm(spark, lease)
            context = open_context(spark, asked, lease, lines.batch, also=told)
            before = read_noted(context.notes, context.checkpoint)
            with lines.status("reading the table"):
                noted = agreed(context, allow, again)
    for line in _told(before, noted):
        lines.notice(line)
    return 0


def _told(before: Noted | None, after: Noted) -> list[str]:
    """What was done."""
    if before is None or before.revision == after.revision:
        return ["nothing to do"]
    known = {one.number for one in before.generations}
    born = [one for one in after.generations if one.number not in known]
    told = [f"{rule.name}: what was open is closed" for rule in _ended(before, after)]
    for one in born:
        names = ", ".join(rule.name for rule in one.rules)
        stays = "; what is open stays open until that is done" if one.rules[0].replaces is not None else ""
        told.append(f"{names}: {sum(one.fills)} messages are ready for backfill; weever run applies them{stays}")
    return told


def _ended(before: Noted, after: Noted) -> list[NotedRule]:
    was = {number for number, rule in enumerate(before.rules) if rule.ended is not None}
    return [rule for number, rule in enumerate(after.rules) if rule.ended is not None and number not in was]


def _named(job: Job, names: list[str]) -> list[str]:
    known = [one.name for one in job.file.rules]
    for name in names:
        if name not in known:
            raise RuleError(
                f"there is no rule {name}", hint=did_you_mean(name, known) or "the rules are " + ", ".join(known)
            )
    return names
