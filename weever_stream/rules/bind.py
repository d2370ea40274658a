"""A rule against a schema: which columns exist, in which type each predicate is compared, and on which row it stands.

`bind` is where unknown columns, types that cannot be compared and rules that these types make impossible are refused.
Constants leave it as Python values of the type they are compared in, and bounds reduced to the tightest. Cost: linear
in the predicates.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from weever_stream.errors import Place, RuleError, RuleErrors, TypeMismatchError, collecting, did_you_mean
from weever_stream.rules.literals import MAX_DIGITS, coerce
from weever_stream.rules.model import Column, Constant, Op, Predicate, Rule
from weever_stream.rules.reserved import RENAME, is_reserved
from weever_stream.rules.tightening import tighten_predicates
from weever_stream.rules.types import ColumnType, common_type
from weever_stream.rules.writing import write_operand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weever_stream.rules.model import RowName
    from weever_stream.rules.types import Schema

__all__ = ["BoundRule", "TypedPredicate", "bind", "bind_all", "unknown_hint"]


@dataclass(frozen=True)
class TypedPredicate:
    """A comparison with its type: a column with a column, or with a constant that is a Python value of `domain`."""

    left: Column
    op: Op
    right: Column | Constant
    domain: ColumnType
    """The common type in which the two are compared."""

    @property
    def rows(self) -> set[RowName]:
        """The rows it names."""
        return {self.left.row, self.right.row} if isinstance(self.right, Column) else {self.left.row}


@dataclass(frozen=True)
class BoundRule:
    """A rule whose columns exist and can be compared. A pair violates it if all three groups are satisfied.

    The groups may hold fewer predicates than the rule: of the bounds on a column only the tightest.
    """

    rule: Rule
    pairs: tuple[TypedPredicate, ...]
    """`t.A op s.B`."""
    left_filter: tuple[TypedPredicate, ...]
    """Predicates on t alone."""
    right_filter: tuple[TypedPredicate, ...]
    """Predicates on s alone."""


def bind(rule: Rule, schema: Schema) -> BoundRule:
    """Checks a rule against a schema.

    Raises `RuleError` (unknown column, or no pair of rows can violate it in these types) or `TypeMismatchError`.
    """
    errors = [RuleError(f"a column cannot be named {name}", hint=RENAME) for name in rule.columns if is_reserved(name)]
    typed = []
    for predicate in rule.predicates:
        with collecting(errors):
            typed.append((predicate, _typed(predicate, schema)))
    RuleErrors.raise_all([error.at(rule=rule.name) for error in errors])
    try:
        types = {name: kind for name in rule.columns if isinstance(kind := schema[name], ColumnType)}
        tight = tighten_predicates(typed, types)
    except RuleError as error:
        raise error.at(rule=rule.name) from None
    pairs, on_t, on_s = ([one for one in tight if one.rows == rows] for rows in ({"t", "s"}, {"t"}, {"s"}))
    return BoundRule(rule, tuple(pairs), tuple(on_t), tuple(on_s))


def bind_all(rules: Iterable[Rule], schema: Schema) -> tuple[BoundRule, ...]:
    """Binds every rule, and raises all their errors together, each once."""
    bound: list[BoundRule] = []
    errors: list[RuleError] = []
    for rule in rules:
        with collecting(errors):
            bound.append(bind(rule, schema))
    RuleErrors.raise_all(list({_identity(error): error for error in reversed(errors)}.values())[::-1])
    return tuple(bound)


def _identity(error: RuleError) -> tuple[object, ...]:
    """The same for one mistake that several rules repeat: those of one `fd` or `order` with several columns."""
    place = error.place or Place()
    written_for = (place.rule or "").partition(".")[0] if place.line is None else None
    return (error.message, place.file, place.line, place.column, written_for)


def _typed(predicate: Predicate, schema: Schema) -> TypedPredicate:
    left, op, right = predicate.left, predicate.op, predicate.right
    assert isinstance(left, Column), "a rule in normal form has a column on the left"
    left_type = _type(predicate, left, schema)
    if isinstance(right, Constant):
        try:
            value, domain = coerce(right.value, left.name, left_type)
        except TypeMismatchError as error:
            error.place = predicate.place
            raise
        return TypedPredicate(left, op, Constant(value), domain)
    common = common_type(left_type, right_type := _type(predicate, right, schema))
    if common is None or common.precision > MAX_DIGITS:
        raise TypeMismatchError(
            f"{write_operand(left)} is of type {left_type} and {write_operand(right)} of type "
            f"{right_type}, which cannot be compared",
            place=predicate.place,
            hint=_mismatch_hint(left_type, right_type),
        )
    return TypedPredicate(left, op, right, common)


def _type(predicate: Predicate, column: Column, schema: Schema) -> ColumnType:
    known = schema.get(column.name)
    if known is None:
        raise RuleError(
            f"there is no column {column.name}", place=_spot(predicate, column), hint=unknown_hint(column.name, schema)
        )
    if isinstance(known, str):
        raise TypeMismatchError(
            f"column {column.name} is of type {known}, which rules cannot compare",
            place=_spot(predicate, column),
            hint="add a column with a comparable value in the source: a field of it, or a hash",
        )
    return known


def unknown_hint(name: str, schema: Iterable[str]) -> str:
    """What to do about a column that is not there: the name that may be meant, or all that there are."""
    names = list(schema)
    folded = _folded(name)
    if len(names) == 1 and (other := re.search(r"[;|\t]", names[0])):
        return f"the only column is {names[0]!r}; are {other[0]!r} the separators? CSV has commas, and .tsv files tabs"
    if same := [known for known in names if _folded(known) == folded]:
        return f"names are compared letter by letter; did you mean {' or '.join(same)}?"
    if hint := did_you_mean(name, names):
        return hint
    # a header may say more than the name, as in `ident(String)`
    if longer := [known for known in names if re.match(re.escape(folded) + r"\W", _folded(known))]:
        return f"did you mean {' or '.join(longer[:2])}?"
    shown = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    return f"the columns are {shown}" if names else "the table has no columns"


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold().strip()


def _mismatch_hint(one: ColumnType, other: ColumnType) -> str | None:
    kinds = {one.kind, other.kind}
    if kinds == {"timestamp", "timestamp_ntz"}:
        return "one has a time zone and the other has none; convert one in the source"
    if kinds == {"date", "timestamp"}:
        return "a date is no instant; take the date of the timestamp in the source"
    return "cast one of them in the source, or give the right type under `columns:`"


def _spot(predicate: Predicate, column: Column) -> Place | None:
    """The place of the column inside its predicate, where its spelling is found there."""
    place = predicate.place
    if place is None or place.text is None or place.column is None:
        return place
    spelling = re.escape(column.name)
    begin, end = place.column - 1, place.column - 1 + place.width
    for pattern in (rf"\b{column.row}\.\s*[\"`]?{spelling}(?!\w)", rf"(?:\b[ts]\.\s*)?[\"`]?(?<!\w){spelling}(?!\w)"):
        if found := re.compile(pattern).search(place.text, begin, end):
            return replace(place, column=found.start() + 1, width=len(found[0]))
    return place
