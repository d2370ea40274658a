"""Culprits through routing and shards, without Spark: what a batch broke, whichever shards saw it.

Catches: a row that counts once for each shard that holds it; pairs that only moved and count as new; pairs among the
rows of one batch that do not count; the fill of a new rule that counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.stream.simulated import change_frame, setup_of
from weever_stream.detect.culprits import Culprits
from weever_stream.feeds.changes import DROP, PUT
from weever_stream.learn.drift import Drift, Observation
from weever_stream.rules import parse_rule
from weever_stream.stream.drifting import struck
from weever_stream.stream.routing import Router
from weever_stream.stream.work import ShardWork

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
RULES = {
    "fd": parse_rule("t.a = s.a and t.b != s.b", name="fd"),
    "crossed": parse_rule("t.a = s.b and t.b = s.a and t.id < s.id", name="crossed"),
    "grid": parse_rule("t.a < s.a and t.b > s.b", name="grid"),
    "spread": parse_rule("t.a = s.a and t.b != s.b", name="spread"),
    "alone": parse_rule("t.b > 1000", name="alone"),
}


class Shards:
    """The shards of a job with one rule, and the drift of it."""

    def __init__(self, rule: str, folder: Path) -> None:
        spread = {"spread": 3} if rule == "spread" else {}
        self.setup = setup_of([RULES[rule]], SCHEMA, ["id"], folder, spread=spread, shards=8)
        self.rule, self.states, self.number = rule, dict[int, bytes](), 0
        self.rows: dict[int, dict[str, int]] = {}
        self.drift = Drift({rule: "x"})

    def batch(self, puts: list[tuple[int, int, int]]) -> float:
        """Puts rows, in place of those with their keys; the culprits that are counted."""
        self.number += 1
        changes: list[Any] = []
        for key, a, b in puts:
            if key in self.rows:
                changes.append((DROP, self.number, self.rows[key]))
            self.rows[key] = {"id": key, "a": a, "b": b}
            changes.append((PUT, self.number, self.rows[key]))
        said: list[Any] = []
        bodies: dict[int, list[bytes]] = {}
        for shard, message in Router(self.setup).route(change_frame(changes, SCHEMA)):
            bodies.setdefault(shard, []).append(message.pack())
        for shard, mine in bodies.items():
            culprits, pairs = Culprits(["id"]), list[Any]()
            steps = ShardWork(self.setup).apply(shard, self.number, self.states.get(shard), mine, culprits)
            while True:
                try:
                    piece = next(steps)
                except StopIteration as end:
                    self.states[shard] = end.value.dump()
                    break
                pairs.append([0, piece.sign, piece.moving, piece.pairs])
            said.append({"pairs": pairs, "struck": json.loads(json.dumps(culprits.told()))})
        before = self.counted()
        self.drift.observe(Observation(self.number, len(changes), "", "", struck(said, [self.rule])))
        return round(self.counted() - before, 6)

    def counted(self) -> float:
        watched = self.drift._watched.get(self.rule)
        return sum(watched.buckets.values()) if watched else 0.0


@pytest.mark.parametrize("rule", ["fd", "spread"])
def test_one_wrong_row_counts_once_in_whichever_shards_it_is(rule: str, tmp_path: Path):
    shards = Shards(rule, tmp_path)
    assert shards.batch([(key, 1, 1) for key in range(60)]) == 0
    assert shards.batch([(100, 1, 2), (101, 7, 7)]) == 1
    assert shards.batch([(key, 1, 1) for key in range(60, 70)]) == 0, "they collide with the wrong row, which is known"
    assert shards.batch([(102, 1, 3)]) == 1
    assert shards.batch([(100, 1, 1), (102, 1, 1)]) == 0, "mended"


def test_one_row_out_of_order_counts_once_in_a_grid(tmp_path: Path):
    shards = Shards("grid", tmp_path)
    assert shards.batch([(key, key, key) for key in range(60)]) == 0
    assert shards.batch([(100, 30, -5), (101, 61, 61)]) == 1  # too low for its place: thirty pairs, in several shards


def test_rows_of_two_roles_count_once(tmp_path: Path):
    shards = Shards("crossed", tmp_path)
    assert shards.batch([(key, 1, 2) for key in range(10)]) == 0
    assert shards.batch([(50, 2, 1), (51, 8, 9)]) == 1


def test_rows_alone_are_counted_each(tmp_path: Path):
    shards = Shards("alone", tmp_path)
    assert shards.batch([(1, 1, 1), (2, 1, 2000), (3, 1, 3000), (4, 1, 4)]) == 2
    assert shards.batch([(2, 1, 2001), (4, 1, 5000)]) == 1, "row 2 was wrong before, and is known"


def test_rows_that_break_a_rule_among_themselves_count(tmp_path: Path):
    shards = Shards("fd", tmp_path)
    assert shards.batch([(1, 1, 1), (2, 1, 2), (3, 2, 1), (4, 2, 2), (5, 3, 3)]) == 2


def test_pairs_that_only_move_to_another_shard_are_no_news(tmp_path: Path):
    shards = Shards("fd", tmp_path)
    pairs = 12
    first = [(2 * at + side, at, side) for at in range(pairs) for side in (0, 1)]
    assert shards.batch(first) == pairs
    shards.drift = Drift({"fd": "x"})  # that has seen nothing, so no row is known to it
    assert shards.batch([(key, zip_code + 1000, side) for key, zip_code, side in first]) == 0
