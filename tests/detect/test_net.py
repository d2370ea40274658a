"""A batch reports its net difference, in pieces of bounded size, and only once it is done.

Catches: violations that flicker (removed and added again in one batch), stay when both of their rows change, or are
told twice; a batch of millions of pairs held in memory at once; a shard left half-changed by a reader that stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.detect.agreement import triples
from tests.detect.drawn import small_runs
from weever_stream.detect.detector import Detector
from weever_stream.detect.plan import plan
from weever_stream.detect.shard import Shard
from weever_stream.index.tree import PAIRS_AT_ONCE
from weever_stream.rules import ColumnType, bind_all, parse_rule, schema_of

FD = parse_rule("t.zip = s.zip and t.city != s.city", name="fd")
ORDER = parse_rule("t.zip = s.zip and t.a < s.a and t.b > s.b", name="order")
ALONE = parse_rule("t.a > t.b", name="alone")


def row(key: int, zip_code: int = 1, city: str = "Rome", a: int = 0, b: int = 0) -> dict[str, Any]:
    return {"id": key, "zip": zip_code, "city": city, "a": a, "b": b}


def change(kind: str, version: int, of: dict[str, Any]) -> dict[str, Any]:
    return {**of, "_change_type": kind, "_commit_version": version}


@pytest.fixture(params=["tail", "runs"])
def detector(request: pytest.FixtureRequest) -> Iterator[Detector]:
    """Rows 1 and 2 contradict each other; in the tail, or each in a run."""
    made = Detector([FD, ORDER, ALONE], key="id")
    if request.param == "tail":
        made.insert([row(1), row(2, city="Paris")])
        yield made
        return
    with small_runs(batch=0, tail=1):
        made.insert([row(1), *(row(100 + n, 100 + n) for n in range(6))])
        made.insert([row(2, city="Paris")])
        yield made


def told(deltas: Any) -> list[tuple[str, str, Any, Any]]:
    return sorted((v.change, v.rule, v.left["id"], v.right["id"] if v.right else None) for v in deltas)


def test_an_update_that_keeps_a_violation_reports_nothing(detector: Detector):
    assert told(detector.upsert(row(1, city="Oslo"))) == []
    assert told(detector.upsert([row(1, city="Rome"), row(2, city="Lima")])) == []
    assert detector.count("fd") == 1
    (left,) = detector.violations("fd")
    assert (left.left["city"], left.right["city"]) == ("Rome", "Lima")


def test_an_update_of_a_column_that_no_rule_reads_reports_nothing():
    detector = Detector([FD], key="id")
    detector.insert([row(1), row(2, city="Paris")])
    assert told(detector.upsert({**row(1), "note": "new"})) == []


def test_an_update_that_moves_a_row_ends_its_old_violations_and_begins_new_ones(detector: Detector):
    detector.insert(row(3, zip_code=2, city="Bern"))
    assert told(detector.upsert(row(2, zip_code=2, city="Paris"))) == [("added", "fd", 2, 3), ("removed", "fd", 1, 2)]


def test_a_row_that_goes_and_comes_back_in_one_batch_reports_nothing(detector: Detector):
    batch = [change("delete", 9, row(1)), change("insert", 9, row(1))]
    assert told(detector.apply(batch)) == []
    assert told(detector.apply([change("insert", 11, row(2, city="Paris")), change("delete", 10, row(2))])) == []
    assert detector.count("fd") == 1


def test_a_violation_that_comes_and_goes_in_one_batch_reports_nothing(detector: Detector):
    batch = [change("insert", 9, row(3, city="Bern")), change("delete", 10, row(3))]
    assert told(detector.apply(batch)) == []
    assert len(detector.violations("fd")) == 1


def test_of_several_changes_of_a_key_in_a_batch_only_the_last_counts(detector: Detector):
    cities = ["Bern", "Rome", "Lima", "Rome"]
    batch = [change("upsert", 20 + version, row(3, city=city)) for version, city in enumerate(cities)]
    assert told(detector.apply(batch[::-1])) == [("added", "fd", 2, 3)]


def test_within_one_version_the_put_wins_over_the_drop_in_either_order(detector: Detector):
    for version, batch in ((30, ["insert", "delete"]), (40, ["delete", "insert"])):
        detector.apply([change(kind, version, row(1, city="Paris")) for kind in batch])
        assert detector.count("fd") == 0
        assert len([v for v in detector.upsert(row(1), sequence=version + 1) if v.rule == "fd"]) == 1


def test_both_rows_of_a_pair_may_change_at_once(detector: Detector):
    assert told(detector.upsert([row(1, zip_code=5), row(2, zip_code=5, city="Paris")])) == []
    assert told(detector.upsert([row(1), row(2)])) == [("removed", "fd", 1, 2)]
    assert told(detector.upsert([row(1, city="Paris"), row(2)])) == [("added", "fd", 1, 2)]
    assert told(detector.delete([1, 2])) == [("removed", "fd", 1, 2)]


def test_a_pair_that_turns_round_is_another_pair(detector: Detector):
    detector.upsert([row(1, a=1, b=5), row(2, a=2, b=4)])
    assert triples(detector.violations("order"), ("id",)) == {("order", 1, 2)}
    turned = detector.upsert([row(1, a=2, b=4), row(2, a=1, b=5)])
    assert told(turned) == [("added", "order", 2, 1), ("removed", "order", 1, 2)]


def test_a_violation_of_one_row_is_told_when_it_begins_and_ends(detector: Detector):
    assert told(detector.upsert(row(1, a=1))) == [("added", "alone", 1, None)]
    assert told(detector.upsert(row(1, a=2))) == []
    assert told(detector.delete(1)) == [("removed", "alone", 1, None), ("removed", "fd", 1, 2)]


def test_summing_the_log_gives_the_live_set_at_every_batch():
    random = np.random.default_rng(5)
    detector, live = Detector([FD, ORDER, ALONE], key="id"), set()
    detector.insert(row(0))
    with small_runs():
        for _ in range(40):
            keys = random.integers(0, 25, random.integers(1, 8)).tolist()
            if random.random() < 0.3:
                deltas = detector.delete(keys)
            else:
                values = random.integers(0, 3, (len(keys), 4)).tolist()
                deltas = detector.upsert(
                    [row(k, z, "ABC"[c], a, b) for k, (z, c, a, b) in zip(keys, values, strict=True)]
                )
            for violation in deltas:
                if violation.change == "added":
                    assert violation.id not in live
                    live.add(violation.id)
                else:
                    live.remove(violation.id)
            assert live == {violation.id for violation in detector.violations()}
    assert live


# The shard itself

SCHEMA = pa.schema(
    [("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64()), ("city", pa.string()), ("zip", pa.int64())]
)


def shard_of(*rules: Any) -> Shard:
    made = plan(bind_all(rules, schema_of(SCHEMA)), {"id": ColumnType("integer")})
    return Shard(made, pa.schema([SCHEMA.field(name) for name in made.columns]), remember_drops=1000)


def batch_of(shard: Shard, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, pa.schema([SCHEMA.field(name) for name in shard.plan.columns]))


def puts(n: int, sequence: int) -> np.ndarray:
    return np.full(n, 2 * sequence + 1, np.int64)


def test_millions_of_pairs_come_in_several_pieces():
    shard = shard_of(parse_rule("t.zip = s.zip", name="unique"))
    n = 2001
    table = pa.RecordBatch.from_pydict({"id": np.arange(n), "zip": np.ones(n, np.int64)})
    sizes = [len(piece) for piece in shard.apply(table, puts(n, 1))]
    assert sum(sizes) == n * (n - 1) // 2
    assert len(sizes) > 1
    assert max(sizes) <= PAIRS_AT_ONCE + n, "a piece ends with the row that fills it"
    assert shard.counts == [sum(sizes)]
    drops = [len(piece) for piece in shard.apply(table, puts(n, 2) - 1)]
    assert sum(drops) == sum(sizes)
    assert max(drops) <= PAIRS_AT_ONCE + n
    assert shard.counts == [0]


def state(shard: Shard) -> Any:
    """All that can be asked of a shard."""
    shard._check()
    found = [
        sorted((v.rule, v.left_key, v.right_key) for v in violations_of(shard, number))
        for number in range(len(shard.counts))
    ]
    return shard.held(), list(shard.counts), repr(shard.tally), found


def violations_of(shard: Shard, number: int) -> Any:
    from weever_stream.detect.violations import Violations

    return Violations(shard.plan, list(shard.violations(number)))


@pytest.mark.parametrize("size", [12, 300])
@pytest.mark.parametrize("pieces", [0, 1, 2])
def test_a_batch_that_is_not_read_to_its_end_leaves_the_shard_as_it_was(size: int, pieces: int):
    shard = shard_of(FD, ORDER, ALONE)
    first = [row(n, n % 5, "ABC"[n % 3], n % 4, n % 2) for n in range(size)]
    list(shard.apply(batch_of(shard, first), puts(size, 1)))
    before = state(shard)
    changed = [row(n, n % 4, "ABC"[n % 2], n % 3, n % 2) for n in range(size // 2, size + 9)]
    orders = np.concatenate([puts(len(changed) - 3, 2), puts(3, 0)])  # new, replacing and stale ones
    orders[1] -= 1  # and a drop
    for stop in ("close", "throw", "forget"):
        deltas = shard.apply(batch_of(shard, changed), orders)
        for _ in range(pieces):
            next(deltas)
        if stop == "close":
            deltas.close()
        elif stop == "throw":
            with pytest.raises(RuntimeError, match="the sink is full"):
                deltas.throw(RuntimeError("the sink is full"))
        del deltas
        assert state(shard) == before
    whole = shard_of(FD, ORDER, ALONE)
    list(whole.apply(batch_of(whole, first), puts(size, 1)))
    assert sum(map(len, shard.apply(batch_of(shard, changed), orders))) == sum(
        map(len, whole.apply(batch_of(whole, changed), orders))
    )
    assert state(shard) == state(whole) != before


def test_more_rules_than_one_walk_holds_are_all_watched():
    rules = [parse_rule(f"t.zip = s.zip and t.a < s.a and t.b != s.b and t.a > {n}", name=f"r{n}") for n in range(70)]
    rules += [
        parse_rule(f"t.zip = s.zip and t.city != s.city and t.a > {n} and s.a > {n}", name=f"s{n}") for n in range(70)
    ]
    detector = Detector(rules, key="id")
    detector.insert([row(1, a=1000, b=1), row(2, a=2000, b=2, city="Paris")])
    assert {v.rule for v in detector.violations()} == {rule.name for rule in rules}
    detector.upsert(row(1, a=35, b=1))
    assert [detector.count(f"r{n}") for n in range(70)] == [int(n < 35) for n in range(70)]
    assert [detector.count(f"s{n}") for n in range(70)] == [int(n < 35) for n in range(70)]
    detector._check()
