"""The in-process engine: feed it rows and changes, and it tells which violations came and went.

    detector = Detector(["t.zip = s.zip and t.city != s.city"], key="id")
    detector.insert([{"id": 1, "zip": 1, "city": "Rome"}, {"id": 2, "zip": 1, "city": "Paris"}]).added
    detector.delete([2]).removed

Costs follow the change and the pairs it makes, never the number of rows held: see `Shard`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from weever_stream.detect.dump import dump_shard, load_shard
from weever_stream.detect.intake import ROW_NUMBER, arrow_schema, infer_schema, refuse_null_keys, to_batch, to_table
from weever_stream.detect.plan import Plan, plan
from weever_stream.detect.shard import Shard, Tally
from weever_stream.detect.violations import Deltas, Violations
from weever_stream.errors import DataError, DetectorError, did_you_mean
from weever_stream.index.codes import flatten
from weever_stream.index.tree import FANOUT, LEAF
from weever_stream.rules import Rule, RuleFile, bind_all, parse_rule, read_rules, schema_of
from weever_stream.rules.types import ColumnType

if TYPE_CHECKING:
    from weever_stream.index.arrays import Ints

__all__ = ["CHANGE_TYPES", "Detector"]

CHANGE_TYPES = {
    "insert": True,
    "upsert": True,
    "update_postimage": True,
    "update_preimage": False,
    "delete": False,
}
"""Words of `_change_type` (Delta's change feed and ours), and whether they put a row or drop it."""
_CHANGE_TYPE, _VERSION = "_change_type", "_commit_version"


class Detector:
    """Holds rows and tells which violations of the rules each change adds and removes.

    `rules`: a rule file (path or `RuleFile`), or rules as objects or expressions. `key`: the column or columns that
    name a row; without one every row is its own and is numbered from 1. `schema`: types of the columns; taken from
    the first rows where it is not given. `strict` refuses an insert of a key that is held instead of replacing it.
    """

    def __init__(
        self,
        rules: str | Path | RuleFile | Iterable[Rule | str],
        *,
        key: str | Sequence[str] | None = None,
        schema: Any = None,
        strict: bool = False,
        leaf: int = LEAF,
        fanout: int = FANOUT,
    ) -> None:
        file = _rule_file(rules)
        self.rules = file.rules
        self.key: tuple[str, ...] = file.key if key is None else (key,) if isinstance(key, str) else tuple(key)
        self._numbered = not self.key
        self._strict = strict
        self._size = (leaf, fanout)
        self._shard: Shard | None = None
        self._columns = file.columns
        self._last = 0
        self._sequenced = False
        if schema is not None:
            self._start(arrow_schema(schema))

    # Changes

    def insert(self, rows: Any, *, sequence: int | Sequence[int] | None = None) -> Deltas:
        """Takes rows in. A key that is held already is replaced (or refused, if the detector is strict)."""
        return self._put(rows, sequence, strict=self._strict)

    def upsert(self, rows: Any, *, sequence: int | Sequence[int] | None = None) -> Deltas:
        """Takes rows in, each in place of the one with its key."""
        if self._numbered:
            raise DetectorError("there is no key to find the old rows by", hint="give the detector a key")
        return self._put(rows, sequence, strict=False)

    def delete(self, keys: Any, *, sequence: int | Sequence[int] | None = None) -> Deltas:
        """Drops rows by key: values, tuples for a composite key, dicts, or a table with the key columns."""
        shard = self._started("delete from")
        return self._apply(self._keys_only(shard, keys), sequence, put=False)

    def apply(self, changes: Any) -> Deltas:
        """Applies mixed changes: rows with `_change_type` and, to order them, `_commit_version`.

        The words are those of Delta's change feed, and `upsert`. Of one version's changes of a key, drops come first.
        """
        data = to_table(changes)
        kinds = _column(data, _CHANGE_TYPE)
        if kinds is None:
            raise DataError(f"there is no column {_CHANGE_TYPE}", hint="one of " + ", ".join(CHANGE_TYPES))
        puts = np.array([_is_put(kind, at) for at, kind in enumerate(kinds)], np.bool_)
        versions = _column(data, _VERSION)
        return self._apply(self._changed_rows(data, puts), versions, put=puts)

    # Questions

    def __len__(self) -> int:
        """Rows held."""
        return 0 if self._shard is None else self._shard.held()

    @property
    def tally(self) -> Tally:
        """What became of the changes so far: put, dropped, replaced, stale."""
        return Tally() if self._shard is None else self._shard.tally

    def count(self, rule: str | Rule) -> int:
        """How many violations of a rule live now. O(1)."""
        number = self._number(rule)
        return 0 if self._shard is None else self._shard.counts[number]

    def violations(self, rule: str | Rule | None = None) -> Violations:
        """All living violations of a rule, or of all rules."""
        if self._shard is None:
            return Violations(plan(()), [])
        shard = self._shard
        wanted = range(len(self.rules)) if rule is None else [self._number(rule)]
        return Violations(shard.plan, [found for number in wanted for found in shard.violations(number)])

    # State

    def dump(self, path: str | Path) -> None:
        """Writes the whole state to a file, in a versioned binary format with checksums."""
        shard = self._started("dump")
        about = {"last": self._last, "sequenced": self._sequenced, "numbered": self._numbered}
        dump_shard(shard, Path(path), about)

    @classmethod
    def load(cls, path: str | Path, rules: str | Path | RuleFile | Iterable[Rule | str], **options: Any) -> Detector:
        """A detector as it was dumped. The rules must be the same; their names and severities may differ."""
        detector = cls(rules, **options)
        schema, about, fill = load_shard(Path(path))
        detector._start(schema)
        shard = detector._started("load")
        fill(shard)
        detector._last, detector._sequenced = int(about["last"]), bool(about["sequenced"])
        shard.remember_drops = detector._sequenced
        return detector

    def _check(self) -> None:
        """Asserts every invariant of the state."""
        if self._shard is not None:
            self._shard._check()
            for number in range(len(self.rules)):
                assert self._shard.counts[number] == sum(map(len, self._shard.violations(number))), "counts are true"

    # Inside

    def _start(self, schema: pa.Schema) -> Shard:
        """Binds the rules to a schema and makes the empty shard."""
        found = {**schema_of(schema), **self._columns}
        types: dict[str, ColumnType] = {}
        for name in self.key:
            kind = found.get(name)
            if not isinstance(kind, ColumnType):
                problem = f"is of type {kind}, which cannot be compared" if kind else "is not a column"
                raise DataError(f"the key {name} {problem}", hint=did_you_mean(name, found))
            types[name] = kind
        if self._numbered:
            types[ROW_NUMBER] = ColumnType("integer")
        made = plan(bind_all(self.rules, found), types)
        stored = pa.schema([(name, _stored_type(schema, name, found)) for name in made.columns])
        leaf, fanout = self._size
        self._shard = Shard(made, stored, remember_drops=self._sequenced, leaf=leaf, fanout=fanout)
        return self._shard

    def _started(self, doing: str) -> Shard:
        if self._shard is None:
            raise DetectorError(f"there is nothing to {doing} yet: no rows and no schema", hint="insert rows first")
        return self._shard

    def _needed(self) -> list[str]:
        read = {name for rule in self.rules for name in rule.columns}
        return [*self.key, *sorted(read - set(self.key))]

    def _put(self, rows: Any, sequence: Any, *, strict: bool) -> Deltas:
        data = to_table(rows)
        shard = self._shard or self._start(infer_schema(data, self._needed()))
        batch = self._batch(shard, data)
        if strict:
            self._refuse_held(shard, batch)
        return self._apply(batch, sequence, put=True)

    def _batch(self, shard: Shard, data: Any) -> pa.RecordBatch:
        """Rows with all columns that are stored; numbered where the table has no key."""
        schema = shard.forest.schema
        if not self._numbered:
            batch = to_batch(data, schema)
            refuse_null_keys(batch, self.key)
            return batch
        batch = to_batch(data, schema.remove(0))
        first = shard.numbered + 1
        numbers = pa.array(np.arange(first, first + batch.num_rows))
        return pa.RecordBatch.from_arrays([numbers, *batch.columns], schema=schema)

    def _changed_rows(self, data: Any, puts: np.ndarray[Any, Any]) -> pa.RecordBatch:
        if self._numbered:
            raise DetectorError("changes need a key to find their rows by", hint="give the detector a key")
        shard = self._shard or self._start(infer_schema(data, self._needed()))
        schema = shard.forest.schema
        if puts.all():
            return self._batch(shard, data)
        if isinstance(data, list):  # drops may come with their key alone
            data = [row if put else {**dict.fromkeys(schema.names), **row} for row, put in zip(data, puts, strict=True)]
        return self._batch(shard, data)

    def _keys_only(self, shard: Shard, keys: Any) -> pa.RecordBatch:
        """Rows that hold nothing but their key."""
        schema, names = shard.forest.schema, shard.plan.key
        if isinstance(keys, (str, bytes, int)) or (isinstance(keys, tuple) and len(names) > 1):
            keys = [keys]
        if isinstance(keys, Iterable) and not hasattr(keys, "__arrow_c_stream__") and not isinstance(keys, Mapping):
            keys = [key if isinstance(key, Mapping) else _as_row(key, names) for key in keys]
        data = to_table(keys)
        batch = to_batch(data, pa.schema([schema.field(name) for name in names]))
        refuse_null_keys(batch, names)
        absent = [pa.nulls(batch.num_rows, field.type) for field in schema if field.name not in names]
        return pa.RecordBatch.from_arrays([*batch.columns, *absent], schema=schema)

    def _apply(self, batch: pa.RecordBatch, sequence: Any, *, put: Any) -> Deltas:
        shard = self._started("change")
        order, last = self._order(shard, sequence, batch.num_rows, put)
        found = list(shard.apply(batch, order, drops=put is not True))
        if self._numbered and put is True:
            shard.numbered += batch.num_rows
        self._last = last
        return Deltas(shard.plan, found)

    def _order(self, shard: Shard, given: Any, n: int, put: Any) -> tuple[Ints, int]:
        """The order of the changes (see `Rows`), and the last sequence then used."""
        if given is None:
            end = self._last + 1 + n
            return np.arange(2 * self._last + 2, 2 * end, 2) + put, end - 1
        numbers = self._sequence(shard, given, n)
        return numbers * 2 + np.asarray(put, np.int64), max([self._last, *numbers.tolist()])

    def _sequence(self, shard: Shard, given: Any, n: int) -> Ints:
        # From now on a late change may arrive, so the sequence of dropped keys must be known too.
        self._sequenced = shard.remember_drops = True
        try:
            numbers = np.full(n, given, np.int64) if isinstance(given, int) else np.asarray(given, np.int64)
        except (TypeError, ValueError, OverflowError):
            numbers = np.empty(0, np.int64)
        if numbers.shape != (n,) or (n and (numbers.min() < 0 or numbers.max() >= 1 << 62)):
            raise DataError("a sequence is one whole number, or one for each change", hint="from 0 to 2^62 - 1")
        return numbers

    def _refuse_held(self, shard: Shard, batch: pa.RecordBatch) -> None:
        again = shard.repeated(batch)
        if len(again):
            raise DetectorError(
                f"row {int(again[0]) + 1}: its key is held already, or stands twice in the batch ({len(again)} such rows)",
                hint="use upsert to replace rows",
            )

    def _number(self, rule: str | Rule) -> int:
        name = rule.name if isinstance(rule, Rule) else rule
        names = [known.name for known in self.rules]
        if name not in names:
            raise DetectorError(f"there is no rule {name}", hint=did_you_mean(name, names) or ", ".join(names[:12]))
        return names.index(name)


def _rule_file(rules: str | Path | RuleFile | Iterable[Rule | str]) -> RuleFile:
    if isinstance(rules, RuleFile):
        return rules
    if isinstance(rules, (str, Path)):
        return read_rules(rules)
    made = [
        rule if isinstance(rule, Rule) else parse_rule(rule, name=f"rule_{number}")
        for number, rule in enumerate(rules, 1)
    ]
    names = [rule.name for rule in made]
    if len(set(names)) < len(names):
        again = next(name for name in names if names.count(name) > 1)
        raise DetectorError(f"two rules are named {again}", hint="names tell rules apart; give each its own")
    return RuleFile("rows", tuple(made))


def _stored_type(schema: pa.Schema, name: str, found: Mapping[str, ColumnType | str]) -> pa.DataType:
    if name == ROW_NUMBER and name not in schema.names:
        return pa.int64()
    kind, given = found[name], schema.field(name).type
    override = isinstance(kind, ColumnType) and kind != schema_of(schema)[name]
    return kind.to_arrow() if override and isinstance(kind, ColumnType) else given


def _as_row(key: Any, names: Sequence[str]) -> dict[str, Any]:
    parts = key if isinstance(key, (tuple, list)) else (key,)
    if len(parts) != len(names):
        raise DataError(f"a key has {len(names)} parts ({', '.join(names)}), and here are {len(parts)}")
    return dict(zip(names, parts, strict=True))


def _column(data: Any, name: str) -> list[Any] | None:
    if isinstance(data, pa.Table):
        return flatten(data.column(name)).to_pylist() if name in data.schema.names else None
    return [row.get(name) for row in data] if any(name in row for row in data) else None


def _is_put(kind: Any, at: int) -> bool:
    put = CHANGE_TYPES.get(kind)
    if put is None:
        raise DataError(f"row {at + 1}: unknown {_CHANGE_TYPE}", hint="one of " + ", ".join(CHANGE_TYPES))
    return put
