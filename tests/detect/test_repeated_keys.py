"""New rows whose key has a row already: counted, so that a job can warn of a key that is not unique.

Catches: a duplicate that goes unnoticed, in one batch or over two; an update, a row that is deleted and inserted again,
or a row that is read twice, taken for one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from weever_stream.detect.plan import plan
from weever_stream.detect.shard import Shard
from weever_stream.rules import parse_rule
from weever_stream.rules.bind import bind_all
from weever_stream.rules.types import ColumnType, schema_of

PUT, DROP = 1, 0
SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64())])


@pytest.fixture
def shard() -> Shard:
    """A shard that holds the rows 1 and 2 since version 1."""
    rule = parse_rule("t.a = s.a", name="r")
    made = plan(bind_all([rule], schema_of(SCHEMA)), {"id": ColumnType("integer")})
    shard = Shard(made, pa.schema([SCHEMA.field(name) for name in made.columns]))
    put(shard, (1, 1, PUT), (2, 1, PUT))
    assert shard.duplicates == 0
    return shard


def put(shard: Shard, *changes: tuple[int, int, int]) -> None:
    """Applies changes: key, version, and whether it is a put."""
    keys = [key for key, _, _ in changes]
    schema = pa.schema([SCHEMA.field(name) for name in shard.plan.columns])
    table = pa.RecordBatch.from_pydict({"id": keys, "a": keys}, schema)
    order = np.array([2 * version + kind for _, version, kind in changes], np.int64)
    for _ in shard.apply(table, order):
        pass


@pytest.mark.parametrize(
    ("changes", "repeated"),
    [
        ([(3, 2, PUT)], 0),
        ([(1, 2, PUT)], 1),
        ([(1, 1, PUT)], 1),  # another part of the same snapshot
        ([(1, 2, DROP), (1, 2, PUT)], 0),
        ([(1, 2, PUT), (1, 2, DROP), (2, 2, PUT)], 1),
        ([(3, 2, PUT), (3, 2, PUT)], 1),
        ([(3, 2, PUT), (3, 3, DROP), (3, 3, PUT), (3, 4, DROP)], 0),
        ([(1, 2, DROP), (1, 2, PUT), (1, 2, PUT)], 1),
        ([(1, 2, DROP)], 0),
    ],
)
def test_new_rows_of_a_key_that_has_one_are_counted(shard: Shard, changes: list[tuple[int, int, int]], repeated: int):
    put(shard, *changes)
    assert shard.duplicates == repeated


def test_a_snapshot_after_its_backfill_repeats_nothing(shard: Shard):
    shard.backfilled = True
    put(shard, (1, 1, PUT), (3, 1, PUT))
    assert shard.duplicates == 0
    put(shard, (1, 2, PUT))
    assert shard.duplicates == 1
