"""Errors that are kept by counting, against pairs counted one by one.

Catches: pairs counted twice or not at all when rows come, go, are replaced, repeated or late; floods whose pairs are
lost or kept when they are only counted; a symmetric pair or a rule on one row weighed wrongly; a rule that comes and
goes at its limit; a division by nothing; a dump that forgets which rules had left, or how many pairs were not listed.
"""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.detect.drawn import SCHEMA, VALUES, as_written, key_values, other_sizes, rows, rule_sets, small_runs
from tests.detect.test_detector_machine import Model
from tests.oracle import violations
from weever_stream.detect import census, moving
from weever_stream.detect.detector import Detector
from weever_stream.discover import discover
from weever_stream.errors import DataError, StateError
from weever_stream.learn import errors
from weever_stream.learn.errors import ErrorChanges, ErrorWatch
from weever_stream.rules import Rule, parse_rule

PAIR = {"id": "bigint", "a": "bigint", "b": "bigint"}
FD = "t.a = s.a and t.b != s.b"


def brute(rules: list[Rule], table: list[dict[str, Any]]) -> dict[str, float]:
    """Errors by the definition: the share of ordered pairs of different rows that satisfy all predicates."""
    found = violations(as_written(rules), table, "id")
    n = len(table)
    told = {}
    for one in rules:
        mine = sum(name == one.name for name, _, _ in found)
        ordered = 2 * mine if one.symmetric else mine * (n - 1) if one.one_row else mine
        told[one.name] = ordered / (n * (n - 1)) if n > 1 else 0.0
    return told


class ErrorMachine(RuleBasedStateMachine):
    """A watch under all kinds of changes; rows are flooded from three partners on."""

    def __init__(self) -> None:
        super().__init__()
        self.scope = ExitStack()
        self.folder = Path(self.scope.enter_context(tempfile.TemporaryDirectory()))

    @initialize(
        rules=rule_sets,
        listed=st.sampled_from([1, 3, 64]),
        limit=st.sampled_from([0.0, 0.02, 0.1, 0.5]),
        hysteresis=st.sampled_from([0.0, 0.2, 1.0]),
    )
    def start(self, rules: list[Rule], listed: int, limit: float, hysteresis: float) -> None:
        self.scope.enter_context(small_runs())
        sizes = [(errors, "_LISTED", listed), (census, "_MANY", 4), (moving, "_PAIRS_HELD", 8)]
        self.scope.enter_context(other_sizes(sizes))
        self.rules, self.limit, self.hysteresis = rules, limit, hysteresis
        self.watch = ErrorWatch(rules, key="id", schema=SCHEMA, error=limit, hysteresis=hysteresis)
        self.model = Model()
        self.errors = dict.fromkeys([one.name for one in rules], 0.0)
        self.holding = {one.name for one in rules}

    def teardown(self) -> None:
        self.scope.close()

    def run(self, told: ErrorChanges, changes: list[tuple[int, bool, Any, dict[str, Any]]]) -> None:
        self.model.apply(changes)
        after = brute(self.rules, list(self.model.rows.values()))
        assert self.watch.errors == pytest.approx(after, abs=1e-15)
        # A limit is met exactly where it is a whole number of pairs: doubles must not decide.
        slack = 1e-9
        left = {name for name in self.holding if after[name] > self.limit * (1 + self.hysteresis) + slack}
        returned = {
            name
            for name in after.keys() - self.holding
            if after[name] == 0 or after[name] < self.limit * (1 - self.hysteresis) - slack
        }
        self.holding = self.holding - left | returned
        assert {one.rule for one in told.left} == left
        assert {one.rule for one in told.returned} == returned
        moved = {name for name in after if self.errors[name] != pytest.approx(after[name], abs=1e-15)}
        assert {one.rule for one in told} >= moved
        assert {one.rule for one in told.changed} == {one.rule for one in told} - left - returned
        for one in told:
            assert (one.error_before, one.error) == pytest.approx((self.errors[one.rule], after[one.rule]), abs=1e-15)
            assert one.example is None or (one.event == "left" and one.example.rule == one.rule)
        self.errors = after
        self.known()

    def known(self) -> None:
        assert {one.name for one in self.watch.holding} == self.holding
        assert len(self.watch) == len(self.model.rows)
        self.watch._check()

    def sequence(self, data: st.DataObject, n: int) -> list[int] | None:
        near = st.integers(max(0, self.model.last - 6), self.model.last + 4)
        return data.draw(st.one_of(st.none(), st.lists(near, min_size=n, max_size=n)), label="sequence")

    @rule(data=st.data())
    def put(self, data: st.DataObject) -> None:
        mine = data.draw(st.lists(st.builds(lambda k, r: {**k, **r}, key_values(("id",)), rows), max_size=7))
        given = self.sequence(data, len(mine))
        sequences = self.model.sequences(len(mine), given)
        changes = [(at, True, row["id"], row) for at, row in zip(sequences, mine, strict=True)]
        self.run(self.watch.upsert(mine, sequence=given), changes)

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        keys = data.draw(
            st.lists(st.one_of(st.sampled_from(sorted(self.model.rows) or [0]), st.integers(0, 9)), max_size=5)
        )
        given = self.sequence(data, len(keys))
        sequences = self.model.sequences(len(keys), given)
        changes = [(at, False, key, {}) for at, key in zip(sequences, keys, strict=True)]
        self.run(self.watch.delete(keys, sequence=given), changes)

    @rule(data=st.data())
    def apply(self, data: st.DataObject) -> None:
        kinds = {"upsert": True, "update_postimage": True, "update_preimage": False, "delete": False}
        drawn = data.draw(
            st.lists(st.tuples(st.sampled_from(sorted(kinds)), key_values(("id",)), rows), min_size=1, max_size=6)
        )
        given, changes = [], []
        for at, (kind, names, values) in zip(self.model.sequences(len(drawn), None), drawn, strict=True):
            row = {**names, **values}
            given.append(row | {"_change_type": kind})
            changes.append((at, kinds[kind], row["id"], row))
        self.run(self.watch.apply(given), changes)

    @rule(seed=st.integers(0, 2**32))
    def burst(self, seed: int) -> None:
        """Many rows that are alike: whatever they break, they break with most others."""
        draw = random.Random(seed)
        mine = []
        for at in range(draw.randrange(8, 24)):
            row = {name: draw.choice(values[:2]) for name, (_, values) in VALUES.items()}
            mine.append(row | {"id": 100 + at, "name": "n", "amount": None})
        sequences = self.model.sequences(len(mine), None)
        changes = [(at, True, row["id"], row) for at, row in zip(sequences, mine, strict=True)]
        self.run(self.watch.insert(pa.Table.from_pylist(mine, SCHEMA)), changes)

    @rule()
    def dump_and_load(self) -> None:
        path = self.folder / "state"
        before = self.watch
        before.dump(path)
        self.watch = ErrorWatch.load(path)
        assert self.watch.errors == before.errors
        assert self.watch.rules == before.rules
        self.known()


def test_errors_are_those_of_all_pairs_counted_one_by_one():
    run_state_machine_as_test(ErrorMachine, settings=settings(max_examples=30, stateful_step_count=12))


@pytest.mark.slow
def test_errors_are_those_of_all_pairs_counted_one_by_one_for_long():
    run_state_machine_as_test(ErrorMachine, settings=settings(max_examples=150, stateful_step_count=25))


# Limits


def group(n: int, wrong: int) -> list[dict[str, int]]:
    """Rows of one group, some of which have another value: wrong · (n - wrong) pairs violate."""
    return [{"id": at, "a": 1, "b": int(at < wrong)} for at in range(n)]


def test_a_rule_leaves_above_its_limit_and_returns_below_it():
    # 11 rows have 110 ordered pairs; one of another value violates with 10 others, both ways round: 20.
    limit = 20 / 110
    watch = ErrorWatch([FD], group(11, 0), key="id", error=limit, hysteresis=0.0)
    assert watch.errors == {"rule_1": 0.0}
    told = watch.upsert({"id": 0, "a": 1, "b": 5})
    assert [(one.event, one.error) for one in told] == [("changed", limit)]
    told = watch.upsert({"id": 1, "a": 1, "b": 5})
    assert [(one.event, one.words) for one in told] == [("left", "a determines b")]
    assert told.left[0].error == 36 / 110
    assert told.left[0].example is not None
    assert 1 in (told.left[0].example.left["id"], told.left[0].example.right["id"])  # type: ignore[index]
    assert watch.holding == ()
    told = watch.upsert({"id": 1, "a": 1, "b": 0})  # at the limit it stays away: only below it does it return
    assert [one.event for one in told] == ["changed"]
    told = watch.upsert({"id": 0, "a": 1, "b": 0})
    assert [(one.event, one.error_before, one.error) for one in told] == [("returned", limit, 0.0)]
    assert watch.holding == watch.rules


@pytest.mark.parametrize(
    ("limit", "wrongs", "events"),
    [
        (490, [3, 4, 2, 1, 2], ["changed", "left", "changed", "returned", "changed"]),  # 588 pairs are 1.2 of 490
        (489, [3, 2, 1], ["left", "changed", "returned"]),
        (495, [4, 2, 1], ["left", "changed", "returned"]),  # 396 pairs are 0.8 of 495, and not below
        (496, [4, 2, 3], ["left", "returned", "changed"]),
    ],
)
def test_hysteresis_is_a_share_of_the_limit_to_the_pair(limit: int, wrongs: list[int], events: list[str]):
    # 101 rows have 10,100 ordered pairs; 1, 2, 3, 4 wrong ones make 200, 396, 588, 776 violating ones.
    watch = ErrorWatch([FD], group(101, 0), key="id", error=limit / 10_100, hysteresis=0.2)
    assert [one.event for wrong in wrongs for one in watch.upsert(group(101, wrong))] == events


def test_limits_that_doubles_miss_are_met_all_the_same():
    assert int(56 / 110 * 110) == 55, "of 11 rows 4 are wrong: 56 ordered pairs"
    watch = ErrorWatch([FD], group(11, 0), key="id", error=56 / 110, hysteresis=0.0)
    assert [one.event for one in watch.upsert(group(11, 4))] == ["changed"]
    limit = 88 / 210 / 0.8
    assert limit * (1 - 0.2) * 210 > 88, (
        "of 15 rows 4 are wrong: 88 ordered pairs, which are not below 0.8 of the limit"
    )
    watch = ErrorWatch([FD], group(15, 4), key="id", error=limit, hysteresis=0.2)
    watch._holds = [False]
    assert [one.event for one in watch.upsert({"id": 99, "a": 99, "b": 0})] == ["returned"]  # 88 of 240 are
    watch = ErrorWatch([FD], group(15, 5), key="id", error=limit, hysteresis=0.2)
    watch._holds = [False]
    assert [one.event for one in watch.upsert(group(15, 4))] == ["changed"]


def test_rows_to_begin_with_are_no_news_and_decide_what_holds():
    watch = ErrorWatch([FD], group(101, 2), key="id", error=396 / 10_100, hysteresis=0.2)
    assert watch.holding == watch.rules
    watch = ErrorWatch([FD], group(101, 2), key="id", error=395 / 10_100, hysteresis=0.2)
    assert watch.holding == ()
    assert [one.event for one in watch.upsert(group(101, 1))] == ["returned"]


def test_an_error_of_nothing_allows_nothing():
    watch = ErrorWatch([FD], key="id", schema=PAIR, error=0.0)
    assert [one.event for one in watch.upsert(group(40, 1))] == ["left"]
    assert [one.event for one in watch.delete([0])] == ["returned"]


def test_fewer_than_two_rows_have_no_error():
    rules = [FD, "t.a > 0", "t.a < s.a"]
    watch = ErrorWatch(rules, key="id", schema=PAIR, error=0.001)
    assert (len(watch), set(watch.errors.values())) == (0, {0.0})
    assert list(watch.delete([7])) == []
    assert list(watch.upsert({"id": 1, "a": 1, "b": 1})) == []
    told = watch.upsert({"id": 2, "a": 2, "b": 1})
    assert watch.errors == {"rule_1": 0.0, "rule_2": 1.0, "rule_3": 0.5}  # both rows are wrong; one of two orders is
    assert [(one.rule, one.event) for one in told] == [("rule_2", "left"), ("rule_3", "left")]
    assert [(one.rule, one.event) for one in watch.delete([2])] == [("rule_2", "returned"), ("rule_3", "returned")]
    assert (len(watch), set(watch.errors.values())) == (1, {0.0})
    watch.delete([1])
    assert (len(watch), watch.holding) == (0, watch.rules)


def test_deleting_good_rows_raises_the_error():
    watch = ErrorWatch(
        [FD], [*group(4, 1), *({"id": at, "a": at, "b": 0} for at in range(10, 100))], key="id", error=0.01
    )
    assert watch.errors["rule_1"] == 6 / (94 * 93)
    told = watch.delete(list(range(10, 100)))
    assert [(one.event, one.error, one.example) for one in told] == [("left", 0.5, None)]


@pytest.mark.parametrize(
    ("option", "value"), [("error", 1.0), ("error", -0.1), ("hysteresis", 1.5), ("hysteresis", -1.0)]
)
def test_what_is_no_share_is_refused(option: str, value: float):
    with pytest.raises(DataError, match="is no share"):
        ErrorWatch([FD], key="id", schema=PAIR, **{option: value})  # type: ignore[arg-type]


# Where rules come from


def test_errors_are_those_that_discovery_counts():
    draw = np.random.default_rng(8)
    n = 3000
    zips = draw.integers(0, 40, n)
    city = zips % 17 + 1000
    city[draw.random(n) < 0.003] = 99
    table = pa.table({"id": np.arange(n), "zip": zips, "city": city, "rate": draw.integers(0, 5, n)})
    found = discover(table, columns=["zip", "city", "rate"], error=0.001)
    watch = ErrorWatch.discover(table, "id", error=0.001)
    assert watch.errors == {one.rule.name: one.error for one in found.rules}
    assert any(watch.errors.values())
    assert watch.holding == watch.rules
    assert {one.description for one in watch.rules} == {one.words for one in found.rules}
    assert ErrorWatch(found, table, key="id", error=0.001).errors == watch.errors
    # What becomes of a table, counted anew by listing.
    put = pa.table(
        {"id": np.arange(100, 200), "zip": np.full(100, 3), "city": np.arange(100), "rate": np.zeros(100, int)}
    )
    told = watch.upsert(put)
    assert "zip determines city" in [one.words for one in told.left]
    merged = pa.concat_tables([table.slice(0, 100), put, table.slice(200)])
    counted = Detector(watch.rules, key="id", schema=merged.schema)
    counted.insert(merged)
    for one in watch.rules:
        n = len(watch)
        assert watch.violations(one) == counted.count(one)
        assert watch.errors[one.name] == counted.count(one) * (2 if one.symmetric else 1) / (n * (n - 1))


# Floods


def test_a_flood_is_counted_and_not_listed():
    n, small = 20_000, 2_000
    watch = ErrorWatch([FD, "t.a = s.a"], key="id", schema=PAIR, error=0.9)
    watch.upsert(pa.table({"id": [0], "a": [0], "b": [0]}))  # compiled, if it was not
    draw, began = np.random.default_rng(5), time.process_time()
    values = draw.integers(0, 3, n)
    for first in range(0, n, small):
        ids = np.arange(first, first + small)
        watch.upsert(pa.table({"id": ids, "a": np.ones(small, int), "b": values[ids]}))

    def expected(kept: np.ndarray) -> dict[str, float]:
        m, sizes = len(kept), np.bincount(kept).astype(int)
        return {"rule_1": (m * m - int((sizes**2).sum())) / (m * (m - 1)), "rule_2": 1.0}

    assert watch.errors == expected(values)  # of 4·10⁸ ordered pairs
    watch.delete(list(range(0, n, 2)))
    assert watch.errors == expected(values[1::2])
    for one in range(1, 41, 2):
        watch.upsert({"id": one, "a": 1, "b": 9})
    values[1:41:2] = 9
    assert watch.errors == expected(values[1::2])
    assert watch._detector._engine is not None
    assert sum(watch._detector._engine[0].counts) < 100_000, "few of them are listed"
    # It takes about a second; listing 2·10⁸ pairs takes minutes and gigabytes.
    assert time.process_time() - began < 20


# Dumps


def test_a_dump_of_something_else_is_refused(tmp_path: Path):
    plain = Detector([FD], key="id", schema=PAIR)
    plain.dump(tmp_path / "detector")
    with pytest.raises(StateError, match="not one of a watch"):
        ErrorWatch.load(tmp_path / "detector")
    watch = ErrorWatch([FD], group(5, 1), key="id", error=0.9)
    watch.dump(tmp_path / "watch")
    watch._detector.notes["errors"]["version"] = 2
    watch._detector.dump(tmp_path / "newer")
    with pytest.raises(StateError, match="newer release"):
        ErrorWatch.load(tmp_path / "newer")
    content = (tmp_path / "watch").read_bytes()
    (tmp_path / "torn").write_bytes(content[: len(content) // 2])
    with pytest.raises(StateError, match="torn"):
        ErrorWatch.load(tmp_path / "torn")


def test_a_detector_that_lists_few_pairs_counts_them_all(tmp_path: Path):
    detector = Detector([parse_rule(FD, name="fd")], key="id", schema=PAIR, max_pairs=10)
    added = detector.insert(group(200, 100)).added
    assert detector.count("fd") == 100 * 100
    assert 0 < len(added) < 2_000
    assert len(detector.violations("fd")) == len(added)
    detector.notes["mine"] = [1, "two"]
    detector.dump(tmp_path / "state")
    again = Detector.load(tmp_path / "state", [parse_rule(FD, name="fd")], key="id", max_pairs=10)
    assert (again.count("fd"), again.notes) == (100 * 100, {"mine": [1, "two"]})
    again.delete(list(range(100)))
    assert again.count("fd") == 0
    again._check()
    with pytest.raises(StateError, match="other rules"):
        Detector.load(tmp_path / "state", [parse_rule(FD, name="fd")], key="id")
