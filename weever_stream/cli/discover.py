"""`weever discover`: the rules that a table obeys. See docs/discover.md."""

from __future__ import annotations

import json
import sys
from typing import IO, TYPE_CHECKING, Annotated

import typer

from weever_stream.cli.output import Format, OutputFile, opened

if TYPE_CHECKING:
    from weever_stream.discover import Discovery, Found

__all__ = ["discover"]

_TOP = 20
_SECONDS = 60.0
_NOT_ALL = 2


def discover(
    data: Annotated[
        list[str],
        typer.Argument(help="Files, globs or folders: CSV, Parquet, JSON lines, Arrow, Delta.", show_default=False),
    ],
    columns: Annotated[
        str | None, typer.Option(help="Only these columns, separated by commas.", show_default=False)
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
    null_value: Annotated[
        list[str] | None, typer.Option(help="A text that means null in CSV; may be repeated.")
    ] = None,
    encoding: Annotated[
        str | None, typer.Option(help="How CSV files write text, as latin-1. Default: UTF-8.", show_default=False)
    ] = None,
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show a bar on a terminal.")] = True,
) -> None:
    """Find the rules that a table obeys, best first, and write them as a rule file with -o.

    Exits with 0 if all rules of the space were found, 2 if time or memory ended before, 3 if the data could not be
    read, and 4 if the rules could not be written.
    """
    from weever_stream.cli.check import progress_bar
    from weever_stream.discover import discover as find

    with progress_bar(progress and sys.stderr.isatty()) as tell:
        found = find(
            data,
            columns=None if columns is None else [name.strip() for name in columns.split(",")],
            cross=cross,
            shared=shared,
            one_row=one_row,
            order_text=order_text,
            max_predicates=max_predicates,
            error=error,
            error_rows=error_rows,
            sample=sample,
            top=top or None,
            seconds=seconds or None,
            memory=memory,
            seed=seed,
            null_values=null_value or (),
            encoding=encoding,
            progress=tell,
        )
    if output is not None:
        with opened(output) as out:
            out.write(found.yaml().encode())
    if output is None or str(output) != "-":
        with opened(None) as out:
            _tell(found, form, out)
    raise typer.Exit(0 if found.in_time else _NOT_ALL)


def _tell(found: Discovery, form: Format, out: IO[bytes]) -> None:
    if form is Format.json:
        out.write(json.dumps(found.as_json(), ensure_ascii=False, indent=1).encode() + b"\n")
        return
    many = f"{found.total:,} minimal rule{'s' * (found.total != 1)}"
    best = f", the best {len(found.rules)} of them" if len(found.rules) < found.total else ""
    lines = [f"{found.table}: {found.rows:,} rows, {len(found.columns)} columns: {many}{best}", ""]
    for at, one in enumerate(found.rules, 1):
        lines += _told(at, one)
    lines += [f"note: {note}" for note in found.notes]
    out.write(("\n".join(map(_on_one_line, lines)) + "\n").encode("utf-8", "replace"))


def _on_one_line(text: str) -> str:
    """Names of columns are data: what could move the cursor is escaped."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _told(at: int, one: Found) -> list[str]:
    from weever_stream.rules import write_rule

    counts = f"support {one.support:,}"
    if one.violations:
        pairs = "; ".join(f"{left}" if right is None else f"{left} and {right}" for left, right in one.examples)
        counts += (
            f", {one.violations:,} violations ({one.error:.2g} of pairs, {one.rows_involved:,} rows), as rows {pairs}"
        )
    return [f"{at:3}. {one.words}", f"     {write_rule(one.rule)}", f"     {counts}"]
