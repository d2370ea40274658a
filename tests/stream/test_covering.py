"""Parts of a table, without Spark: every pair that a rule is about meets in one, and together they say what the whole says.

Catches a pair of rows that meets nowhere, a bucket that depends on how a value is written, a part that grows with a
skewed column, a pair that is counted twice or not at all, a part that keeps quiet about a broken rule, and values that
two columns share and that are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from weever_stream.check.count import count_rule
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.hydra import Budget, complete, find_rules
from weever_stream.discover.parts import count_sets, evidence_against
from weever_stream.discover.predicates import Options, Space, may_meet, space_of
from weever_stream.rules import parse_rule, schema_of, write_rule
from weever_stream.rules.types import ColumnType
from weever_stream.stream.covering import Cover, Route, buckets_of, choose_routes
from weever_stream.stream.sharing import counted_values, shared_values

ROWS, AT_ONCE, BUCKETS = 300, 60, 7


def mixed(rows: int = ROWS, seed: int = 5) -> pa.Table:
    """Nulls, text, dates, floats with two zeros and NaN, a skewed column, and two that share values."""
    chance = np.random.default_rng(seed)
    kind = np.where(chance.random(rows) < 0.5, 0, chance.integers(1, 9, rows))
    base = chance.integers(0, 40, rows)
    low = base + chance.integers(0, 3, rows)
    nothing = chance.random(rows) < 0.1
    return pa.table(
        {
            "kind": pa.array([f"k{one}" for one in kind]),
            "high": pa.array(low + kind % 4),
            "low": pa.array(low, mask=nothing),
            "day": pa.array([date(2024, 1, 1 + int(one) % 28) for one in base]),
            "share": pa.array(chance.choice([0.0, -0.0, float("nan"), 1.5, 2.5], rows)),
        }
    )


def types_of(table: pa.Table) -> dict[str, ColumnType]:
    return {name: kind for name, kind in schema_of(table.schema).items() if not isinstance(kind, str)}


def routes_of(table: pa.Table) -> dict[str | None, Route]:
    found: dict[str | None, Route] = {None: Route.of(None, np.array([table.num_rows]), AT_ONCE)}
    for name, kind in types_of(table).items():
        _, bucket = buckets_of(table[name].combine_chunks(), kind, BUCKETS)
        found[name] = Route.of(name, np.bincount(bucket, minlength=BUCKETS), AT_ONCE)
    return found


def parts_of(table: pa.Table, cover: Cover) -> Iterator[tuple[int, pa.Table, np.ndarray, np.ndarray]]:
    """What Spark does with the rows: number, rows, their blocks and their ids, part by part."""
    ids = np.arange(table.num_rows)
    numbered = table.append_column("id", pa.array(ids))
    sent: dict[int, list[tuple[pa.RecordBatch, np.ndarray]]] = {}
    for batch in numbered.to_batches(max_chunksize=100):
        for part, block, rows in cover.routed(batch, batch["id"].to_numpy()):
            for number in np.unique(part):
                mine = np.flatnonzero(part == number)
                sent.setdefault(int(number), []).append((rows.take(pa.array(mine)), block[mine]))
    for number, pieces in sent.items():
        rows = pa.Table.from_batches([piece for piece, _ in pieces])
        yield number, rows.drop_columns(["id"]), np.concatenate([b for _, b in pieces]), rows["id"].to_numpy()


@pytest.mark.parametrize("column", [None, "kind", "low", "share"])
def test_all_rows_that_agree_meet_in_a_part_of_bounded_size(column: str | None) -> None:
    table = mixed()
    cover = Cover((routes_of(table)[column],), types_of(table))
    met: set[tuple[int, int]] = set()
    largest = 0
    for _, rows, _, ids in parts_of(table, cover):
        assert len(set(ids.tolist())) == len(ids), "a row comes once"
        largest = max(largest, rows.num_rows)
        met |= {(t, s) for t in ids.tolist() for s in ids.tolist() if t < s}
    values = [0] * ROWS if column is None else table[column].to_pylist()
    same = ["nan" if one != one else one for one in values]  # NaN equals NaN; None meets nobody
    wanted = {(t, s) for t in range(ROWS) for s in range(t + 1, ROWS) if same[t] == same[s] and same[t] is not None}
    assert wanted <= met
    assert largest <= AT_ONCE * 1.5, "blocks are drawn at random, so not all are of one size"


def test_rules_take_the_cheapest_routes_and_few_of_them() -> None:
    ones = np.ones(1, np.int64)
    routes = {None: Route(None, ones, 9.0), "a": Route("a", ones, 1.0), "b": Route("b", ones, 1.0)}
    routes |= {"c": Route("c", ones, 9.5)}
    asked = [frozenset("ab"), frozenset("b"), frozenset("c"), frozenset(), frozenset("bc")]
    chosen = {route.column: rules for route, rules in choose_routes(asked, routes)}
    assert chosen == {None: [2, 3], "b": [0, 1, 4]}


@pytest.mark.parametrize(
    ("deny", "column"),
    [
        ("t.kind = s.kind", "kind"),
        ("t.low < s.low", None),
        ("t.kind = s.kind and t.low < s.low", "kind"),
        ("t.high = s.high and t.day < s.day", "high"),
        ("t.low <= t.high", None),
    ],
)
def test_counts_of_parts_add_up_to_that_of_the_table(deny: str, column: str | None) -> None:
    table = mixed()
    space = space_of(table, Options(one_row=True))
    some = [space.number[p.left, p.op, p.right] for p in parse_rule(deny).predicates]
    cover = Cover((routes_of(table)[column],), types_of(table))
    total = sum(
        int(count_sets(rows, blocks, cover.part(number).again, space.comparisons, [some])[0])
        for number, rows, blocks, _ in parts_of(table, cover)
    )
    assert total == count_rule(space.rule(some), space.exact).violations > 0


class InParts:
    """Completion by parts, as Spark's workers do it."""

    def __init__(self, space: Space, table: pa.Table, evidence: Evidence, scanned: int) -> None:
        self.space, self.table, self.evidence, self.scanned = space, table, evidence, scanned
        self.cover = Cover((routes_of(table)[None],), types_of(table))
        self.checked: set[bytes] = set()

    def open(self, rules: np.ndarray) -> np.ndarray:
        return rules[[rule.tobytes() not in self.checked for rule in rules]]

    def settle(self, rules: np.ndarray) -> None:
        known = self.evidence.keys
        for _, rows, _, _ in parts_of(self.table, self.cover):
            found, late = evidence_against(rows, self.space.comparisons, rules, known, scanned=self.scanned)
            assert not late.any()
            told = {key.tobytes() for key in found}
            assert not told & {key.tobytes() for key in known}, "only what is new"
            self.evidence.add_keys(found)
        self.checked |= {rule.tobytes() for rule in rules}


@pytest.mark.parametrize("scanned", [10**9, -1])
def test_parts_break_what_does_not_hold_on_the_whole(scanned: int) -> None:
    table = mixed(150)
    space = space_of(table, Options())
    every = find_rules(space)
    first = find_rules(space_of(table.slice(0, 12), Options()))
    assert first.rules.shape != every.rules.shape, "the sample alone knows too little"
    evidence = Evidence(space)
    for number in range(0, 12, 2):
        evidence.add_pairs(np.array([number]), np.array([number + 1]))
    parts = InParts(space, table, evidence, scanned)
    outcome = complete(space, evidence, parts, every.weighed, None, Budget(None), lambda phase, done, total: None)
    assert outcome.exact
    told = [{write_rule(space.rule(np.flatnonzero(rule)).rule) for rule in one.rules} for one in (outcome, every)]
    assert told[0] == told[1]
    assert len(told[0]) > 20


def test_a_part_without_time_decides_nothing() -> None:
    table = mixed(150)
    space = space_of(table, Options(cross=False))
    rules = find_rules(space).rules
    known = np.zeros((0, 1), np.uint64)
    _, late = evidence_against(table, space.comparisons, rules, known, scanned=-1, go_on=lambda: False)
    assert late.all()
    _, late = evidence_against(table, space.comparisons, rules, known, scanned=-1)
    assert not late.any()


def test_shared_values_are_those_of_the_whole_column() -> None:
    chance = np.random.default_rng(1)
    table = pa.table(
        {
            "a": pa.array(chance.integers(0, 20, 200), pa.int64()),
            "b": pa.array([Decimal(int(one)) for one in chance.integers(10, 30, 200)], pa.decimal128(38, 4)),
            "c": pa.array([None if one > 8 else f"x{one}" for one in chance.integers(0, 12, 200)]),
            "d": pa.array([f"x{one}" for one in chance.integers(5, 15, 200)]),
        }
    )
    names, possible = table.column_names, may_meet(types_of(table))
    counted: dict[tuple[int, bytes], Counter[int]] = {}
    for told in counted_values(table.to_batches(max_chunksize=30), names, possible):
        for one in told.to_pylist():
            counted.setdefault((one["family"], one["value"]), Counter())[one["place"]] += one["times"]
    rows = [
        {"family": family, "has": [{"place": p, "times": n} for p, n in has.items()]}
        for (family, _), has in counted.items()
    ]
    (shared,) = shared_values(pa.Table.from_pylist(rows).to_batches(), names, possible)
    for (one, other, _), common in zip(possible, shared["common"].to_pylist(), strict=True):
        ours, theirs = (Counter(v for v in table[name].to_pylist() if v is not None) for name in (one, other))
        assert common == (ours & theirs).total() > 0
    assert [(one, other) for one, other, _ in possible] == [("a", "b"), ("c", "d")]
