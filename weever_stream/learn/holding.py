"""The note of the rules that hold now: since which batch each of them does, and the last rules that ceased to.

Written whole whenever the rules change, read by `weever rules review` without Spark. It is made from the rules that
hold and from the note before it, so a batch that is done again makes the same note. A rule keeps its name for as long
as it holds, and no two have the same. Cost: some 300 bytes a rule.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from weever_stream.errors import StateError
from weever_stream.rules import parse_rule
from weever_stream.rules.writing import free_name, write_rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weever_stream.learn.events import RuleEvent
    from weever_stream.rules.model import Rule

__all__ = ["HOLDING", "Ceased", "Held", "Holding", "Moment", "Weight"]

HOLDING = "rules.json"
FORMAT = 1
_CEASED = 1000
"""Rules that no longer hold, of which the reason is kept."""


@dataclass(frozen=True)
class Moment:
    """A batch."""

    batch: int
    position: str
    """The source position that it completes, as JSON."""
    detected_at: str
    """When it was planned, in UTC, as ISO writes it."""


@dataclass(frozen=True)
class Weight:
    """How much a rule says, as `discover` has it."""

    score: float
    support: int | None = None
    """About how many pairs test it, as `discover` counts them."""


@dataclass(frozen=True)
class Held:
    """A rule that holds."""

    name: str
    fingerprint: str
    deny: str
    words: str
    since: Moment
    score: float | None = None
    support: int | None = None

    def rule(self) -> Rule:
        """The rule, as it would stand in a rule file."""
        told = self.words[:1].upper() + self.words[1:] + "." if self.words else None
        return replace(parse_rule(self.deny, name=self.name), severity="warning", description=told)


@dataclass(frozen=True)
class Ceased:
    """A rule that held once, and why it does no more."""

    name: str
    fingerprint: str
    deny: str
    words: str
    at: Moment
    left_key: str | None = None
    right_key: str | None = None
    left_values: str | None = None
    right_values: str | None = None


@dataclass(frozen=True)
class Holding:
    """The note."""

    table: str
    query_id: str
    rows: int
    columns: tuple[str, ...]
    """That rules may read."""
    at: Moment
    rules: tuple[Held, ...] = ()
    ceased: tuple[Ceased, ...] = ()
    """The last ones, the latest first."""
    _by_fingerprint: dict[str, Held] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._by_fingerprint.update({rule.fingerprint: rule for rule in self.rules})

    def of(self, fingerprint: str) -> Held | None:
        """The rule of a fingerprint, if it holds."""
        return self._by_fingerprint.get(fingerprint)

    def name_of(self, fingerprint: str) -> str | None:
        """The name of a rule that holds, or that ceased to."""
        named = self.of(fingerprint) or next((one for one in self.ceased if one.fingerprint == fingerprint), None)
        return None if named is None else named.name

    def advanced(self, rules: Iterable[tuple[Rule, str]], rows: int, at: Moment) -> Holding:
        """The note after a batch: the rules that hold then, with their words."""
        listed = list(rules)
        known = [self.of(rule.fingerprint) for rule, _ in listed]
        taken = {held.name for held in known if held is not None}
        now = []
        for (rule, words), held in zip(listed, known, strict=True):
            born = held or Held(free_name(rule.name, taken), rule.fingerprint, write_rule(rule), words, at)
            now.append(replace(born, words=words))
        return replace(self, rows=rows, at=at, rules=tuple(now))

    def weighing(self, weights: Mapping[str, Weight]) -> Holding:
        """The note with the weights of some rules, by fingerprint."""
        rules = (
            replace(one, score=weight.score, support=weight.support)
            if (weight := weights.get(one.fingerprint))
            else one
            for one in self.rules
        )
        return replace(self, rules=tuple(rules))

    def without(self, dropped: Iterable[RuleEvent]) -> Holding:
        """The note with the reasons of rules that ceased to hold in its batch."""
        told = [
            Ceased(event.rule, event.rule_fingerprint, event.deny, event.words, self.at, *(event.pair or ()))
            for event in dropped
        ]
        again = {one.fingerprint for one in told}
        kept = [one for one in self.ceased if one.fingerprint not in again and self.of(one.fingerprint) is None]
        return replace(self, ceased=tuple([*told, *kept][:_CEASED]))

    def to_json(self) -> dict[str, Any]:
        """As a note."""
        return {
            "format": FORMAT,
            "table": self.table,
            "query_id": self.query_id,
            "rows": self.rows,
            "columns": list(self.columns),
            "at": asdict(self.at),
            "rules": [asdict(rule) for rule in self.rules],
            "ceased": [asdict(one) for one in self.ceased],
        }

    @classmethod
    def of_json(cls, noted: Mapping[str, Any], where: str) -> Holding:
        """From a note. Refuses what a later release wrote, and what is damaged."""
        if noted.get("format") != FORMAT:
            raise StateError(
                f"the note of learned rules in {where} is of another release: its format is {noted.get('format')}",
                hint=f"this release knows {FORMAT}: run the one that wrote it, or `weever learn --anew`",
            )
        try:
            return cls(
                str(noted["table"]),
                str(noted["query_id"]),
                int(noted["rows"]),
                tuple(noted["columns"]),
                Moment(**noted["at"]),
                tuple(Held(**{**one, "since": Moment(**one["since"])}) for one in noted["rules"]),
                tuple(Ceased(**{**one, "at": Moment(**one["at"])}) for one in noted["ceased"]),
            )
        except (KeyError, TypeError, ValueError):
            raise StateError(
                f"the note {HOLDING} in {where} is damaged",
                hint="restore it from a copy of the checkpoint, or `weever learn --anew`",
            ) from None
