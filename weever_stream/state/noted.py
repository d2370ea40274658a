"""What a checkpoint was made for, as it is noted beside it: table, key, shards, and the rules of every generation.

Rules are noted in the rule language, so that a later start can still plan what was planned then: whoever edits the job
file between two starts changes what is to come, not what is stored. `Noted` is plain data; `revision` compares it with
a job file. Cost: nothing that can be measured.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weever_stream.errors import StateError
from weever_stream.rules import parse_rule, write_rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weever_stream.rules.model import Rule

__all__ = ["ABOUT", "FORMAT", "Generation", "Noted", "NotedRule", "Read"]

ABOUT = "job.json"
FORMAT = 3


@dataclass(frozen=True)
class NotedRule:
    """A rule as it was when it came into the job."""

    name: str
    deny: str
    fingerprint: str
    severity: str
    spread: int = 1
    ended: str | None = None
    """Why it is no longer kept."""
    replaces: int | None = None
    """The number of the same rule, which is built again: this one takes its place when its backfill is complete."""

    @classmethod
    def of(cls, rule: Rule) -> NotedRule:
        """A rule of a job file."""
        return cls(rule.name, write_rule(rule), rule.fingerprint, rule.severity, rule.spread)

    def rule(self, now: Mapping[str, Rule]) -> Rule:
        """The rule again. What does not change what it denies (severity, owner, …) is as the job file has it `now`."""
        made = parse_rule(self.deny, name=self.name)
        said = now.get(self.name) if self.ended is None else None
        if said is None:
            return replace(made, severity=self.severity, spread=self.spread)  # type: ignore[arg-type]
        return replace(said, predicates=made.predicates, symmetric=made.symmetric, spread=self.spread)


@dataclass(frozen=True)
class Generation:
    """Rules that came into the job together."""

    number: int
    rules: tuple[NotedRule, ...]
    fills: tuple[int, ...] = ()
    """How many messages fill it, by shard; nothing for rules that were there from the start."""


@dataclass(frozen=True)
class Read:
    """Columns that rules read from a position of the source on."""

    since: dict[str, Any] | None
    """None for the start."""
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Noted:
    """What a checkpoint was made for."""

    table: str
    source: str
    """Its kind."""
    key: tuple[str, ...]
    shards: int
    spark: str
    """Major and minor version."""
    columns: pa.Schema
    """Key and columns that rules read, in the types in which they are stored."""
    generations: tuple[Generation, ...]
    families: tuple[str, ...] = ()
    """Their identities, to see that they are still planned as they were stored."""
    revision: int = 0
    """How often something was changed."""
    numbering: int = 0
    """The revision in which rules got the numbers that they have."""
    reads: tuple[Read, ...] = ()
    """Which columns were read since when: a record is rejected only for columns that are read."""

    @property
    def rules(self) -> tuple[NotedRule, ...]:
        """All rules, ended ones too, in the order of their numbers."""
        return tuple(rule for generation in self.generations for rule in generation.rules)

    @property
    def living(self) -> dict[str, NotedRule]:
        """The rules that are kept, by name; of one that is built again the later."""
        return {rule.name: rule for rule in self.rules if rule.ended is None}

    def oriented(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """The rules of a job file. One that is kept has t and s as it was noted with: so its rows are written."""
        living = self.living
        return tuple(
            living[rule.name].rule({rule.name: rule})
            if rule.name in living and living[rule.name].fingerprint == rule.fingerprint
            else rule
            for rule in rules
        )

    @property
    def rebuilding(self) -> dict[int, int]:
        """The numbers of rules that are built again, with the numbers of those that take their place."""
        rules = self.rules
        return {
            rule.replaces: number
            for number, rule in enumerate(rules)
            if rule.replaces is not None and rules[rule.replaces].ended is None
        }

    def to_json(self) -> dict[str, Any]:
        """As a note."""
        return {
            "format": FORMAT,
            "table": self.table,
            "source": self.source,
            "key": list(self.key),
            "shards": self.shards,
            "spark": self.spark,
            "revision": self.revision,
            "numbering": self.numbering,
            "generations": [
                {"number": one.number, "fills": list(one.fills), "rules": [vars(rule) for rule in one.rules]}
                for one in self.generations
            ],
            "families": list(self.families),
            "reads": [{"since": one.since, "columns": list(one.columns)} for one in self.reads],
            "columns": base64.b64encode(self.columns.serialize().to_pybytes()).decode(),
        }

    @classmethod
    def of_json(cls, noted: Mapping[str, Any], where: str) -> Noted:
        """From a note. Refuses what a later release wrote, and what is damaged."""
        if noted.get("format") != FORMAT:
            raise StateError(
                f"the checkpoint {where} was made by another release: its format is {noted.get('format')}, "
                f"this release knows {FORMAT}",
                hint="run the release that made it, or start with an empty checkpoint",
            )
        try:
            return cls(
                table=str(noted["table"]),
                source=str(noted["source"]),
                key=tuple(noted["key"]),
                shards=int(noted["shards"]),
                spark=str(noted["spark"]),
                columns=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(noted["columns"]))),
                generations=tuple(map(_generation, noted["generations"])),
                families=tuple(noted["families"]),
                revision=int(noted["revision"]),
                numbering=int(noted["numbering"]),
                reads=tuple(Read(one["since"], tuple(one["columns"])) for one in noted["reads"]),
            )
        except (KeyError, TypeError, ValueError, pa.ArrowException):
            raise StateError(
                f"the note {ABOUT} of the checkpoint {where} is damaged",
                hint="restore it from a copy of the checkpoint",
            ) from None

    def ending(self, reasons: Mapping[str, str]) -> Noted:
        """The same with some living rules ended."""
        return replace(
            self,
            generations=tuple(
                replace(one, rules=tuple(_ended(rule, reasons.get(rule.name)) for rule in one.rules))
                for one in self.generations
            ),
        )

    def reading(self, since: dict[str, Any] | None) -> Noted:
        """The same with the columns that its rules read from a position on."""
        columns = tuple(sorted({name for rule in self.living.values() for name in rule.rule({}).columns}))
        if self.reads and self.reads[-1].columns == columns:
            return self
        return replace(self, reads=(*self.reads, Read(since, columns)))

    def settling(self, reason: str) -> Noted:
        """The same with the rules ended in whose place others have come."""
        over, number, generations = set(self.rebuilding), 0, []
        for one in self.generations:
            numbers = range(number, number + len(one.rules))
            rules = tuple(
                _ended(rule, reason if at in over else None) for at, rule in zip(numbers, one.rules, strict=True)
            )
            generations.append(replace(one, rules=rules))
            number += len(one.rules)
        return replace(self, generations=tuple(generations))

    def rebuilding_again(self, rule: Rule, columns: pa.Schema) -> Noted:
        """The same with a generation in which a living rule is built again, to take its place."""
        (*_, old) = (at for at, one in enumerate(self.rules) if one.name == rule.name and one.ended is None)
        born = self.adding([rule], columns)
        last = born.generations[-1]
        rules = (replace(last.rules[0], replaces=old),)
        return replace(born, generations=(*born.generations[:-1], replace(last, rules=rules)))

    def adding(self, rules: Sequence[Rule], columns: pa.Schema, fills: Sequence[int] = ()) -> Noted:
        """The same with another generation."""
        number = 1 + max((one.number for one in self.generations), default=-1)
        born = Generation(number, tuple(NotedRule.of(rule) for rule in rules), tuple(fills))
        return replace(self, generations=(*self.generations, born), columns=columns)


def _generation(noted: Mapping[str, Any]) -> Generation:
    return Generation(
        int(noted["number"]), tuple(NotedRule(**rule) for rule in noted["rules"]), tuple(map(int, noted["fills"]))
    )


def _ended(rule: NotedRule, reason: str | None) -> NotedRule:
    return rule if reason is None or rule.ended is not None else replace(rule, ended=reason)
