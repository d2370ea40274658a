"""The state of a learner as one file: versioned, checksummed, and nothing but data.

It has the rows, which evidences there are with their counts or witnesses, the sets that are watched, and the rules with
their names. Labels and trees are made anew from the rows when it is loaded. Cost: linear in the rows.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from weever_stream.detect.changes import ChangeReader, Orders
from weever_stream.detect.dump import damage_told
from weever_stream.detect.intake import ROW_NUMBER
from weever_stream.detect.sections import Format, ipc, read_container, read_ipc, write_container
from weever_stream.discover.predicates import Comparison
from weever_stream.learn.lattice import ANYTHING
from weever_stream.rules import Column, ColumnType, Op, common_type, schema_of, type_of_name

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from weever_stream.detect.sections import Section
    from weever_stream.learn.keeper import Keeper
    from weever_stream.learn.learner import Learner
    from weever_stream.rules.types import Schema

__all__ = ["VERSION", "dump_learner", "load_learner"]

VERSION = 1
_HINT = "restore the file from a copy, or learn again from the rows"
_FORMAT = Format(b"WEEVERLN", VERSION, "a dump of a learner", _HINT)
_ORDER = "order of the drop"


def dump_learner(learner: Learner, path: Path) -> None:
    """Writes a learner."""
    keeper, held = learner._keeper, learner._held
    ledger = keeper.ledger
    numbers = np.full(keeper.size, -1, np.int64)
    numbers[keeper.alive] = np.arange(len(keeper))
    witnesses = [pair for pairs in ledger.loose.values() for pair in pairs]
    sections: list[tuple[str, Section]] = [
        ("rows", ipc(held.table())),
        ("orders", held.orders[keeper.alive].tobytes()),
        ("drops", ipc(_drops(learner))),
        ("counted", ledger.keys(ledger.counts).tobytes()),
        ("counts", np.array(list(ledger.counts.values()), np.int64).tobytes()),
        ("loose", ledger.keys(ledger.loose).tobytes()),
        ("several", np.array([len(pairs) for pairs in ledger.loose.values()], np.int64).tobytes()),
        ("witnesses", numbers[np.array(witnesses, np.int64).reshape(-1, 2)].tobytes()),
        ("boxes", keeper.boxes.tobytes()),
    ]
    contents = {
        "key": learner.key,
        "max_predicates": learner.max_predicates,
        "comparisons": [
            [one.left.name, one.right.name, [op.value for op in one.ops]] for one in learner._space.comparisons
        ],
        "small": keeper.small,
        "sets": keeper.sets,
        "chosen": keeper.chosen,
        "numbered": learner._numbered,
        **asdict(learner._orders),
        "names": {box.tobytes().hex(): learner._rule(box).name for box in keeper.told()},
    }
    if learner._types:
        contents["types"] = {name: str(kind) for name, kind in learner._types.items()}
    write_container(path, _FORMAT, contents, sections)


def _drops(learner: Learner) -> pa.RecordBatch:
    """Remembered drops: their keys and order."""
    held = learner._held
    named = [field for field in held.schema if field.name in held.key]
    keys = [key if len(named) > 1 else (key,) for key in held.drops]
    columns = [pa.array([_value(key[at], field.type) for key in keys], field.type) for at, field in enumerate(named)]
    orders = pa.array(list(held.drops.values()), pa.int64())
    return pa.RecordBatch.from_arrays([*columns, orders], schema=pa.schema([*named, (_ORDER, pa.int64())]))


def _value(key: Any, kind: pa.DataType) -> Any:
    return float("nan") if pa.types.is_floating(kind) and key == "NaN" else key


def load_learner(kind: type[Learner], path: Path) -> Learner:
    """A learner as it was dumped."""
    with damage_told(str(path), _HINT):
        contents, sections = read_container(path, _FORMAT)
        rows, orders, drops, counted, counts, loose, several, witnesses, boxes = sections
        table = read_ipc(rows).combine_chunks()
        learner = kind.__new__(kind)
        learner.key = tuple(contents["key"])
        learner._types = {name: type_of_name(kind) for name, kind in contents.get("types", {}).items()}
        learner._schema = table.schema
        learner._reader = ChangeReader(table.schema, learner.key or (ROW_NUMBER,), numbered=not learner.key)
        comparisons = _comparisons(contents["comparisons"], schema_of(table.schema))
        learner._start(comparisons, contents["max_predicates"], 0, int(contents["small"]))
        learner._numbered = int(contents["numbered"])
        learner._orders = Orders(int(contents["arrived"]), bool(contents["sequenced"]))
        held, keeper = learner._held, learner._keeper
        batch = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
        if len(orders) != 8 * batch.num_rows:
            raise ValueError("each row has an order")
        change = held.planned(batch, np.frombuffer(orders, np.int64), np.ones(batch.num_rows, np.bool_))
        held.take(change, remember=True)
        if held.size != batch.num_rows:
            raise ValueError("a key stands once")
        gone = read_ipc(drops).combine_chunks()
        empty = gone.to_batches()[0] if gone.num_rows else pa.RecordBatch.from_pylist([], gone.schema)
        held.drops = dict(zip(held._keys(empty), empty.column(_ORDER).to_pylist(), strict=True))
        words = keeper.ledger.words
        for_rows, for_sets = contents["chosen"]
        keeper.restore(
            learner._labelled.label(batch),
            [_set(some, keeper) for some in contents["sets"]],
            (int(for_rows), int(for_sets)),
            dict(zip(_names(counted, words), _positive(counts), strict=True)),
            dict(zip(_names(loose, words), _pairs(witnesses, _positive(several), batch.num_rows), strict=True)),
            _boxes(bytes(boxes), keeper),
        )
        for box, name in contents["names"].items():
            (one,) = _boxes(bytes.fromhex(box), keeper)
            learner._rules[one.tobytes()] = learner._named(one, str(name))
        return learner


def _names(section: Section, words: int) -> list[bytes]:
    return [key.tobytes() for key in np.frombuffer(section, np.uint64).reshape(-1, words)]


def _positive(section: Section) -> list[int]:
    found = np.frombuffer(section, np.int64)
    if (found < 1).any():
        raise ValueError("what is counted is there")
    return list(found.tolist())


def _pairs(section: Section, several: list[int], rows: int) -> list[list[tuple[int, int]]]:
    """The witnesses of each evidence, so many of them."""
    found = np.frombuffer(section, np.int64).reshape(-1, 2)
    if len(found) != sum(several) or (found < 0).any() or (found >= rows).any() or (found[:, 0] == found[:, 1]).any():
        raise ValueError("witnesses are pairs of rows")
    parts = np.split(found, np.cumsum(several)[:-1]) if several else []
    return [[(left, right) for left, right in part.tolist()] for part in parts]


def _set(said: list[int], keeper: Keeper) -> tuple[int, ...]:
    if any(type(at) is not int or not 0 <= at < len(keeper.space.predicates) for at in said):
        raise ValueError("a set is of predicates")
    return tuple(said)


def _boxes(content: bytes, keeper: Keeper) -> NDArray[np.uint8]:
    """Boxes of operators that their comparisons have."""
    width = len(keeper.space.comparisons)
    found = np.frombuffer(content, np.uint8).reshape(len(content) // max(1, width), width).copy()
    for at, one in enumerate(keeper.space.comparisons):
        if not np.isin(found[:, at], [ANYTHING, *(op.value for op in one.ops)]).all():
            raise ValueError("a box is of operators")
    return found


def _comparisons(said: list[tuple[str, str, list[int]]], types: Schema) -> list[Comparison]:
    found = []
    for left, right, ops in said:
        one, other = types[left], types[right]
        assert isinstance(one, ColumnType)
        assert isinstance(other, ColumnType)
        domain = one if left == right else common_type(one, other)
        assert domain is not None
        found.append(Comparison(Column("t", left), Column("s", right), tuple(Op(op) for op in ops), domain))
    return found
