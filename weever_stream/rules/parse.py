"""Text to predicates: `grammar.lark` read by an LALR parser, with errors that show the spot and say what was expected.

The parser is built once, at first use (some 30 ms). Cost: linear in the text, about 0.2 ms for a rule of three
predicates; the length of a number is bounded by `literals.MAX_NUMBER`. Whatever the text holds, nothing but `RuleError`
is raised.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput, UnexpectedToken

from weever_stream.errors import RuleError
from weever_stream.rules.literals import read_number, read_text, read_typed
from weever_stream.rules.mistakes import hint_for
from weever_stream.rules.model import Column, Constant, Literals, Op, Operand, Predicate, RowName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weever_stream.rules.source import Source

__all__ = [
    "CONSTANTS",
    "OPERATORS",
    "ROW_NAMES",
    "Comparison",
    "Named",
    "Written",
    "assemble",
    "check_text",
    "parse_deny",
    "parse_filter",
    "parse_names",
    "read_constant",
    "terminal",
    "unquoted",
]

MAX_TEXT = 100_000
MAX_PREDICATES = 500
ROW_NAMES: tuple[tuple[str, str], ...] = (("t", "s"), ("t1", "t2"), ("t0", "t1"), ("tα", "tβ"), ("tx", "ty"))
"""How notations call the left and the right row. Our own is the first."""
OPERATORS = {
    "=": Op.EQ, "==": Op.EQ, "!=": Op.NE, "<>": Op.NE, "≠": Op.NE,
    "<": Op.LT, "<=": Op.LE, "≤": Op.LE, ">": Op.GT, ">=": Op.GE, "≥": Op.GE,
}  # fmt: skip
_SURROGATE = re.compile("[\ud800-\udfff]")


class Named(NamedTuple):
    """A column as written: `row` is empty where only the column is named."""

    row: str
    name: str
    start: int
    end: int


class Comparison(NamedTuple):
    """A predicate as written, with offsets into its source. Columns are not yet given to t and s."""

    left: Named | Constant
    op: Op
    right: Named | Constant
    start: int
    end: int


class Written(NamedTuple):
    """A parsed `deny`: its comparisons, and whether a negation stood around them."""

    comparisons: list[Comparison]
    negated: bool


def parse_deny(source: Source) -> list[Predicate]:
    """The predicates of a `deny`, in our notation or inside a negation (`!( … )`, `¬{ … }`, `NOT( … )`)."""
    written: Written = _parse(source, "deny")
    return assemble(source, written.comparisons, ROW_NAMES if written.negated else ROW_NAMES[:1])


def parse_filter(source: Source) -> list[Predicate]:
    """The predicates of a `filter`: of one row, called t here; its columns may be named without it."""
    comparisons: list[Comparison] = _parse(source, "filter")
    predicates = []
    for comparison in comparisons:
        for side in (comparison.left, comparison.right):
            if isinstance(side, Named) and side.row not in ("", "t"):
                raise RuleError(
                    "a filter speaks of one row at a time",
                    place=source.place(side.start, side.end),
                    hint="name the column alone; to compare two rows use `deny`",
                )
        left, right = (
            Column("t", side.name) if isinstance(side, Named) else side for side in (comparison.left, comparison.right)
        )
        place = source.place(comparison.start, comparison.end)
        predicates.append(Predicate(left, comparison.op, right, place))
    return _limited(source, predicates)


def parse_names(source: Source, kind: Literal["unique", "fd", "order"]) -> list[list[Named]]:
    """The lists of column names in `a, b`, in `a, b -> c` or in `a -> b within c, d`."""
    lists: list[list[Named]] = _parse(source, kind)
    return lists


def assemble(
    source: Source, comparisons: Sequence[Comparison], row_names: Sequence[tuple[str, str]]
) -> list[Predicate]:
    """Gives the rows their names t and s. Raises `RuleError` for a column without a row or with a third one."""
    if not comparisons:
        raise RuleError("the rule has no predicate", place=source.place(0, len(source.text)))
    columns = [side for c in comparisons for side in (c.left, c.right) if isinstance(side, Named)]
    rows = {column.row for column in columns}
    pair = next((names for names in row_names if rows <= set(names)), None)
    if pair is None:
        raise _unknown_row(source, columns, row_names)
    to_row: dict[str, RowName] = {pair[0]: "t", pair[1]: "s"}

    def operand(side: Named | Constant) -> Operand:
        return Column(to_row[side.row], side.name) if isinstance(side, Named) else side

    return _limited(
        source, [Predicate(operand(c.left), c.op, operand(c.right), source.place(c.start, c.end)) for c in comparisons]
    )


def _limited(source: Source, predicates: list[Predicate]) -> list[Predicate]:
    if len(predicates) > MAX_PREDICATES:
        place = source.place(0, 1)
        raise RuleError(f"the rule has {len(predicates)} predicates; {MAX_PREDICATES} are the limit", place=place)
    return predicates


def _unknown_row(source: Source, columns: list[Named], row_names: Sequence[tuple[str, str]]) -> RuleError:
    """Says which column has no row, or a row that is neither of the two."""
    known = {name for names in row_names for name in names}
    for column in columns:
        place = source.place(column.start, column.end)
        if not column.row:
            return RuleError(
                f"column {column.name} is named without its row",
                place=place,
                hint=hint_for(source.text, column.start) or f"write t.{column.name} or s.{column.name}",
            )
        if column.row not in known:
            hint = _ROWS_HINT
            if any(column.row in names for names in ROW_NAMES):
                hint += "; other names are read inside a negation: not(t1.a = t2.a)"
            return RuleError(f"{column.row} is not a row", place=place, hint=hint)
    first = columns[0]
    stranger = next(column for column in columns if column.row != first.row)
    stranger = next((c for c in columns if not any({first.row, c.row} <= set(names) for names in row_names)), stranger)
    return RuleError(
        f"{first.row} and {stranger.row} do not name two rows together",
        place=source.place(stranger.start, stranger.end),
        hint=_ROWS_HINT,
    )


_ROWS_HINT = "the two rows are called t and s"


def check_text(source: Source) -> None:
    """Raises `RuleError` for a text that no person wrote: too long, or with half a surrogate pair."""
    if len(source.text) > MAX_TEXT:
        message = f"the text is {len(source.text):,} characters long; {MAX_TEXT:,} are the limit"
        raise RuleError(message, place=source.place(0, 1))
    if half := _SURROGATE.search(source.text):
        raise RuleError("half of a surrogate pair is not valid Unicode", place=source.place(*half.span()))


def _parse(source: Source, start: str) -> Any:
    text = source.text
    check_text(source)
    if not text.strip():
        raise RuleError("the text is empty", place=source.place(0, 1), hint=_EXAMPLES[start])
    try:
        return _parser().parse(text, start=start)
    except UnexpectedInput as error:
        raise _explained(error, source, start) from None
    except _LiteralError as error:
        inner = error.error
        inner.place = source.place(error.start, error.end)
        raise inner from None


_EXAMPLES = {
    "deny": "for example t.zip = s.zip and t.city != s.city",
    "filter": "for example country = 'US' and price > 0",
    "unique": "for example order_id, line",
    "fd": "for example zip -> city",
    "order": "for example salary -> rate within state",
}
_SAID = {
    "COMPARISON": "a comparison (= != < <= > >=)",
    "COLUMN": "a column such as t.price",
    "NAME": "a column's name",
    "NUMBER": "a constant",
    "_AND": "`and`",
    "_ARROW": "`->`",
    "_WITHIN": "`within`",
    "COMMA": "`,`",
    "RPAR": "`)`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "$END": "the end",
}
"""What people call the parser's terminals; those left out are spelled by another one."""


def _explained(error: UnexpectedInput, source: Source, start: str) -> RuleError:
    """What was expected, what stood there, and a hint where the mistake is a known one."""
    text = source.text
    at = error.pos_in_stream if error.pos_in_stream is not None else len(text)
    width, found = 1, ""
    if isinstance(error, UnexpectedToken):
        at, found = (len(text), "") if error.token.type == "$END" else (error.token.start_pos or 0, str(error.token))
        width, expected = max(1, len(found)), set(error.accepts or error.expected)
    else:
        expected, found = _accepted(text, start), text[at : at + 1]
    wanted = [said for terminal, said in _SAID.items() if terminal in expected]
    if {"COLUMN", "NAME"} <= expected:
        wanted.remove(_SAID["COLUMN" if start == "filter" else "NAME"])
    shown = found if len(found) <= 30 else found[:27] + "…"
    what = f"found `{shown}`" if found.strip() else "the text ends"
    message = f"expected {_either(wanted)}, but {what}" if wanted else f"`{shown}` is not understood"
    stop = at if found else len(text.rstrip())
    return RuleError(message, place=source.place(stop, stop + width), hint=hint_for(text, stop))


def _accepted(text: str, start: str) -> set[str]:
    """What the parser would take at the first character that no terminal matches: parses again up to there."""
    interactive = _parser().parse_interactive(text, start=start)
    with suppress(UnexpectedInput):
        interactive.exhaust_lexer()
    accepted: set[str] = interactive.accepts()  # type: ignore[no-untyped-call]
    return accepted


def _either(wanted: list[str]) -> str:
    return wanted[0] if len(wanted) == 1 else ", ".join(wanted[:-1]) + " or " + wanted[-1]


class _LiteralError(Exception):
    """Carries a literal's error out of the parser together with its offsets."""

    def __init__(self, error: RuleError, token: Token) -> None:
        super().__init__(error.message)
        self.error, self.start, self.end = error, token.start_pos or 0, token.end_pos or 0


class _Builder(Transformer[Token, Any]):
    """Builds the result while parsing, so that no tree is made."""

    def conjunction(self, parts: list[Any]) -> list[Comparison]:
        flat: list[Comparison] = []
        for part in parts:
            if isinstance(part, list):
                flat += part
            else:
                flat.append(part)
        return flat

    def predicate(self, parts: list[Token]) -> Comparison:
        left, op, right = parts
        return Comparison(_side(left), OPERATORS[op], _side(right), left.start_pos or 0, right.end_pos or 0)

    def deny(self, parts: list[Any]) -> Written:
        return Written(parts[0], negated=False)

    def negation(self, parts: list[Any]) -> Written:
        return Written(parts[-1], negated=True)

    def filter(self, parts: list[Any]) -> list[Comparison]:
        comparisons: list[Comparison] = parts[0]
        return comparisons

    def names(self, parts: list[Token]) -> list[Named]:
        return [Named("", unquoted(token), token.start_pos or 0, token.end_pos or 0) for token in parts]

    def unique(self, parts: list[list[Named]]) -> list[list[Named]]:
        return parts

    fd = order = unique


def unquoted(token: str) -> str:
    """The name inside its quotes, if it has any."""
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote) if quote in '"`' else str(token)


def read_constant(kind: str, text: str) -> Literals:
    """The value of a constant, given the terminal of the grammar that it matches."""
    return _READERS[kind](text)


def terminal(name: str) -> str:
    """The regular expression of a terminal of the grammar."""
    return str(_parser().get_terminal(name).pattern.to_regexp())


def _side(token: Token) -> Named | Constant:
    start, end = token.start_pos or 0, token.end_pos or 0
    if token.type == "COLUMN":
        row, _, name = token.partition(".")
        return Named(row.rstrip(), unquoted(name.lstrip()), start, end)
    if token.type in ("NAME", "BACKTICKED"):
        return Named("", unquoted(token), start, end)
    try:
        return Constant(read_constant(token.type, token))
    except RuleError as error:
        raise _LiteralError(error, token) from None


_READERS: dict[str, Callable[[str], Literals]] = {
    "NUMBER": read_number,
    "TEXT": read_text,
    "TYPED": read_typed,
    "BOOLEAN": lambda text: text.lower() == "true",
}
CONSTANTS = tuple(_READERS)
"""The terminals that are constants."""


@cache
def _parser() -> Lark:
    grammar = files("weever_stream.rules").joinpath("grammar.lark").read_text("utf-8")
    return Lark(
        grammar,
        parser="lalr",
        start=["deny", "filter", "unique", "fd", "order"],
        transformer=_Builder(),
        maybe_placeholders=False,
    )
