"""`weever state`: inspect a checkpoint, delete run files left by failed tasks, change the number of shards.

Reads through Spark's own state reader; the job may be running, except for `rescale`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.exit_codes import ExitCode
from weever_stream.cli.output import Format
from weever_stream.cli.supervising import jvm_may_end
from weever_stream.cli.tables import open_console, print_table
from weever_stream.errors import RuleError

if TYPE_CHECKING:
    from rich.console import Console

    from weever_stream.job.job import Job
    from weever_stream.state.inspect import Held

__all__ = ["gc", "inspect", "rescale"]


JobFile = Annotated[Path, typer.Argument(help="The job file.")]


def inspect(
    job: JobFile,
    verify: Annotated[bool, typer.Option("--verify", help="Open every run and check every invariant.")] = False,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.text,
) -> int:
    """Show the shards of a job: runs, rows, bytes, skew."""
    asked = _read(job)
    return _inspect(asked, _manifests(asked), verify=verify, as_json=form is Format.json)


def gc(
    job: JobFile,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
    older_than: Annotated[str, typer.Option(help="Only files that are older.")] = "1 hour",
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.text,
) -> int:
    """Delete run files that no shard needs."""
    from weever_stream.job.options import duration

    asked = _read(job)
    try:
        seconds = duration(older_than)
    except ValueError as error:
        raise RuleError(f"--older-than: {error}") from None
    return _collect_garbage(asked, _manifests(asked), seconds, dry_run=dry_run, as_json=form is Format.json)


def rescale(job: JobFile) -> int:
    """Move a stopped job to the number of shards in its job file."""
    return _rescale(_read(job))


def _read(path: Path) -> Job:
    from weever_stream.job.job import read_job

    return read_job(path, os.environ)


def _manifests(job: Job) -> dict[int, Any]:
    """The manifest of every shard, through Spark's own state reader."""
    from weever_stream.stream.saved import manifests
    from weever_stream.stream.session import session_of

    spark = session_of(job, log=None)  # the job may be running
    with jvm_may_end(spark):
        return manifests(spark, job.state.checkpoint.rstrip("/"))


def _rescale(job: Job) -> int:
    from weever_stream.cli.progress import BatchLines
    from weever_stream.state.lease import Lease
    from weever_stream.stream.alerting import alerting
    from weever_stream.stream.owner import locked_by_jvm
    from weever_stream.stream.places import log_of, notes_of
    from weever_stream.stream.query import open_context
    from weever_stream.stream.rescaling import rescale
    from weever_stream.stream.session import session_of

    # What is left to do is done first, and its alerts are sent like any other.
    with Lease(notes_of(job), "weever state rescale") as lease, alerting(job, lambda: lease.ours) as told:
        spark = session_of(job, log=log_of(job.state.checkpoint))
        with jvm_may_end(spark):
            locked_by_jvm(spark, lease)
            noted = rescale(open_context(spark, job, lease, BatchLines().batch, also=told), job.state.shards)
    open_console().print(f"{noted.shards} shards hold the state now; go on with weever run")
    return 0


def _inspect(job: Job, found: dict[int, Any], *, verify: bool, as_json: bool) -> int:
    from rich.text import Text

    from weever_stream.drawing import escaped
    from weever_stream.state.inspect import held, skew

    lines = list(held(found))
    uneven = skew(lines, job.state.shards)
    wrong = _wrong(job, found) if verify else []
    if as_json:
        told = {"shards": [vars(line) for line in lines], "skew": uneven, "wrong": wrong}
        print(json.dumps(told, indent=1))
    else:
        console = open_console()
        _print_shards(console, lines)
        rows, size = sum(line.rows for line in lines), sum(line.inline_bytes + line.file_bytes for line in lines)
        console.print(f"{len(found)} shards, {rows:,} rows, {size:,} bytes, fullest shard {uneven:.2f} x the average")
        for shard, problem in wrong:
            console.print(Text(f"shard {shard}: ", "red") + Text(escaped(problem)))
        if verify and not wrong:
            console.print("[green]every invariant holds[/]")
    return ExitCode.DAMAGED if wrong else ExitCode.OK


def _wrong(job: Job, found: dict[int, Any]) -> list[tuple[int, str]]:
    from weever_stream.state.inspect import verify
    from weever_stream.stream.run import notes_of, runs_of
    from weever_stream.stream.saved import saved_setup
    from weever_stream.stream.work import ShardWork

    setup = saved_setup(job, notes_of(job), runs_of(job))
    return list(verify(found, setup.families, ShardWork(setup).keeper))


def _print_shards(console: Console, lines: list[Held]) -> None:
    from weever_stream.drawing import escaped

    headings = ("shard", "family", "batch", "runs", "files", "rows", "dead", "inline bytes", "file bytes", "open")
    # A family's name is what the manifest says: text, never markup.
    cells = [
        [f"{value:,}" if isinstance(value, int) else escaped(str(value)) for value in vars(one).values()]
        for one in lines
    ]
    print_table(console, headings, cells, right=set(headings) - {"family"})


def _collect_garbage(job: Job, found: dict[int, Any], seconds: float, *, dry_run: bool, as_json: bool) -> int:
    from weever_stream.state.inspect import orphans
    from weever_stream.state.store import RunStore
    from weever_stream.stream.run import runs_of

    store = RunStore(runs_of(job))
    files = orphans(found.values(), store, seconds, job.state.retain_batches)
    if not dry_run:
        gone = set(store.delete(name for name, _ in files))
        files = [(name, size) for name, size in files if name in gone]
    if as_json:
        print(json.dumps({"deleted": not dry_run, "files": [name for name, _ in files]}, indent=1))
    else:
        verb = "would be deleted" if dry_run else "deleted"
        open_console().print(
            f"{len(files)} run files of {sum(size for _, size in files):,} bytes that no shard needs {verb}"
        )
    return 0
