"""The state of a shard as one file: versioned, checksummed, and nothing but data.

The file is a container of `sections`: Arrow IPC for rows, int64 for sequences and trees, roaring's own format for the
dead. It is written beside its target and renamed: whole or absent.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from weever_stream.detect.flood import FIRST
from weever_stream.detect.run import Run
from weever_stream.detect.sections import Format, ipc, read_container, write_container
from weever_stream.detect.shard import Shard, Tally
from weever_stream.errors import StateError
from weever_stream.index.tree import Tree
from weever_stream.index.tuples import TupleSet
from weever_stream.rules.writing import write_operand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from weever_stream.detect.plan import Plan
    from weever_stream.detect.sections import Section
    from weever_stream.rules.types import ColumnType

__all__ = ["VERSION", "Loaded", "damage_told", "dump_shard", "load_shard", "plan_text", "run_of", "run_sections"]

VERSION = 1
_HINT = "restore the file from a copy, or build the state again from the rows"
_FORMAT = Format(b"WEEVERST", VERSION, "a dump of a detector", _HINT)


def plan_text(plan: Plan) -> list[str]:
    """What must not change between a dump and a load: the rules as they are read, the key, how columns are coded.

    A rule's fingerprint is not enough: it is the same with t and s exchanged, and gates and sides then are not. Written
    in the rule language, not as Python shows its objects: a later release must find the same text.
    """
    codes = [f"{code.column}:{_type_text(code.coding.domain)}:{code.coding.form}" for code in plan.codes]
    rules = [
        " and ".join(
            f"{write_operand(typed.left)} {typed.op.symbol} {write_operand(typed.right)} as {_type_text(typed.domain)}"
            for typed in (*bound.pairs, *bound.left_filter, *bound.right_filter)
        )
        for bound in plan.rules
    ]
    levels = [f"levels from {FIRST}"] if plan.capped else []
    return [*rules, *levels, "key", *plan.key, "codes", *codes]


def _type_text(kind: ColumnType) -> str:
    return f"{kind} {kind.unit}" if kind.kind in ("timestamp", "timestamp_ntz", "duration") else str(kind)


def dump_shard(shard: Shard, path: Path, about: Mapping[str, Any]) -> None:
    """Writes a shard. Its tail becomes a run first."""
    shard.forest.settle()
    sections: list[tuple[str, Section]] = [("schema", shard.forest.schema.serialize().to_pybytes())]
    for number, run in enumerate(shard.forest.runs):
        rows, order, *trees = run_sections(run)
        parts = [rows, order, ("dead", run.dead.bitmap.serialize()), *trees]
        sections += [(f"run {number} {name}", body) for name, body in parts]
    contents = {
        "plan": plan_text(shard.plan),
        "counts": shard.counts,
        "numbered": shard.numbered,
        "tally": asdict(shard.tally),
        "about": dict(about),
        "runs": [{"trees": [tree is not None for tree in run.trees]} for run in shard.forest.runs],
    }
    write_container(path, _FORMAT, contents, sections)


def run_sections(run: Run) -> list[tuple[str, Section]]:
    """What is fixed in a run: its rows, their order, its trees."""
    sections: list[tuple[str, Section]] = [("rows", ipc(run.table)), ("order", run.order.tobytes())]
    return sections + [("tree", tree.buffer.view(np.uint8).data) for tree in run.trees if tree is not None]


class Loaded(NamedTuple):
    """A dump that was read: its schema and notes, and a function that fills an empty shard of the same plan from it."""

    schema: pa.Schema
    about: dict[str, Any]
    fill: Callable[[Shard], None]


def load_shard(path: Path) -> Loaded:
    """Reads a dump."""
    with damage_told(str(path)):
        contents, sections = read_container(path, _FORMAT)
        parts: Iterator[Section] = iter(sections)
        schema = pa.ipc.read_schema(pa.py_buffer(next(parts)))
        about = dict(contents["about"])

    def fill(shard: Shard) -> None:
        with damage_told(str(path)):
            fill_unchecked(shard)

    def fill_unchecked(shard: Shard) -> None:
        if plan_text(shard.plan) != contents["plan"]:
            raise StateError(
                f"{path} was written for other rules, another key or other column types",
                hint="load it with the rules it was written with, or build the state again from the rows",
            )
        for saved in contents["runs"]:
            rows, order, dead = next(parts), next(parts), next(parts)
            trees = [next(parts) if there else None for there in saved["trees"]]
            shard.forest.plant(run_of(shard.forest.serial(), rows, order, trees, dead))
        shard.counts, shard.numbered = list(contents["counts"]), int(contents["numbered"])
        shard.tally = Tally(**contents["tally"])
        shard.forget_drops()

    return Loaded(schema, about, fill)


@contextmanager
def damage_told(path: str, hint: str = _HINT) -> Iterator[None]:
    """Whatever goes wrong with content that no dump has is told as what it is: a damaged file."""
    try:
        yield
    except StateError as error:
        if path in error.message:
            raise
        raise StateError(f"{path}: {error.message}", hint=error.hint) from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration, AssertionError) as error:
        raise StateError(f"{path} is torn or was changed ({type(error).__name__})", hint=hint) from None
    except (pa.ArrowException, OSError, EOFError, struct.error):
        raise StateError(f"{path} is torn or was changed: a section cannot be read", hint=hint) from None


def run_of(
    serial: int, rows: Section, order: Section, trees: Sequence[Section | None], dead: Section | None = None
) -> Run:
    """A run from its sections and, in roaring's format, its dead."""
    with pa.ipc.open_stream(pa.py_buffer(rows)) as reader:
        table = reader.read_next_batch()
    gone = TupleSet(table.num_rows, BitMap.deserialize(bytes(dead)) if dead is not None else None)
    built = tuple(None if tree is None else Tree(np.frombuffer(tree, np.int64)) for tree in trees)
    orders = np.frombuffer(order, np.int64)
    if len(orders) != table.num_rows or any(tree is not None and tree.n > table.num_rows for tree in built):
        raise ValueError("rows, sequence and trees are of one size")
    return Run(serial, table, orders, built, gone)
