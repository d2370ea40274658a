"""A learner under every kind of change, held against a dict of rows and what discovery finds in them after each step.

Catches: a rule that is lost, kept though a pair breaks it, not minimal, told twice, or broken by a pair that no watched
set lists; evidence counted wrongly as rows go; labels that mix up values (NaN, -0.0, the ends of int64, texts with one
prefix, wide decimals) or are given out anew wrongly; a column's first null; changes applied out of order, twice or
after a newer one; a dump that is not the whole state; reasons that are not the pairs of the table.
"""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.detect.test_detector_machine import Model
from tests.learn.shapes import KEY_VALUES, KEYS, SHAPES, Shape, few_samples, narrow_labels
from tests.learn.truth import assert_brute, assert_counts, assert_exact, assert_reasons, assert_watched
from tests.oracle import key_of
from weever_stream.learn import Learned, Learner

Row = dict[str, Any]
MOST_ROWS = 40


class LearnerMachine(RuleBasedStateMachine):
    """Drives a learner and its model."""

    brute_always = False

    def __init__(self) -> None:
        super().__init__()
        self.scope = ExitStack()
        self.folder = Path(self.scope.enter_context(tempfile.TemporaryDirectory()))
        self.history: list[tuple[str, Any, Any, list[tuple[int, bool, Any, Row]]]] = []
        self.learner: Learner | None = None

    @initialize(
        data=st.data(),
        shape=st.sampled_from(sorted(SHAPES)),
        key=st.sampled_from(sorted(KEYS)),
        most=st.sampled_from([None, None, 1, 2, 3]),
        small=st.sampled_from([0, 1, 2, 3, 3, 5, 8, 1000]),
        narrow=st.booleans(),
        samples=st.sampled_from([1, 4, 4, 1000]),
    )
    def start(
        self, data: st.DataObject, shape: str, key: str, most: int | None, small: int, narrow: bool, samples: int
    ) -> None:
        self.scope.enter_context(few_samples(samples))
        if narrow:
            self.scope.enter_context(narrow_labels())
        self.shape, self.key, self.model = SHAPES[shape], KEYS[key], Model()
        first = data.draw(st.lists(rows(self.shape, self.key), max_size=8), label="first rows")
        keys = [self.named(row) for row in first] if self.key else list(range(1, len(first) + 1))
        self.numbered = 0 if self.key else len(first)
        orders = self.model.sequences(len(first), None)
        self.model.apply([(at, True, key, row) for at, key, row in zip(orders, keys, first, strict=True)])
        self.learner = Learner(
            pa.Table.from_pylist(first, self.shape.schema),
            key=self.key or None,
            columns=list(self.shape.columns),
            max_predicates=most,
            small=small,
            **self.shape.options,
        )
        self.holds()

    def teardown(self) -> None:
        if self.learner is not None and self.shape.brute and self.learner.max_predicates is None:
            assert_brute(self.learner, self.model.rows.values())
        self.scope.close()

    # Inside

    def named(self, row: Row) -> Any:
        return key_of(row, self.key)

    def holds(self) -> None:
        """The learner is what its rows say."""
        learner, mine = self.learner, list(self.model.rows.values())
        assert learner is not None
        learner._check()
        assert_counts(learner)
        assert_watched(learner)
        assert len(learner) == len(mine)
        assert_exact(learner, mine)
        held = learner.table().to_pylist()
        names = [name for name in learner._schema.names if name != "_row"]
        assert sorted(repr([row[name] for name in names]) for row in held) == sorted(
            repr([row[name] for name in names]) for row in pa.Table.from_pylist(mine, self.shape.schema).to_pylist()
        )

    def run(self, verb: str, data: Any, options: Any, changes: list[tuple[int, bool, Any, Row]]) -> None:
        assert self.learner is not None
        before, told = dict(self.model.rows), {one.fingerprint for one in self.learner.rules}
        learned = getattr(self.learner, verb)(data, **options)
        assert isinstance(learned, Learned)
        self.model.apply(changes)
        self.holds()
        after = {one.fingerprint for one in self.learner.rules}
        assert {one.rule.fingerprint for one in learned.added} == after - told, "what came is told"
        assert {one.rule.fingerprint for one in learned.dropped} == told - after, "what went is told"
        assert_reasons(self.learner, learned, before, self.model.rows)

    def put(self, verb: str, mine: list[Row], sequence: int | list[int] | None, as_table: bool) -> None:
        if self.key:
            keys = [self.named(row) for row in mine]
        else:
            verb, keys = "insert", list(range(self.numbered + 1, self.numbered + 1 + len(mine)))
            self.numbered += len(mine)
        sequences = self.model.sequences(len(mine), sequence)
        changes = [(at, True, key, row) for at, key, row in zip(sequences, keys, mine, strict=True)]
        data = pa.Table.from_pylist(mine, self.shape.schema) if as_table else mine
        if sequence is not None and self.key:
            self.history.append((verb, data, {"sequence": sequences}, changes))
        self.run(verb, data, {"sequence": sequence}, changes)

    def sequence(self, data: st.DataObject, n: int) -> int | list[int] | None:
        near = st.integers(max(0, self.model.last - 6), self.model.last + 4)
        return data.draw(st.one_of(st.none(), near, st.lists(near, min_size=n, max_size=n)), label="sequence")

    # Steps

    @precondition(lambda self: len(self.model.rows) < MOST_ROWS)
    @rule(data=st.data(), verb=st.sampled_from(["insert", "upsert"]), as_table=st.booleans())
    def put_rows(self, data: st.DataObject, verb: str, as_table: bool) -> None:
        mine = data.draw(st.lists(rows(self.shape, self.key), max_size=5))
        self.put(verb, mine, self.sequence(data, len(mine)), as_table)

    @precondition(lambda self: len(self.model.rows) < MOST_ROWS // 2)
    @rule(seed=st.integers(0, 2**32), nulls=st.booleans())
    def put_many(self, seed: int, nulls: bool) -> None:
        """Enough rows that sets are chosen anew, with a null for each column or without any."""
        draw = random.Random(seed)
        mine = []
        for at in range(draw.randrange(6, 14)):
            values = {
                name: draw.choice([value for value in values if nulls or value is not None])
                for name, (_, values) in self.shape.columns.items()
            }
            mine.append({"id": 100 + at, "name": draw.choice(["", "a"]), **values})
        self.put("upsert", mine, None, as_table=True)

    @precondition(lambda self: self.key and self.model.rows)
    @rule(data=st.data())
    def put_one_again(self, data: st.DataObject) -> None:
        """The same row once more, or with one value changed: most rules stay. Often with a null."""
        row = dict(data.draw(st.sampled_from(list(self.model.rows.values()))))
        column = data.draw(st.sampled_from([*self.shape.columns, "nothing"]))
        if column in self.shape.columns:
            row[column] = data.draw(st.sampled_from([*self.shape.columns[column][1], None]))
        self.put("upsert", [row], self.sequence(data, 1), as_table=False)

    @rule(data=st.data(), form=st.sampled_from(["values", "dicts", "table"]))
    def drop_keys(self, data: st.DataObject, form: str) -> None:
        known = list(self.model.rows)
        strangers: Any = st.integers(0, self.numbered + 3)
        if self.key:
            strangers = st.builds(lambda row: self.named(row), rows(self.shape, self.key))
        one = st.one_of(st.sampled_from(known), st.sampled_from(known), strangers) if known else strangers
        self.drop(data.draw(st.lists(one, max_size=6), label="keys"), form, data)

    @precondition(lambda self: len(self.model.rows) > 4)
    @rule(data=st.data(), left=st.integers(0, 4))
    def drop_most(self, data: st.DataObject, left: int) -> None:
        self.drop(list(self.model.rows)[left:], "values", data)

    def drop(self, keys: list[Any], form: str, data: st.DataObject) -> None:
        sequence = self.sequence(data, len(keys))
        names = self.key or ("_row",)
        dicts = [dict(zip(names, key if len(names) > 1 else [key], strict=True)) for key in keys]
        schema = self.shape.schema
        kinds = pa.schema([schema.field(name) for name in names]) if self.key else pa.schema([("_row", pa.int64())])
        given = {"values": keys, "dicts": dicts, "table": pa.Table.from_pylist(dicts, kinds)}[form]
        sequences = self.model.sequences(len(keys), sequence)
        changes = [(at, False, key, {}) for at, key in zip(sequences, keys, strict=True)]
        if sequence is not None and self.key:
            self.history.append(("delete", given, {"sequence": sequences}, changes))
        self.run("delete", given, {"sequence": sequence}, changes)

    @precondition(lambda self: self.key and len(self.model.rows) < MOST_ROWS)
    @rule(data=st.data(), versioned=st.booleans(), as_table=st.booleans())
    def apply_changes(self, data: st.DataObject, versioned: bool, as_table: bool) -> None:
        """Mixed changes, several of one key among them; one version may drop and put a key in either order."""
        kinds = {"insert": True, "upsert": True, "update_postimage": True, "update_preimage": False, "delete": False}
        near = st.integers(max(0, self.model.last - 4), self.model.last + 3)
        one = st.tuples(st.sampled_from(sorted(kinds)), rows(self.shape, self.key), near)
        drawn = data.draw(st.lists(one, min_size=1, max_size=8))
        sequences = self.model.sequences(len(drawn), [at for *_, at in drawn] if versioned else None)
        changes, given = [], []
        for (kind, row, _), at in zip(drawn, sequences, strict=True):
            changes.append((at, kinds[kind], self.named(row), row))
            bare = kind == "delete" and not as_table
            given.append({name: row[name] for name in self.key} if bare else dict(row))
            given[-1] |= {"_change_type": kind} | ({"_commit_version": at} if versioned else {})
        table: Any = given
        if as_table:
            table = pa.Table.from_pylist(given, self.shape.schema.append(pa.field("_change_type", pa.string())))
            if versioned:
                table = table.append_column("_commit_version", pa.array(sequences))
        if versioned:
            self.history.append(("apply", table, {}, changes))
        self.run("apply", table, {}, changes)

    @precondition(lambda self: self.history)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """An earlier batch comes again, as it was."""
        verb, given, options, changes = data.draw(st.sampled_from(self.history), label="replayed")
        self.run(verb, given, options, changes)

    @rule()
    def dump_and_load(self) -> None:
        assert self.learner is not None
        told = {one.fingerprint: one.name for one in self.learner.rules}
        self.learner.dump(self.folder / "state")
        self.learner = Learner.load(self.folder / "state")
        assert {one.fingerprint: one.name for one in self.learner.rules} == told, "rules keep their names"
        self.holds()


def rows(shape: Shape, key: tuple[str, ...]) -> st.SearchStrategy[Row]:
    """Rows with few keys, so that they meet again."""
    names = {name: st.sampled_from([*values, *([] if name in key else [None])]) for name, values in KEY_VALUES.items()}
    return st.fixed_dictionaries(
        {**names, **{name: st.sampled_from(values) for name, (_, values) in shape.columns.items()}}
    )


def test_a_learner_agrees_with_discovery_under_any_changes():
    run_state_machine_as_test(LearnerMachine, settings=settings(max_examples=25, stateful_step_count=10))


@pytest.mark.slow
def test_a_learner_agrees_with_discovery_under_many_changes():
    run_state_machine_as_test(LearnerMachine, settings=settings(max_examples=80, stateful_step_count=20))
