"""A piece of rule text that knows where it stands in its file, so that every error can point at the true spot.

`Source.place(start, end)` turns offsets of the piece into a `Place`. A piece typed in Python is its own file; a piece
of a YAML file may be quoted, folded or spread over lines, so its characters are aligned with the raw text, once and
only when a place is asked for. Cost: linear in the length of the piece.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from weever_stream.errors import Place

__all__ = ["Document", "Source"]

_SKIPPED = re.compile(r"(?:\s|\\(?=[\r\n]))*")
_LONGEST_ESCAPE = len("\\U0001F41F")
_LINE_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")


@dataclass(frozen=True)
class Document:
    """The whole text of a file, for turning offsets into lines and columns."""

    text: str
    name: str | None = None

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_BREAK.finditer(self.text))]

    @cached_property
    def _lines(self) -> list[str]:
        return _LINE_BREAK.split(self.text)

    def place(self, start: int, end: int, rule: str | None = None) -> Place:
        """The place of text[start:end], underlined to the end of its first line at most."""
        line = bisect_right(self._starts, start) - 1
        column = start - self._starts[line]
        content = self._lines[line]
        width = max(1, min(end - start, len(content) - column))
        return Place(self.name, line + 1, column + 1, content, width, rule)


@dataclass(frozen=True)
class Source:
    """Text to parse: `text` stands in `document` from offset `begin` to `end`, there perhaps quoted and folded."""

    text: str
    document: Document
    begin: int = 0
    end: int = -1
    rule: str | None = None

    @classmethod
    def inline(cls, text: str, rule: str | None = None) -> Source:
        """Text that was given by itself, in Python or on the command line."""
        return cls(text, Document(text), 0, len(text), rule)

    def place(self, start: int, end: int) -> Place:
        """The place of text[start:end] in the document."""
        spots = self._spots
        if spots is None:
            return self.document.place(self.begin + start, self.begin + end, self.rule)
        last = spots[min(max(end - 1, start), len(self.text))] + 1
        return self.document.place(spots[min(start, len(self.text))], last, self.rule)

    @cached_property
    def _spots(self) -> list[int] | None:
        """The document's offset of each character, or None where the text stands there as it is."""
        raw = self.document.text[self.begin : self.end]
        if raw == self.text:
            return None
        # Quoting, escapes and folding add or change only white space, quotes and backslashes: the other characters
        # appear in order, so a greedy walk finds them. A block scalar begins below its header.
        spots, at = [], raw.find("\n") + 1 if raw[:1] in ("|", ">") else 0
        for character in self.text:
            if not character.isspace():
                at = _SKIPPED.match(raw, at).end()  # type: ignore[union-attr]
                found = raw.find(character, at, at + _LONGEST_ESCAPE)
                at = found if found >= 0 else at
            spots.append(self.begin + min(at, max(0, len(raw) - 1)))
            if at < len(raw) and raw[at] == character:
                at += 1
        # The end of the text is the spot behind its last character.
        spots.append(spots[-1] + 1 if spots else self.begin)
        return spots
