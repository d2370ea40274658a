"""Where the values of a YAML file stand in its text, for edits that touch nothing else.

The parser's own marks put the end of a block behind the comments and empty lines that follow it; here a block ends
where the last value in it does, so that what is added comes before them. Cost: one pass of the parser.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Span", "every", "line_end", "spans_of", "with_breaks_of"]


@dataclass
class Span:
    """A value as it stands in the text: where its content begins and ends."""

    begin: int
    end: int
    column: int
    flow: bool = False
    items: list[Span] = field(default_factory=list)
    """Of a list its items; of a mapping keys and values in turn."""


def spans_of(text: str) -> Span:
    """The spans of a document, from the parser's events. The ends of blocks are those of what is in them."""
    stack: list[Span] = [Span(0, 0, 0)]
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        begin: Any = event.start_mark
        end: Any = event.end_mark
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append(Span(begin.index, end.index, begin.column, bool(event.flow_style)))
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            span = stack.pop()
            span.end = end.index if span.flow else span.end
        elif isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            span = Span(begin.index, end.index, begin.column, flow=True)
        else:
            continue
        stack[-1].items.append(span)
        stack[-1].end = max(stack[-1].end, span.end)
    return stack[0].items[0]


def every(span: Span) -> Iterator[Span]:
    """A span and all within it."""
    yield span
    for one in span.items:
        yield from every(one)


def line_end(text: str, end: int) -> int:
    """Behind the line in which a value ends; a block of text ends with its last line break."""
    if end and text[end - 1] == "\n":
        return end
    found = text.find("\n", end)
    return len(text) if found < 0 else found + 1


def with_breaks_of(text: str, lines: str) -> str:
    """Lines with the breaks that the text has."""
    return lines.replace("\n", "\r\n") if "\r\n" in text else lines
