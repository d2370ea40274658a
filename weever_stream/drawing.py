"""Values and pairs of rows as text for people; what the command line and the console sink show alike.

Values are data: control characters are escaped, long ones are cut, and nothing in them is taken for markup.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["STYLES", "WIDTH", "aligned", "escaped", "from_difference", "pair_of_texts", "printable"]

WIDTH = 40
STYLES = {"info": "cyan", "warning": "yellow", "error": "red", "critical": "bold white on red"}
"""By severity."""


def printable(value: object, width: int = WIDTH) -> str:
    """A value as text of bounded length without control characters.

    A text that is empty, or has white space at its ends, is put in quotes: it would look like another one.

    >>> printable("a\\tb"), printable("a ")
    ('a\\\\tb', "'a '")
    """
    if value is None:
        return "null"
    text = value if isinstance(value, str) else _plain(value)
    if text == "" or text[0].isspace() or text[-1].isspace():
        text = f"'{text}'"
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


def pair_of_texts(
    left_key: str, right_key: str | None, left_values: str, right_values: str | None, indent: int = 1
) -> Text:
    """A violation as sinks write it: both keys, then a line for each column; those that differ stand out."""
    left, right = _columns(left_values), _columns(right_values)
    lines = [[Text("key", style="bold"), Text(printable(left_key), style="bold")]]
    if right_key is not None:
        lines[0] += [Text(), Text("key", style="bold"), Text(printable(right_key), style="bold")]
    others = right if right_key is not None else None
    lines += [_column(name, left, others) for name in dict.fromkeys((*left, *right))]
    return aligned(lines, indent)


def _column(name: str, left: dict[str, Any], right: dict[str, Any] | None) -> list[Text]:
    their_label, ours = Text(printable(name), style="dim"), left.get(name, "")
    label = Text("  ") + their_label
    if right is None:
        return [label, Text(printable(ours), style="yellow")]
    theirs = right.get(name, "")
    if name not in right:
        return [label, Text(printable(ours), style="yellow")]
    if name not in left:
        return [Text(), Text(), Text(), their_label, Text(printable(theirs), style="yellow")]
    texts, differ = (printable(ours), printable(theirs)), ours != theirs
    if differ and texts[0] == texts[1]:
        texts = from_difference(ours, theirs)
    cells = [Text(text, style="yellow" if differ else "") for text in texts]
    return [label, cells[0], Text("≠" if differ else "=", style="bold"), their_label, cells[1]]


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
