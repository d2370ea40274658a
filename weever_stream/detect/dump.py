"""The state of a shard as one file: versioned, checksummed, and nothing but data.

    magic | version | length of the table of contents | its CRC | table of contents (JSON) | sections

Sections are raw: Arrow IPC for rows, int64 for sequences and trees, roaring's own format for the dead. Each has its
length and CRC-32 in the table of contents, so a torn or changed file is refused with the section's name. The file is
written beside its target and renamed: whole or absent. No pickle.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from weever_stream.detect.run import Run
from weever_stream.detect.shard import Shard, Tally
from weever_stream.errors import OutputError, StateError
from weever_stream.index.tree import Tree
from weever_stream.index.tuples import TupleSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from weever_stream.detect.plan import Plan

__all__ = ["VERSION", "dump_shard", "load_shard"]

VERSION = 1
_MAGIC = b"WEEVERST"
_HEAD = struct.Struct("<8sHHIQ")
"""Magic, version, a reserved zero, CRC of the table of contents, its length."""
_HINT = "restore the file from a copy, or build the state again from the rows"


def _plan_text(plan: Plan) -> list[str]:
    """What must not change between a dump and a load: the rules as they are read, the key, how columns are coded.

    A rule's fingerprint is not enough: it is the same with t and s exchanged, and gates and sides then are not.
    """
    codes = [f"{code.column}:{code.coding.domain}:{code.coding.form}" for code in plan.codes]
    rules = [f"{bound.pairs!r} {bound.left_filter!r} {bound.right_filter!r}" for bound in plan.rules]
    return [*rules, "key", *plan.key, "codes", *codes]


def dump_shard(shard: Shard, path: Path, about: Mapping[str, Any]) -> None:
    """Writes a shard. Its tail becomes a run first. A link stays a link, and no device is ever replaced."""
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OutputError(f"{path} is not a file", hint="name a file to write the state to")
    shard.forest.settle()
    sections: list[tuple[str, bytes]] = [("schema", shard.forest.schema.serialize().to_pybytes())]
    for number, run in enumerate(shard.forest.runs):
        sections += _run_sections(f"run {number}", run)
    contents = {
        "plan": _plan_text(shard.plan),
        "counts": shard.counts,
        "numbered": shard.numbered,
        "tally": asdict(shard.tally),
        "about": dict(about),
        "runs": [{"trees": [tree is not None for tree in run.trees]} for run in shard.forest.runs],
        "sections": [[name, len(body), zlib.crc32(body)] for name, body in sections],
    }
    table = json.dumps(contents).encode()
    beside = path.with_name(path.name + ".tmp")
    try:
        with beside.open("wb") as file:
            file.write(_HEAD.pack(_MAGIC, VERSION, 0, zlib.crc32(table), len(table)) + table)
            for _, body in sections:
                file.write(body)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise OutputError(f"{path} could not be written: {error.strerror}", hint="check its folder and space") from None


def _run_sections(name: str, run: Run) -> list[tuple[str, bytes]]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, run.table.schema) as writer:
        writer.write_batch(run.table)
    sections = [
        (f"{name} rows", sink.getvalue().to_pybytes()),
        (f"{name} order", run.order.tobytes()),
        (f"{name} dead", run.dead.bitmap.serialize()),
    ]
    return sections + [(f"{name} tree", tree.buffer.tobytes()) for tree in run.trees if tree is not None]


def load_shard(path: Path) -> tuple[pa.Schema, dict[str, Any], Callable[[Shard], None]]:
    """The schema and notes of a dump, and a function that fills an empty shard of the same plan from it."""
    with _unreadable(path):
        contents, sections = _read(path)
        parts = iter(sections)
        schema = pa.ipc.read_schema(pa.py_buffer(next(parts)))
        about = dict(contents["about"])

    def fill(shard: Shard) -> None:
        with _unreadable(path):
            fill_unchecked(shard)

    def fill_unchecked(shard: Shard) -> None:
        if _plan_text(shard.plan) != contents["plan"]:
            raise StateError(
                f"{path} was written for other rules, another key or other column types",
                hint="load it with the rules it was written with, or build the state again from the rows",
            )
        for saved in contents["runs"]:
            shard.forest.plant(_run(shard.forest.serial(), parts, saved["trees"]))
        shard.counts, shard.numbered = list(contents["counts"]), int(contents["numbered"])
        shard.tally = Tally(**contents["tally"])
        shard.forget_drops()

    return schema, about, fill


@contextmanager
def _unreadable(path: Path) -> Iterator[None]:
    """Whatever goes wrong with content that no dump has is told as what it is: a damaged file."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration, AssertionError) as error:
        raise StateError(f"{path} is torn or was changed ({type(error).__name__})", hint=_HINT) from None
    except (pa.ArrowException, OSError, EOFError, struct.error):
        raise StateError(f"{path} is torn or was changed: a section cannot be read", hint=_HINT) from None


def _run(serial: int, parts: Any, has_tree: list[bool]) -> Run:
    with pa.ipc.open_stream(pa.py_buffer(next(parts))) as reader:
        table = reader.read_next_batch()
    order = np.frombuffer(next(parts), np.int64)
    dead = TupleSet(len(order), BitMap.deserialize(next(parts)))
    trees = tuple(Tree(np.frombuffer(next(parts), np.int64)) if there else None for there in has_tree)
    return Run(serial, table, order, trees, dead)


def _read(path: Path) -> tuple[dict[str, Any], list[bytes]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}", hint=_HINT) from None
    if len(content) < _HEAD.size or content[:8] != _MAGIC:
        raise StateError(f"{path} is not a dump of a detector", hint=_HINT)
    _, version, reserved, check, length = _HEAD.unpack_from(content)
    if version < 1 or reserved:
        raise StateError(f"{path} is torn or was changed: no release wrote such a head", hint=_HINT)
    if version > VERSION:
        raise StateError(
            f"{path} is of version {version}, and this release reads up to {VERSION}", hint="use a newer release"
        )
    table = content[_HEAD.size : _HEAD.size + length]
    if len(table) < length or zlib.crc32(table) != check:
        raise StateError(f"{path} is torn or was changed: its table of contents does not check", hint=_HINT)
    contents: dict[str, Any] = json.loads(table)
    return contents, _sections(path, content, _HEAD.size + length, contents["sections"])


def _sections(path: Path, content: bytes, at: int, listed: list[tuple[str, int, int]]) -> list[bytes]:
    sections = []
    for name, size, check in listed:
        body = content[at : at + size]
        if len(body) < size or zlib.crc32(body) != check:
            raise StateError(f"{path} is torn or was changed: section {name!r} does not check", hint=_HINT)
        sections.append(body)
        at += size
    if at != len(content):
        raise StateError(f"{path} is torn or was changed: there is something behind its end", hint=_HINT)
    return sections
