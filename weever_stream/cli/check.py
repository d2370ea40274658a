"""`weever check`: one shot over a whole table. See docs/check.md."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from weever_stream.cli.contract import TableOption, tell_skipped
from weever_stream.cli.output import OutputFile, is_stdout, opened
from weever_stream.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weever_stream.check import Report
    from weever_stream.check.engine import Progress

__all__ = ["Form", "Mode", "check", "progress_bar"]

_SHOWN = 20
"""Violations that text shows per rule."""
_DATA = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson", ".arrow", ".feather")


class Mode(str, Enum):
    """How much is looked for."""

    LIST = "list"
    COUNT = "count"
    FIRST = "first"


class Form(str, Enum):
    """How the outcome is written."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def check(
    file: Annotated[Path, typer.Argument(help="The rule file.", show_default=False)],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, globs or folders: CSV, Parquet, JSON lines, Arrow, Delta. Default: the file's source."
        ),
    ] = None,
    mode: Annotated[Mode, typer.Option(help="List the violations, only count them, or stop at the first.")] = Mode.LIST,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=f"List at most so many per rule; counts stay exact. Text: {_SHOWN}, else all.",
            show_default=False,
        ),
    ] = None,
    rule: Annotated[list[str] | None, typer.Option(help="Check only this rule; may be repeated.")] = None,
    table: TableOption = None,
    form: Annotated[Form, typer.Option("--format", help="Output format.")] = Form.TEXT,
    output: OutputFile = None,
    null_value: Annotated[
        list[str] | None, typer.Option(help="A text that means null in CSV; may be repeated.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="How CSV files write text, as latin-1. Default: UTF-8.", show_default=False)
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to use. Default: all cores.")] = None,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show a bar on a terminal.")] = True,
) -> None:
    """Check a table against rules, without Spark.

    Exits with 0 if all rules hold, 1 if a rule of severity error or critical is violated, 2 if only rules of severity
    warning or info are, 3 if the check could not run, and 4 if its results could not be written.
    """
    from weever_stream.check import check as check_table
    from weever_stream.rules import read_rules

    if file.suffix.lower() in _DATA:
        raise RuleError(f"{file} is data by its name, not rules", hint="the rule file is named first, then the data")
    rules = read_rules(file, table=table)
    tell_skipped(rules)
    if rule:
        rules = rules.select(rule)
    if limit is None and form is Form.TEXT:
        limit = _SHOWN
    with progress_bar(progress and sys.stderr.isatty()) as tell:
        report = check_table(
            rules,
            data or None,
            mode=mode.value,
            limit=limit,
            null_values=null_value or (),
            encoding=encoding,
            threads=threads,
            progress=tell,
        )
    with opened(output) as out:
        _write(report, form, out, to_terminal=is_stdout(output))
    raise typer.Exit(report.exit_code)


def _write(report: Report, form: Form, out: IO[bytes], to_terminal: bool) -> None:
    if form is Form.TEXT:
        from weever_stream.cli.show import show_report

        show_report(report, out, to_terminal)
        return
    from weever_stream.check import write_csv, write_json

    (write_json if form is Form.JSON else write_csv)(report, out)


@contextmanager
def progress_bar(wanted: bool) -> Iterator[Progress | None]:
    """A bar on stderr that tells the phase; gone when the check is done."""
    if not wanted:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.text import Text

    from weever_stream.cli.show import printable

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        first_run = "" if _kernels_are_compiled() else " (compiling kernels, first run only)"

        def tell(phase: str, done: int, total: int) -> None:
            what = Text(printable(phase) + first_run).plain.replace("[", r"\[")
            bar.update(task, description=what, completed=done, total=total if done else None)

        yield tell


def _kernels_are_compiled() -> bool:
    """Whether numba finds its compiled code on disk, and does not have to make it."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    where = Path(folder) if folder else Path(__file__).parent.parent
    return any(where.rglob("*.nbi"))
