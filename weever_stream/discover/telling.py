"""What was found, told to a person: families of rules, those that the data tests apart from those it hardly does.

A rule is *tested* if one would expect violations of it in a table whose columns had nothing to do with each other, and
there are none, or far fewer. A rule that is not may be true all the same: no pair of rows had the chance to show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weever_stream.discover.ranking import TESTED
from weever_stream.discover.words import families
from weever_stream.drawing import escaped
from weever_stream.rules import write_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weever_stream.discover.run import Discovery, Found
    from weever_stream.discover.words import Saying

__all__ = ["Entry", "entries", "heading", "text"]

_RULES = 8
"""Rules of one family that are written out."""
_UNTESTED = "These say little: few pairs of rows test them, or they are broken as often as chance would have it."


@dataclass(frozen=True)
class Entry:
    """Rules that are told together."""

    number: int
    saying: Saying
    rules: tuple[Found, ...]
    tested: bool


def entries(found: Discovery) -> list[Entry]:
    """The rules in families, best first, tested ones before the others. Rules with violations stand alone together."""
    groups: dict[tuple[bool, bool], list[Found]] = {}
    told: list[tuple[bool, int, Saying, tuple[Found, ...]]] = []
    for one in found.rules:
        groups.setdefault((one.interest.surprise < TESTED, bool(one.violations)), []).append(one)
    place = {id(one): at for at, one in enumerate(found.rules)}
    for (untested, _), some in groups.items():
        for saying, members in families(one.saying for one in some):
            rules = tuple(some[at] for at in members)
            told.append((untested, place[id(rules[0])], saying, rules))
    told.sort(key=lambda one: one[:2])
    return [Entry(at, saying, rules, not untested) for at, (untested, _, saying, rules) in enumerate(told, 1)]


def heading(found: Discovery) -> str:
    """How much there is, and how much of it is shown."""
    size = f"{found.rows:,} row{'s' * (found.rows != 1)}, {len(found.columns)} column{'s' * (len(found.columns) != 1)}"
    many = f"{found.total:,} minimal rule{'s' * (found.total != 1)}"
    best = f", the best {len(found.rules)} of them" if len(found.rules) < found.total else ""
    return f"{found.table}: {size}: {many}{best}"


def text(found: Discovery) -> str:
    """All of it as lines for a terminal. Names of columns are data: what could move the cursor is escaped."""
    lines = [heading(found), ""]
    told = entries(found)
    for at, entry in enumerate(told):
        if not entry.tested and (at == 0 or told[at - 1].tested):
            lines += ["", _UNTESTED] if at else [_UNTESTED]
        lines += _lines(entry)
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(map(escaped, lines))


def _lines(entry: Entry) -> Iterator[str]:
    yield f"{entry.number:3}. {entry.saying.words()}"
    least, most = min(one.support for one in entry.rules), max(one.support for one in entry.rules)
    support = f"support {most:,}" if least == most else f"support {least:,} to {most:,}"
    if not entry.tested:
        yield f"     {support}"
        return
    if not any(one.violations for one in entry.rules):
        yield from _written(entry)
        yield f"     {support}"
        return
    for one in entry.rules:
        pairs = "; ".join(f"{left}" if right is None else f"{left} and {right}" for left, right in one.examples)
        yield f"     {write_rule(one.rule)}"
        violations = f"{one.violations:,} violation{'s' * (one.violations != 1)}"
        share = f"{one.error:.2g} of pairs, {one.rows_involved:,} rows"
        yield f"     support {one.support:,}, {violations} ({share}), as rows {pairs}"


def _written(entry: Entry) -> Iterator[str]:
    for one in entry.rules[:_RULES]:
        yield f"     {write_rule(one.rule)}"
    if len(entry.rules) > _RULES:
        yield f"     and {len(entry.rules) - _RULES} more"
