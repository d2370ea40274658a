"""`weever state`: look into a checkpoint, and clean up after tasks that failed.

    weever state inspect job.yaml [--verify]   shards, runs, rows, bytes, skew; --verify opens and checks all of it
    weever state gc job.yaml [--dry-run]       deletes run files that no shard needs
    weever state rescale job.yaml              moves a stopped job to the number of shards that its file asks for

Reads through Spark's own state reader; the job may be running. Exit codes: 0 all is well, 1 something is wrong with the
state, 3 could not look.
"""

from __future__ import annotations

import json
import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.output import Format
from weever_stream.errors import RuleError

if TYPE_CHECKING:
    from rich.console import Console

    from weever_stream.job.job import Job
    from weever_stream.state.inspect import Held

__all__ = ["state"]


class Action(str, Enum):
    """What to do."""

    inspect = "inspect"
    gc = "gc"
    rescale = "rescale"


def state(
    action: Annotated[Action, typer.Argument(help="inspect, gc or rescale")],
    job: Annotated[Path, typer.Argument(help="The job file.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="inspect: open every run and check every invariant.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="gc: only list what would be deleted.")] = False,
    older_than: Annotated[str, typer.Option(help="gc: only files that are older.")] = "1 hour",
    format: Annotated[Format, typer.Option(help="text or json")] = Format.text,
) -> int:
    """Look into a job's checkpoint (inspect), delete files that nobody needs (gc), change its shards (rescale)."""
    from rich.console import Console

    from weever_stream.job.job import read_job
    from weever_stream.job.options import duration
    from weever_stream.stream.saved import manifests
    from weever_stream.stream.session import session

    asked = read_job(job, os.environ)
    try:
        seconds = duration(older_than)
    except ValueError as error:
        raise RuleError(f"--older-than: {error}") from None
    console = Console(highlight=False, soft_wrap=True)
    as_json = format is Format.json
    if action is Action.rescale:
        return _rescale(console, asked)
    spark = session(asked.connectors, conf=asked.settings)
    try:
        found = manifests(spark, asked.state.checkpoint.rstrip("/"))
    finally:
        spark.stop()
    if action is Action.gc:
        return _collect_garbage(console, asked, found, seconds, dry_run=dry_run, as_json=as_json)
    return _inspect(console, asked, found, verify=verify, as_json=as_json)


def _rescale(console: Console, job: Job) -> int:
    from weever_stream.cli.progress import BatchLines
    from weever_stream.state.lease import Lease
    from weever_stream.stream.alerting import alerting
    from weever_stream.stream.owner import locked_by_jvm
    from weever_stream.stream.places import notes_of
    from weever_stream.stream.query import open_context
    from weever_stream.stream.rescaling import rescale
    from weever_stream.stream.session import session

    # What is left to do is done first, and its alerts are sent like any other.
    with Lease(notes_of(job), "weever state rescale") as lease, alerting(job, lambda: lease.ours) as told:
        spark = session(job.connectors, conf=job.settings)
        try:
            locked_by_jvm(spark, lease)
            noted = rescale(open_context(spark, job, lease, BatchLines().batch, also=told), job.state.shards)
        finally:
            spark.stop()
    console.print(f"{noted.shards} shards hold the state now; go on with weever run")
    return 0


def _inspect(console: Console, job: Job, found: dict[int, Any], *, verify: bool, as_json: bool) -> int:
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
        console.print(_table(lines))
        rows, size = sum(line.rows for line in lines), sum(line.inline_bytes + line.file_bytes for line in lines)
        console.print(f"{len(found)} shards, {rows:,} rows, {size:,} bytes, fullest shard {uneven:.2f} x the average")
        for shard, problem in wrong:
            console.print(Text(f"shard {shard}: ", "red") + Text(escaped(problem)))
        if verify and not wrong:
            console.print("[green]every invariant holds[/]")
    return 1 if wrong else 0


def _wrong(job: Job, found: dict[int, Any]) -> list[tuple[int, str]]:
    from weever_stream.state.inspect import verify
    from weever_stream.stream.run import notes_of, runs_of
    from weever_stream.stream.saved import saved_setup
    from weever_stream.stream.work import ShardWork

    setup = saved_setup(job, notes_of(job), runs_of(job))
    return list(verify(found, setup.families, ShardWork(setup).keeper))


def _table(lines: list[Held]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from weever_stream.drawing import escaped

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("shard", "family", "batch", "runs", "files", "rows", "dead", "inline bytes", "file bytes", "open"):
        table.add_column(name, justify="left" if name == "family" else "right")
    for line in lines:
        # A family's name is what the manifest says: text, never markup.
        cells = (f"{value:,}" if isinstance(value, int) else escaped(str(value)) for value in vars(line).values())
        table.add_row(*map(Text, cells))
    return table


def _collect_garbage(
    console: Console, job: Job, found: dict[int, Any], seconds: float, *, dry_run: bool, as_json: bool
) -> int:
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
        console.print(f"{len(files)} run files of {sum(size for _, size in files):,} bytes that no shard needs {verb}")
    return 0
