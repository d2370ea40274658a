"""Rows with too many partners, against a model that knows nothing of the engine.

Catches: a pair that is told as added and never as removed, or the other way round, because a row's level changed or is
read in two ways; counts that drift when floods come, go and come again, when rows are replaced, dropped or move to
another shard, or after state went through bytes; a level that depends on the order of a batch; a hot key that takes
memory or time by the square.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests import oracle
from tests.detect.drawn import RULES, SCHEMA, as_written, small_runs, tiny_samples
from tests.stream.simulated import Simulation, change_frame, setup_of
from tests.stream.test_work import Feed, text_of
from weever_stream.cli.progress import _line
from weever_stream.detect.families import FamilyPlan
from weever_stream.feeds.changes import CHANGE, DROP, ORIGIN, PUT, PUT_ANYWHERE, REASON, RECORD, SEQUENCE
from weever_stream.index import hashing
from weever_stream.rules import Rule, parse_rule
from weever_stream.state.manifest import Manifest
from weever_stream.stream.operator import _tally
from weever_stream.stream.progress import BatchReport, Ledger

EXAMPLES = int(os.environ.get("WEEVER_EXAMPLES", "12"))
PAIRED = sorted(name for name in RULES if not name.startswith("one_row"))


def luck_of(key: int) -> int:
    """Trailing zeros of the lower half of the hash of a key."""
    lower = int(hashing.mix_keys(np.array([[key]], np.int64))[0]) & 0xFFFFFFFF
    return 32 if not lower else (lower & -lower).bit_length() - 1


class Model:
    """Levels by nested loops: what each shard lists, and how many pairs there are."""

    def __init__(self, stream: Simulation, rules: list[Rule], cap: int) -> None:
        self.stream, self.rules, self.cap = stream, rules, cap
        self.levels: dict[tuple[int, int, str, int], int] = {}
        """By family, shard, rule and key."""
        self.rows: dict[int, dict[str, Any]] = {}
        self.lucks: dict[int, int] = {}

    def level(self, degree: int) -> int:
        return max((degree - 1).bit_length(), 1) if degree > self.cap else 0

    def places(self, key: int) -> dict[int, list[tuple[int, int]]]:
        """By family the shards that a row is in, and its roles there."""
        found: dict[int, list[tuple[int, int]]] = {}
        frame = change_frame([(1, 1, self.rows[key])], SCHEMA)
        for shard, message in self.stream.router.route(frame):
            for visit in message.visits.to_pylist():
                found.setdefault(visit["family"], []).append((shard, visit["role"]))
        return found

    def batch(self, table: dict[int, dict[str, Any]], put: set[int]) -> None:
        """The table after a batch that put some keys."""
        self.rows = {key: dict(row) for key, row in table.items()}
        self.lucks |= {key: luck_of(key) for key in self.rows if key not in self.lucks}
        self.pairs = oracle.violations(as_written(self.rules), self.rows.values(), "id")
        where = {key: self.places(key) for key in self.rows}
        self.seen: dict[tuple[int, int, str], list[tuple[int, int]]] = {}
        for family in self.stream.setup.families:
            names = {self.stream.setup.rules[number].rule.name: at for at, number in enumerate(family.rules)}
            for rule, left, right in self.pairs:
                if rule in names:
                    self.meet(family, rule, left, right, where, mirrored=family.mirrored[names[rule]])
        degrees: Counter[tuple[int, int, str, int]] = Counter()
        for (number, shard, rule), pairs in self.seen.items():
            for pair in pairs:
                for key in pair:
                    degrees[number, shard, rule, key] += 1
        living = {
            (family.number, shard, self.stream.setup.rules[rule].rule.name, key)
            for family in self.stream.setup.families
            for rule in family.rules
            for key in self.rows
            for shard, _ in where[key].get(family.number, ())
        }
        self.levels = {place: self.level(degrees[place]) if place[3] in put else self.levels[place] for place in living}

    def meet(
        self, family: FamilyPlan, rule: str, left: int, right: int, where: dict[int, Any], *, mirrored: bool
    ) -> None:
        """Notes in which shards a pair is seen."""
        orders = [(left, right), (right, left)] if mirrored else [(left, right)]
        for t, s in orders:
            for shard, role in where[t].get(family.number, ()):
                for other, other_role in where[s].get(family.number, ()):
                    if shard == other and role & 1 and other_role & 2:
                        self.seen.setdefault((family.number, shard, rule), []).append((t, s))

    def listed(self) -> set[tuple[str, str | None, str | None]]:
        told = set()
        for (number, shard, rule), pairs in self.seen.items():
            for t, s in pairs:
                levels = (self.levels[number, shard, rule, t], self.levels[number, shard, rule, s])
                if self.lucks[s] >= levels[0] and self.lucks[t] >= levels[1] and (rule, t, s) in self.pairs:
                    told.add((rule, text_of(t), text_of(s)))
        return told


def unlisted(stream: Simulation) -> dict[str, int]:
    """As the driver adds it up."""

    class Nowhere:
        def read(self, name: str) -> None:
            return None

    ledger = Ledger(Nowhere(), [bound.rule.name for bound in stream.setup.rules])  # type: ignore[arg-type]
    for shard, state in stream.states.items():
        tally = _tally(stream.setup, Manifest.load(state, "")) | {"bytes": 0, "seconds": 0}
        ledger.take(shard, json.loads(json.dumps(tally)))
    return ledger.unlisted()


@settings(deadline=None, max_examples=EXAMPLES)
@given(
    seed=st.integers(0, 2**32),
    names=st.lists(st.sampled_from(PAIRED), min_size=1, max_size=5, unique=True),
    images=st.booleans(),
    shards=st.sampled_from([1, 2, 4, 9]),
    inline=st.sampled_from([0, 1 << 20]),
    spread=st.booleans(),
    cap=st.sampled_from([1, 2, 3]),
    held=st.sampled_from([0, 1 << 21]),
    many=st.sampled_from([0, 128]),
    small=st.booleans(),
)
@example(  # a run whose only row among the samples is flooded and lucky: it passes all gates, so none are stored
    seed=15597, names=["number_below_float", "no_pair_predicate", "crossed", "crossed_one_way", "no_equality"],
    images=True, shards=9, inline=0, spread=True, cap=1, held=1 << 21, many=128, small=True,
)  # fmt: skip
def test_what_is_listed_and_what_is_counted_are_those_of_the_model(
    tmp_path_factory: pytest.TempPathFactory, seed: int, names: list[str], images: bool, shards: int, inline: int,
    spread: bool, cap: int, held: int, many: int, small: bool,
):  # fmt: skip
    rules = [RULES[name] for name in names]
    with tiny_samples(held, many), small_runs(*((3, 9) if small else (256, 1024))):
        setup = setup_of(
            rules, SCHEMA, ("id",), tmp_path_factory.mktemp("runs"), shards=shards, inline_bytes=inline,
            spread=dict.fromkeys(names, 2) if spread else {}, retain_batches=2, max_pairs=cap,
        )  # fmt: skip
        feed, stream = Feed(seed, images=images), Simulation(setup, check=False)
        model = Model(stream, rules, cap)
        for _ in range(4):
            changes = feed.batch(feed.random.randrange(1, 30))
            if feed.random.random() < 0.2:  # the flood ebbs
                for key in feed.random.sample(sorted(feed.table), k=len(feed.table) * 2 // 3):
                    feed.version += 1
                    changes.append(feed.drop(feed.table.pop(key)))
            if feed.random.random() < 0.3:
                stream.restart()
            cut = feed.random.randrange(len(changes) + 1)
            stream.batch([change_frame(part, SCHEMA) for part in (changes[:cut], changes[cut:]) if part])
            model.batch(feed.table, {row["id"] for _, _, row in changes} & feed.table.keys())
            assert set(stream.open) == model.listed()
            every = Counter(rule for rule, _, _ in model.pairs)
            assert Counter(unlisted(stream)) == every - Counter(rule for rule, _, _ in stream.open)


HOT = pa.schema([("id", pa.int64()), ("zip", pa.int64()), ("city", pa.int64())])
UNIQUE, FD = parse_rule("t.zip = s.zip", name="unique"), parse_rule("t.zip = s.zip and t.city != s.city", name="fd")


def hot_frame(kind: int, sequence: int, ids: Any, city: Any) -> pa.Table:
    """Rows of one zip code."""
    n = len(ids)
    columns = {"id": ids, "zip": np.zeros(n, np.int64), "city": city}
    frame = pa.table({name: pa.array(column) for name, column in columns.items()}, schema=HOT)
    frame = frame.append_column(CHANGE, pa.array(np.full(n, kind, np.int8)))
    frame = frame.append_column(SEQUENCE, pa.array(np.full(n, sequence, np.int64)))
    for name in (REASON, ORIGIN, RECORD):
        frame = frame.append_column(name, pa.nulls(n, pa.string()))
    return frame


def pairs_of(n: int) -> int:
    return n * (n - 1) // 2


def test_one_wrong_row_among_thousands_lists_some_of_its_pairs_and_counts_the_others(tmp_path: Path):
    stream = Simulation(setup_of([FD], HOT, ("id",), tmp_path, shards=1, max_pairs=1000))
    stream.batch([hot_frame(PUT, 1, np.arange(5000), np.zeros(5000, np.int64))])
    assert not stream.open
    assert not unlisted(stream)
    stream.batch([hot_frame(PUT, 2, np.array([5000]), np.array([1]))])
    assert 1 < len(stream.open) < 100
    assert unlisted(stream) == {"fd": 5000 - len(stream.open)}
    stream.batch([hot_frame(PUT_ANYWHERE, 3, np.array([5000]), np.array([0]))])  # it is mended
    assert not stream.open
    assert not unlisted(stream)


def test_what_floods_does_not_depend_on_the_order_of_a_batch(tmp_path: Path):
    ids, told = np.arange(900), []
    for seed in (None, 1, 2):
        setup = setup_of([UNIQUE, FD], HOT, ("id",), tmp_path / str(seed), shards=2, max_pairs=300)
        stream = Simulation(setup, check=False)
        shuffled = ids if seed is None else np.random.default_rng(seed).permutation(ids)
        frame = hot_frame(PUT, 1, shuffled, shuffled % 3)
        stream.batch([frame.slice(0, 300), frame.slice(300)] if seed == 1 else [frame])
        told.append((set(stream.open), unlisted(stream)))
        assert told[-1][1]["unique"] == pairs_of(900) - sum(rule == "unique" for rule, _, _ in stream.open)
    assert told[0] == told[1] == told[2]


def test_the_cap_may_change_and_be_taken_away_and_what_was_told_stays_true(tmp_path: Path):
    ids = np.arange(60)
    stream = Simulation(setup_of([UNIQUE], HOT, ("id",), tmp_path, shards=1, max_pairs=10))
    stream.batch([hot_frame(PUT, 1, ids, ids)])
    listed = len(stream.open)
    assert listed < pairs_of(60)
    for cap, came in ((0, 60), (1000, 61), (5, 62)):
        before = stream
        stream = Simulation(setup_of([UNIQUE], HOT, ("id",), tmp_path, shards=1, max_pairs=cap))
        stream.states, stream.open, stream.batches = before.states, before.open, before.batches
        stream.batch([hot_frame(PUT, came, np.array([came]), np.array([0]))])
        assert unlisted(stream) == {"unique": pairs_of(came + 1) - len(stream.open)}
    stream.batch([hot_frame(DROP, 99, np.arange(63), np.zeros(63, np.int64))])
    assert not stream.open
    assert not unlisted(stream)


def test_without_a_cap_everything_is_listed(tmp_path: Path):
    stream = Simulation(setup_of([UNIQUE], HOT, ("id",), tmp_path, shards=1, max_pairs=0), check=False)
    stream.batch([hot_frame(PUT, 1, np.arange(400), np.zeros(400, np.int64))])
    assert len(stream.open) == pairs_of(400)
    assert not unlisted(stream)


_CHILD = """
import sys
from pathlib import Path
import numpy as np
from benchmarks.children import forget_peak, peak_memory
from tests.stream.test_flood import FD, HOT, UNIQUE, hot_frame, pairs_of, unlisted
from tests.stream.simulated import Simulation, setup_of
from weever_stream.feeds.changes import DROP, PUT

n, shards, spread = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
names = {"unique": spread, "fd": spread} if spread > 1 else {}
setup = setup_of([UNIQUE, FD], HOT, ("id",), Path(sys.argv[1]), shards=shards, spread=names, max_pairs=1000)
stream = Simulation(setup, check=False)
stream.batch([hot_frame(PUT, 1, np.arange(1000), np.zeros(1000, np.int64))])
stream.batch([hot_frame(DROP, 2, np.arange(1000), np.zeros(1000, np.int64))])
forget_peak()
before = peak_memory()
ids = np.arange(n)
stream.batch([hot_frame(PUT, 3, ids, ids % 4)])
listed = {name: sum(rule == name for rule, _, _ in stream.open) for name in ("unique", "fd")}
assert unlisted(stream) == {"unique": pairs_of(n) - listed["unique"], "fd": n * n * 3 // 8 - listed["fd"]}, unlisted(stream)
assert 0 < len(stream.open) < 20_000, len(stream.open)
sizes = {shard: len(state) for shard, state in stream.states.items()}
from weever_stream.state.inspect import held
from weever_stream.state.manifest import Manifest
rows = {}
for line in held({shard: Manifest.load(state, "") for shard, state in stream.states.items()}):
    rows[line.shard] = max(rows.get(line.shard, 0), line.rows)
stream.batch([hot_frame(DROP, 4, ids, ids % 4)])
assert not stream.open and not unlisted(stream)
print(peak_memory() - before, max(rows.values()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("shards", "spread"), [(1, 1), (9, 3)])
def test_a_hot_key_takes_memory_by_its_rows_not_by_their_pairs(tmp_path: Path, shards: int, spread: int):
    n = 100_000
    child = [sys.executable, "-c", _CHILD, str(tmp_path), str(n), str(shards), str(spread)]
    done = subprocess.run(child, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    grown, fullest = map(int, done.stdout.split())
    # 5 * 10^9 pairs would be 40 GB in the cheapest form; a kilobyte for each row and a few million pairs are 300 MB.
    assert 0 < grown < 600
    # Where a key is spread, a shard has a row of the grid and a column of it.
    assert fullest <= n * (1 if spread == 1 else 2 / spread) * 1.05


def test_a_line_of_progress_says_what_is_not_listed():
    report = BatchReport(
        batch=3, position="p", detected_at=datetime(2026, 1, 1), changes=1000, rejected=0, added=5, removed=0,
        open={"unique": 5, "fd": 0}, seconds=1.0, shard_seconds=0.5, unlisted={"unique": 499_495},
    )  # fmt: skip
    assert "+ 499,495 not listed (unique)" in _line(report)
    assert "not listed" not in _line(replace(report, unlisted={}))
