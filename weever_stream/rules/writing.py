"""Rules written out, in our notation and in those of other systems. Reading what was written gives the same rule.

`write_rule(rule, notation)` knows `weever`, `paper`, `desbordante`, `holoclean`, `incdc` and `sql`. The last is for
people and for other engines: the self-join whose rows are the violations, in Spark SQL. Cost: linear in the rule.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Literal, get_args

from weever_stream.errors import RuleError, did_you_mean
from weever_stream.rules.literals import write_literal
from weever_stream.rules.model import Column, Op

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weever_stream.rules.model import Constant, Literals, Operand, Predicate, Rule
    from weever_stream.rules.types import ColumnType

__all__ = [
    "CALLS",
    "LISTING_TYPES",
    "NOTATIONS",
    "Notation",
    "free_name",
    "write_operand",
    "write_predicate",
    "write_rule",
    "write_sql",
]

Notation = Literal["weever", "paper", "desbordante", "holoclean", "incdc", "sql"]
NOTATIONS: tuple[Notation, ...] = get_args(Notation)

_PLAIN_NAME = re.compile(r"[^\W\d][\w\u0300-\u036f]*")
_PAPER_SYMBOLS = {Op.NE: "≠", Op.LE: "≤", Op.GE: "≥"}
CALLS = {Op.EQ: "EQ", Op.NE: "IQ", Op.LT: "LT", Op.GT: "GT", Op.LE: "LTE", Op.GE: "GTE"}
"""HoloClean's names of the comparisons."""
LISTING_TYPES = ("String", "Integer", "Long", "Double", "Float", "Numeric", "Boolean", "Date", "Timestamp")
"""The types that an IncDC listing writes behind a column. Reading drops them: the table's schema says better."""
_LISTING_SYMBOLS = {Op.EQ: "==", Op.NE: "<>"}
_TYPE_NAMES = {"integer": "Integer", "uint64": "Integer", "float": "Double", "decimal": "Double"}


def write_rule(rule: Rule, notation: Notation = "weever", *, types: Mapping[str, ColumnType] | None = None) -> str:
    """The rule's predicates in a notation, on one line. An IncDC listing takes the columns' types from `types`.

    >>> from weever_stream.rules import parse_rule
    >>> write_rule(parse_rule("t1&t2&EQ(t1.zip,t2.zip)&IQ(t1.city,t2.city)"), "paper")
    '¬{ t.zip = s.zip ∧ t.city ≠ s.city }'
    """
    predicates = rule.predicates
    if notation == "weever":
        return " and ".join(map(write_predicate, predicates))
    if notation == "paper":
        return "¬{ " + " ∧ ".join(write_predicate(p, _PAPER_SYMBOLS) for p in predicates) + " }"
    if notation == "desbordante":
        return "!(" + " and ".join(write_predicate(p, {Op.EQ: "=="}) for p in predicates) + ")"
    if notation == "holoclean":
        rows = "t1" if rule.one_row else "t1&t2"
        return "&".join([rows, *map(_write_call, predicates)])
    if notation == "incdc":
        return "[DC: " + "".join(f"{_write_listed(p, types or {})}  " for p in predicates) + "]"
    if notation == "sql":
        return write_sql(rule)
    raise RuleError(
        f"{notation} is not a notation", hint=did_you_mean(notation, NOTATIONS) or "one of " + ", ".join(NOTATIONS)
    )


def write_predicate(predicate: Predicate, symbols: Mapping[Op, str] | None = None) -> str:
    """One comparison in our notation, or with other symbols for some operators."""
    symbol = (symbols or {}).get(predicate.op, predicate.op.symbol)
    return f"{write_operand(predicate.left)} {symbol} {write_operand(predicate.right)}"


def write_operand(operand: Operand) -> str:
    """A column with its row, quoted where its name needs it, or a constant."""
    if isinstance(operand, Column):
        return f"{operand.row}.{_name(operand.name)}"
    return write_literal(operand.value)


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _write_call(predicate: Predicate) -> str:
    def argument(operand: Operand) -> str:
        if isinstance(operand, Column):
            return f"{'t1' if operand.row == 't' else 't2'}.{_name(operand.name)}"
        if isinstance(operand.value, str):
            return '"' + operand.value.replace('"', '""') + '"'
        return write_literal(operand.value)

    return f"{CALLS[predicate.op]}({argument(predicate.left)},{argument(predicate.right)})"


def _write_listed(predicate: Predicate, types: Mapping[str, ColumnType]) -> str:
    def listed(operand: Operand) -> str:
        if not isinstance(operand, Column):
            return write_literal(operand.value)
        known = types.get(operand.name)
        kind = _TYPE_NAMES.get(known.kind, "String") if known else "String"
        return f"{'t0' if operand.row == 't' else 't1'}.{_name(operand.name)}({kind})"

    symbol = _LISTING_SYMBOLS.get(predicate.op, predicate.op.symbol)
    return f"{listed(predicate.left)} {symbol} {listed(predicate.right)}"


def write_sql(rule: Rule, *, table: str = "rows", key: str | Sequence[str] = "key") -> str:
    """A Spark SQL query whose rows are the violations: one row, or the two rows of a pair, each pair once.

    `key`: the column or columns that name a row.
    """
    key = (key,) if isinstance(key, str) else tuple(key)
    where = " AND ".join(f"{_sql(p.left)} {_sql_symbol(p.op)} {_sql(p.right)}" for p in rule.predicates)
    if rule.one_row:
        return f"SELECT t.* FROM {_sql_table(table)} t WHERE {where}"
    sides = (", ".join(f"{row}.{_sql_name(name)}" for name in key) for row in "ts")
    left, right = (f"({side})" if len(key) > 1 else side for side in sides)
    differ = f"{left} {'<' if rule.symmetric else '<>'} {right}"
    name = _sql_table(table)
    return f"SELECT t.*, s.* FROM {name} t JOIN {name} s ON {differ} AND {where}"


def _sql_symbol(op: Op) -> str:
    return "<>" if op is Op.NE else op.symbol


def _sql(operand: Operand) -> str:
    if isinstance(operand, Column):
        return f"{operand.row}.{_sql_name(operand.name)}"
    return _sql_literal(operand)


def _sql_literal(constant: Constant) -> str:
    value: Literals = constant.value
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, datetime | date | time) or not isinstance(value, float):
        return write_literal(value).replace("timestamp_ntz", "TIMESTAMP_NTZ")
    return write_literal(value).replace("double '", "double('") + ")"


def _sql_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) and name.isascii() else "`" + name.replace("`", "``") + "`"


def _sql_table(name: str) -> str:
    return ".".join(map(_sql_name, name.split(".")))


def free_name(name: str, taken: set[str]) -> str:
    """The name, numbered where another rule has it."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free)
    return free
