"""What was found, as text for a person: groups of rules, those that the data tests apart from those it hardly does.

A rule is *tested* if there would be violations of it in a table whose columns had nothing to do with each other, and
there are none, or fewer (`ranking`). A rule that is not may be true all the same: no pair of rows could show it.
Everything that decides this is in the text: support, violations, violations by chance, and rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weever_stream.discover.ranking import LEAST, MOST, MOST_ROWS
from weever_stream.discover.words import families
from weever_stream.drawing import escaped
from weever_stream.rules import write_rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weever_stream.discover.result import Discovery, Found
    from weever_stream.discover.words import Saying

__all__ = ["UNTESTED", "Entry", "count", "entries", "group", "heading", "in_order", "text"]

_RULES = 8
"""Rules of one family that are written out."""
UNTESTED = (
    f"chance would break them fewer than {LEAST} times, or they are broken more than {MOST:.0%} as often as by chance;"
    f" of one comparison, fewer than {LEAST} pairs test them, or more than {MOST_ROWS:.0%} of the rows break them"
)
"""Why rules say little, in the numbers that are shown."""


_UNTESTED_LINES = f"These say little: {UNTESTED}.".replace("; ", ";\n").splitlines()


@dataclass(frozen=True)
class Entry:
    """A group: rules that are described together."""

    number: int
    saying: Saying
    rules: tuple[Found, ...]
    tested: bool


def entries(found: Discovery) -> list[Entry]:
    """The rules of a discovery in groups. They are in this order already."""
    return group(found.rules)


def group(rules: Sequence[Found]) -> list[Entry]:
    """Rules in groups, best first, tested ones before the others. Rules with violations are grouped separately."""
    groups: dict[tuple[bool, bool], list[Found]] = {}
    listed: list[tuple[bool, int, Saying, tuple[Found, ...]]] = []
    for one in rules:
        groups.setdefault((not one.tested, bool(one.violations)), []).append(one)
    place = {id(one): at for at, one in enumerate(rules)}
    for (untested, _), some in groups.items():
        for saying, members in families(one.saying for one in some):
            mine = tuple(some[at] for at in members)
            listed.append((untested, place[id(mine[0])], saying, mine))
    listed.sort(key=lambda one: one[:2])
    return [Entry(at, saying, mine, not untested) for at, (untested, _, saying, mine) in enumerate(listed, 1)]


def in_order(rules: Sequence[Found]) -> tuple[Found, ...]:
    """Rules, best first, in the order in which their groups are shown."""
    return tuple(one for entry in group(rules) for one in entry.rules)


def heading(found: Discovery) -> str:
    """How much there is, and how much of it is shown."""
    size = f"{count(found.rows, 'row')}, {count(len(found.columns), 'column')}"
    rules, groups = len(found.rules), len(entries(found))
    shown = f", the best {rules:,} of them" if rules < found.total else ""
    grouped = f" in {count(groups, 'group')}" if groups < rules else ""
    return f"{found.table}: {size}: {count(found.total, 'minimal rule')}{shown}{grouped}"


def count(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def text(found: Discovery) -> str:
    """All of it as lines for a terminal. Names of columns are data: what could move the cursor is escaped."""
    lines = [heading(found), ""]
    listed = entries(found)
    for at, entry in enumerate(listed):
        if not entry.tested and (at == 0 or listed[at - 1].tested):
            lines += ["", *_UNTESTED_LINES] if at else _UNTESTED_LINES
        lines += _lines(entry)
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(map(escaped, lines))


def _lines(entry: Entry) -> Iterator[str]:
    yield f"{entry.number:3}. {entry.saying.words()}"
    if not any(one.violations for one in entry.rules):
        for one in entry.rules[:_RULES]:
            yield f"     {write_rule(one.rule)}"
        if len(entry.rules) > _RULES:
            yield f"     and {len(entry.rules) - _RULES} more"
        yield f"     {_numbers(entry.rules)}"
        return
    for one in entry.rules:
        pairs = "; ".join(f"{left}" if right is None else f"{left} and {right}" for left, right in one.examples)
        yield f"     {write_rule(one.rule)}"
        yield f"     {_numbers([one])}"
        yield f"     {one.error:.2g} of all pairs, {count(one.rows_involved, 'row')}, such as rows {pairs}"


def _numbers(rules: Sequence[Found]) -> str:
    """What decides whether rules are tested."""
    support = f"support {_range([one.support for one in rules])}"
    violations = count(rules[0].violations, "violation") if rules[0].violations else "no violation"
    chances = [one.chance for one in rules if one.chance is not None]
    return f"{support}, {violations}" + (f", about {_range(chances)} by chance" if chances else "")


def _range(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"
