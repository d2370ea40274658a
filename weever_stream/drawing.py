"""Values and pairs of rows as text for people; what the command line and the console sink show alike.

Values are data: control characters are escaped, and nothing in them is taken for markup. On a terminal long ones are
cut; elsewhere nothing is. Names, keys and constants are never cut.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.text import Text

from weever_stream.orientation import as_written
from weever_stream.rules.model import Column, Constant
from weever_stream.rules.writing import write_operand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from weever_stream.rules import Predicate, RuleFile

__all__ = ["STYLES", "WIDTH", "draw_pair", "draw_written_pair", "escaped", "printable", "value_width"]

WIDTH = 40
"""Characters of a value on a terminal."""
STYLES = {"info": "cyan", "warning": "yellow", "error": "red", "critical": "bold white on red"}
"""By severity."""
_SIGNS = {"!=": "≠", "<=": "≤", ">=": "≥"}


def value_width(console: Console) -> int | None:
    """How long a value may be there: only a terminal has a limit."""
    return WIDTH if console.file.isatty() else None


def printable(value: object, width: int | None = WIDTH) -> str:
    """A value as text without control characters, of bounded length if there is a `width`.

    A text that is empty, or has white space at its ends, is put in quotes: it would look like another one.

    >>> printable("a\\tb"), printable("a ")
    ('a\\\\tb', "'a '")
    """
    if value is None:
        return "null"
    text = value if isinstance(value, str) else _plain(value)
    if text == "" or text[0].isspace() or text[-1].isspace():
        text = f"'{text}'"
    if width is None:
        return escaped(text)
    cut = text[: width * 4]
    safe = escaped(cut)
    return safe if len(safe) <= width and len(cut) == len(text) else safe[: width - 1] + "…"


def escaped(text: str) -> str:
    """A text of any length in one line, without what a terminal would take for a command.

    >>> escaped("\\x1b[31mred")
    '\\\\x1b[31mred'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def from_difference(one: object, other: object) -> tuple[str, str]:
    """Two long values that begin alike, shown from shortly before the place where they differ."""
    texts = [value if isinstance(value, str) else _plain(value) for value in (one, other)]
    alike = next((at for at, (ours, theirs) in enumerate(zip(*texts, strict=False)) if ours != theirs), 0)
    begin = max(0, (alike or min(map(len, texts))) - WIDTH // 4)
    ours, theirs = (("…" if begin else "") + printable(text[begin:], WIDTH - 1) for text in texts)
    return ours, theirs


def _plain(value: object) -> str:
    from weever_stream.detect.identity import plain  # loads the engine: only once there is a value to show

    return plain(value)


def aligned(lines: Sequence[Sequence[Text]], indent: int = 1) -> Text:
    """Lines of cells, each column as wide as its widest cell."""
    widths = [max(line[at].cell_len for line in lines if at < len(line)) for at in range(max(map(len, lines)))]
    drawn = []
    for line in lines:
        text = Text(" " * indent)
        for cell, width in zip(line, widths, strict=False):
            text.append(" ").append(cell).append(" " * (width - cell.cell_len + (cell is not line[-1])))
        text.rstrip()
        drawn.append(text)
    return Text("\n").join(drawn)


def draw_pair(
    keys: Sequence[tuple[str, object, object]],
    rows: Mapping[str, Mapping[str, object]],
    predicates: Sequence[Predicate] | None,
    indent: int = 1,
    *,
    width: int | None = None,
) -> Text:
    """A violation: a line for each key column, then one for each predicate, with the values that satisfied it.

    `keys` are the name, left and right value of each key column; `rows` the values of `t`, and of `s` where the rule is
    about two rows. Without predicates, the rule not being known, values are shown with no operator between them. They
    are cut at `width` characters, if it is given.
    """
    lines = []
    for name, left, right in keys:
        cells = [Text(printable(one, None), style="bold") for one in (name, left)] + [Text()]
        if "s" in rows:
            cells += [Text(printable(one, None), style="bold") for one in (name, right)]
        lines.append(cells)
    if predicates is None:
        lines += [_column(name, rows, width) for name in dict.fromkeys(name for row in rows.values() for name in row)]
    else:
        lines += [_comparison(predicate, rows, width) for predicate in predicates]
    return aligned(lines, indent)


def draw_written_pair(
    violation: Mapping[str, Any], rules: RuleFile | None, indent: int = 1, *, width: int | None = None
) -> Text:
    """A violation as sinks write it: keys as text, values as JSON. `rules` give it its operators and key columns."""
    left_key, right_key = violation["left_key"], violation["right_key"]
    rows = {"t": _columns(violation["left_values"])}
    if right_key is not None:
        rows["s"] = _columns(violation["right_values"])
    rule = None if rules is None else next((one for one in rules.rules if one.name == violation["rule"]), None)
    # A rule of the same name may have been another one when the violation was written.
    if rule is None or rule.fingerprint != violation["rule_fingerprint"]:
        return draw_pair(_keys(rules, left_key, right_key), rows, None, indent, width=width)
    predicates = as_written(rule, violation["left_values"], violation["right_values"])
    return draw_pair(_keys(rules, left_key, right_key), rows, predicates, indent, width=width)


def _keys(rules: RuleFile | None, left: str, right: str | None) -> list[tuple[str, object, object]]:
    """The key columns by name. A key of several columns is a JSON array of their values."""
    names = () if rules is None else rules.key
    if len(names) == 1:
        return [(names[0], left, right)]
    try:
        parts = [
            json.loads(text, parse_float=str, parse_int=str) if text else [None] * len(names) for text in (left, right)
        ]
        if names and all(isinstance(part, list) for part in parts):
            return list(zip(names, *parts, strict=True))
    except ValueError:
        pass
    return [("key", left, right)]


def _comparison(predicate: Predicate, rows: Mapping[str, Mapping[str, object]], width: int | None) -> list[Text]:
    """A predicate with the values that satisfied it: column and value, operator, column and value.

    One that reads a single row of a pair is in that row's half, with its operator and the rest after the value.
    """
    sign = _SIGNS.get(predicate.op.symbol, predicate.op.symbol)
    left, right = predicate.left, predicate.right
    if len(rows) == 2 and len(predicate.rows) == 1:
        assert isinstance(left, Column)
        name, value = _operand(left, rows, width)
        half = value + Text(f" {sign} ", style="bold") + Text(" ").join(_operand(right, rows, width))
        return [Text("  ") + name, half] if left.row == "t" else [Text(), Text(), Text(), name, half]
    cells = [*_operand(left, rows, width), Text(sign, style="bold"), *_operand(right, rows, width)]
    if width is not None and sign == "≠" and len(cells) == 5 and cells[1].plain == cells[4].plain:
        ours, theirs = (rows[side.row].get(side.name) for side in predicate.columns)
        cells[1].plain, cells[4].plain = from_difference(ours, theirs)
    return [Text("  ") + cells[0], *cells[1:]]


def _operand(side: Column | Constant, rows: Mapping[str, Mapping[str, object]], width: int | None) -> tuple[Text, ...]:
    """A column's name and value, or a constant as rules write it."""
    if isinstance(side, Constant):
        return (Text(printable(write_operand(side), None)),)
    value = rows[side.row].get(side.name)
    return Text(printable(side.name, None), style="dim"), Text(printable(value, width), style="yellow")


def _column(name: str, rows: Mapping[str, Mapping[str, object]], width: int | None) -> list[Text]:
    cells = []
    for row in rows.values():
        label = Text(printable(name, None) if name in row else "", style="dim")
        cells += [label, Text(printable(row[name], width) if name in row else "", style="yellow"), Text()]
    return [Text("  ") + cells[0], *cells[1:-1]]


def _columns(values: str | None) -> dict[str, Any]:
    """What a JSON object holds, numbers with the digits they were written with; other text as it is."""
    if values is None:
        return {}
    try:
        found = json.loads(values, parse_float=str, parse_int=str, parse_constant=str)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return {"values": values}
    return {
        name: value if value is None or isinstance(value, str | bool) else json.dumps(value, ensure_ascii=False)
        for name, value in found.items()
    }
