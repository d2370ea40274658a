"""A detector under every kind of change, held against a dict of rows and the nested-loop oracle after each step.

Catches: pairs lost, doubled or left behind when rows move from the tail to runs, are merged, die, are replaced or come
back; a net difference that is not net; changes applied out of order, twice, or after a newer one; a drop forgotten
while a late put can still arrive; counts that drift; a dump that is not the whole state; families, sides and gates
that leak from one rule into another; keys told apart or mixed up wrongly (numbers beyond 2^53, texts with one prefix,
wide decimals, several columns, none); with a cap, pairs that are listed and never removed, levels that differ from
the partners a row had when it was put, counts that drift; a strict insert that fails or lets a stored key pass.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.detect.agreement import assert_holds, assert_net
from tests.detect.drawn import KEYS, SCHEMA, VALUES, as_written, key_values, rows, rule_sets, small_runs, tiny_samples
from tests.oracle import key_of, violations
from weever_stream.detect.detector import Detector
from weever_stream.detect.flood import LUCK
from weever_stream.errors import DetectorError
from weever_stream.rules import Rule

Row = dict[str, Any]
SIZES = [(2, 2), (3, 4), (16, 8)]


class Model:
    """What a table is after some changes: the last of every key by sequence, and of one sequence's changes the put.

    Changes without a sequence have negative ones here, in the order in which they arrive.
    """

    def __init__(self) -> None:
        self.rows: dict[Any, Row] = {}
        self.orders: dict[Any, tuple[int, bool]] = {}
        self.remembers_drops = False
        self.last = self.unsequenced = 0
        self.given = self.puts = self.replaced = self.stale = 0
        self.came: set[Any] = set()
        """The keys that the last changes put."""

    def apply(self, changes: Sequence[tuple[int, bool, Any, Row]]) -> None:
        """Takes in (sequence, put or drop, key, row)."""
        self.given += len(changes)
        latest: dict[Any, tuple[int, bool, Row]] = {}
        self.came = set()
        for sequence, put, key, row in changes:
            self.last = max(self.last, sequence)
            if key in latest:
                self.stale += 1
                if (sequence, put) < latest[key][:2]:
                    continue
            latest[key] = (sequence, put, row)
        for key, (sequence, put, row) in latest.items():
            if key in self.orders and (sequence, put) <= self.orders[key]:
                self.stale += 1
                continue
            was_held = self.rows.pop(key, None) is not None
            self.orders.pop(key, None)
            if put:
                self.rows[key] = row
                self.came.add(key)
                self.puts += 1
                self.replaced += was_held
            if put or self.remembers_drops:
                self.orders[key] = (sequence, put)

    def sequences(self, n: int, given: int | list[int] | None) -> list[int]:
        """One for each of n changes: those given, or some that are older than all that can be given."""
        if given is None:
            self.unsequenced += n
            return list(range(self.unsequenced - n - 10**9, self.unsequenced - 10**9))
        self.remembers_drops |= n > 0  # a call without changes leaves everything as it was
        return [given] * n if isinstance(given, int) else given


class DetectorMachine(RuleBasedStateMachine):
    """Drives a detector and its model; with runs of a few rows, so that there are many."""

    small = True
    caps = (0,)

    def __init__(self) -> None:
        super().__init__()
        self.scope = ExitStack()
        self.folder = Path(self.scope.enter_context(tempfile.TemporaryDirectory()))
        self.history: list[tuple[str, Any, Any, list[tuple[int, bool, Any, Row]]]] = []

    @initialize(
        data=st.data(), rules=rule_sets, key=st.sampled_from(sorted(KEYS)), size=st.sampled_from(SIZES),
        small=st.booleans(), strict=st.booleans(),
    )  # fmt: skip
    def start(
        self, data: st.DataObject, rules: list[Rule], key: str, size: tuple[int, int], small: bool, strict: bool
    ) -> None:
        self.small, self.strict = small, strict
        if small:
            self.scope.enter_context(small_runs())
        self.rules, self.key = rules, KEYS[key]
        self.cap = data.draw(st.sampled_from(self.caps), label="max_pairs")
        if self.cap:
            self.scope.enter_context(tiny_samples(data.draw(st.sampled_from([0, 1 << 21]), label="pairs held")))
        self.options = {"key": self.key, "leaf": size[0], "fanout": size[1], "strict": strict, "max_pairs": self.cap}
        self.detector = Detector(rules, schema=SCHEMA, **self.options)
        self.model = Model()
        self.numbered = self.bursts = 0
        self.changed = False
        self.truth: set[tuple[str, Any, Any]] = set()
        self.levels: dict[tuple[str, Any], int] = {}
        self.lucks: dict[Any, int] = {}

    def teardown(self) -> None:
        self.scope.close()

    # Inside

    def named(self, row: Row) -> Any:
        return key_of(row, self.key)

    def run(self, verb: str, data: Any, options: Any, changes: list[tuple[int, bool, Any, Row]]) -> None:
        """Does one call on both, and compares what is reported and what is held."""
        self.changed = True
        before, old = self.listed(), dict(self.model.rows)
        if verb == "insert" and self.strict and self.repeats([key for _, _, key, _ in changes]):
            with pytest.raises(DetectorError, match="use upsert"):
                self.detector.insert(data, **options)
            assert_holds(self.detector, self.truth, len(old), self.key, listed=before)
            return
        deltas = getattr(self.detector, verb)(data, **options)
        self.model.apply(changes)
        self.truth = self.truth_after(old)
        self.level_rows()
        listed = self.listed()
        assert_net(deltas, before, listed, self.key, old, self.model.rows)
        assert_holds(self.detector, self.truth, len(self.model.rows), self.key, listed=listed)
        tally, model = self.detector.tally, self.model
        assert (tally.puts, tally.replaced, tally.stale) == (model.puts, model.replaced, model.stale)
        assert tally.puts + tally.drops + tally.stale + tally.unknown_drops == model.given, (
            "every change is counted once"
        )

    def truth_after(self, old: dict[Any, Row] | None = None) -> set[tuple[str, Any, Any]]:
        """The living violations: found anew, or from those of before and the rows that differ from the old ones."""
        new = self.model.rows
        table = new.values() if self.key else [{**row, "_row": number} for number, row in new.items()]
        key = self.key or ("_row",)
        if old is None:
            return violations(as_written(self.rules), table, key)
        changed = {name for name in old.keys() | new.keys() if old.get(name) is not new.get(name)}
        stayed = {found for found in self.truth if found[1] not in changed and found[2] not in changed}
        return stayed | violations(as_written(self.rules), table, key, touching=changed)

    def repeats(self, keys: list[Any]) -> bool:
        """Whether a key occurs twice, or is stored already."""
        return len(set(keys)) < len(keys) or not self.model.rows.keys().isdisjoint(keys)

    def level_rows(self) -> None:
        """Gives the rows that were put their levels under every rule, by the partners that they have there now."""
        if not self.cap:
            return
        degrees = Counter((name, key) for name, *keys in self.truth for key in keys)
        known, self.levels = self.levels, {}
        for place in ((one.name, key) for one in self.rules for key in self.model.rows):
            degree = degrees[place]
            new = max((degree - 1).bit_length(), 1) if degree > self.cap else 0
            self.levels[place] = new if place[1] in self.model.came else known[place]
        shard, reader = self.detector._engine or self.detector._made(SCHEMA)
        if shard._marker is None:
            assert not any(found[2] is not None for found in self.truth), "only rules of one row need no luck"
            return
        for key in self.model.rows.keys() - self.lucks.keys():
            self.lucks[key] = shard._marker.marked(reader.drops([key])).column(LUCK)[0].as_py()

    def listed(self) -> set[tuple[str, Any, Any]]:
        """The violations that are listed: those in which the luck of each row is at least the level of the other."""
        if not self.cap:
            return self.truth
        return {
            (name, t, s)
            for name, t, s in self.truth
            if s is None or (self.lucks[s] >= self.levels[name, t] and self.lucks[t] >= self.levels[name, s])
        }

    def put(self, verb: str, mine: list[Row], sequence: int | list[int] | None, as_table: bool) -> None:
        if self.key:
            keys = [self.named(row) for row in mine]
        else:
            verb, keys = "insert", list(range(self.numbered + 1, self.numbered + 1 + len(mine)))
            self.numbered += len(mine)
        sequences = self.model.sequences(len(mine), sequence)
        changes = [(at, True, key, row) for at, key, row in zip(sequences, keys, mine, strict=True)]
        data = pa.Table.from_pylist(mine, SCHEMA) if as_table else mine
        if sequence is not None and self.key:
            self.history.append((verb, data, {"sequence": sequences}, changes))
        self.run(verb, data, {"sequence": sequence}, changes)

    def sequence(self, data: st.DataObject, n: int) -> int | list[int] | None:
        """None, one number or one for each change: mostly newer than all before, sometimes older."""
        near = st.integers(max(0, self.model.last - 6), self.model.last + 4)
        return data.draw(st.one_of(st.none(), near, st.lists(near, min_size=n, max_size=n)), label="sequence")

    # Steps

    @rule(data=st.data(), verb=st.sampled_from(["insert", "upsert"]), as_table=st.booleans())
    def put_rows(self, data: st.DataObject, verb: str, as_table: bool) -> None:
        mine = data.draw(st.lists(st.builds(lambda k, r: {**k, **r}, key_values(self.key), rows), max_size=7))
        self.put(verb, mine, self.sequence(data, len(mine)), as_table)

    @rule(data=st.data())
    def put_one_again(self, data: st.DataObject) -> None:
        """The same row once more, or with one value changed: most violations stay."""
        if not self.model.rows or not self.key:
            return
        row = dict(data.draw(st.sampled_from(list(self.model.rows.values()))))
        column = data.draw(st.sampled_from([*VALUES, "nothing"]))
        if column in VALUES:
            row[column] = data.draw(st.sampled_from([*VALUES[column][1], None]))
        self.put("upsert", [row], self.sequence(data, 1), as_table=False)

    @rule(data=st.data(), form=st.sampled_from(["values", "dicts", "table"]))
    def drop_keys(self, data: st.DataObject, form: str) -> None:
        known = list(self.model.rows)
        if self.key:
            strangers = st.builds(self.named, key_values(self.key))
        else:
            strangers = st.integers(0, self.numbered + 3)
        keys = data.draw(st.lists(st.one_of(strangers, st.sampled_from(known)) if known else strangers, max_size=5))
        sequence = self.sequence(data, len(keys))
        names = self.key or ("_row",)
        dicts = [dict(zip(names, key if len(names) > 1 else [key], strict=True)) for key in keys]
        kinds = pa.schema([SCHEMA.field(name) for name in names]) if self.key else pa.schema([("_row", pa.int64())])
        given = {"values": keys, "dicts": dicts, "table": pa.Table.from_pylist(dicts, kinds)}[form]
        sequences = self.model.sequences(len(keys), sequence)
        changes = [(at, False, key, {}) for at, key in zip(sequences, keys, strict=True)]
        if sequence is not None and self.key:
            self.history.append(("delete", given, {"sequence": sequences}, changes))
        self.run("delete", given, {"sequence": sequence}, changes)

    @precondition(lambda self: self.key)
    @rule(data=st.data(), versioned=st.booleans(), as_table=st.booleans())
    def apply_changes(self, data: st.DataObject, versioned: bool, as_table: bool) -> None:
        """Mixed changes, several of one key among them; one version may drop and put a key in either order."""
        kinds = {"insert": True, "upsert": True, "update_postimage": True, "update_preimage": False, "delete": False}
        near = st.integers(max(0, self.model.last - 4), self.model.last + 3)
        drawn = data.draw(
            st.lists(
                st.tuples(st.sampled_from(sorted(kinds)), key_values(self.key), rows, near), min_size=1, max_size=8
            )
        )
        sequences = self.model.sequences(len(drawn), [at for *_, at in drawn] if versioned else None)
        changes, given = [], []
        for (kind, names, values, _), at in zip(drawn, sequences, strict=True):
            row = {**names, **values}
            changes.append((at, kinds[kind], self.named(row), row))
            bare = kind == "delete" and not as_table
            given.append({name: names[name] for name in self.key} if bare else dict(row))
            given[-1] |= {"_change_type": kind} | ({"_commit_version": at} if versioned else {})
        table: Any = given
        if as_table:
            table = pa.Table.from_pylist(given, SCHEMA.append(pa.field("_change_type", pa.string())))
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

    @precondition(lambda self: self.small or not self.bursts)
    @rule(seed=st.integers(0, 2**32), as_table=st.booleans())
    def burst(self, seed: int, as_table: bool) -> None:
        """More rows than the tail takes, so that they become a run of their own. Most of a large one break no rule."""
        self.bursts += 1
        draw = random.Random(seed)
        n = draw.randrange(8, 20) if self.small else draw.randrange(257, 400)
        mine = []
        for at in range(n):
            row = {name: draw.choice([*values, None]) for name, (_, values) in VALUES.items()}
            row |= {"id": at + draw.randrange(3), "name": f"n{draw.randrange(60)}", "amount": draw.randrange(900)}
            if not self.small and at >= 12:
                row |= dict.fromkeys(VALUES) | {"a": 1000 + at, "b": 5, "n": at, "f": at - 1e6, "c": f"c{at}", "w": at}
            mine.append(row)
        draw.shuffle(mine)
        self.put("upsert", mine, None, as_table)

    @precondition(lambda self: self.changed)
    @rule()
    def dump_and_load(self) -> None:
        self.changed = False
        path = self.folder / "state"
        self.detector.dump(path)
        before = self.detector.tally
        self.detector = Detector.load(path, self.rules, **self.options)
        assert self.detector.tally == before
        assert not self.small or self.truth == self.truth_after()
        assert_holds(self.detector, self.truth, len(self.model.rows), self.key, listed=self.listed())


class CappedMachine(DetectorMachine):
    """The same where rows with many partners list only some of their pairs, against levels by nested loops."""

    caps = (1, 2, 3, 10_000)


class LargeMachine(DetectorMachine):
    """The same with the engine's own sizes: a burst is more than a batch of the tail."""

    small = False


@pytest.mark.parametrize("machine", [DetectorMachine, CappedMachine])
def test_a_detector_agrees_with_nested_loops_under_any_changes(machine: type[DetectorMachine]):
    run_state_machine_as_test(machine, settings=settings(max_examples=15, stateful_step_count=12))


@pytest.mark.slow
@pytest.mark.parametrize("machine", [DetectorMachine, CappedMachine])
def test_a_detector_agrees_with_nested_loops_under_many_changes(machine: type[DetectorMachine]):
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=20))


@pytest.mark.slow
def test_a_detector_agrees_with_nested_loops_when_its_runs_are_large():
    run_state_machine_as_test(LargeMachine, settings=settings(max_examples=12, stateful_step_count=12))
