"""The run store on a local disk: whole files or none, and nothing but what was written.

Catches: a torn, changed, truncated or missing run file that is read, or an error that does not name it; a half-written
file under its name, or one that has its name and may yet be lost with the power; files that stay for ever or go while a
batch that Spark can return to needs them; orphans that are missed, or files of a batch under way that are taken for
orphans.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.detect.drawn import RULES, SCHEMA, small_runs
from tests.stream.simulated import Simulation, change_frame, setup_of
from tests.stream.test_work import Feed
from weever_stream.errors import OutputError, StateError
from weever_stream.state.inspect import orphans, verify
from weever_stream.state.manifest import Manifest
from weever_stream.state.notes import Notes
from weever_stream.state.store import RunStore, StoredFile, StoreOptions

PARTS = [b"one", b"", b"two" * 1000]


def store(folder: Path) -> RunStore:
    return RunStore(StoreOptions(str(folder)))


def test_a_file_is_named_by_its_content_and_read_back(tmp_path: Path):
    runs = store(tmp_path)
    file = runs.write("00001/0000000007-ab", PARTS)
    assert file.name == f"00001/0000000007-ab-{file.crc:08x}.run"
    assert bytes(runs.read(file)) == b"".join(PARTS)
    assert runs.write("00001/0000000007-ab", PARTS) == file, "a task that runs twice writes the same file"
    assert runs.write("00001/0000000007-ab", [b"else"]).name != file.name
    assert [name for name, _, _ in store(tmp_path).listed() if name == file.name] == [file.name]
    assert runs.delete([file.name, file.name, "00001/never.run"]) == [file.name, file.name, "00001/never.run"]


@pytest.mark.parametrize("damage", ["missing", "empty", "shorter", "longer", "flipped", "a folder"])
@pytest.mark.parametrize("reader", ["who wrote it", "another", "who has read it before"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, damage: str, reader: str):
    writer = store(tmp_path)
    file = writer.write("00001/7", PARTS)
    runs = store(tmp_path) if reader == "another" else writer
    if reader == "who has read it before":
        runs.read(file)
    path = tmp_path / file.name
    content = path.read_bytes()
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    elif damage != "missing":
        flipped = bytearray(content)
        flipped[100] ^= 4
        path.write_bytes({"empty": b"", "shorter": content[:-1], "longer": content + b"!", "flipped": flipped}[damage])
    with pytest.raises(StateError) as raised:
        runs.read(file)
    assert file.name in raised.value.message
    assert "restore the file" in (raised.value.hint or "")
    assert "one" not in raised.value.message.replace(file.name, "")


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "00001").write_text("in the way")
    with pytest.raises(OutputError, match=r"the run file 00001/7-.* could not be written"):
        store(tmp_path).write("00001/7", PARTS)

    full = store(tmp_path / "full")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", _no_space)
        with pytest.raises(OutputError, match="No space left"):
            full.write("00002/7", PARTS)
    assert not [path for path in (tmp_path / "full").rglob("*") if path.is_file()]


@pytest.mark.parametrize("what", ["run file", "note"])
def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str):
    """The order is the promise: a machine that loses power in between has the old file or the new one."""
    events: list[tuple[str, int]] = []
    force, replace = os.fsync, Path.replace

    def forced(file: int) -> None:
        force(file)
        events.append(("forced", os.fstat(file).st_ino))

    def named(self: Path, target: Path) -> Path:
        events.append(("named", self.stat().st_ino))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", forced)
    monkeypatch.setattr(Path, "replace", named)
    if what == "run file":
        path = tmp_path / store(tmp_path).write("00001/7", PARTS).name
    else:
        Notes(StoreOptions(str(tmp_path))).write("note.json", {"n": 1})
        path = tmp_path / "note.json"
    file, folder = path.stat().st_ino, path.parent.stat().st_ino
    assert events == [("forced", file), ("named", file), ("forced", folder)]


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_an_unknown_kind_of_store_is_refused():
    with pytest.raises(StateError, match="cannot be opened for run files") as raised:
        RunStore(StoreOptions("gopher://host/runs"))
    assert "state.checkpoint" in (raised.value.hint or "")


def test_files_outlive_the_batches_that_may_be_repeated_and_then_go(tmp_path: Path):
    setup = setup_of([RULES["dependency"]], SCHEMA, ("id",), tmp_path, shards=2, inline_bytes=0, retain_batches=3)
    stream, feed = Simulation(setup, check=False), Feed(2, images=False)
    history: list[dict[int, bytes]] = []
    with small_runs():
        for _ in range(14):
            stream.batch([change_frame(feed.batch(12), SCHEMA)])
            history.append(dict(stream.states))
            stream.restart()
            for states in history[-3:]:  # any of these may be gone back to
                manifests = {shard: Manifest.load(state, "it") for shard, state in states.items()}
                assert not list(verify(manifests, setup.families, stream.work.keeper))
    now = {name for state in stream.states.values() for name in Manifest.load(state, "it").files()}
    before = {name for states in history for state in states.values() for name in Manifest.load(state, "it").files()}
    assert {name for name, _, _ in stream.work.store.listed()} == now
    assert len(before - now) > 3, "the older ones are deleted"


def test_orphans_are_files_that_no_manifest_names_and_no_batch_under_way_can_own(tmp_path: Path):
    setup = setup_of([RULES["dependency"]], SCHEMA, ("id",), tmp_path, shards=2, inline_bytes=0)
    stream, feed = Simulation(setup), Feed(2, images=False)
    with small_runs():
        for _ in range(3):
            stream.batch([change_frame(feed.batch(12), SCHEMA)])
    runs = stream.work.store
    old, young = (runs.write(f"00001/{name}", [name.encode()]) for name in ("old", "young"))
    for path in tmp_path.rglob("*.run"):
        if path.name not in Path(young.name).name:
            os.utime(path, (time.time() - 7200,) * 2)
    manifests = [Manifest.load(state, "it") for state in stream.states.values()]
    assert orphans(manifests, runs, 3600) == [(old.name, 3)]
    assert {name for name, _ in orphans(manifests, runs, -60)} == {old.name, young.name}


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_a_batch_on_damaged_state_fails_with_the_files_name(tmp_path: Path, damage: str):
    setup = setup_of([RULES["dependency"]], SCHEMA, ("id",), tmp_path, shards=1, inline_bytes=0)
    stream, feed = Simulation(setup), Feed(2, images=False)
    with small_runs():
        stream.batch([change_frame(feed.batch(30), SCHEMA)])
        [path] = tmp_path.rglob("*.run")
        if damage == "missing":
            path.unlink()
        else:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        stream.restart()
        before = dict(stream.states)
        with pytest.raises(StateError, match=path.name):
            stream.batch([change_frame(feed.batch(30), SCHEMA)])
        assert stream.states == before
        wrong = list(verify({0: Manifest.load(before[0], "it")}, setup.families, stream.work.keeper))
    assert len(wrong) == 1
    assert path.name in wrong[0][1]


def test_a_run_file_in_the_place_of_another_is_refused(tmp_path: Path):
    runs = store(tmp_path)
    one, other = runs.write("00001/1", [b"1" * 10]), runs.write("00001/2", [b"2" * 10])
    os.replace(tmp_path / one.name, tmp_path / other.name)
    with pytest.raises(StateError, match="is torn or was changed"):
        store(tmp_path).read(StoredFile(other.name, other.length, other.crc))


LIMITED = """
import resource, sys
from pathlib import Path
from weever_stream.state.store import RunStore, StoreOptions
store = RunStore(StoreOptions(sys.argv[1]))
file = store.write("x", [bytes(200 << 20)])
store.read(file)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (50 << 20),) * 2)
try:
    store.read(file)
except MemoryError:
    print("short of memory")
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit is set as Linux counts")
def test_a_file_for_which_there_is_no_memory_is_not_called_damaged(tmp_path: Path):
    child = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(child, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("short of memory\n", 0), done.stderr
