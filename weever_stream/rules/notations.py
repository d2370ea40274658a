"""Rules in the notations of other systems, read into predicates. Which notation a text is in shows at its beginning.

| notation | looks like |
| --- | --- |
| weever | `t.a = s.a and t.b != s.b` |
| paper | `¬{ t.a = s.a ∧ t.b ≠ s.b }` |
| desbordante | `!(t.a == s.a and t.b != s.b)` |
| sql-like | `NOT(t1.a = t2.a AND t1.b <> t2.b)` |
| holoclean | `t1&t2&EQ(t1.a,t2.a)&IQ(t1.b,t2.b)` |
| incdc | `[DC: t0.a(String) == t1.a(String)  t0.b(Integer) <> t1.b(Integer)  ]` |

The first four share `grammar.lark`. The last two let names hold spaces without quotes, so each has a pattern here.
Writing is in `writing`. Cost: linear in the text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from weever_stream.errors import RuleError, did_you_mean
from weever_stream.rules.model import Constant, Predicate
from weever_stream.rules.parse import (
    CONSTANTS,
    OPERATORS,
    ROW_NAMES,
    Comparison,
    Named,
    assemble,
    check_text,
    parse_deny,
    read_constant,
    terminal,
    unquoted,
)
from weever_stream.rules.writing import CALLS, LISTING_TYPES

if TYPE_CHECKING:
    from weever_stream.rules.source import Source

__all__ = ["notation_of", "read_notation"]

_LISTED_OP = re.compile(r"\s*(==|<>|!=|<=|>=|=|<|>)")
_CALL = re.compile(r"\s*&\s*([A-Za-z]+)\s*\(")
_CALL_OP = {name: op for op, name in CALLS.items()}
_HOLOCLEAN = re.compile(r"\s*t\d+\s*(&\s*t\d+\s*)?(?=&)")
_NOT_BLANK = re.compile(r"\S")
_INCDC = re.compile(r"\s*\[\s*DC\s*:", re.IGNORECASE)


@cache
def _listed_operand() -> re.Pattern[str]:
    """`t0.city(String)` or a constant. A name reaches up to the bracket with its type."""
    types = "|".join(LISTING_TYPES)
    column = rf"(?P<row>t\w*)\.(?P<name>{_quoted_name()}|[^\"`].*?)\((?:{types})\)(?=\s|[<>=!]|$)"
    return re.compile(rf"\s*(?:{column}|{_constant()})", re.DOTALL)


@cache
def _called_operand() -> re.Pattern[str]:
    """`t1.city` or a constant, up to the comma or bracket that ends it."""
    column = rf"(?P<row>t\d+)\.(?P<name>{_quoted_name()}|[^\"`,&()]+?)"
    return re.compile(rf"\s*(?:{column}|(?P<quoted>{terminal('QUOTED')}|\"\")|{_constant()})\s*(?=[,)])")


def _quoted_name() -> str:
    return f"{terminal('QUOTED')}|{terminal('BACKTICKED')}"


def _constant() -> str:
    return "|".join(f"(?P<{name}>{terminal(name)})" for name in CONSTANTS)


def notation_of(text: str) -> str:
    """The notation that a text is written in, by its beginning: the name that `convert` uses."""
    start = text.lstrip()[:1]
    if _INCDC.match(text):
        return "incdc"
    if _HOLOCLEAN.match(text):
        return "holoclean"
    return {"!": "desbordante", "¬": "paper", "∀": "paper"}.get(start, "weever")


def read_notation(source: Source) -> list[Predicate]:
    """The predicates that a text in any known notation denies."""
    check_text(source)
    notation = notation_of(source.text)
    if notation == "incdc":
        return _read_listing(source)
    if notation == "holoclean":
        return _read_holoclean(source)
    return parse_deny(source)


def _read_listing(source: Source) -> list[Predicate]:
    """`[DC: t0.a(String) == t1.a(String)  … ]`."""
    text = source.text.rstrip()
    start = _INCDC.match(text)
    assert start
    at, comparisons = start.end(), []
    if not text.endswith("]"):
        raise RuleError("the listing has no closing `]`", place=source.place(len(text) - 1, len(text)))
    while (at := _skip_blanks(text, at)) < len(text) - 1:
        left, middle = _listed(source, text, at)
        op = _LISTED_OP.match(text, middle)
        if not op:
            raise _stuck(source, middle, "a comparison (== <> < <= > >=)")
        right, end = _listed(source, text, op.end())
        comparisons.append(Comparison(left, OPERATORS[op[1]], right, at, end))
        at = end
    return assemble(source, comparisons, ROW_NAMES)


def _skip_blanks(text: str, at: int) -> int:
    """The first place from `at` on that is not blank. Without a copy: one for each comparison would be quadratic."""
    found = _NOT_BLANK.search(text, at)
    return found.start() if found else len(text)


def _listed(source: Source, text: str, at: int) -> tuple[Named | Constant, int]:
    found = _listed_operand().match(text, at, len(text) - 1)
    if not found:
        raise _stuck(source, at, "a column with its type, such as t0.city(String)")
    return _operand(source, found), found.end()


def _read_holoclean(source: Source) -> list[Predicate]:
    """`t1&t2&EQ(t1.a,t2.a)&…`."""
    text = source.text.rstrip()
    start = _HOLOCLEAN.match(text)
    assert start
    at, comparisons = start.end(), []
    while at < len(text):
        call = _CALL.match(text, at)
        if not call:
            raise _stuck(source, at, "`&` and a comparison such as EQ(t1.a,t2.a)")
        op = _CALL_OP.get(call[1].upper())
        if op is None:
            raise RuleError(
                f"{call[1]} is not a comparison",
                place=source.place(call.start(1), call.end(1)),
                hint=did_you_mean(call[1].upper(), _CALL_OP) or "one of " + ", ".join(_CALL_OP),
            )
        left, at = _argument(source, text, call.end(), ",")
        right, at = _argument(source, text, at, ")")
        comparisons.append(Comparison(left, op, right, call.start(1), at))
    return assemble(source, comparisons, ROW_NAMES)


def _argument(source: Source, text: str, at: int, closing: str) -> tuple[Named | Constant, int]:
    found = _called_operand().match(text, at)
    if not found:
        raise _stuck(source, at, "a column such as t1.city or a constant in quotes")
    if text[found.end()] != closing:
        raise _stuck(source, found.end(), f"`{closing}`")
    return _operand(source, found), found.end() + 1


def _operand(source: Source, found: re.Match[str]) -> Named | Constant:
    parts = found.groupdict()
    if parts["row"]:
        return Named(parts["row"], unquoted(parts["name"]).strip(), found.start("row"), found.end("name"))
    if quoted := parts.get("quoted"):
        return Constant(unquoted(quoted))
    kind = next(name for name in CONSTANTS if parts[name] is not None)
    try:
        return Constant(read_constant(kind, parts[kind]))
    except RuleError as error:
        error.place = source.place(*found.span(kind))
        raise


def _stuck(source: Source, at: int, wanted: str) -> RuleError:
    rest = source.text[at:]
    spot = at + len(rest) - len(rest.lstrip())
    if not rest.strip():
        spot = max(0, len(source.text.rstrip()) - 1)
    return RuleError(f"expected {wanted}", place=source.place(spot, spot + 1))
