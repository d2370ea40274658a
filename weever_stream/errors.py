"""The one root of every error a user can meet, and the place it points at.

An error says what is wrong (`message`), where (`place`) and what to do (`hint`). `render()` draws all three the way
the command line prints them, with the offending line and a caret under the column. Errors survive pickling, because
they travel from Spark's workers to the driver, and never carry a row's values.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "DataError",
    "DetectorError",
    "EngineError",
    "OutputError",
    "Place",
    "RuleError",
    "RuleErrors",
    "StateError",
    "TypeMismatchError",
    "WeeverError",
    "collecting",
    "did_you_mean",
    "shortened",
    "the_columns",
]


_SHOWN = 100
"""Errors of one file that are shown."""


@dataclass(frozen=True)
class Place:
    """Where something is wrong: any part that is known. Lines and columns count from 1."""

    file: str | None = None
    line: int | None = None
    column: int | None = None
    text: str | None = None
    """The whole source line, to draw the caret under."""
    width: int = 1
    """How many characters the caret underlines."""
    rule: str | None = None

    def __str__(self) -> str:
        if self.file is None and self.line is not None and self.column is not None:
            spot = f"line {self.line}, column {self.column}"
        else:
            spot = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        named = f"rule {self.rule}" if self.rule else ""
        return ", ".join(part for part in (spot, named) if part)

    def drawing(self) -> str:
        """The source line with a caret under the column, or nothing where the text is not known."""
        if self.text is None or self.column is None:
            return ""
        line, column = self.text, self.column - 1
        start = max(0, column - 90)
        shown, at = line[start : start + 140].replace("\t", " "), column - start
        return f"    {shown}\n    {' ' * at}{'^' * max(1, min(self.width, len(shown) - at or 1))}"


_Same = TypeVar("_Same", bound="WeeverError")


class WeeverError(Exception):
    """Anything that a user can cause and mend. Subclasses' docstrings tell the causes and cures."""

    code = "weever"

    def __init__(self, message: str, *, hint: str | None = None, place: Place | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self.place))

    def __str__(self) -> str:
        return self.render()

    def at(self: _Same, **where: Any) -> _Same:
        """Fills in what is known of the place and was not known deeper down. Returns itself, to be raised."""
        known = self.place or Place()
        missing = {name: value for name, value in where.items() if getattr(known, name) is None}
        self.place = replace(known, **missing)
        return self

    def render(self) -> str:
        """Place, message, the line with its caret, and the hint, each on a line of its own."""
        where = str(self.place) if self.place else ""
        lines = [f"{where}: {self.message}" if where else self.message]
        if self.place and (drawing := self.place.drawing()):
            lines.append(drawing)
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return _printable("\n".join(lines))


def _printable(text: str) -> str:
    """What a terminal can show: rule files and names may hold control characters and halves of surrogate pairs."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(character if character.isprintable() or character == "\n" else "\ufffd" for character in text)


def _rebuild(kind: type[WeeverError], message: str, hint: str | None, place: Place | None) -> WeeverError:
    return kind(message, hint=hint, place=place)


class RuleError(WeeverError):
    """A rule or a rule file that cannot be read, or that says nothing. The caret shows where; mend the text."""

    code = "rule"


class RuleErrors(RuleError):  # noqa: N818 - it is several
    """Several errors of one rule file, found together. Each is rendered with its own place; `errors` holds them."""

    def __init__(self, errors: Sequence[RuleError]) -> None:
        super().__init__(f"{len(errors)} errors in the rules")
        self.errors = tuple(errors)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.errors,))

    def render(self) -> str:
        """The errors, one after the other; of very many the first."""
        lines = [error.render() for error in self.errors[:_SHOWN]]
        if (more := len(self.errors) - _SHOWN) > 0:
            lines.append(f"… and {more:,} error{'s' * (more != 1)} more")
        return "\n".join(lines)

    @classmethod
    def raise_all(cls, errors: Sequence[RuleError]) -> None:
        """Raises what was collected: nothing, the one error itself, or all together."""
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise cls(errors)


@contextmanager
def collecting(errors: list[RuleError]) -> Iterator[None]:
    """Puts the rule errors of a block in a list instead of raising them, so that the next block runs too."""
    try:
        yield
    except RuleErrors as several:
        errors += several.errors
    except RuleError as error:
        errors.append(error)


class TypeMismatchError(RuleError):
    """A predicate compares columns whose types cannot be compared. Cast one in the source, or give `columns:`."""

    code = "type"


class DataError(WeeverError):
    """The data cannot be read, or lacks what the rules need: a missing column, a ragged line, a repeated key."""

    code = "data"


class DetectorError(WeeverError):
    """A call of the in-process engine that it cannot take: an unknown rule, a change without its key."""

    code = "detector"


class EngineError(WeeverError):
    """Spark cannot run as the job needs it: Java is missing or too old, or a connector's jars cannot be had.

    Install Java 17 or newer and set JAVA_HOME; give a folder of jars by WEEVER_JARS where there is no network;
    `weever doctor` shows what is there and what is not.
    """

    code = "engine"


class StateError(WeeverError):
    """Saved state that is torn, foreign, or of a version or plan that does not fit. Restore it or rebuild."""

    code = "state"


class OutputError(WeeverError):
    """Results were computed and could not be written. Check the target's path, rights and space."""

    code = "output"


_LONG_NAME = 80


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint with the closest known names, or None where nothing is near."""
    names = list(known)
    folded = {candidate.casefold(): candidate for candidate in names}
    close = get_close_matches(name.casefold(), list(folded), n=2, cutoff=0.6)
    return "did you mean " + " or ".join(folded[match] for match in close) + "?" if close else None


def shortened(name: str) -> str:
    """A name that fits a line, as that of a column in a damaged file may not."""
    return name if len(name) <= _LONG_NAME else f"{name[:_LONG_NAME]}…"


def the_columns(names: Iterable[str], most: int = 12) -> str:
    """A hint that names the columns that there are: the first ones, the long ones cut."""
    known = list(map(shortened, names))
    return "the columns are " + ", ".join(known[:most]) + (", …" if len(known) > most else "")
