"""What alerts can be about, and how many violations each has: rules, groups of them, and the others. Pure.

The number of a rule is what the shards say is open, never a sum of deltas, so nothing drifts. Groups are counted from
deltas: at most so many of a rule have a number of their own, and what is left of the rule's number is `others`. A group
that gets its own number late is counted from then on; those before are among the others, so the sum is always right.
A violation belongs to the group in which it was opened: exactly, for the first `HELD` of a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from weever_stream.alerts.news import HELD, GroupNews, News, Question, Said, short
from weever_stream.alerts.routes import Route

__all__ = ["OTHERS", "Place", "Subject", "Subjects"]

OTHERS = "others"
"""The group of all that have no alert of their own."""
Place = tuple[str, str, str]
"""Rule, columns joined by commas, group: names a subject."""


@dataclass
class Subject:
    """What an alert may be about: a rule, a group of it, or all its other groups."""

    open: int = 0
    """All of them: those held by id, and more."""
    values: dict[str, str] = field(default_factory=dict)
    examples: list[Said] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    """Of a group: short ids of the violations that were opened in it, as many as are held."""


@dataclass
class Subjects:
    """All that have violations, or of which somebody was told."""

    places: dict[Place, Subject] = field(default_factory=dict)

    def question(self, routes: Iterable[Route]) -> Question:
        """What the next batch is to be asked."""
        by: dict[str, set[tuple[str, ...]]] = {}
        visible: dict[str, frozenset[str] | None] = {}
        examples = groups = 0
        for route in routes:
            by.setdefault(route.rule, set()).add(route.by)
            if route.shown is not None:
                visible[route.rule] = (visible.get(route.rule) or frozenset()) | route.shown
            examples = max(examples, route.options.examples)
            groups = max(groups, route.options.max_alerts)
        return Question(
            by={rule: sorted(lists) for rule, lists in by.items()},
            examples=examples,
            groups=groups,
            known=frozenset(group for _, _, group in self.places if group not in ("", OTHERS)),
            held=frozenset(name for subject in self.places.values() for name in subject.ids),
            shown=frozenset(short(said["id"]) for subject in self.places.values() for said in subject.examples),
            visible=visible,
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
            whole = self._subject((rule, "", ""))
            whole.open = total
            _show(whole, news.groups.get((rule, ()), {}).get(""), asked.examples)
            for by in lists:
                if by:
                    self._take_groups(rule, by, total, news.groups.get((rule, by), {}), asked)
        for place, subject in self.places.items():  # of rules of which nobody hears any more, or that are gone
            if place[0] not in asked.by:
                subject.open, subject.ids = 0, []
        return bool(news.groups or news.over) or self._counts() != before

    def _take_groups(
        self, rule: str, by: tuple[str, ...], total: int, groups: Mapping[str, GroupNews], asked: Question
    ) -> None:
        columns = ",".join(by)
        mine = {
            place[2]: subject
            for place, subject in self.places.items()
            if place[:2] == (rule, columns) and place[2] != OTHERS
        }
        for name in sorted(groups):
            group = groups[name]
            if name not in mine:
                if group.added <= group.removed or len(mine) >= asked.groups:
                    continue  # among the others
                mine[name] = self._subject((rule, columns, name))
                mine[name].values = dict(group.values)
            _count(mine[name], group)
            _show(mine[name], group, asked.examples)
        if total == 0:
            for subject in mine.values():
                subject.open, subject.ids = 0, []
        self._subject((rule, columns, OTHERS)).open = max(0, total - sum(subject.open for subject in mine.values()))

    def forget(self, told: set[Place]) -> None:
        """Lets go of subjects without violations of which nobody was told."""
        self.places = {place: one for place, one in self.places.items() if one.open or place in told}

    def noted(self) -> list[Any]:
        """As JSON."""
        return [[*place, asdict(subject)] for place, subject in sorted(self.places.items())]

    @classmethod
    def of(cls, noted: Iterable[Any]) -> Subjects:
        """From JSON."""
        return cls({(rule, columns, group): Subject(**told) for rule, columns, group, told in noted})

    def _subject(self, place: Place) -> Subject:
        return self.places.setdefault(place, Subject())

    def _counts(self) -> dict[Place, int]:
        return {place: subject.open for place, subject in self.places.items() if subject.open}


def _count(subject: Subject, news: GroupNews) -> None:
    """Those that are held by id are exact; of more than these only the number is known."""
    more = subject.open - len(subject.ids)
    fresh = news.ids[: HELD - len(subject.ids)]
    subject.ids += fresh
    subject.open = len(subject.ids) + max(0, more + news.added - len(fresh) - news.removed)


def _show(subject: Subject, news: GroupNews | None, most: int) -> None:
    """Keeps the newest examples."""
    if news is not None:
        subject.examples = (news.examples + subject.examples)[:most]
    if not subject.open:
        subject.examples = []
