"""Rules kept true while the data changes: those that `discover` would find, after every change, without starting over.

    learner = Learner(rows, key="id")
    learner.rules                                   # the minimal rules that all pairs of rows obey
    learned = learner.upsert([{"id": 7, "zip": "8001", "city": "Lima"}])
    for change in learned.dropped:
        print(change.words, change.left_key, change.right_key)

The comparisons that rules may make are chosen from the first rows, as `discover` chooses them, and stay the same.
Cost: that of the change (see `keeper`); memory follows the rows. No Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from weever_stream.detect.changes import ChangeReader, Orders, kinds_of, versions_of, whole
from weever_stream.detect.intake import ROW_NUMBER, arrow_schema, infer_schema, storable, to_table
from weever_stream.discover.predicates import Options, comparisons_in, comparisons_of, may_meet, space_over, usable
from weever_stream.discover.run import refuse_unknown
from weever_stream.discover.words import name_of, understand
from weever_stream.errors import DataError, DetectorError, did_you_mean
from weever_stream.index.casting import typed
from weever_stream.learn.held import Held
from weever_stream.learn.keeper import SMALL, Keeper
from weever_stream.learn.labels import Labelled
from weever_stream.learn.learned import Learned, RuleChange, reasons
from weever_stream.rules import ColumnType, Rule, RuleFile, RulesLike, as_key, as_rule_file, schema_of
from weever_stream.rules.reserved import refuse_reserved
from weever_stream.rules.writing import free_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weever_stream.discover.hydra import Progress
    from weever_stream.discover.predicates import Comparison
    from weever_stream.index.arrays import Mask

__all__ = ["Learner"]

_REMEMBERED = 100_000
"""Rules that keep their names, whether they hold or not."""


class Learner:
    """Holds rows and the minimal rules that they obey.

    `rows`: the first ones (an Arrow table, a frame, dicts). `key`: the column or columns that name a row; without one
    rows are numbered from 1. `schema`: types of the columns, where the rows do not tell. `columns`: those that rules
    may read; by default all but the key. `rules`: as `Detector` takes them; then only comparisons that
    those make are looked at, and a rule file gives its key and its types.
    `cross`, `shared` and `order_text` shape the space as in `discover`, `max_predicates` limits a rule's length.
    `sequence`: that of the rows, one or one each; without it they are older than every change that has one.
    """

    def __init__(
        self,
        rows: Any = (),
        *,
        key: str | Sequence[str] | None = None,
        schema: Any = None,
        columns: str | Sequence[str] | None = None,
        rules: RulesLike | None = None,
        cross: bool = True,
        shared: float = 0.3,
        order_text: bool = False,
        max_predicates: int | None = None,
        sequence: int | Sequence[int] | None = None,
        seed: int = 0,
        small: int = SMALL,
        progress: Progress | None = None,
    ) -> None:
        if max_predicates is not None and max_predicates < 1:
            raise DataError("a rule has at least one predicate", hint="max_predicates: 1 or more, or None")
        file = None if rules is None else as_rule_file(rules)
        self.key: tuple[str, ...] = file.key if file and key is None else as_key(key)
        self._types: Mapping[str, ColumnType] = file.columns if file else {}
        columns = None if columns is None else as_key(columns)
        data = self._typed(to_table(rows))
        stored = _stored(data, schema, self._types, self.key, columns)
        numbers = [] if self.key else [pa.field(ROW_NUMBER, pa.int64())]
        keys = [stored.field(name) for name in self.key]
        self._schema = pa.schema([*numbers, *keys, *(one for one in stored if one.name not in self.key)])
        self._reader = ChangeReader(self._schema, self.key or (ROW_NUMBER,), numbered=not self.key)
        batch = self._reader.puts(data, 1) if len(data) else pa.RecordBatch.from_pylist([], self._schema)
        learned = [name for name in self._schema.names if name not in (*self.key, ROW_NUMBER)]
        asked = Options(tuple(columns or learned), order_text, cross, shared)
        comparisons = _comparisons(pa.Table.from_batches([batch]), asked, file)
        batch = self._without_unread(batch, comparisons)
        self._start(comparisons, max_predicates, seed, small)
        self._numbered = 0 if self.key else batch.num_rows
        tell = progress or (lambda phase, done, total: None)
        puts = np.ones(batch.num_rows, np.bool_)
        change = self._held.planned(batch, self._orders.of(sequence, puts, batch.num_rows), puts)
        self._keeper.begin(self._labelled.label(change.rows), tell)
        self._held.take(change, remember=self._orders.sequenced)

    def _without_unread(self, batch: pa.RecordBatch, comparisons: Sequence[Comparison]) -> pa.RecordBatch:
        """Leaves out columns that no comparison reads: neither their values nor their types matter from now on."""
        read = {name for one in comparisons for name in (one.left.name, one.right.name)}
        kept = [name for name in self._schema.names if name in read or name in (*self.key, ROW_NUMBER)]
        if not self.key and not read:
            return batch  # something must tell how many rows there are
        self._schema = pa.schema([self._schema.field(name) for name in kept])
        self._reader = ChangeReader(self._schema, self.key or (ROW_NUMBER,), numbered=not self.key)
        return batch.select(kept)

    def _start(self, comparisons: Sequence[Comparison], most: int | None, seed: int, small: int = SMALL) -> None:
        """Everything but rows."""
        self.max_predicates = most
        self._space = space_over(self._schema.empty_table(), comparisons)
        self._labelled = Labelled.of(comparisons)
        self._keeper = Keeper(self._labelled, most, seed, small)
        self._held = Held(self._schema, self.key or (ROW_NUMBER,))
        self._orders = Orders()
        self._numbered = 0
        self._torn = False
        self._rules: dict[bytes, Rule] = {}
        self._names: set[str] = set()

    # Changes

    def insert(self, rows: Any, *, sequence: int | Sequence[int] | None = None) -> Learned:
        """Takes rows in; one whose key is held replaces it."""
        data = self._typed(to_table(rows))
        if not len(data):
            return Learned()
        batch = self._reader.puts(data, self._numbered + 1)
        learned = self._apply(batch, sequence, np.ones(batch.num_rows, np.bool_))
        self._numbered += 0 if self.key else batch.num_rows
        return learned

    def upsert(self, rows: Any, *, sequence: int | Sequence[int] | None = None) -> Learned:
        """Takes rows in, each in place of the one with its key."""
        self._require_key()
        return self.insert(rows, sequence=sequence)

    def delete(self, keys: Any, *, sequence: int | Sequence[int] | None = None) -> Learned:
        """Drops rows by key: values, tuples for a composite key, dicts, or a table with the key columns."""
        batch = self._reader.drops(keys)
        return self._apply(batch, sequence, np.zeros(batch.num_rows, np.bool_))

    def apply(self, changes: Any) -> Learned:
        """Applies mixed changes: rows with `_change_type` and, to order them, `_commit_version`."""
        self._require_key()
        data = self._typed(to_table(changes))
        if not len(data):
            return Learned()
        puts, versions = kinds_of(data), versions_of(data)
        batch = self._reader.mixed(whole(data, puts, self._schema.names), puts)
        return self._apply(batch, versions, puts)

    def _apply(self, batch: pa.RecordBatch, sequence: Any, puts: Mask) -> Learned:
        self._refuse_torn()
        if not batch.num_rows:
            return Learned()
        change = self._held.planned(batch, self._orders.of(sequence, puts, batch.num_rows), puts)
        if not len(change):
            return Learned()
        before, labels = self._keeper.told(), self._labelled.label(change.rows)
        self._torn = True
        news = self._keeper.change(change.gone, labels)
        self._held.take(change, remember=self._orders.sequenced)
        learned = self._learned(before, self._keeper.told(), news, len(change))
        if (places := self._keeper.tidy()) is not None:
            self._held.renumber(places)
        self._torn = False
        return learned

    # Questions

    def __len__(self) -> int:
        """Rows held."""
        return len(self._keeper)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The minimal rules that hold, short ones first, without those that others imply."""
        self._refuse_torn()
        return tuple(self._rule(box) for box in self._keeper.told())

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that rules may read."""
        return tuple(dict.fromkeys(name for one in self._space.comparisons for name in (one.left.name, one.right.name)))

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """What rules may compare."""
        return self._space.comparisons

    def table(self) -> pa.Table:
        """The rows held: the key, and the columns that rules may read."""
        self._refuse_torn()
        return pa.Table.from_batches([self._held.table()])

    # State

    def dump(self, path: str | Path) -> None:
        """Writes the whole state to a file, in a versioned binary format with checksums."""
        from weever_stream.learn.dump import dump_learner

        self._refuse_torn()
        dump_learner(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Learner:
        """A learner as it was dumped."""
        from weever_stream.learn.dump import load_learner

        return load_learner(cls, Path(path))

    def _check(self) -> None:
        """Asserts every invariant of the state. Looks at all pairs of rows."""
        self._held._check()
        self._keeper._check()
        assert len(self._held.places) == len(self._keeper), "rows by key are the rows by number"
        assert set(self._held.places.values()) == set(self._keeper.alive.tolist()), "they have the same numbers"

    # Inside

    def _typed(self, data: pa.Table | list[Mapping[str, Any]]) -> pa.Table | list[Mapping[str, Any]]:
        """The data with the columns that the rule file types in those types."""
        return typed(data, self._types, "the rows") if self._types and isinstance(data, pa.Table) else data

    def _learned(self, before: NDArray[np.uint8], after: NDArray[np.uint8], news: Any, changes: int) -> Learned:
        """What is told of a change."""
        were, are = ({box.tobytes() for box in some} for some in (before, after))
        added = after[[box.tobytes() not in were for box in after]]
        dropped = before[[box.tobytes() not in are for box in before]]
        if not len(added) and not len(dropped):
            return Learned(changes=changes)
        why_added, why_dropped = reasons(self._keeper, added, dropped, news)
        return Learned(
            tuple(self._told(box, pair) for box, pair in zip(added, why_added, strict=True)),
            tuple(self._told(box, pair) for box, pair in zip(dropped, why_dropped, strict=True)),
            changes,
        )

    def _told(self, box: NDArray[np.uint8], pair: tuple[int, int] | None) -> RuleChange:
        rule = self._rule(box)
        words = rule.description or rule.name
        if pair is None:
            return RuleChange(rule, words)
        named = self.key or (ROW_NUMBER,)
        left, right = self._held.rows(pair)
        read = [name for name in self._schema.names if name in rule.columns]
        return RuleChange(
            rule,
            words,
            tuple(left[name] for name in named),
            tuple(right[name] for name in named),
            {name: left[name] for name in read},
            {name: right[name] for name in read},
        )

    def _rule(self, box: NDArray[np.uint8]) -> Rule:
        """The rule of a box, under a name that it keeps."""
        known = self._rules.get(box.tobytes())
        if known is None:
            if len(self._rules) > _REMEMBERED:
                self._forget_rules()
            known = self._rules[box.tobytes()] = self._named(box, None)
        return known

    def _forget_rules(self) -> None:
        """Forgets the names of rules that do not hold: in years there are many."""
        told = {box.tobytes() for box in self._keeper.told()}
        self._rules = {box: rule for box, rule in self._rules.items() if box in told}
        self._names = {rule.name for rule in self._rules.values()}

    def _named(self, box: NDArray[np.uint8], name: str | None) -> Rule:
        numbers = np.flatnonzero(self._keeper.lattice.rules(box[None])[0])
        words = understand([self._space.predicates[at] for at in numbers]).words()
        if name is None:
            name = free_name(name_of(words), self._names)
        self._names.add(name)
        return replace(self._space.rule(numbers, name).rule, severity="warning", description=words)

    def _refuse_torn(self) -> None:
        if self._torn:
            raise DetectorError(
                "a change broke off half-way, so that what is held is not to be trusted",
                hint="load the last dump, or learn again from the rows",
            )

    def _require_key(self) -> None:
        if not self.key:
            raise DetectorError("there is no key to find the old rows by", hint="give the learner a key")


def _stored(
    data: pa.Table | list[Mapping[str, Any]],
    schema: Any,
    given: Mapping[str, ColumnType],
    key: Sequence[str],
    columns: Sequence[str] | None,
) -> pa.Schema:
    """The key and the columns to learn about, with their types: those that are given come first."""
    if schema is not None:
        known = arrow_schema(schema)
        declared = [field.with_type(given[field.name].to_arrow()) if field.name in given else field for field in known]
        known = arrow_schema(pa.schema(declared))
    elif isinstance(data, pa.Table):
        known = storable(data.schema)
    elif data:
        names = list(dict.fromkeys(name for row in data for name in row))
        there = [name for name in names if name in given or any(row.get(name) is not None for row in data)]
        known = infer_schema(data, there, given)
    else:
        raise DataError("there are no rows and no schema to learn from", hint="give rows, or a schema")
    types = schema_of(known)
    for name in known.names:
        if known.names.count(name) > 1:
            raise DataError(f"there are several columns {name}", hint="rename all but one")
    for name in key:
        if not isinstance(types.get(name), ColumnType):
            problem = f"is of type {types[name]}, which cannot be compared" if name in types else "is not a column"
            if any(name in row for row in data if isinstance(row, Mapping)) and name not in types:
                problem = "is null in every row"
            raise DataError(f"the key {name} {problem}", hint=did_you_mean(name, set(known.names) - {name}))
    if len(set(key)) < len(key):
        raise DataError("the key names a column twice", hint="name each column of the key once")
    if not key and ROW_NUMBER in (columns or known.names):
        raise DataError(f"{ROW_NUMBER} is the row's number here, not a column", hint="rename it, or give a key")
    refuse_unknown(columns, known.names)
    kept = [*key, *(columns or [name for name in known.names if name not in key])]
    refuse_reserved(kept)
    return pa.schema([known.field(name) for name in dict.fromkeys(kept)])


def _comparisons(table: pa.Table, options: Options, rules: RuleFile | None) -> list[Comparison]:
    """The comparisons to look at: those of the first rows, or those that some rules make."""
    if rules is None:
        if table.num_rows:
            return comparisons_in(table, options)[1]
        return comparisons_of(usable(schema_of(table.schema), (), options)[0], (), options)
    types, _ = usable(schema_of(table.schema), (), options)
    asked = {
        frozenset(column.name for column in predicate.columns)
        for rule in rules.rules
        for predicate in rule.predicates
        if predicate.rows == {"t", "s"}
    }
    refuse_unknown([name for names in asked for name in names], list(types))
    every = comparisons_of(types, may_meet(types), options)
    return [one for one in every if frozenset((one.left.name, one.right.name)) in asked]
