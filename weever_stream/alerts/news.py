"""What a batch says to those who decide on alerts: how many are open, how groups have changed, a few examples.

Counted from the deltas without holding them: of the groups of a rule those with the smallest ids are kept, and those
that were asked for. Parts that were counted apart add up: a group that is among the smallest of all is among the
smallest of every part it occurs in, so what is kept of it is exact. Cost: one pass over the deltas.

A violation stays in the group in which it was opened, though its rows may change while it lasts and are told with other
values when it is over. That is why groups hold ids, as many as is reasonable.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = [
    "NEWS_COLUMNS",
    "GroupNews",
    "Grouping",
    "News",
    "Question",
    "Said",
    "count",
    "group_id",
    "held_of_each",
    "joined",
    "short",
]

NEWS_COLUMNS = ("rule", "change", "violation_id", "left_key", "right_key", "left_values", "right_values")
"""The columns of a delta that are needed."""
_LONGEST = 300
"""Characters of a key or value that are kept."""
_HELD = 10_000
"""Violations of all groups of a rule that are held by id."""
Said = dict[str, Any]
"""One violation, as JSON: its id, keys and values."""
Grouping = tuple[str, tuple[str, ...]]
"""A rule, and the columns by which it is grouped; none: the whole rule."""


def held_of_each(groups: int) -> int:
    """How many violations of a group are held by id, if there may be so many groups."""
    return max(20, _HELD // groups)


@dataclass(frozen=True)
class Question:
    """What is to be counted of the deltas."""

    by: Mapping[str, Sequence[tuple[str, ...]]]
    """For each rule of which anyone hears: the lists of columns by which it is grouped."""
    examples: int
    """Examples to keep of each rule and group."""
    limits: Mapping[Grouping, int] = field(default_factory=dict)
    """Groups to keep of each grouping."""
    known: frozenset[str] = frozenset()
    """Ids of groups that are kept whatever their number."""
    held: Mapping[Grouping, frozenset[str]] = field(default_factory=dict)
    """Short ids of violations that are known to be in a group: it is told which of them are over."""
    shown: frozenset[str] = frozenset()
    """The same of violations that serve as examples."""
    visible: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of each rule the columns whose values may be kept."""
    keyed: frozenset[str] = frozenset()
    """Rules of which the keys of rows may be kept."""


@dataclass
class GroupNews:
    """How one group has changed. For the whole rule the columns and values are empty."""

    values: dict[str, str | None] = field(default_factory=dict)
    added: int = 0
    removed: int = 0
    """Those aside that are held by id."""
    ids: list[str] = field(default_factory=list)
    """Short ids of those added, not more than a group holds."""
    examples: list[Said] = field(default_factory=list)


@dataclass
class News:
    """One batch: all that is open, and what changed in it."""

    batch: int
    position: str
    open: Mapping[str, int]
    """Open violations of every rule, listed or not."""
    groups: dict[Grouping, dict[str, GroupNews]] = field(default_factory=dict)
    """By rule and columns, then by the group's id; the id of the whole rule is empty."""
    over: frozenset[str] = frozenset()
    """Short ids of those that are over, of all that were asked for."""
    backfilling: frozenset[str] = frozenset()
    """Rules of which not all is known yet: fewer open violations do not mean that any is fixed."""


def short(violation: str) -> str:
    """As much of a violation's id as tells it from the few thousand that are held."""
    return violation[:16]


def group_id(rule: str, columns: Sequence[str], values: Mapping[str, str | None]) -> str:
    """Tells groups apart without showing their values: sixteen hexadecimal digits."""
    text = json.dumps([rule, list(columns), [values.get(name) for name in columns]], ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def count(columns: Mapping[str, Sequence[Any]], question: Question) -> dict[str, Any]:
    """What a part of the deltas says, as JSON."""
    groups: dict[Grouping, dict[str, GroupNews]] = defaultdict(dict)
    over: set[str] = set()
    for rule, change, violation, left_key, right_key, left, right in zip(
        *(columns[name] for name in NEWS_COLUMNS), strict=True
    ):
        name = short(violation)
        if change != "added" and name in question.shown:
            over.add(name)
        asked = question.by.get(rule)
        if asked is None:
            continue
        values = _texts(left) if any(asked) else {}
        visible = question.visible.get(rule, frozenset())
        for by in {(), *asked}:
            named = {column: values.get(column) for column in by}
            of_rule, limit = groups[rule, by], question.limits.get((rule, by), 1)
            place = group_id(rule, by, named) if by else ""
            group = of_rule.get(place)
            if group is None:
                group = of_rule[place] = GroupNews(_visible(named, visible))
            if change == "added":
                group.added += 1
                if by and len(group.ids) < held_of_each(limit):
                    group.ids.append(name)
                if len(group.examples) < question.examples:
                    keys = (left_key, right_key) if rule in question.keyed else None
                    group.examples.append(_example(violation, keys, (left, right), visible))
            elif name in question.held.get((rule, by), ()):
                over.add(name)
            else:
                group.removed += 1
            if len(of_rule) > 4 * limit + 64:
                groups[rule, by] = _smallest(of_rule, limit, question)
    kept = {place: _smallest(of_rule, question.limits.get(place, 1), question) for place, of_rule in groups.items()}
    return {"groups": _as_json(kept), "over": sorted(over)}


def joined(
    parts: Iterable[dict[str, Any]],
    question: Question,
    batch: int,
    position: str,
    open: Mapping[str, int],
    backfilling: Iterable[str] = (),
) -> News:
    """One batch of its parts."""
    news = News(batch, position, dict(open), backfilling=frozenset(backfilling))
    over: set[str] = set()
    for part in parts:
        over.update(part["over"])
        for rule, by, of_rule in part["groups"]:
            mine = news.groups.setdefault((rule, tuple(by)), {})
            for name, told in of_rule.items():
                group = mine.setdefault(name, GroupNews(told["values"]))
                group.added += told["added"]
                group.removed += told["removed"]
                group.ids = (group.ids + told["ids"])[: held_of_each(question.limits.get((rule, tuple(by)), 1))]
                group.examples = (group.examples + told["examples"])[: question.examples]
    news.groups = {
        place: _smallest(of_rule, question.limits.get(place, 1), question) for place, of_rule in news.groups.items()
    }
    news.over = frozenset(over)
    return news


def _smallest(of_rule: dict[str, GroupNews], limit: int, question: Question) -> dict[str, GroupNews]:
    """The groups to keep: those that are known, and of the others the smallest ids."""
    if len(of_rule) <= limit:
        return of_rule
    known = [name for name in of_rule if name in question.known]
    others = heapq.nsmallest(limit, (name for name in of_rule if name not in question.known))
    return {name: of_rule[name] for name in (*known, *others)}


def _as_json(groups: Mapping[Grouping, dict[str, GroupNews]]) -> list[Any]:
    return [
        [rule, list(by), {name: asdict(group) for name, group in of_rule.items()}]
        for (rule, by), of_rule in groups.items()
    ]


def _texts(values: str | None) -> dict[str, str | None]:
    """Columns and values of a row as texts, numbers as they are written. A null is None, never the text `null`."""
    read = json.loads(values or "{}", parse_float=str, parse_int=str)
    return {name: None if value is None else _plain(value) for name, value in read.items()}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _visible(values: Mapping[str, str | None], columns: frozenset[str]) -> dict[str, str | None]:
    return {name: value and value[:_LONGEST] for name, value in values.items() if name in columns}


def _example(
    violation: str, keys: Sequence[str | None] | None, values: Sequence[str | None], visible: frozenset[str]
) -> Said:
    """One violation, with no more of its rows than may be shown."""
    said: Said = {"id": violation}
    if keys is not None:
        said["keys"] = [key and key[:_LONGEST] for key in keys]
    if visible:
        said["values"] = [None if one is None else _visible(_texts(one), visible) for one in values]
    return said
