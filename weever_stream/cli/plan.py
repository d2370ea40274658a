"""`weever plan`: what a start of the job would change of its checkpoint, before anything is changed. Needs no Spark.

Compares the job file with the notes beside the checkpoint. Types of columns are the source's and are compared at the
start. Exit codes: 0 the job can be started, 3 it would be refused.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.output import Format

if TYPE_CHECKING:
    from weever_stream.errors import StateError
    from weever_stream.job.job import Job
    from weever_stream.state.noted import Noted
    from weever_stream.state.revision import Revision

__all__ = ["plan", "show"]


def plan(
    job: Annotated[Path, typer.Argument(help="The job file.")],
    format: Annotated[Format, typer.Option(help="text or json")] = Format.text,
) -> int:
    """Show what the next start would change: rules kept, backfilled, closed."""
    from weever_stream.job.job import read_job

    asked = read_job(job, os.environ)
    noted, revision, refusals, counts = _compared(asked)
    if format is Format.json:
        print(json.dumps(_as_json(asked, noted, revision, refusals, counts), indent=1))
    else:
        show(asked, noted, revision, refusals, counts)
    return 3 if refusals else 0


def _compared(job: Job) -> tuple[Noted | None, Revision, list[StateError], dict[str, int]]:
    """The note, what the job file changes of the rules, why it would be refused, and what is open."""
    from weever_stream.state.notes import Notes
    from weever_stream.state.revision import Revision, refusals, revise
    from weever_stream.stream.places import notes_of
    from weever_stream.stream.progress import PROGRESS
    from weever_stream.stream.saved import read_noted

    notes = Notes(notes_of(job))
    noted = read_noted(notes, job.state.checkpoint)
    if noted is None:
        return None, Revision(added=tuple(rule.name for rule in job.file.rules)), [], {}
    done = notes.read(PROGRESS) or {}
    why = list(refusals(noted, job.source.kind, job.file.key, job.state.shards, None))
    return noted, revise(noted, job.file.rules), why, dict(done.get("open", {}))


def _as_json(
    job: Job, noted: Noted | None, revision: Revision, refusals: list[StateError], counts: dict[str, int]
) -> dict[str, Any]:
    return {
        "checkpoint": job.state.checkpoint,
        "begun": noted is not None,
        "kept": list(revision.kept),
        "added": list(revision.added),
        "changed": dict(revision.changed),
        "removed": list(revision.removed),
        "closes": {name: counts.get(name, 0) for name in revision.reasons},
        "refused": [error.message for error in refusals],
    }


def show(job: Job, noted: Noted | None, revision: Revision, refusals: list[StateError], counts: dict[str, int]) -> None:
    """A table for people, and what to do next."""
    from rich.text import Text

    from weever_stream.cli.tables import open_console, print_table
    from weever_stream.drawing import escaped

    console = open_console()
    rows = [
        (escaped(name), Text(what, style=style), f"{counts.get(name, 0):,}")
        for name, what, style in _lines(noted, revision)
    ]
    print_table(console, ("rule", "what happens", "open now"), rows, right=["open now"])
    for error in refusals:
        console.print(Text(f"\nrefused: {error.message}", style="red"))
        console.print(Text(f"  hint: {error.hint}"))
    if noted is None:
        console.print(f"\nthe checkpoint {job.state.checkpoint} is empty: the source is read from its beginning")
    elif not revision and not refusals:
        console.print("\nnothing changes: the job goes on where it stands")
    elif revision and not refusals:
        console.print("\nweever run --rule-changes allow does this, then goes on")


def _lines(noted: Noted | None, revision: Revision) -> list[tuple[str, str, str]]:
    kept = [(name, "stays as it is", "dim") for name in revision.kept]
    filled = "is found in all of the source" if noted is None else "is new: it is filled from the table"
    added = [(name, filled, "green") for name in revision.added]
    changed = [
        (name, f"{what}: what is open is closed, then it is filled from the table", "yellow")
        for name, what in revision.changed.items()
    ]
    return [*kept, *added, *changed, *((name, "is gone: what is open is closed", "red") for name in revision.removed)]
