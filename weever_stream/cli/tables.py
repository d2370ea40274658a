"""Tables on the terminal and in pipes: no cell is ever cut or broken.

A table that is wider than the terminal is printed as one block per row, a line per column, as `psql` does with
`\\x auto`. A pipe has no width: there a row is always one line.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["open_console", "print_table"]

_NO_WIDTH = 1_000_000
_GAP = 3
"""Columns of the terminal between two columns of a table."""


def open_console(file: IO[str] | None = None, *, to_terminal: bool = True) -> Console:
    """A console for results. It wraps nothing: lines are searched, copied and piped."""
    console = Console(file=file, highlight=False, soft_wrap=True, force_terminal=None if to_terminal else False)
    if not console.file.isatty():  # colours may be forced where there is no terminal
        console.width = _NO_WIDTH
    return console


def print_table(
    console: Console, headings: Sequence[str], rows: Sequence[Sequence[Text | str]], right: Collection[str] = ()
) -> None:
    """Prints rows under headings; columns named in `right` are right-aligned."""
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    lines = [[Text(heading) for heading in headings], *cells]
    width = sum(max(line[at].cell_len for line in lines) + _GAP for at in range(len(headings))) - _GAP
    if width > console.width:
        _print_blocks(console, headings, cells)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _print_blocks(console: Console, headings: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    label = max(map(len, headings))
    for number, row in enumerate(rows):
        if number:
            console.print()
        for at, (heading, cell) in enumerate(zip(headings, row, strict=True)):
            style = "bold" if at == 0 else "dim"
            console.print(Text(f"{heading:<{label}}  ", style=style) + cell)
