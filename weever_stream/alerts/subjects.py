"""What alerts can be about, and how many violations each has: rules, groups of them, and the others. Pure.

The number of a rule is what the shards say is open, never a sum of deltas, so nothing drifts. Groups are counted from
deltas: at most so many of a rule have a number of their own, and what is left of the rule's number is `others`. A group
that gets its own number late is counted from then on; those before are among the others, so the sum is always right.
A violation belongs to the group in which it was opened: exactly, for as many as are held by id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from weever_stream.alerts.news import Grouping, GroupNews, News, Question, Said, held_of_each, short
from weever_stream.job.routes import Route

__all__ = ["OTHERS", "Place", "Subject", "Subjects"]

OTHERS = "others"
"""The group of all that have no alert of their own."""
_SPARE = 3
"""Spare examples stored per shown example. They replace examples that are fixed."""
Place = tuple[str, tuple[str, ...], str]
"""Rule, columns, group: names a subject. Names of columns may hold any character, so they are never joined."""


@dataclass
class Subject:
    """What an alert may be about: a rule, a group of it, or all its other groups."""

    open: int = 0
    """All of them: those held by id, and more."""
    values: dict[str, str | None] = field(default_factory=dict)
    examples: list[Said] = field(default_factory=list)
    """The newest first. More than are shown: a fixed one is followed by the next."""
    ids: list[str] = field(default_factory=list)
    """Of a group: short ids of the violations that were opened in it, as many as are held."""


@dataclass
class Subjects:
    """All that have violations, or of which somebody was told."""

    places: dict[Place, Subject] = field(default_factory=dict)

    def question(self, routes: Iterable[Route]) -> Question:
        """What the next batch is to be asked."""
        by: dict[str, set[tuple[str, ...]]] = {}
        visible: dict[str, frozenset[str]] = {}
        limits: dict[Grouping, int] = {}
        held: dict[Grouping, set[str]] = {}
        keyed, examples = set(), 0
        for route in routes:
            place = (route.rule, route.by)
            by.setdefault(route.rule, set()).add(route.by)
            visible[route.rule] = visible.get(route.rule, frozenset()) | route.shown
            examples = max(examples, route.options.examples)
            if route.by:  # of two targets that group alike, the one that wants fewer decides
                limits[place] = min(limits.get(place, route.options.max_alerts), route.options.max_alerts)
            if route.keys:
                keyed.add(route.rule)
        for (rule, columns, _), subject in self.places.items():
            held.setdefault((rule, columns), set()).update(subject.ids)
        return Question(
            by={rule: sorted(lists) for rule, lists in by.items()},
            examples=examples * (1 + _SPARE),
            limits=limits,
            known=frozenset(group for _, _, group in self.places if group not in ("", OTHERS)),
            held={grouping: frozenset(names) for grouping, names in held.items() if names},
            shown=frozenset(short(said["id"]) for subject in self.places.values() for said in subject.examples),
            visible=visible,
            keyed=frozenset(keyed),
        )

    def take(self, news: News, asked: Question) -> bool:
        """Takes in a batch. Whether anything is another now: as many may be open as before, and not the same ones."""
        before = self._counts()
        for subject in self.places.values():
            subject.examples = [said for said in subject.examples if short(said["id"]) not in news.over]
            left = [name for name in subject.ids if name not in news.over]
            subject.open -= len(subject.ids) - len(left)
            subject.ids = left
        for rule, lists in asked.by.items():
            total = news.open.get(rule, 0)
            whole = self._subject((rule, (), ""))
            whole.open = total
            _show(whole, news.groups.get((rule, ()), {}).get(""), asked.examples)
            for by in lists:
                if by:
                    self._take_groups(rule, by, total, news.groups.get((rule, by), {}), asked)
        for place, subject in self.places.items():  # of rules of which nobody hears any more, or that are gone
            if place[0] not in asked.by:
                subject.open, subject.ids = 0, []
        # Where there are groups every batch counts: one that is missing must be known for missing.
        return any(asked.limits) or bool(news.groups or news.over) or self._counts() != before

    def lose_count(self) -> None:
        """Batches have gone by unseen: what groups have is not known any more, and is among the others."""
        for place, subject in self.places.items():
            if place[2] not in ("", OTHERS):
                subject.open, subject.ids, subject.examples = 0, [], []

    def _take_groups(
        self, rule: str, by: tuple[str, ...], total: int, groups: Mapping[str, GroupNews], asked: Question
    ) -> None:
        limit = asked.limits[rule, by]
        mine = {
            place[2]: subject
            for place, subject in self.places.items()
            if place[:2] == (rule, by) and place[2] != OTHERS
        }
        for name in sorted(groups):
            group = groups[name]
            if name not in mine:
                if group.added <= group.removed or len(mine) >= limit:
                    continue  # among the others
                mine[name] = self._subject((rule, by, name))
                mine[name].values = dict(group.values)
            _count(mine[name], group, held_of_each(limit))
            _show(mine[name], group, asked.examples)
        if total == 0:
            for subject in mine.values():
                subject.open, subject.ids = 0, []
        self._subject((rule, by, OTHERS)).open = max(0, total - sum(subject.open for subject in mine.values()))

    def forget(self, told: set[Place]) -> None:
        """Lets go of subjects without violations of which nobody was told."""
        self.places = {place: one for place, one in self.places.items() if one.open or place in told}

    def noted(self) -> list[Any]:
        """As JSON."""
        return [[*place, asdict(subject)] for place, subject in sorted(self.places.items())]

    @classmethod
    def of(cls, noted: Iterable[Any]) -> Subjects:
        """From JSON."""
        return cls({(rule, tuple(by), group): Subject(**subject) for rule, by, group, subject in noted})

    def _subject(self, place: Place) -> Subject:
        return self.places.setdefault(place, Subject())

    def _counts(self) -> dict[Place, int]:
        return {place: subject.open for place, subject in self.places.items() if subject.open}


def _count(subject: Subject, news: GroupNews, most: int) -> None:
    """Those that are held by id are exact; of more than these only the number is known."""
    more = subject.open - len(subject.ids)
    fresh = news.ids[: max(0, most - len(subject.ids))]
    subject.ids += fresh
    subject.open = len(subject.ids) + max(0, more + news.added - len(fresh) - news.removed)


def _show(subject: Subject, news: GroupNews | None, most: int) -> None:
    """Keeps the newest examples."""
    if news is not None:
        subject.examples = (news.examples + subject.examples)[:most]
    if not subject.open:
        subject.examples = []
