"""`weever discover`: the rules that a table obeys. See docs/discover.md."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from weever_stream.cli.exit_codes import ExitCode
from weever_stream.cli.output import Format, OutputFile, is_stdout, local_file, opened

if TYPE_CHECKING:
    from types import FrameType

    from weever_stream.discover import Discovery

__all__ = ["discover"]

_TOP = 20
_SECONDS = 60.0


class Tables(str, Enum):
    """What Spark can be told to read; `table` is a name of its catalog."""

    parquet = "parquet"
    csv = "csv"
    json = "json"
    orc = "orc"
    delta = "delta"
    table = "table"


def discover(
    data: Annotated[
        list[str],
        typer.Argument(help="Files, globs or folders: CSV, Parquet, JSON lines, Arrow, Delta.", show_default=False),
    ],
    columns: Annotated[
        str | None, typer.Option(help="Only these columns, separated by commas.", show_default=False)
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="Columns that identify a row, separated by commas, for the rule file. Default: the first that does.",
            show_default=False,
        ),
    ] = None,
    max_predicates: Annotated[
        int | None, typer.Option(min=1, help="Rules of at most so many predicates.", show_default=False)
    ] = None,
    error: Annotated[
        float, typer.Option(min=0.0, max=0.99, help="The share of pairs of rows that may violate a rule.")
    ] = 0.0,
    error_rows: Annotated[
        float | None,
        typer.Option(min=0.0, max=0.99, help="The share of rows that may be in a violation.", show_default=False),
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Random pairs to begin with.", show_default=False)] = None,
    top: Annotated[int, typer.Option(min=0, help="Show and write the best so many; 0 is all.")] = _TOP,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="End after about so long with what was found; 0 is no limit.")
    ] = _SECONDS,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory to take besides the table, as 2GB. Default: a quarter of the machine's."),
    ] = None,
    cross: Annotated[
        bool, typer.Option("--cross/--no-cross", help="Compare different columns that share values.")
    ] = True,
    shared: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The share of values that columns must have in common for that.")
    ] = 0.3,
    one_row: Annotated[bool, typer.Option("--one-row", help="Compare columns of one row too.")] = False,
    order_text: Annotated[bool, typer.Option("--order-text", help="Compare text by order, not only for equality.")] = (
        False
    ),
    seed: Annotated[int, typer.Option(help="Makes the sample another one.")] = 0,
    form: Annotated[Format, typer.Option("--format", help="How to tell what was found.")] = Format.text,
    output: OutputFile = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Write a report for people to this file: HTML, with a picture.",
            show_default=False,
            callback=local_file,
        ),
    ] = None,
    null_value: Annotated[
        list[str] | None, typer.Option(help="A text that means null in CSV; may be repeated.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="How CSV files write text, as latin-1. Default: UTF-8.", show_default=False)
    ] = None,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show a bar on a terminal.")] = True,
    spark: Annotated[
        Tables | None,
        typer.Option(help="Read with Spark, for a table that does not fit this machine.", show_default=False),
    ] = None,
    rows_at_once: Annotated[
        int | None,
        typer.Option(min=100, help="With --spark: rows that one machine may hold; 250,000.", show_default=False),
    ] = None,
    master: Annotated[str | None, typer.Option(help="With --spark: its master, where none is set otherwise.")] = None,
) -> None:
    """Find the rules that hold on a table, best first.

    --report writes the same for people, as one HTML file with a picture of how the columns relate.

    Ctrl-C ends the search with the rules found so far. Exits with 0 if all rules of the space were found, 5 if time or
    memory ran out before, 130 after Ctrl-C, 3 if the data could not be read, and 4 if the rules or the report could not
    be written.
    """
    from weever_stream.cli.check import progress_bar

    options: dict[str, Any] = {
        "columns": None if columns is None else [name.strip() for name in columns.split(",")],
        "key": [] if key is None else [name.strip() for name in key.split(",")],
        "cross": cross,
        "shared": shared,
        "one_row": one_row,
        "order_text": order_text,
        "max_predicates": max_predicates,
        "sample": sample,
        "top": top or None,
        "seconds": seconds or None,
        "seed": seed,
    }
    with progress_bar(progress and sys.stderr.isatty()) as options["progress"], ExitStack() as stack:
        if spark is not None:
            _refuse_on_spark(error or error_rows or 0.0, memory, null_value or [], encoding)
            found = _on_spark(data, spark, null_value, master, rows_at_once, options)
        else:
            _refuse_without_spark({"--rows-at-once": rows_at_once, "--master": master})
            from weever_stream.discover import discover as find

            options |= {"error": error, "error_rows": error_rows, "memory": memory}
            interrupted = options["stopped"] = stack.enter_context(interruptible())
            found = find(data, null_values=null_value or (), encoding=encoding, **options)
    if output is not None:
        with opened(output) as out:
            out.write(found.yaml().encode())
        if found.missing and not is_stdout(output):
            missing = " and ".join(f"`{one}`" for one in found.missing)
            print(f"{output}: `weever check` takes it as it is; for `weever run` add {missing}", file=sys.stderr)
    if report is not None:
        with opened(report) as out:
            out.write(found.html().encode())
    if output is None or str(output) != "-":
        with opened(None) as out:
            _tell(found, form, out)
    if spark is None and interrupted():
        raise typer.Exit(ExitCode.INTERRUPTED)
    raise typer.Exit(ExitCode.OK if found.in_time else ExitCode.INCOMPLETE)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: the first time ends the search with what was found, the second time the command."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, before)
        print("weever: ending with the rules found so far; Ctrl-C again to abort", file=sys.stderr, flush=True)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def _refuse_without_spark(options: dict[str, object]) -> None:
    for name, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"{name} applies only with --spark")


def _refuse_on_spark(error: float, memory: str | None, null_value: list[str], encoding: str | None) -> None:
    if error:
        raise typer.BadParameter("on Spark only exact rules are found: leave out --error, or --spark")
    if memory is not None:
        raise typer.BadParameter("--memory does not apply with --spark: use --rows-at-once")
    if len(null_value) > 1:
        raise typer.BadParameter("Spark takes one --null-value")
    if encoding is not None:
        raise typer.BadParameter("--encoding is not for --spark: write the files in UTF-8 first")


def _on_spark(
    data: list[str],
    form: Tables,
    null_value: list[str] | None,
    master: str | None,
    rows_at_once: int | None,
    options: dict[str, Any],
) -> Discovery:
    """Starts Spark, finds the rules there, and stops it."""
    from weever_stream.stream.discovering import ROWS_AT_ONCE
    from weever_stream.stream.discovering import discover as find
    from weever_stream.stream.session import session
    from weever_stream.stream.tables import read

    running = session(["delta"] if form is Tables.delta else [], master=master, app="weever discover")
    try:
        frame = read(running, data, form.value, null_value[0] if null_value else None)
        name = data[0].rstrip("/").rsplit("/", 1)[-1].split(".")[-1 if form is Tables.table else 0] or "table"
        delta = data[0] if form is Tables.delta and len(data) == 1 else None
        return find(frame, name=name, delta=delta, rows_at_once=rows_at_once or ROWS_AT_ONCE, **options)
    finally:
        running.stop()


def _tell(found: Discovery, form: Format, out: IO[bytes]) -> None:
    if form is Format.json:
        out.write(json.dumps(found.as_json(), ensure_ascii=False, indent=1).encode() + b"\n")
        return
    out.write(f"{found}\n".encode("utf-8", "replace"))
