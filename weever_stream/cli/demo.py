"""`weever demo`: the real stream over a small table that changes, on this machine.

Makes a Delta table (a folder of change files where Delta's jars cannot be had), runs the job over its change feed, and
shows violations appear and vanish. Ends by itself in a minute or two; nothing is left behind unless `--save` names a
folder, which then holds the rules, the job and its tables, to go on with.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.demo_feed import COLUMNS, RULE_FILE, feed, parcels
from weever_stream.errors import EngineError, OutputError

if TYPE_CHECKING:
    from rich.console import Console

    from weever_stream.cli.demo_table import Packages
    from weever_stream.rules import RuleFile
    from weever_stream.sinks.batch import Batch
    from weever_stream.stream.progress import BatchReport

__all__ = ["demo"]

_SHOWN = 2
"""Violations of one step that are shown; the others are counted."""
_PATIENCE = 240.0
"""Seconds that a batch may take before the demo gives up."""


def demo(
    pause: Annotated[float, typer.Option(min=0, max=10, help="Seconds between two changes.")] = 1.0,
    save: Annotated[Path | None, typer.Option(help="Leave rules, job and tables in this folder.")] = None,
) -> None:
    """Run a small job and watch violations open and resolve."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    if save:
        _save(save)
    console.print("[bold]These are the rules.[/] No two different parcels t and s may ever be like this:\n")
    console.print(RULE_FILE, style="dim", markup=False)
    with nullcontext(str(save.resolve())) if save else tempfile.TemporaryDirectory(prefix="weever-demo-") as folder:
        _stream(console, Path(folder), pause if console.is_terminal else 0)
    _what_next(console, save)


def _stream(console: Console, folder: Path, pause: float) -> None:
    """Starts Spark and the job, and lets the story happen."""
    waiting = "starting Spark; the first run fetches its connectors and compiles kernels, which takes a minute more"
    if not console.is_terminal:
        console.print(f"[dim]{waiting}[/]")
    with console.status(waiting) if console.is_terminal else nullcontext():
        import weever_stream.detect.shard  # noqa: F401 - compiles the kernels, for the workers too

        spark, packages = _started(console, folder)
    try:
        _watch(console, spark, packages, folder, pause)
    finally:
        spark.stop()


def _started(console: Console, folder: Path) -> tuple[Any, Packages]:
    """A session, with Delta where its jars can be had."""
    from rich.markup import escape

    from weever_stream.cli.demo_table import ChangeFiles, DeltaPackages
    from weever_stream.stream.jars import connectors
    from weever_stream.stream.session import session

    try:
        connectors("delta")
    except EngineError as error:
        console.print(f"[dim]without Delta ({escape(error.message)}): the changes are files[/]")
        return session([]), ChangeFiles(folder)
    return session(["delta"]), DeltaPackages(folder)


class _Story:
    """What the stream tells, in the order in which it does."""

    def __init__(self) -> None:
        self.reports: list[BatchReport] = []
        self.deltas: list[Any] = []

    def write(self, batch: Batch) -> None:
        """A sink of its own: keeps what a batch brought."""
        self.deltas += batch.deltas.collect() if batch.added or batch.removed else []


def _watch(console: Console, spark: Any, packages: Packages, folder: Path, pause: float) -> None:
    from weever_stream.job.job import read_job
    from weever_stream.stream.run import start

    steps, story = feed(), _Story()
    packages.apply(steps[0].changes)
    path = folder / "job.yaml"
    path.write_text(_job(packages, folder), encoding="utf-8")
    job = read_job(path, {})
    running = start(spark, job, story.reports.append, every="100 ms", also=[story])
    console.print("[bold]And this is what happens to the table.[/]\n")
    try:
        for number, step in enumerate(steps):
            if number:
                packages.apply(step.changes)
            began = time.monotonic()
            seen, told = len(story.reports), len(story.deltas)
            _await(running.query, story, seen if number else 0)
            console.print(f"[cyan]>[/] {step.story}")
            _show(console, story.deltas[told:] if number else [], job.file)
            report = story.reports[-1]
            changes = "1 change" if report.changes == 1 else f"{report.changes} changes"
            took = f"{changes}, told {time.monotonic() - began:.1f} s after the commit"
            console.print(f"  [dim]open: {', '.join(f'{rule} {n}' for rule, n in report.open.items())}  ({took})[/]\n")
            time.sleep(pause)
    finally:
        running.stop(after=story.reports[-1].batch if story.reports else None)


def _await(query: Any, story: _Story, seen: int) -> None:
    """Until the stream has told of one batch more."""
    from weever_stream.stream.failures import told

    until = time.monotonic() + _PATIENCE
    while len(story.reports) <= seen:
        if not query.isActive:
            raise told([str(query.exception())])
        if time.monotonic() > until:
            raise EngineError(f"no batch was done in {_PATIENCE:.0f} seconds", hint="is this machine very busy?")
        time.sleep(0.02)


def _show(console: Console, deltas: list[Any], rules: RuleFile) -> None:
    from weever_stream.drawing import draw_written_pair, value_width

    for change, mark in (("removed", "[green]- fixed   [/]"), ("added", "[red]+ violated[/]")):
        mine = [delta for delta in deltas if delta.change == change]
        for delta in mine[:_SHOWN]:
            console.print(f"  {mark} [bold]{delta.rule}[/]")
            console.print(draw_written_pair(delta.asDict(), rules, indent=12, width=value_width(console)))
        if len(mine) > _SHOWN:
            console.print(f"  {mark} … and {len(mine) - _SHOWN} more pairs")


def _job(packages: Packages, folder: Path) -> str:
    """The rule file as a job."""
    import json

    return (
        f"{RULE_FILE}"
        f"columns: {json.dumps(COLUMNS) if packages.source.startswith('{kind: files') else '{}'}\n"
        f"source: {packages.source}\n"
        f"sinks:\n  - {{kind: files, path: {json.dumps(str(folder / 'violations'))}}}\n"
        f"state: {{checkpoint: {json.dumps(str(folder / 'checkpoint'))}, shards: 4}}\n"
    )


def _save(folder: Path) -> None:
    rows = parcels()
    rows[1]["city"] = "Limaa"
    lines = [",".join(rows[0]), *(",".join(str(cell) for cell in row.values()) for row in rows)]
    files = {folder / "rules.yaml": RULE_FILE, folder / "packages.csv": "\n".join(lines) + "\n"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            if path.exists() and path.read_bytes() != text.encode():
                raise OutputError(f"{path} is there already and is not the demo's", hint="name another folder")
        if (folder / "checkpoint").exists():
            raise OutputError(f"{folder} holds a demo already", hint="name another folder, or delete it")
        for path, text in files.items():
            path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise OutputError(f"{folder} could not be written: {error.strerror}", hint="name another folder") from None


def _what_next(console: Console, folder: Path | None) -> None:
    from rich.markup import escape

    console.print("[bold]Try next[/]")
    if folder is None:
        console.print("  weever demo --save parcels           [dim]leaves rules, job and tables in a folder[/]")
        folder = Path("parcels")
    named = escape(str(folder))
    console.print(f"  weever violations {named}/job.yaml --log   [dim]what the stream wrote, without Spark[/]")
    console.print(f"  weever run {named}/job.yaml --once         [dim]goes on where it stopped[/]")
    console.print(
        f"  weever check {named}/rules.yaml {named}/packages.csv    [dim]a table with a mistake, without Spark[/]"
    )
    console.print("  weever check YOUR_RULES.yaml YOUR_TABLE.parquet --mode count   [dim]your own table[/]")
