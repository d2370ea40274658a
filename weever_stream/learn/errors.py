"""Rules that almost hold, and how far they do: errors that are kept exact while rows change.

    watch = ErrorWatch.discover(table, key="id", error=0.001)
    watch.upsert(rows).left                     # rules whose error has passed 0.001 and a fifth

The error of a rule is the share of all ordered pairs of rows that violate it, as `discover.approximate.Within` has it:
v·w / n(n - 1) for v violations and n rows, where w is 2 for a symmetric rule (its pairs are counted once and violate
both ways round), n - 1 for a rule on one row, and 1 for any other. With fewer than two rows it is 0.

A rule *leaves* when its error passes the limit by the share `hysteresis`, and *returns* when it falls below the limit
by that share, so one at the limit does not come and go with every row. The rows that a watch is made with are no news:
rules above the limit then begin as not holding.

Pairs are counted by a `Detector` that lists few of them: a row with more than 64 partners under a rule lists some and
counts the others through the index, so a table in which a billion pairs violate costs no more than one in which few do.
Cost of a batch: that of `Shard.apply` for a capped plan, and a few steps for each rule. It follows the change, with the
exception that `census` tells: a batch of 128 changes or more that counts in a run with dead rows reads that run once.
Rules that put texts in order are compared pair by pair; they cost as many steps as there are pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from weever_stream.detect.detector import Detector
from weever_stream.detect.dump import damage_told, load_shard
from weever_stream.detect.intake import table_of_rows, to_table
from weever_stream.discover.run import discover
from weever_stream.discover.words import understand
from weever_stream.errors import DataError, StateError
from weever_stream.rules import Rule, RuleFile, RulesLike, parse_rule, type_of_name, write_rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weever_stream.detect.violations import Deltas, Violation

__all__ = ["ErrorChange", "ErrorChanges", "ErrorWatch", "Event"]

Event = Literal["left", "returned", "changed"]
_LISTED = 64
"""Pairs of a row under a rule above which they are counted and not listed."""
_NOTE = "errors"
_VERSION = 1
_ROUNDING = 1e-6
"""Of limits, in pairs: 0.29 of 100 pairs are 29, whatever the product of doubles is."""


@dataclass(frozen=True)
class ErrorChange:
    """What became of the error of a rule."""

    rule: str
    words: str
    error_before: float
    error: float
    event: Event
    example: Violation | None = None
    """Of a rule that has left: one of the violations that the changes added, if they added any."""


@dataclass(frozen=True)
class ErrorChanges:
    """What a batch of changes did to the rules. Iterating gives what left, what returned, then the others."""

    left: tuple[ErrorChange, ...] = ()
    returned: tuple[ErrorChange, ...] = ()
    changed: tuple[ErrorChange, ...] = ()
    """Rules that hold as before, or as before do not, with another error."""

    def __iter__(self) -> Iterator[ErrorChange]:
        return iter((*self.left, *self.returned, *self.changed))

    def __len__(self) -> int:
        return len(self.left) + len(self.returned) + len(self.changed)


class ErrorWatch:
    """Holds rows and tells, for every batch of changes, which rules are still within their limit.

    `rules`: as `Detector` takes them. `rows`: what the table holds to begin with. `key` and `schema` as for `Detector`:
    a rule file gives its key and its types. `error` is the limit, `hysteresis` the share by which it must be passed.
    """

    def __init__(
        self,
        rules: RulesLike,
        rows: Any = None,
        *,
        key: str | Sequence[str] | None = None,
        schema: Any = None,
        error: float = 0.001,
        hysteresis: float = 0.2,
    ) -> None:
        if not 0 <= error < 1:
            raise DataError(f"an error of {error} is no share", hint="0 for exact rules, 0.001 for one in a thousand")
        if not 0 <= hysteresis <= 1:
            raise DataError(f"a hysteresis of {hysteresis} is no share", hint="0.2 for a fifth of the limit")
        self.error, self.hysteresis = error, hysteresis
        self._detector = Detector(rules, key=key, schema=schema, max_pairs=_LISTED)
        self.rules: tuple[Rule, ...] = self._detector.rules
        self._words = [_words(rule) for rule in self.rules]
        self._holds = [True] * len(self.rules)
        if rows is not None:
            self._detector.insert(rows)
            most = _most(error, self._total)
            self._holds = [pairs <= most for pairs in self._pairs()]
        self._errors = self._shares()

    @classmethod
    def discover(
        cls,
        table: Any,
        key: str | Sequence[str],
        *,
        error: float = 0.001,
        hysteresis: float = 0.2,
        columns: str | Sequence[str] | None = None,
        **options: Any,
    ) -> ErrorWatch:
        """A watch over the rules that a table obeys but for the limit. `options` are those of `discover`.

        Rules are looked for among `columns`; by default among all that are not of the key.
        """
        data = to_table(table)
        data = data if isinstance(data, pa.Table) else table_of_rows(data)
        named = {key} if isinstance(key, str) else set(key)
        looked_at = [name for name in data.column_names if name not in named] if columns is None else columns
        found = discover(data, columns=looked_at, error=error, **options)
        return cls(found, data, key=key, schema=data.schema, error=error, hysteresis=hysteresis)

    # Changes

    def insert(self, rows: Any, *, sequence: int | Sequence[int] | None = None) -> ErrorChanges:
        """Takes rows in. A key that is held already is replaced."""
        return self._told(self._detector.insert(rows, sequence=sequence))

    def upsert(self, rows: Any, *, sequence: int | Sequence[int] | None = None) -> ErrorChanges:
        """Takes rows in, each in place of the one with its key."""
        return self._told(self._detector.upsert(rows, sequence=sequence))

    def delete(self, keys: Any, *, sequence: int | Sequence[int] | None = None) -> ErrorChanges:
        """Drops rows by key, as `Detector.delete` does."""
        return self._told(self._detector.delete(keys, sequence=sequence))

    def apply(self, changes: Any) -> ErrorChanges:
        """Applies mixed changes, rows with `_change_type` and `_commit_version`, as `Detector.apply` does."""
        return self._told(self._detector.apply(changes))

    # Questions

    def __len__(self) -> int:
        """Rows held. O(1)."""
        return len(self._detector)

    @property
    def errors(self) -> dict[str, float]:
        """The error of every rule, by its name."""
        return {rule.name: error for rule, error in zip(self.rules, self._errors, strict=True)}

    @property
    def holding(self) -> tuple[Rule, ...]:
        """The rules that hold: those that have not left."""
        return tuple(rule for rule, holds in zip(self.rules, self._holds, strict=True) if holds)

    def violations(self, rule: str | Rule) -> int:
        """How many violations of a rule live now: pairs, once each where it is symmetric, or rows."""
        return self._detector.count(rule)

    # State

    def dump(self, path: str | Path) -> None:
        """Writes all of it to a file, in the format of `Detector.dump`."""
        noted = [
            {"name": rule.name, "deny": write_rule(rule), "severity": rule.severity, "words": words, "holds": holds}
            for rule, words, holds in zip(self.rules, self._words, self._holds, strict=True)
        ]
        limits: dict[str, Any] = {"error": self.error, "hysteresis": self.hysteresis, "key": list(self._detector.key)}
        if self._detector.types:
            limits["columns"] = {name: str(kind) for name, kind in self._detector.types.items()}
        self._detector.notes[_NOTE] = {"version": _VERSION, **limits, "rules": noted}
        self._detector.dump(path)

    @classmethod
    def load(cls, path: str | Path) -> ErrorWatch:
        """A watch as it was dumped, with its rules and limits."""
        loaded = load_shard(Path(path))
        noted = loaded.about.get("notes", {}).get(_NOTE)
        if noted is None:
            raise StateError(f"{path} is a dump, and not one of a watch over errors", hint="use Detector.load")
        if noted.get("version") != _VERSION:
            raise StateError(
                f"{path} was written by a newer release: its errors are of version {noted.get('version')}",
                hint="read it with that release, or build the watch again from the rows",
            )
        with damage_told(str(path)):
            types = {name: type_of_name(kind) for name, kind in noted.get("columns", {}).items()}
            watch = cls(
                RuleFile("table", tuple(_rule(one) for one in noted["rules"]), tuple(noted["key"]), types),
                error=noted["error"],
                hysteresis=noted["hysteresis"],
            )
            watch._words = [str(one["words"]) for one in noted["rules"]]
            watch._holds = [bool(one["holds"]) for one in noted["rules"]]
        watch._detector.restored(path, loaded)
        watch._errors = watch._shares()
        return watch

    def _check(self) -> None:
        """Asserts every invariant of the state."""
        self._detector._check()
        assert self._errors == self._shares(), "errors are of what is held"

    # Inside

    @property
    def _total(self) -> int:
        """Ordered pairs of rows."""
        n = len(self._detector)
        return n * (n - 1)

    def _pairs(self) -> list[int]:
        """The ordered pairs that violate each rule."""
        n = len(self._detector)
        return [
            count * (2 if rule.symmetric else max(0, n - 1) if rule.one_row else 1)
            for rule, count in zip(self.rules, self._detector.counts(), strict=True)
        ]

    def _shares(self) -> list[float]:
        total = max(1, self._total)
        return [pairs / total for pairs in self._pairs()]

    def _told(self, deltas: Deltas) -> ErrorChanges:
        """What became of the rules since they were last looked at."""
        total, before = self._total, self._errors
        most, least = _most(self.error * (1 + self.hysteresis), total), self.error * (1 - self.hysteresis) * total
        told: dict[Event, list[ErrorChange]] = {"left": [], "returned": [], "changed": []}
        self._errors = self._shares()
        for at, pairs in enumerate(self._pairs()):
            event: Event = "changed"
            if self._holds[at] and pairs > most:
                event = "left"
            elif not self._holds[at] and (not pairs or pairs < least - _ROUNDING):
                event = "returned"
            elif before[at] == self._errors[at]:
                continue
            self._holds[at] ^= event != "changed"
            example = deltas.added.first(self.rules[at].name) if event == "left" else None
            rule, words = self.rules[at].name, self._words[at]
            told[event].append(ErrorChange(rule, words, before[at], self._errors[at], event, example))
        return ErrorChanges(*(tuple(changes) for changes in told.values()))


def _most(share: float, total: int) -> int:
    """How many of all ordered pairs are within a share of them."""
    return int(share * total + _ROUNDING)


def _words(rule: Rule) -> str:
    """What is told of a rule: as it was described, else in words, else, where it names constants, as it is written."""
    if rule.description:
        return rule.description
    compared = all(len(predicate.columns) == 2 for predicate in rule.predicates)
    return understand(rule.predicates).words() if compared else f"not {write_rule(rule)}"


def _rule(noted: Mapping[str, Any]) -> Rule:
    """A rule as it was dumped. It must read as it was written: sides and gates follow from that."""
    made = parse_rule(noted["deny"], name=noted["name"])
    return replace(made, severity=noted["severity"], description=noted["words"])
