"""Tables never cut or break a cell: blocks where a terminal is too narrow, long lines where nobody's window is."""

from __future__ import annotations

import io

from rich.console import Console

from weever_stream.cli.tables import open_console, print_table

NAME = "flight_determines_sched_dep.sched_dep_time_and_everything_else"
ROWS = [[NAME, "12", "open since 2026-11-16 07:34:19"], ["short", "3", "waiting"]]


def test_a_pipe_has_no_width() -> None:
    out = io.StringIO()
    print_table(open_console(out), ("rule", "open", "state"), [[NAME * 5, *ROWS[0][1:]], ROWS[1]], right=["open"])
    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    assert NAME * 5 in lines[2]


def test_a_narrow_terminal_gets_a_block_for_each_row() -> None:
    out = io.StringIO()
    console = Console(file=out, width=40, force_terminal=True, color_system=None, soft_wrap=True)
    print_table(console, ("rule", "open", "state"), ROWS)
    assert out.getvalue() == (
        f"rule   {NAME}\nopen   12\nstate  open since 2026-11-16 07:34:19\n\nrule   short\nopen   3\nstate  waiting\n"
    )


def test_a_table_that_fits_is_a_table() -> None:
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True, color_system=None, soft_wrap=True)
    print_table(console, ("rule", "open", "state"), ROWS, right=["open"])
    assert out.getvalue().splitlines()[0].split() == ["rule", "open", "state"]
    assert len(out.getvalue().splitlines()) == 4
