"""`weever plan`: what a start of the job would change of its checkpoint, before anything is changed. Needs no Spark.

Compares the job file with the metadata beside the checkpoint and with a Delta source, by the checks that `weever run`
makes before it starts Spark. Exit codes: 0 the job can be started, 3 it would be refused.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.exit_codes import ExitCode
from weever_stream.cli.output import Format
from weever_stream.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weever_stream.job.job import Job
    from weever_stream.state.noted import Noted
    from weever_stream.state.revision import Revision
    from weever_stream.stream.preflight import Preflight

__all__ = ["plan", "show"]


def plan(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    format: Annotated[Format, typer.Option(help="text or json")] = Format.text,
) -> int:
    """Show what the next start would change: rules kept, backfilled, closed."""
    from weever_stream.job.job import read_job
    from weever_stream.stream.preflight import check_job

    asked = read_job(job, os.environ)
    found = check_job(asked)
    if found.noted is not None and found.revision and asked.state.rule_changes == "reject":
        changed = StateError(
            "the rules are not those of the checkpoint, and `state.rule_changes` is reject",
            hint="weever run --rule-changes allow changes them",
        )
        found.refusals.append(changed)
    if format is Format.json:
        print(json.dumps(_as_json(asked, found), indent=1))
    else:
        show(asked, found)
    return ExitCode.COULD_NOT_RUN if found.refusals or found.not_ours else ExitCode.OK


def _as_json(job: Job, found: Preflight) -> dict[str, Any]:
    revision = found.revision
    return {
        "checkpoint": job.state.checkpoint,
        "begun": found.noted is not None,
        "kept": list(revision.kept),
        "added": list(revision.added),
        "changed": dict(revision.changed),
        "removed": list(revision.removed),
        "backfilling": {name: round(share, 3) for name, share in found.backfilling.items()},
        "closes": {name: found.open.get(name, 0) for name in revision.reasons},
        "refused": [error.message for error in found.refusals],
        "not_ours": [error.message for error in found.not_ours],
        "warnings": found.warnings,
        "unchecked": found.unchecked,
    }


def show(job: Job, found: Preflight) -> None:
    """A table for people, and what to do next."""
    from rich.text import Text

    from weever_stream.cli.tables import open_console, print_table
    from weever_stream.drawing import escaped

    console = open_console()
    noted, revision, refusals = found.noted, found.revision, found.refusals
    rows = [
        (escaped(name), Text(what, style=style), f"{found.open.get(name, 0):,}")
        for name, what, style in _lines(noted, revision, found.backfilling)
    ]
    print_table(console, ("rule", "what happens", "open now"), rows, right=["open now"])
    for error in refusals:
        console.print(Text(f"\nrefused: {error.render()}", style="red"))
    for error in found.not_ours:
        console.print(Text(f"\nrefused without --take-over: {error.render()}", style="red"))
    for warning in found.warnings:
        console.print(Text(f"\nwarning: {warning}", style="yellow"))
    for line in found.unchecked:
        console.print(Text(f"\nnot checked: {line}"))
    if noted is None and not refusals:
        checkpoint = escaped(job.state.checkpoint)
        console.print(Text(f"\nthe checkpoint {checkpoint} is empty: the source is read from its beginning"))
    elif not revision and not refusals:
        console.print("\nnothing changes: the job goes on from where it stopped")
    elif revision and not refusals:
        console.print("\nweever run --rule-changes allow does this, then goes on")


def _lines(noted: Noted | None, revision: Revision, backfilling: Mapping[str, float]) -> list[tuple[str, str, str]]:
    kept = [
        (name, f"is being backfilled: {int(100 * backfilling[name])} % are done", "yellow")
        if name in backfilling
        else (name, "stays as it is", "dim")
        for name in revision.kept
    ]
    filled = "is found in all of the source" if noted is None else "is new: it is filled from the table"
    added = [(name, filled, "green") for name in revision.added]
    changed = [
        (name, f"{what}: what is open is closed, then it is filled from the table", "yellow")
        for name, what in revision.changed.items()
    ]
    return [*kept, *added, *changed, *((name, "is gone: what is open is closed", "red") for name in revision.removed)]
