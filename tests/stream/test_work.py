"""Routing, shards and manifests against the truth, without Spark.

Catches: a row that does not reach a shard where its partner is, or reaches one twice; a pair told twice or not at all
across shards, grids and crossed columns; a row that stays behind when its key moves to another shard; deltas that are
not net; state that differs after it went through bytes, or that depends on what is cached.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import oracle
from tests.detect.drawn import RULES, SCHEMA, VALUES, as_written, small_runs
from tests.stream.simulated import Change, Simulation, change_frame, setup_of
from weever_stream.detect.identity import json_value, plain
from weever_stream.detect.texts import written
from weever_stream.feeds.changes import CLEAR, DROP, DROP_ANYWHERE, PUT, PUT_ANYWHERE
from weever_stream.rules import Rule
from weever_stream.state.manifest import Manifest

ALL = list(RULES.values())


def text_of(key: Any) -> str | None:
    if key is None:
        return None
    return written([json_value(part) for part in key]) if isinstance(key, tuple) else plain(key)


def truth(rules: list[Rule], table: Mapping[Any, Mapping[str, Any]], key: tuple[str, ...]) -> set[tuple[str, Any, Any]]:
    found = oracle.violations(as_written(rules), table.values(), key)
    return {(rule, text_of(left), text_of(right)) for rule, left, right in found}


class Feed:
    """A table that changes at random, and what a feed tells of it: with old rows, or with keys only."""

    def __init__(self, seed: int, *, images: bool, keys: int = 25) -> None:
        self.random = random.Random(seed)
        self.images = images
        self.keys = keys
        self.table: dict[int, dict[str, Any]] = {}
        self.version = 0

    def row(self, key: int) -> dict[str, Any]:
        drawn = {name: self.random.choice([*values, *values, None]) for name, (_, values) in VALUES.items()}
        return {"id": key, "name": f"n{key}", "amount": None, **drawn}

    def batch(self, size: int) -> list[Change]:
        changes: list[Change] = []
        for _ in range(size):
            self.version += 1
            key = self.random.randrange(self.keys)
            old = self.table.get(key)
            if old is not None and self.random.random() < 0.3:
                changes.append(self.drop(old))
                del self.table[key]
                continue
            new = {**old, **dict([self.random.choice([*self.row(key).items()])]), "id": key} if old else self.row(key)
            if old is not None and self.images:
                changes.append((DROP, self.version, old))
            changes.append((PUT if self.images else PUT_ANYWHERE, self.version, new))
            self.table[key] = new
        return changes

    def drop(self, old: Mapping[str, Any]) -> Change:
        return (DROP, self.version, old) if self.images else (DROP_ANYWHERE, self.version, {"id": old["id"]})


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    names=st.lists(st.sampled_from(sorted(RULES)), min_size=1, max_size=8, unique=True),
    images=st.booleans(),
    shards=st.sampled_from([1, 2, 4, 5, 9]),
    inline=st.sampled_from([0, 3000, 1 << 20]),
    spread=st.booleans(),
)
def test_the_open_set_is_the_truth_after_every_batch(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    names: list[str],
    images: bool,
    shards: int,
    inline: int,
    spread: bool,
):
    rules = [RULES[name] for name in names]
    folder = tmp_path_factory.mktemp("runs")
    spreading = dict.fromkeys(names, 2) if spread else {}
    setup = setup_of(
        rules, SCHEMA, ("id",), folder, shards=shards, inline_bytes=inline, spread=spreading, retain_batches=2
    )
    feed, stream = Feed(seed, images=images), Simulation(setup)
    with small_runs():
        for _ in range(5):
            changes = feed.batch(feed.random.randrange(1, 30))
            if feed.random.random() < 0.3:
                stream.restart()
            if feed.random.random() < 0.3:
                feed.random.shuffle(changes)
            cut = feed.random.randrange(len(changes) + 1)
            frames = [change_frame(part, SCHEMA) for part in (changes[:cut], changes[cut:]) if part]
            stream.batch(frames)
            assert set(stream.open) == truth(rules, feed.table, ("id",))
            files = {str(path.relative_to(folder)) for path in folder.rglob("*.run")}
            named = {name for state in stream.states.values() for name in Manifest.load(state, "").files()}
            assert named == files, "every file is named by a manifest, and every name has its file"


def test_a_truncated_table_has_no_violations_and_fills_again(tmp_path: Path):
    rules = [RULES["dependency"], RULES["crossed"], RULES["no_equality"]]
    feed, stream = Feed(7, images=False), Simulation(setup_of(rules, SCHEMA, ("id",), tmp_path, shards=4))
    with small_runs():
        stream.batch([change_frame(feed.batch(60), SCHEMA)])
        assert stream.open
        before = feed.batch(10)
        feed.table.clear()
        feed.version += 1
        clear: list[Change] = [(CLEAR, feed.version, {})]
        stream.batch([change_frame([*before, *clear, *feed.batch(12)], SCHEMA)])
        assert set(stream.open) == truth(rules, feed.table, ("id",))
        assert feed.table


def test_the_same_batch_gives_the_same_bytes(tmp_path: Path):
    setup = setup_of(ALL, SCHEMA, ("id",), tmp_path, shards=3, inline_bytes=2000)
    feed, stream = Feed(3, images=True), Simulation(setup)
    with small_runs():
        for _ in range(4):
            before, frame = dict(stream.states), change_frame(feed.batch(20), SCHEMA)
            told, open_before = stream.batch([frame]), stream.open.copy()
            after = dict(stream.states)
            stream.states, stream.batches = before, stream.batches - 1
            stream.open = stream.open.copy()
            for delta in told:
                stream.open[(delta["rule"], delta["left_key"], delta["right_key"])] += (
                    -1 if delta["change"] == "added" else 1
                )
            stream.open = +stream.open
            stream.restart()
            again = stream.batch([frame])
            assert again == told
            assert stream.states == after
            assert stream.open == open_before
