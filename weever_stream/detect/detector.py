"""The in-process engine: feed it rows and changes, and it tells which violations came and went.

    detector = Detector(["t.zip = s.zip and t.city != s.city"], key="id")
    detector.insert([{"id": 1, "zip": 1, "city": "Rome"}, {"id": 2, "zip": 1, "city": "Paris"}]).added
    detector.delete([2]).removed

Costs follow the change and the pairs it makes, never the number of rows held: see `Shard`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from weever_stream.detect import shard as shards
from weever_stream.detect.changes import ChangeReader, Orders, kinds_of, versions_of, whole
from weever_stream.detect.dump import Loaded, dump_shard, load_shard
from weever_stream.detect.intake import ROW_NUMBER, arrow_schema, infer_schema, to_table
from weever_stream.detect.plan import plan
from weever_stream.detect.shard import Shard, Tally
from weever_stream.detect.violations import Deltas, Violations
from weever_stream.errors import DataError, DetectorError, RuleError, StateError, did_you_mean
from weever_stream.index.casting import typed
from weever_stream.index.tree import FANOUT, LEAF
from weever_stream.rules import Rule, RulesLike, as_key, as_rule_file, bind_all, schema_of
from weever_stream.rules.reserved import refuse_reserved
from weever_stream.rules.types import ColumnType

__all__ = ["Detector"]


class Detector:
    """Holds rows and tells which violations of the rules each change adds and removes.

    `rules`: a rule file (path or `RuleFile`), or rules as objects or expressions, one or a list. `key`: the column or
    columns that name a row; without one every row is its own and is numbered from 1. `schema`: types of the columns;
    taken from the first rows where it is not given. `strict` refuses an insert of a stored key instead of replacing it.
    `max_pairs`: a row with more partners than that under a rule lists only some of its pairs, and the others are
    counted (see `flood`); 0 lists all, however many. `notes` is JSON that is saved with the state.
    """

    def __init__(
        self,
        rules: RulesLike,
        *,
        key: str | Sequence[str] | None = None,
        schema: Any = None,
        strict: bool = False,
        max_pairs: int = 0,
        leaf: int = LEAF,
        fanout: int = FANOUT,
    ) -> None:
        file = as_rule_file(rules)
        self.rules = file.rules
        self.key: tuple[str, ...] = file.key if key is None else as_key(key)
        self.notes: dict[str, Any] = {}
        self._strict, self._max_pairs = strict, max_pairs
        self._size = (leaf, fanout)
        self.types: Mapping[str, ColumnType] = file.columns
        self._orders = Orders()
        self._engine: tuple[Shard, ChangeReader] | None = None
        if schema is not None:
            given = {name: kind.to_arrow() for name, kind in file.columns.items()}
            known = {field.name: field.type for field in arrow_schema(schema)}
            self._engine = self._made(arrow_schema({**known, **given}))

    # Changes

    def insert(self, rows: Any, *, sequence: int | Sequence[int] | None = None) -> Deltas:
        """Takes rows in. A key that is stored already is replaced (or refused, if the detector is strict).

        Rows without a sequence, here and in the other calls, are older than every change that has one.
        """
        return self._put(rows, sequence, strict=self._strict)

    def upsert(self, rows: Any, *, sequence: int | Sequence[int] | None = None) -> Deltas:
        """Takes rows in, each in place of the one with its key."""
        self._require_key()
        return self._put(rows, sequence, strict=False)

    def delete(self, keys: Any, *, sequence: int | Sequence[int] | None = None) -> Deltas:
        """Drops rows by key: values, tuples for a composite key, dicts, or a table with the key columns."""
        shard, reader = self._started("delete from")
        return self._apply(shard, reader.drops(keys), sequence, put=False)

    def apply(self, changes: Any) -> Deltas:
        """Applies mixed changes: rows with `_change_type` and, to order them, `_commit_version`.

        The words are those of Delta's change feed, and `upsert`. Of one version's changes of a key, drops come first.
        """
        self._require_key()
        data = to_table(changes)
        if not len(data):
            return self._nothing()
        puts, versions = kinds_of(data), versions_of(data)
        data = self._typed(whole(data, puts, self._needed()))
        shard, reader = engine = self._engine or self._made(infer_schema(data, self._needed(), self.types))
        batch = reader.mixed(data, puts)
        self._engine = engine
        return self._apply(shard, batch, versions, put=puts)

    # Questions

    def __len__(self) -> int:
        """Rows held."""
        return self._engine[0].held() if self._engine else 0

    @property
    def tally(self) -> Tally:
        """What became of the changes so far: put, dropped, replaced, stale."""
        return self._engine[0].tally if self._engine else Tally()

    def count(self, rule: str | Rule | Sequence[Rule]) -> int:
        """How many violations of a rule live now, listed or not. O(1)."""
        number = self._number(rule)
        return self._engine[0].counts[number] + self._engine[0].unlisted[number] if self._engine else 0

    def counts(self) -> list[int]:
        """The same of all rules, in their order."""
        if not self._engine:
            return [0] * len(self.rules)
        shard = self._engine[0]
        return [listed + more for listed, more in zip(shard.counts, shard.unlisted, strict=True)]

    def violations(self, rule: str | Rule | Sequence[Rule] | None = None) -> Violations:
        """All living violations of a rule, or of all rules, but for those that are only counted (`max_pairs`)."""
        wanted = range(len(self.rules)) if rule is None else [self._number(rule)]
        if self._engine is None:
            return self._nothing()
        shard = self._engine[0]
        return Violations(shard.plan, [found for number in wanted for found in shard.violations(number)])

    # State

    def dump(self, path: str | Path) -> None:
        """Writes the whole state to a file, in a versioned binary format with checksums."""
        shard, _ = self._started("dump")
        about: dict[str, Any] = asdict(self._orders)
        if self._max_pairs:
            about["unlisted"] = shard.unlisted
        if self.notes:
            about["notes"] = self.notes
        dump_shard(shard, Path(path), about)

    @classmethod
    def load(cls, path: str | Path, rules: RulesLike, **options: Any) -> Detector:
        """A detector as it was dumped. The rules must be the same; their names and severities may differ."""
        return cls(rules, **options).restored(path, load_shard(Path(path)))

    def restored(self, path: str | Path, loaded: Loaded) -> Detector:
        """This empty detector with the state of a dump that was read from a path."""
        schema, about, fill = loaded
        try:
            self._orders = Orders(int(about["arrived"]), bool(about["sequenced"]))
            shard, _ = self._engine = self._made(schema)
            unlisted = [int(n) for n in about.get("unlisted", shard.unlisted)]
            self.notes = dict(about.get("notes", {}))
        except (RuleError, DataError) as error:
            raise StateError(
                f"{path} was written for other rules or another key: {error.message}",
                hint="load it with the rules it was written with, or build the state again from the rows",
            ) from None
        fill(shard)
        if len(unlisted) != len(shard.unlisted):
            raise StateError(f"{path} was changed: it counts pairs of {len(unlisted)} rules", hint="restore it")
        shard.unlisted = unlisted
        return self

    def _check(self) -> None:
        """Asserts every invariant of the state."""
        if self._engine:
            shard = self._engine[0]
            shard._check()
            for number in range(len(self.rules)):
                assert shard.counts[number] == sum(map(len, shard.violations(number))), "counts are true"
                assert shard.unlisted[number] >= 0, "there are no fewer pairs than are listed"

    # Inside

    def _made(self, schema: pa.Schema) -> tuple[Shard, ChangeReader]:
        """Binds the rules to a schema and makes the empty shard."""
        found = schema_of(schema)
        types: dict[str, ColumnType] = {}
        if len(set(self.key)) < len(self.key):
            raise DataError("the key names a column twice", hint="name each column of the key once")
        refuse_reserved(self.key)
        for name in self.key:
            kind = found.get(name)
            if not isinstance(kind, ColumnType):
                problem = f"is of type {kind}, which cannot be compared" if kind else "is not a column"
                raise DataError(f"the key {name} {problem}", hint=did_you_mean(name, found))
            types[name] = kind
        for name in self._needed():
            if found.get(name) == ColumnType("null"):
                raise DataError(f"the type of column {name} is not known: the schema says null", hint="give its type")
        if not self.key:
            if any(ROW_NUMBER in rule.columns for rule in self.rules):
                raise DataError(f"{ROW_NUMBER} is the row's number here, not a column", hint="rename it, or give a key")
            types[ROW_NUMBER] = ColumnType("integer")
        made = plan(bind_all(self.rules, found), types, capped=self._max_pairs > 0)
        numbers = [] if self.key else [(ROW_NUMBER, pa.int64())]
        known = [(name, schema.field(name).type) for name in made.columns if self.key or name != ROW_NUMBER]
        stored = pa.schema([*numbers, *known])
        leaf, fanout = self._size
        cap = self._max_pairs if made.capped else 0
        shard = Shard(made, stored, remember_drops=self._remembered, cap=cap, leaf=leaf, fanout=fanout)
        return shard, ChangeReader(stored, made.key, numbered=not self.key)

    @property
    def _remembered(self) -> int:
        """How many drops must be remembered: none while changes come in their order."""
        return shards.DROPS_REMEMBERED if self._orders.sequenced else 0

    def _started(self, doing: str) -> tuple[Shard, ChangeReader]:
        if self._engine is None:
            raise DetectorError(f"there is nothing to {doing} yet: no rows and no schema", hint="insert rows first")
        return self._engine

    def _require_key(self) -> None:
        if not self.key:
            raise DetectorError("there is no key to find the old rows by", hint="give the detector a key")

    def _needed(self) -> list[str]:
        read = {name for rule in self.rules for name in rule.columns}
        return [*self.key, *sorted(read - set(self.key))]

    def _typed(self, data: pa.Table | list[Mapping[str, Any]]) -> pa.Table | list[Mapping[str, Any]]:
        """The data with the columns that the rule file types in those types."""
        return typed(data, self.types, "the rows") if self.types and isinstance(data, pa.Table) else data

    def _nothing(self) -> Deltas:
        return Deltas(self._engine[0].plan if self._engine else plan(()), [])

    def _put(self, rows: Any, sequence: Any, *, strict: bool) -> Deltas:
        data = self._typed(to_table(rows))
        if not len(data):
            return self._nothing()
        shard, reader = engine = self._engine or self._made(infer_schema(data, self._needed(), self.types))
        batch = reader.puts(data, shard.numbered + 1)
        self._engine = engine  # only now: rows that are refused leave no schema behind
        if strict and len(again := shard.repeated(batch)):
            raise DetectorError(
                f"row {int(again[0]) + 1}: its key is held already, or stands twice here ({len(again)} such rows)",
                hint="use upsert to replace rows",
            )
        deltas = self._apply(shard, batch, sequence, put=True)
        if not self.key:
            shard.numbered += batch.num_rows
        return deltas

    def _apply(self, shard: Shard, batch: pa.RecordBatch, sequence: Any, *, put: Any) -> Deltas:
        if not (n := batch.num_rows):
            return self._nothing()  # and nothing is learned of how changes come
        order = self._orders.of(sequence, put, n)
        shard.remember_drops = self._remembered  # where a late change may arrive, the order of dropped keys counts too
        return Deltas(shard.plan, list(shard.apply(batch, order, drops=put is not True)))

    def _number(self, rule: str | Rule | Sequence[Rule]) -> int:
        """The place of a rule that is given by name, or as itself, or alone in a list, as `fd` returns it."""
        one = rule[0] if isinstance(rule, (tuple, list)) and len(rule) == 1 else rule
        if not isinstance(one, (str, Rule)):
            raise DetectorError(f"{type(rule).__name__} is not one rule", hint="give a Rule or the name of one")
        name, names = one.name if isinstance(one, Rule) else one, [known.name for known in self.rules]
        if isinstance(one, Rule):
            # A rule is what it says: another of its name is not meant.
            same = [at for at, known in enumerate(self.rules) if known.fingerprint == one.fingerprint]
            if same:
                return next((at for at in same if names[at] == name), same[0])
        if isinstance(one, Rule) or name not in names:
            raise DetectorError(f"there is no rule {name}", hint=did_you_mean(name, names) or ", ".join(names[:12]))
        return names.index(name)
