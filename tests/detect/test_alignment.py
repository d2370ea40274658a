"""Where saved arrays lie in memory. Catches: a container whose sections begin where the text before them ends, a reader
whose memory is not aligned itself: the kernels walk arrays that they declare aligned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.detect.containers import Container
from tests.detect.drawn import small_runs
from weever_stream import Detector
from weever_stream.detect.sections import Format, pieces, read_container, unpacked, write_container
from weever_stream.errors import StateError
from weever_stream.state.keeper import Keeper
from weever_stream.state.manifest import Manifest
from weever_stream.state.store import RunStore, StoreOptions

FORM = Format(b"WEEVERXX", 1, "a test", "none")
RULES = ["t.a = s.a and t.c != s.c", "t.n < s.n and t.b > s.b"]
ROWS = [{"id": at, "a": at % 3, "b": -at, "c": "x" * (at % 5), "n": at} for at in range(24)]


def address(section: memoryview | np.ndarray) -> int:
    return int(np.frombuffer(section, np.uint8).ctypes.data) if len(section) else 0


@pytest.mark.parametrize("length", [0, 1, 7, 8, 63, 64, 65])
def test_every_section_of_a_file_begins_at_a_multiple_of_64_bytes(tmp_path: Path, length: int):
    for padding in range(64):
        sections = [("one", bytes(range(length))), ("two", bytes(5)), ("three", bytes(64))]
        write_container(tmp_path / "it", FORM, {"text": "x" * padding}, sections)
        _, found = read_container(tmp_path / "it", FORM)
        assert [bytes(one) for one in found] == [body for _, body in sections]
        assert not any(address(one) % 64 for one in found)
        assert all(one.readonly for one in found)


def test_every_section_of_a_value_in_memory_is_aligned_for_whole_numbers():
    for padding in range(64):
        content = b"".join(pieces(FORM, {"text": "x" * padding}, [("one", bytes(5)), ("two", bytes(8))]))
        start = address(memoryview(content))
        _, found = unpacked(FORM, "it", content)
        assert not any((address(one) - start) % 64 or address(one) % 16 for one in found)


def test_the_arrays_of_a_loaded_detector_are_aligned(tmp_path: Path):
    with small_runs():
        detector = Detector(RULES, key="id")
        for at in range(0, len(ROWS), 8):
            detector.insert(ROWS[at : at + 8])
        for padding in range(64):
            detector.notes["text"] = "x" * padding
            detector.dump(tmp_path / "state")
            loaded = Detector.load(tmp_path / "state", RULES, key="id")
            assert loaded._engine is not None
            runs = loaded._engine[0].forest.runs
            assert runs
            for run in runs:
                arrays = [run.order, *(tree.buffer for tree in run.trees if tree is not None)]
                assert all(array.flags.aligned and not array.ctypes.data % 64 for array in arrays)
                buffers = [buffer for column in run.table.columns for buffer in column.buffers() if buffer]
                assert not any(buffer.address % 8 for buffer in buffers)
        loaded._check()
        assert loaded.counts() == detector.counts()


@pytest.mark.parametrize("inline", [0, 1 << 20])
def test_the_arrays_of_an_opened_shard_are_aligned(tmp_path: Path, inline: int):
    from tests.stream.simulated import Simulation, change_frame, setup_of
    from weever_stream.rules import parse_rule

    schema = pa.schema(
        [("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64()), ("c", pa.string()), ("n", pa.int64())]
    )
    rules = [parse_rule(text, name=f"rule_{at}") for at, text in enumerate(RULES)]
    setup = setup_of(rules, schema, ("id",), tmp_path, shards=1, inline_bytes=inline)
    with small_runs():
        stream = Simulation(setup)
        for at in range(0, len(ROWS), 8):
            stream.batch([change_frame([(1, at, row) for row in ROWS[at : at + 8]], schema)])
        manifest = Manifest.load(stream.states[0], "it")
        keeper = Keeper(
            setup.kept_schema, RunStore(StoreOptions(str(tmp_path))), inline_bytes=0, retain_batches=9, remember_drops=0
        )
        opened = [keeper.open(family, manifest, "it") for family in setup.families]
    arrays = [
        array
        for one in opened
        for run in one.shard.forest.runs
        for array in (run.order, *(tree.buffer for tree in run.trees if tree is not None))
    ]
    assert arrays
    assert all(array.flags.aligned and not array.ctypes.data % (16 if inline else 64) for array in arrays)


def test_blanks_between_sections_that_were_changed_are_refused(tmp_path: Path):
    write_container(tmp_path / "it", FORM, {}, [("one", bytes(5)), ("two", bytes(64))])
    content = bytearray((tmp_path / "it").read_bytes())
    content[-65] ^= 1
    (tmp_path / "it").write_bytes(content)
    with pytest.raises(StateError, match="section 'one' does not check"):
        read_container(tmp_path / "it", FORM)


def test_sections_that_are_not_aligned_are_refused():
    parts = Container(b"WEEVERXX", 1, 0, {}, [])
    table = b'{"sections": [["one", 8, 3111718733]]}'
    with pytest.raises(StateError, match="not aligned"):
        unpacked(FORM, "it", parts.with_table(table) + bytes(64))
