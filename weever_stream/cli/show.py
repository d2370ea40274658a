"""A report as text for people: a line per rule, then pairs side by side with the compared values marked.

Values are data: control characters are escaped, a terminal cuts long ones, and nothing in them is taken for markup.
"""

from __future__ import annotations

import io
from typing import IO, TYPE_CHECKING

from rich.text import Text

from weever_stream.cli.tables import open_console, print_table
from weever_stream.drawing import STYLES, draw_pair, escaped, printable, value_width
from weever_stream.rules import write_rule

if TYPE_CHECKING:
    from rich.console import Console

    from weever_stream.check import Report, RuleResult, Violations

__all__ = ["printable", "show_report"]


def show_report(report: Report, out: IO[bytes], to_terminal: bool) -> None:
    """Writes a report for people."""
    text = io.TextIOWrapper(out, "utf-8", "replace", write_through=True)
    try:
        console = open_console(text, to_terminal=to_terminal)
        _summary(console, report)
        listed: dict[str, int] = {}
        for piece in report.violations():
            if piece.rule.name not in listed:
                _heading(console, report, piece)
            listed[piece.rule.name] = listed.get(piece.rule.name, 0) + len(piece.pairs)
            _pairs(console, piece)
        _close(console, report, listed)
    finally:
        text.detach()


def _summary(console: Console, report: Report) -> None:
    rows = []
    for result in report.results:
        style = STYLES[result.rule.severity] if result.violations else "green"
        rows.append(
            (
                escaped(result.rule.name),
                Text(result.rule.severity, style=style if result.violations else ""),
                Text(_violations(report, result), style=style),
                "-" if result.rows_involved is None else f"{result.rows_involved:,}",
                f"{result.seconds:.3f} s",
            )
        )
    numbers = ("violations", "rows involved", "time")
    print_table(console, ("rule", "severity", *numbers), rows, right=numbers)


def _violations(report: Report, result: RuleResult) -> str:
    some = report.mode == "first" and result.violations
    return "at least 1" if some else f"{result.violations:,}"


def _heading(console: Console, report: Report, piece: Violations) -> None:
    console.print()
    name = Text(escaped(piece.rule.name), style=STYLES[piece.rule.severity])
    console.print(name + Text(f"  {escaped(write_rule(piece.rule))}", style="dim"))
    if piece.rule.description:
        console.print(Text(f"  {escaped(piece.rule.description)}"))


def _pairs(console: Console, piece: Violations) -> None:
    from weever_stream.detect.identity import python_values

    left, right = piece.sides()
    sides = {"t": {name: python_values(left[name]) for name in left.column_names}}
    if right is not None:
        sides["s"] = {name: python_values(right[name]) for name in right.column_names}
    for at in range(len(piece.pairs)):
        rows = {row: {name: values[at] for name, values in columns.items()} for row, columns in sides.items()}
        other = rows.get("s", {})
        keys = [(name, rows["t"][name], other.get(name)) for name in piece.names.columns]
        console.print(draw_pair(keys, rows, piece.rule.predicates, width=value_width(console)))


def _close(console: Console, report: Report, listed: dict[str, int]) -> None:
    for result in report.results:
        more = result.violations - listed.get(result.rule.name, 0)
        if report.mode == "list" and more > 0 and report.limit:
            console.print(
                Text(
                    f"\n{escaped(result.rule.name)}: {more:,} more; --limit lists more, --format csv all",
                    style="dim",
                )
            )
    broken = sum(1 for result in report.results if result.violations)
    rules = len(report.results)
    verdict = "all hold" if not broken else f"{broken} violated"
    console.print(
        Text(f"\n{escaped(report.table)}: {_number(report.rows, 'row')}, {_number(rules, 'rule')}, {verdict}")
    )


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
