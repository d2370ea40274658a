"""What the operator emits, without Spark. Catches: memory of a worker or the driver that grows with what a batch holds.

Rejects of a batch that meet in one group; pieces that the driver collects without a limit on their sum; a task that
takes a batch without a number for batch 0.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.stream.simulated import change_frame, setup_of
from weever_stream.detect.pairs import unpack_pairs
from weever_stream.detect.sections import read_ipc
from weever_stream.errors import EngineError
from weever_stream.feeds.changes import CHANGE, ORIGIN, PUT, REASON, RECORD, REJECT, SEQUENCE
from weever_stream.rules import parse_rule
from weever_stream.stream import operator
from weever_stream.stream.operator import ASIDE, DELTAS, OUTPUT_COLUMNS, REJECTS, TALLY, router, worker
from weever_stream.stream.routing import Router
from weever_stream.stream.setup import Setup
from weever_stream.stream.work import ShardWork

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("c", pa.large_string())])
MB = 1 << 20


def setup(folder: Path, **options: Any) -> Setup:
    return setup_of([parse_rule("t.a = s.a and t.c != s.c", name="fd")], SCHEMA, ["id"], folder, **options)


def rejected(n: int, size: int) -> pa.RecordBatch:
    """Records that cannot be read."""
    columns = {name: pa.nulls(n, SCHEMA.field(name).type) for name in SCHEMA.names}
    columns |= {CHANGE: pa.repeat(pa.scalar(REJECT, pa.int8()), n), SEQUENCE: pa.repeat(pa.scalar(0, pa.int64()), n)}
    columns |= {REASON: pa.repeat("why", n), ORIGIN: pa.repeat("{}", n), RECORD: pa.repeat("x" * size, n)}
    return pa.record_batch(columns)


def frames_of(shard: int, routed: list[tuple[int, bytes]]) -> Iterator[Any]:
    """What Spark would hand to a group: a frame a body."""
    import pandas as pd

    for to, body in routed:
        if to == shard:
            yield pd.DataFrame({"shard": [to], "body": [body]})


def test_rejects_spread_over_groups_and_no_group_collects_them(tmp_path: Path):
    made = setup(tmp_path, shards=4)
    batches = (rejected(16, MB) for _ in range(8))  # 128 MB
    routed = [(row["shard"], row["body"]) for batch in router(made)(batches) for row in batch.to_pylist()]
    groups = Counter(shard for shard, body in routed if len(body) > MB)
    assert set(groups) == {ASIDE, ASIDE - 1, ASIDE - 2, ASIDE - 3}
    assert max(groups.values()) - min(groups.values()) <= 1
    assert max(len(body) for _, body in routed) < 6 * MB
    rejects, counts = 0, Counter[str]()
    for group in groups:
        read = 0

        def counting(group: int = group) -> Iterator[Any]:
            nonlocal read
            for frame in frames_of(group, routed):
                read += len(frame["body"][0])
                yield frame

        emitted = worker(made)((group,), counting(), None)
        first = next(emitted)
        assert read < 14 * MB, "the group emits before it has read all of its frames"
        for frame in [first, *emitted]:
            for row in frame.to_dict("records"):
                if row["kind"] == REJECTS:
                    rejects += len(read_ipc(row["body"]))
                else:
                    assert (row["kind"], row["shard"], row["collect"]) == (TALLY, ASIDE, True)
                    counts.update(json.loads(row["body"]))
    assert rejects == counts["rejected"] == 128


def pieces_of(made: Setup, rows: list[dict[str, Any]], room: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What one shard emits of a batch of puts, and its tally."""
    changes = change_frame([(PUT, 1, row) for row in rows], SCHEMA)
    bodies = [message.pack() for _, message in Router(made).route(changes)]
    emitting = operator._Emitting(0, room)
    emitted = list(emitting.rows(ShardWork(made).apply(0, 0, None, bodies)))
    return [dict(zip(OUTPUT_COLUMNS, row, strict=True)) for row in emitted], emitting.told()


@pytest.mark.parametrize("size", [3, 20_000])
def test_the_driver_collects_a_bounded_number_of_bytes(tmp_path: Path, size: int):
    """A row of some size that is in many pairs takes little in a piece, and its size with each pair when unpacked."""
    made, groups, room = setup(tmp_path, shards=1), 40, 2 * MB
    rows = [
        {"id": group * 1000 + n, "a": group, "c": ("odd" if n else "same") + "x" * size}
        for group in range(groups)
        for n in range(150 if size > 3 else 900)
    ]
    emitted, tally = pieces_of(made, rows, room)
    assert {row["kind"] for row in emitted} == {DELTAS}
    rule, key = made.rules[0].rule, made.key_names
    unpacked = sum(unpack_pairs(rule, key, "added", row["body"]).nbytes for row in emitted if row["collect"])
    assert unpacked <= 1.5 * room
    assert sum(unpack_pairs(rule, key, "added", row["body"]).nbytes for row in emitted) > 1.5 * room
    assert tally["collect"] is False
    assert [[0, 1, moving, n] for moving, n in ((True, sum(row["pairs"] for row in emitted)),)] == tally["pairs"]


def test_one_long_text_counts_with_every_pair_that_it_is_in(tmp_path: Path):
    """The mean of the rows would say little: one of them is long, and it is in all pairs."""
    made, room = setup(tmp_path, shards=1), 2 * MB
    rows = [{"id": n, "a": 1, "c": "same" if n else "odd" + "x" * 100_000} for n in range(300)]
    emitted, tally = pieces_of(made, rows, room)
    sizes = [unpack_pairs(made.rules[0].rule, made.key_names, "added", row["body"]).nbytes for row in emitted]
    assert sum(sizes) > 10 * room
    assert (tally["collect"], [row for row in emitted if row["collect"]]) == (False, [])


def test_a_small_batch_is_collected_whole(tmp_path: Path):
    emitted, tally = pieces_of(setup(tmp_path, shards=1), [{"id": n, "a": 1, "c": str(n)} for n in range(20)], MB)
    assert [row["collect"] for row in emitted] == [True]
    assert tally == {"pairs": [[0, 1, True, 190]], "collect": True}


def test_a_task_that_belongs_to_no_batch_is_refused(tmp_path: Path):
    """Not batch 0: it would name its files as that batch did, and forget those of all others."""
    made = setup(tmp_path)
    with pytest.raises(EngineError, match="belongs to no micro-batch"):
        list(worker(made)((0,), iter(()), None))
